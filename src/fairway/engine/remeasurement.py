"""Second measurements of a checkpoint, made at the end of a run when no other worker runs, and what they change.

Two workers on one machine slow each other down, so a latency measured then is too long, or by luck too short. A
constraint with `alone=True` is measured again at the best checkpoint, or at the nearest one if nothing is feasible
(`fairway.runners.alone`). That is an event of its own, `Remeasured`: the reports stay as they were, and code that reads
them takes the newer values from the ledger's `SecondMeasurements`. Other programs may still use the machine. They can
only make a value worse, so in that case a worse value does not count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from fairway.engine.columns import fitted, widened
from fairway.engine.course import Course, with_reports
from fairway.engine.events import Remeasured, Reported
from fairway.feasibility import Checkpoint, bound, each_value, excess, violation
from fairway.problem import Constraint, Problem
from fairway.text import beside, named, number

_ALONE = "alone"  # how a note begins if nobody else used the machine


class Known(Protocol):
    """What a ledger knows about the trials of a study."""

    @property
    def courses(self) -> Sequence[Course]:
        """Every trial, by number."""

    @property
    def remeasured(self) -> SecondMeasurements:
        """The checkpoints that were measured again."""


def how_measured(metric: str) -> str:
    """The name of the note that says who else used the machine while a trial's metric was measured."""
    return f"{metric}_measured"


def company(course: Course, metric: str) -> str:
    """Who else used the machine while a trial's metric was measured, such as "beside 1 other worker"; empty if nobody.

    >>> company(Course({}, 0, 0.0, notes={"ms_measured": "beside 1 other worker"}), "ms")
    'beside 1 other worker'
    >>> company(Course({}, 0, 0.0, notes={"ms_measured": "alone at step 3: 12, where it was 15 before"}), "ms")
    ''
    """
    return "" if was_alone(course, metric) else str(course.notes.get(how_measured(metric), ""))


def was_alone(course: Course, metric: str) -> bool:
    """Whether a trial's metric was measured again alone, so that its first value does not count."""
    return str(course.notes.get(how_measured(metric), "")).startswith(_ALONE)


def alone_metrics(problem: Problem) -> list[str]:
    """The metrics of the constraints to be measured alone."""
    return [constraint.metric for constraint in problem.constraints if constraint.alone]


def may_fall(problem: Problem, founding: Mapping[str, Any]) -> bool:
    """Whether the best of a study may be found to break its limit: some limit has `alone=True`, or began with it."""
    return bool(alone_metrics(problem)) or any(one.get("alone") for one in founding.get("constraints", ()))


def was_crowded(problem: Problem, known: Known, number: int, step: int) -> bool:
    """Whether a checkpoint has to be measured again: other trials ran beside its own, or a note says so."""
    if (number, step) in known.remeasured.places:
        return False
    course = known.courses[number]
    if any(how_measured(metric) in course.notes for metric in alone_metrics(problem)):
        return True
    others = (other for i, other in enumerate(known.courses) if i != number)
    return any(other.began < course.ended and not other.ended <= course.began for other in others)


def nearest_broken(problem: Problem, known: Known, alone: Collection[str]) -> tuple[int, Checkpoint] | None:
    """The trial and checkpoint nearest to the limits, among those that break only limits that are measured `alone`.

    None if there is none, or if the nearest was measured again and still breaks its limits: the others would too.
    """
    least, nearest = math.inf, None
    again = {place for place, _ in known.remeasured.places}
    for place, course in enumerate(known.courses):
        one = course.checkpoint
        if one is None or course.status in ("running", "failed") or not _breaks_only(problem, one, alone):
            continue
        far = violation(problem.constraints, one.values, one.errors)
        if far and far < least:
            least, nearest = far, None if place in again else (place, one)
    return nearest


def _breaks_only(problem: Problem, one: Checkpoint, metrics: Collection[str]) -> bool:
    """Whether a checkpoint has all limits measured and breaks none except those on some metrics."""
    limits = [each for each in each_value(problem, one) if each[0].has_limit]
    return all(
        value is not None and (constraint.metric in metrics or excess(constraint, value, error) <= 0.0)
        for constraint, value, error in limits
    )


class Twice(NamedTuple):
    """A constraint that was measured twice at one checkpoint.

    >>> import fairway as fw
    >>> print(Twice(fw.AtMost("ms", 60), 55.04, None, 107.1, None, ""))
    ms 107.1 alone, where it was 55.04: over its limit of 60
    >>> print(Twice(fw.AtMost("ms", 60), 55.04, None, 107.1, None, "while others used 1.9 of 2 cores"))
    ms 107.1 while others used 1.9 of 2 cores, where it was 55.04: it keeps 55.04, since others only make it worse
    """

    constraint: Constraint
    was: float
    was_error: float | None
    value: float
    error: float | None
    company: str  # who else used the machine the second time; empty if nobody is known to

    @property
    def counts(self) -> bool:
        """Whether the second value replaces the first; if others used the machine, only if it is no worse."""
        first, second = bound(self.constraint, self.was, self.was_error), bound(self.constraint, self.value, self.error)
        return not self.company or self.constraint.sign * (second - first) <= 0.0

    @property
    def is_broken(self) -> bool:
        """Whether the second value counts and breaks the limit."""
        return self.counts and excess(self.constraint, self.value, self.error) > 0.0

    def note(self, step: int) -> str:
        """The trial's note on a second value that does not count."""
        return f"again at step {step}, {self.company}: {number(self.value)}, so it keeps {number(self.was)}"

    def __str__(self) -> str:
        limit, side = self.constraint.threshold, "over" if self.constraint.sign > 0 else "under"
        margin = ", its margin included" if self.constraint.z else ""
        said = f"{named(self.constraint.metric)} {beside(self.value, limit)} {self.company or _ALONE}, "
        said += f"where it was {number(self.was)}: "
        if not self.counts:
            return said + f"it keeps {number(self.was)}, since others only make it worse"
        return said + f"{side if self.is_broken else 'within'} its limit of {limit:g}{margin}"


