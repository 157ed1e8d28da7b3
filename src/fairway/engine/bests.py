"""The best checkpoints of a study: the best feasible one, and the best by objective alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from fairway import feasibility
from fairway.engine.course import Course, height
from fairway.feasibility import Checkpoint
from fairway.problem import Problem

_Found: TypeAlias = tuple[int, Checkpoint]  # a trial's number and one of its checkpoints


class Bests:
    """The best checkpoints of the trials added so far, each with its trial's number."""

    def __init__(self, problem: Problem, trials: Iterable[Course] = ()) -> None:
        self._problem = problem
        self.feasible: _Found | None = None
        self.ignoring_limits: _Found | None = None
        for number, course in enumerate(trials):
            self.add(number, course)

    @property
    def place(self) -> tuple[int, int] | None:
        """Trial and step of the best feasible checkpoint; None without one."""
        return None if self.feasible is None else (self.feasible[0], self.feasible[1].step)

    def add(self, number: int, course: Course) -> None:
        """Compare a trial's reports so far with the best."""
        checkpoint, peak = course.checkpoint, course.peak
        if checkpoint is not None and self._may_lead(checkpoint, self.feasible) and self._is_feasible(checkpoint):
            self.feasible = _first(self.feasible, (number, checkpoint), self._rank)
        if peak is not None and self._may_lead(peak, self.ignoring_limits):
            self.ignoring_limits = _first(self.ignoring_limits, (number, peak), self._peak_rank)

    def _is_feasible(self, checkpoint: Checkpoint) -> bool:
        return feasibility.known(self._problem, checkpoint) == 0.0

    def _may_lead(self, checkpoint: Checkpoint, best: _Found | None) -> bool:
        """Whether a checkpoint's objective is as good as the best's; most are worse and need no closer look."""
        sign = self._problem.objective.sign
        return best is None or not sign * checkpoint.objective > sign * best[1].objective

    def _rank(self, one: _Found) -> tuple[float, int, int]:
        """A key that sorts feasible checkpoints of several trials as the referee does."""
        return self._problem.objective.sign * one[1].objective, one[0], one[1].step

    def _peak_rank(self, one: _Found) -> tuple[tuple[float, bool], int, int]:
        """A key that sorts the peaks of several trials."""
        return height(self._problem, one[1])[:2], one[0], one[1].step


def _first(best: _Found | None, found: _Found, key: Callable[[_Found], Any]) -> _Found:
    return found if best is None else min(best, found, key=key)
