"""The checkpoints to test for a certificate, the order of the tests and their results, all derived from the log.

Fixed-sequence testing (Learn then Test, Angelopoulos et al., 2021; along a front: Pareto Testing, Laufer-Goldshtein et
al., 2023): candidates are put in an order before the fresh rows are looked at, and each is tested at the full level
until one fails. All that passed keep their limits with the requested confidence, so the best of them may be chosen.

The order goes from safe to bold. The safety of a checkpoint is the number of errors between its value and the limit, on
the rows that the search judged by; with several limits, the smallest counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairway.engine.columns import fitted, picked, places_of
from fairway.engine.events import Event, Remeasured, Reported, Sealed, Surveyed, Tested, Told
from fairway.engine.remeasurement import newer
from fairway.errors import StorageError, UsageError
from fairway.measured import quantile
from fairway.problem import Constraint, Problem

if TYPE_CHECKING:
    from fairway.evidence import Evidence

_HOPELESS = 0.05  # a candidate with a lower chance is not worth its test
_CERTAIN = 0.995  # of the candidates with a higher chance, only the best is tested
_BEYOND = 1e6  # stands for the infinite safety of an exact value
_USELESS, _ENOUGH = 0.9, 10  # leave out models worse than this share of the trials, once there are this many trials
_LIKELY = 0.8  # a trial that can give only one candidate gives the boldest with this chance
_STRICTEST, _LAXEST = 1e-3, 0.5  # the range of levels that certificates are expected to use
_KEPT = 20  # the most candidates whose models are kept during a search
_UNKNOWN_ERROR = 0.1  # assumed for a value that came without an error, in the constraint's unit


class Candidate(NamedTuple):
    """A checkpoint that was measured on the rows the search judged by."""

    number: int
    step: int
    objective: float
    values: tuple[float, ...]
    errors: tuple[float | None, ...]


def level_of(confidence: float, uses: int) -> float:
    """The p-value that a candidate must not exceed; certifications that use the same rows share 1 - confidence."""
    return (1.0 - confidence) / uses


def safety(problem: Problem, values: Sequence[float], errors: Sequence[float | None]) -> float:
    """The number of errors between a checkpoint's value and its limit; with several limits, the smallest.

    >>> import fairway as fw
    >>> problem = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.10)])
    >>> round(safety(problem, [0.07], [0.01]), 6)
    3.0
    """
    columns = zip(problem.constraints, values, errors or (None,) * len(values), strict=True)
    return min((_safety(*column) for column in columns if column[0].has_limit), default=math.inf)


def _safety(constraint: Constraint, value: float, error: float | None) -> float:
    room = constraint.sign * (constraint.threshold - value)
    error = _UNKNOWN_ERROR * constraint.unit if error is None else error
    if math.isnan(room):
        return -math.inf
    return room / error if error else math.copysign(math.inf, room)


def chance(safety: float, level: float) -> float:
    """The estimated chance that a candidate passes its test, on as many fresh rows as the search judged by.

    The values on the fresh rows and on the judging rows differ by a standard deviation of sqrt(2) errors. A candidate
    passes if its value on the fresh rows is at least z errors within the limit.

    >>> round(chance(1.645, 0.05), 2), round(chance(4.0, 0.05), 2)
    (0.5, 0.95)
    """
    return NormalDist().cdf((safety - quantile(1.0 - level)) / math.sqrt(2.0))


def candidates(problem: Problem, events: Iterable[Event], *, at_most: int, level: float) -> list[Candidate]:
    """The checkpoints to test, in order: the promising part of the front, from safe to bold."""
    measured, several = _measured(problem, events)
    front = _front(problem, measured, level)
    return [each.candidate for each in _spread(_one_each(front, several, level), at_most)]


def promising(problem: Problem, events: Iterable[Event], *, level: float) -> list[Candidate]:
    """The promising part of the front as measured so far, from safe to bold."""
    measured, _ = _measured(problem, events)
    return [each.candidate for each in _front(problem, measured, level)]


def worth_keeping(problem: Problem, measured: Iterable[Candidate]) -> list[Candidate]:
    """The checkpoints that may become candidates at some confidence; at most `_KEPT`."""
    return [each.candidate for each in _spread(_front(problem, measured, _LAXEST, _STRICTEST), _KEPT)]


def _front(
    problem: Problem, measured: Iterable[Candidate], level: float, strictest: float | None = None
) -> list[_Placed]:
    """The front of objective and safety, from safe to bold, without hopeless or needlessly safe checkpoints.

    For a range of levels, `level` is the highest and `strictest` the lowest: whatever one of them would keep is kept.
    """
    sign, front = problem.objective.sign, list[_Placed]()
    placed = [_Placed(safety(problem, one.values, one.errors), one) for one in measured]
    for each in sorted(placed, key=lambda each: (sign * each.candidate.objective, -each.safety, each.candidate[:2])):
        if not front or each.safety > front[0].safety:
            front.insert(0, each)
    hopeful = [each for each in front if chance(each.safety, level) >= _HOPELESS] or front[:1]
    certain = sum(chance(each.safety, strictest or level) > _CERTAIN for each in hopeful)
    return hopeful[max(certain - 1, 0) :]


class _Placed(NamedTuple):
    safety: float
    candidate: Candidate


def _measured(problem: Problem, events: Iterable[Event]) -> tuple[list[Candidate], set[int]]:
    """The checkpoints with all constraints measured, and the trials that can give several models.

    A model that is worse than nine of ten trials may be safe because it is useless. It is left out, unless no
    better one is within the limits.
    """
    found: dict[tuple[int, int], Candidate] = {}
    several, peaks = set[int](), dict[int, float]()  # the best objective of each trial that did not fail

    def add(number: int, step: int, objective: float, values: Sequence[float], errors: Sequence[float | None]) -> None:
        found[number, step] = Candidate(number, step, objective, tuple(values), tuple(errors))

    places = places_of(problem)
    for event in events:
        if isinstance(event, Reported):
            event = fitted(event, problem)  # noqa: PLW2901
            table = event.error_table()
            for i in np.flatnonzero((event.check_ns >= 0).all(axis=1) & ~event.provisional):
                errors = [None if math.isnan(error) else error for error in table[i].tolist()]
                add(event.number, int(event.step[i]), float(event.objective[i]), event.values[i].tolist(), errors)
        elif isinstance(event, Surveyed):
            several |= {event.number} if event.cuts else set()
            for row in zip(event.step, event.objective, event.values, event.errors, strict=True):
                known = picked(row[2], places)
                if None not in known:  # otherwise a limit was added later
                    add(event.number, *row[:2], known, picked(row[3], places))
        elif isinstance(event, Remeasured) and (event.number, event.step) in found:
            old = found[event.number, event.step]
            add(*old[:3], *newer(fitted(event, problem), old.values, old.errors))
        elif isinstance(event, Told) and event.status != "failed" and event.peak is not None:
            peaks[event.number] = event.peak.objective
    sign = problem.objective.sign
    measured = [one for one in found.values() if one.number in peaks]
    bar = np.quantile(sign * np.array([*peaks.values()]), _USELESS) if len(peaks) >= _ENOUGH else math.inf
    useful = [one for one in measured if sign * one.objective <= bar]
    hold = any(safety(problem, one.values, one.errors) >= 0.0 for one in useful)
    return useful if hold else measured, several


def _one_each(front: Sequence[_Placed], several: set[int], level: float) -> list[_Placed]:
    """The front with one checkpoint of each trial that can give only one: the boldest likely one, or the safest."""
    chosen: dict[int, _Placed] = {}
    for each in front:
        number = each.candidate.number
        if number not in chosen or chance(each.safety, level) >= _LIKELY:
            chosen[number] = each
    return [each for each in front if each.candidate.number in several or chosen[each.candidate.number] is each]


def _spread(front: list[_Placed], at_most: int) -> list[_Placed]:
    """At most `at_most` members of a front, spread evenly over its range of safety."""
    if len(front) <= at_most:
        return front
    known = np.array([min(each.safety, _BEYOND) for each in front])
    wanted = np.linspace(known[0], known[-1], at_most)
    return [front[i] for i in sorted({int(np.argmin(np.abs(known - each))) for each in wanted})]


@dataclass
class Certification:
    """One sequence of tests, with the results so far."""

    sealed: Sealed
    tests: list[Tested] = field(default_factory=list)
    limits: int = 0  # how often the limits had changed when it was sealed
    best: tuple[int, int] | None = None  # trial and step of the study's best when it was sealed

    @property
    def level(self) -> float:
        """The p-value that a candidate must not exceed."""
        return level_of(self.sealed.confidence, self.sealed.uses)

    def passes(self, test: Tested) -> bool:
        """Whether a candidate passed the test of every limit: the largest p-value decides. NaN does not pass."""
        return all(p <= self.level for p in test.p_values.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to test."""
        return len(self.tests) == len(self.sealed.candidates) or bool(self.tests) and not self.passes(self.tests[-1])

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates, in the order of their tests."""
        return [Candidate(*each) for each in self.sealed.candidates]

    def add(self, test: Tested) -> None:
        """Add the next test."""
        if test.place != len(self.tests) or self.is_over:
            raise StorageError(
                f"the log tests candidate {test.place} of certification {test.certification}, "
                "which is not due: it is damaged"
            )
        self.tests.append(test)


def seal(known: list[Certification], event: Sealed, *, limits: int, best: tuple[int, int] | None) -> None:
    """Add the certification that an event seals; `best` is the study's best then, which older logs do not say."""
    if event.certification != len(known):
        raise StorageError(f"the log seals certification {event.certification}, which is not due: it is damaged")
    known.append(Certification(event, limits=limits, best=event.best or best))