def newer(
    event: Remeasured, values: Sequence[float | None], errors: Sequence[float | None]
) -> tuple[tuple[Any, ...], tuple[float | None, ...]]:
    """The values and errors of a checkpoint after its second measurement; no errors if all are unknown."""
    before = zip(values, errors or (None,) * len(values), strict=True)
    rows = zip(before, zip(event.values, event.errors, strict=True), strict=True)
    both = [old if new[0] is None else new for old, new in rows]
    known = tuple(error for _, error in both)
    return tuple(value for value, _ in both), known if any(error is not None for error in known) else ()


class SecondMeasurements:
    """The second measurements in a log.

    An event sums up its whole trial by the limits of its time. To judge such trials by other limits later, list them in
    `again`: their reports are then kept.
    """

    def __init__(self, events: Iterable[Remeasured] = (), *, again: Iterable[int] = ()) -> None:
        self.events = tuple(events)
        self._batches: dict[int, list[Reported]] = {number: [] for number in again}

    @property
    def places(self) -> list[tuple[int, int]]:
        """The trial and step of each second measurement."""
        return [(event.number, event.step) for event in self.events]

    def of(self, number: int) -> list[Remeasured]:
        """The second measurements of one trial."""
        return [event for event in self.events if event.number == number]

    def still(self) -> SecondMeasurements:
        """A snapshot, without the kept reports."""
        return SecondMeasurements(self.events)

    def keep(self, batch: Reported) -> None:
        """Keep a batch of reports if its trial is to be judged again."""
        if batch.number in self._batches:
            self._batches[batch.number].append(batch)

    def add(self, problem: Problem, course: Course, event: Remeasured) -> Course:
        """Add an event; return its trial's course after it."""
        self.events = (*self.events, event)
        batches = self._batches.get(event.number)
        if batches is not None:
            event = with_sums(problem, batches, self.of(event.number))
        event = fitted(event, problem)
        notes = {**course.notes, **_notes(problem, course, event)}
        return replace(course, checkpoint=event.checkpoint, peak=event.peak, late=event.late, notes=notes)

    def corrected(self, problem: Problem, batches: Iterable[Reported]) -> list[Reported]:
        """Reports with the newer values, fitted to the constraints in force."""
        return [fitted(_corrected(batch, self.of(batch.number)), problem) for batch in batches]


def with_sums(problem: Problem, batches: Iterable[Reported], events: Sequence[Remeasured]) -> Remeasured:
    """The last of a trial's second measurements, with the sums of the trial's corrected reports under some limits.

    The sums are the checkpoint that stands for the trial, its peak and its late check. Events have the log's columns.
    """
    course = Course({}, 0, 0.0)
    for batch in batches:
        for name, value in with_reports(problem, course, _corrected(batch, events)).items():
            setattr(course, name, value)
    last = fitted(events[-1], problem)
    return widened(replace(last, checkpoint=course.checkpoint, peak=course.peak, late=course.late), problem)


def _corrected(batch: Reported, events: Sequence[Remeasured]) -> Reported:
    """A batch with the newer values in the rows that measured them first; batch and events have the log's columns."""
    if not any(event.step in batch.step for event in events):
        return batch
    values, errors = batch.values.copy(), batch.error_table()
    for event in events:
        rows = np.flatnonzero(batch.step == event.step)
        for j, (value, error) in enumerate(zip(event.values, event.errors, strict=True)):
            if value is not None and j < values.shape[1]:  # otherwise the limit was added after these reports
                again = rows[batch.check_ns[rows, j] >= 0]
                values[again, j], errors[again, j] = value, np.nan if error is None else error
    found = np.argwhere(~np.isnan(errors))
    table = np.column_stack([found, errors[tuple(found.T)]]) if len(found) else np.empty((0, 3))
    return replace(batch, values=values, errors=table)


def _notes(problem: Problem, course: Course, event: Remeasured) -> Mapping[str, str]:
    """The notes of a trial that was measured again: whether it was alone, and what it had measured before."""
    before, how = course.checkpoint, f"{_ALONE} at step {event.step}"
    if event.company:
        how = f"again at step {event.step}, {event.company}"
    old = (None,) * len(event.values) if before is None or before.step != event.step else before.values
    return {
        how_measured(constraint.metric): f"{how}: {number(value)}"
        + ("" if was is None else f", where it was {number(was)} before")
        for constraint, was, value in zip(problem.constraints, old, event.values, strict=True)
        if value is not None
    }
