"""The best checkpoints of a study: the best feasible one, and the best whatever its constraints."""

from __future__ import annotations

from collections.abc import Iterable

from fairway import feasibility
from fairway.engine.course import Course, height
from fairway.feasibility import Checkpoint
from fairway.problem import Problem


class Bests:
    """The best checkpoints of the trials that were added; each with the number of its trial."""

    def __init__(self, problem: Problem, trials: Iterable[Course] = ()) -> None:
        self._problem = problem
        self.feasible: tuple[int, Checkpoint] | None = None
        self.ignoring_limits: tuple[int, Checkpoint] | None = None
        for number, course in enumerate(trials):
            self.add(number, course)

    @property
    def place(self) -> tuple[int, int] | None:
        """Trial and step of the best feasible one."""
        return None if self.feasible is None else (self.feasible[0], self.feasible[1].step)

    def add(self, number: int, course: Course) -> None:
        """Compare a trial, as far as it has come, with the best so far."""
        checkpoint, peak = course.checkpoint, course.peak
        if checkpoint is not None and feasibility.known(self._problem, checkpoint) == 0.0:
            found = number, checkpoint
            self.feasible = found if self.feasible is None else min(self.feasible, found, key=self._rank)
        if peak is not None:
            found = number, peak
            most = self.ignoring_limits
            self.ignoring_limits = found if most is None else min(most, found, key=self._peak_rank)

    def _rank(self, one: tuple[int, Checkpoint]) -> tuple[float, int, int]:
        """A key that sorts feasible checkpoints of several trials as the referee does."""
        return self._problem.objective.sign * one[1].objective, one[0], one[1].step

    def _peak_rank(self, one: tuple[int, Checkpoint]) -> tuple[tuple[float, bool], int, int]:
        """A key that sorts the peaks of several trials."""
        return height(self._problem, one[1])[:2], one[0], one[1].step