def take_test(
    known: Sequence[Certification], event: Tested, limits_of: Callable[[Certification], Sequence[Constraint]]
) -> None:
    """Add a test to its certification; the test must cover each of its limits."""
    if event.certification >= len(known):
        raise StorageError(f"the log tests for certification {event.certification}, never sealed: it is damaged")
    certification = known[event.certification]
    missing = {one.metric for one in limits_of(certification)} - (event.evidence.keys() & event.p_values.keys())
    if missing:
        raise StorageError(
            f"the log tests for certification {event.certification} without {', '.join(sorted(missing))}: it is damaged"
        )
    certification.add(event)


def latest(certifications: Sequence[Certification]) -> Certification | None:
    """The last certification with at least one test; None if there is none."""
    return next((one for one in reversed(certifications) if one.tests), None)


def stands(certified: Sequence[Constraint], problem: Problem) -> bool:
    """Whether a certificate covers the limits of a problem: each was certified, and none is tighter now.

    >>> import fairway as fw
    >>> stands([fw.AtMost("eod", 0.10)], fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.12)]))
    True
    """
    then = {one.metric: one for one in certified}
    return all(
        now.metric in then and now.sign * (now.threshold - then[now.metric].threshold) >= 0.0 for now in problem.limits
    )


def check_rows(evidence: Evidence, constraint: Constraint, level: float) -> None:
    """Raise a `UsageError` if no outcome on so few rows could certify the limit."""
    least = evidence.least_p(constraint)
    if least > level:
        raise UsageError(
            f"{evidence.rows} fresh rows are too few for the limit on {constraint.metric}: whatever they say, p is at "
            f"least {least:.2g}, and {level:.2g} is needed; certify on more rows"
        )


def p_values(problem: Problem, evidence: Mapping[str, Mapping[str, object]]) -> dict[str, float]:
    """The p-value of each limit, from the evidence that the log keeps."""
    from fairway.evidence import from_json  # noqa: PLC0415 - scipy takes its time to load

    return {each.metric: from_json(evidence[each.metric]).p_value(each) for each in problem.limits}
