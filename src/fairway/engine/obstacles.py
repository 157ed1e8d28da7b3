"""Why a study has found nothing within its limits: which limit stands in the way, in a sentence that says what to do.

The report, `fairway show`, `optimize` and the scikit-learn search all say it in these words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fairway import feasibility
from fairway.engine.course import Course
from fairway.engine.remeasurement import company, was_alone
from fairway.problem import Constraint, Problem
from fairway.text import beside, counted, limit_in_words, named


class Obstacle(NamedTuple):
    """What trials show about one limit, each by the checkpoint that stands for it."""

    constraint: Constraint
    trials: int  # how many measured the objective and did not fail
    bounds: Sequence[float]  # by trial that measured the metric: the number that is compared with the limit
    offered: bool  # whether some check was offered but not worth its price so far
    companies: Sequence[str] = ()  # by trial that measured it while others used the machine: who did
    again: int = 0  # how many trials measured it again, alone, so that the newer value counts
    unknown: Sequence[str] = ()  # metrics of the limits that no trial measured

    @property
    def kept(self) -> int:
        """How many trials kept the limit."""
        return sum(self._over(bound) <= 0.0 for bound in self.bounds)

    @property
    def undefined(self) -> int:
        """How many trials measured the metric as NaN."""
        return sum(map(math.isnan, self.bounds))

    @property
    def ease(self) -> float:
        """How easily the limit is kept: the share of trials that kept it; -1 if none reported it, 2 if unknown."""
        if not self.bounds:
            return 2.0 if self.offered else -1.0
        return self.kept / len(self.bounds)

    @property
    def nearest(self) -> float:
        """The value nearest to the limit, or furthest within it."""
        return min((bound for bound in self.bounds if not math.isnan(bound)), key=self._over)

    @property
    def _cause(self) -> str:
        """The words between a limit that nothing kept and the advice: which trials measured it again, or in company."""
        again = f"; {self._who(self.again)} measured again, alone, and the newer value counts" if self.again else ""
        if not self.companies:
            return f"{again}: "
        kinds = Counter(self.companies)
        company = ("such as " if len(kinds) > 1 else "") + kinds.most_common(1)[0][0]
        return (
            f"{again}; {self._who(len(self.companies))} measured in company ({company}), which can make it worse: "
            "measure on a quiet machine with workers=1, or "
        )

    @property
    def _others(self) -> str:
        """The words about other limits that were not measured, and so may not be kept."""
        if not self.unknown:
            return ""
        verb = "was" if len(self.unknown) == 1 else "were"
        return f"; {' and '.join(map(named, self.unknown))} {verb} not measured there, and may stand in the way too"

    def _who(self, n: int) -> str:
        """The beginning of a sentence about `n` of the trials that measured it."""
        if n == len(self.bounds):
            return "it was" if n == 1 else "all of them were"
        return "1 of them was" if n == 1 else f"{n:,} of them were"

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
                f"{who} that measured {metric} {kept} {wanted}, and {near} came nearest{self._cause}loosen that limit, "
                f"widen the space, or search longer{self._others}"
            )
        return (
            f"{self.kept:,} of {counted(n, 'trial')} kept {metric} {wanted}, but none of them every other limit too: "
            "loosen one of them, widen the space, or search longer"
        )


def obstacles(problem: Problem, courses: Iterable[Course], saved: Sequence[int] | None = None) -> list[Obstacle]:
    """What trials show about each limit, the one that stands most in the way first.

    `saved` says for each constraint how many checks were offered and not called, if that is known.
    """
    some = [course for course in courses if course.checkpoint is not None]
    offered = [any(course.saved for course in some)] * len(problem.constraints) if saved is None else saved
    bounds: dict[str, list[float]] = {constraint.metric: [] for constraint in problem.constraints}
    companies: dict[str, list[str]] = {constraint.metric: [] for constraint in problem.constraints}
    again: Counter[str] = Counter()
    for course in some:
        for constraint, value, error in _values(problem, course):
            if value is not None:
                bounds[constraint.metric].append(feasibility.bound(constraint, value, error))
                again[constraint.metric] += was_alone(course, constraint.metric)
                companies[constraint.metric] += filter(None, [company(course, constraint.metric)])
    pairs = zip(problem.constraints, offered, strict=True)
    ran = sum(course.status != "failed" for course in some)  # a trial whose check raised would have reported it
    unknown = [one.metric for one in problem.limits if not bounds[one.metric]]
    found = [
        Obstacle(one, ran, bounds[one.metric], bool(maybe), companies[one.metric], again[one.metric], unknown)
        for one, maybe in pairs
        if one.has_limit
    ]
    return sorted(found, key=lambda one: one.ease)


def _values(problem: Problem, course: Course) -> Iterator[tuple[Constraint, float | None, float | None]]:
    """Yield each constraint with its value and error at a trial's checkpoint, or else at its late check or its peak."""
    marks = [mark for mark in (course.checkpoint, course.late, course.peak) if mark is not None]
    for of_one in zip(*(feasibility.each_value(problem, mark) for mark in marks), strict=True):
        yield next((each for each in of_one if each[1] is not None), of_one[0])
