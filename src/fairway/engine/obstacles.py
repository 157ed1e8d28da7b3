"""Why a study has found nothing within its limits: which limit stands in the way, in a sentence that says what to do.

The report, `fairway show`, `optimize` and the scikit-learn search all say it in these words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fairway import feasibility
from fairway.engine.course import Course
from fairway.problem import Constraint, Problem
from fairway.text import beside, counted, limit_in_words, named


class Obstacle(NamedTuple):
    """What trials say of one limit, by the checkpoint that stands for each."""

    constraint: Constraint
    trials: int  # that measured the objective
    bounds: Sequence[float]  # of those that measured it: what is compared with the limit
    offered: bool  # whether some check was offered, and not worth its price so far

    @property
    def kept(self) -> int:
        """How many trials kept it."""
        return sum(self._over(bound) <= 0.0 for bound in self.bounds)

    @property
    def undefined(self) -> int:
        """How many trials measured it as NaN."""
        return sum(map(math.isnan, self.bounds))

    @property
    def ease(self) -> float:
        """How easily it is kept: the share of trials that kept it, below 0 if none reported it, above 1 if unknown."""
        if not self.bounds:
            return 2.0 if self.offered else -1.0
        return self.kept / len(self.bounds)

    @property
    def nearest(self) -> float:
        """The value nearest to the limit, or furthest within it."""
        return min((bound for bound in self.bounds if not math.isnan(bound)), key=self._over)

    def _over(self, bound: float) -> float:
        return self.constraint.sign * (bound - self.constraint.threshold)

    def __str__(self) -> str:
        """The sentence, without its full stop."""
        metric, wanted, n = named(self.constraint.metric), limit_in_words(self.constraint), len(self.bounds)
        if not self.bounds and self.offered:
            return f"{metric} was never checked: report it in every trial, and run trials to their end"
        if not self.bounds:
            return (
                f"{metric} has a limit and was not reported by any of {counted(self.trials, 'trial')}: report it "
                "beside the objective, or drop the constraint"
            )
        if self.undefined == n:
            return (
                f"{metric} was NaN in all of {counted(n, 'trial')}, and NaN counts as violated: find out why it is "
                "undefined, such as a group without rows, or an error that a confidence needs"
            )
        if not self.kept:
            who = "the only trial" if n == 1 else f"none of {n:,} trials"
            kept = "did not keep it" if n == 1 else "kept it"
            near = beside(self.nearest, self.constraint.threshold)
            return (
                f"{who} that measured {metric} {kept} {wanted}, and {near} came nearest: loosen that limit, widen "
                "the space, or search longer"
            )
        return f"{self.kept:,} of {counted(n, 'trial')} kept {metric} {wanted}, but none of them every other limit too"


def obstacles(problem: Problem, courses: Iterable[Course], saved: Sequence[int] | None = None) -> list[Obstacle]:
    """What trials say of each limit, the one that stands most in the way first.

    `saved` says for each constraint how many checks were offered and not called, where that is known.
    """
    some = [course for course in courses if course.checkpoint is not None]
    offered = [any(course.saved for course in some)] * len(problem.constraints) if saved is None else saved
    bounds: dict[str, list[float]] = {constraint.metric: [] for constraint in problem.constraints}
    for course in some:
        assert course.checkpoint is not None
        for constraint, value, error in feasibility.each_value(problem, course.checkpoint):
            if value is not None:
                bounds[constraint.metric].append(feasibility.bound(constraint, value, error))
    pairs = zip(problem.constraints, offered, strict=True)
    found = [Obstacle(one, len(some), bounds[one.metric], bool(maybe)) for one, maybe in pairs]
    return sorted(found, key=lambda one: one.ease)
