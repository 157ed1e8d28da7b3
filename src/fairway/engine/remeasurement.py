"""What a second measurement of a checkpoint changes, made at the end of a run when no other worker runs.

Two workers on one machine slow each other down, so a latency measured then is too long, or by luck too short. A
constraint with `alone=True` is measured again at the best checkpoint, or at the nearest one where nothing is feasible
(`fairway.runners.alone`). That is an event of its own, `Remeasured`: the reports stay as they were, and whoever reads
them takes the newer values from the ledger's `SecondMeasurements`. Other programs may use the machine all the same.
They only ever make a value worse, so a worse one does not count then.
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

_ALONE = "alone"  # how a note begins that says that nobody was there


class Known(Protocol):
    """What a ledger knows of the trials of a study."""

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
    """Whether a trial's metric was measured again with nobody beside it, so that its first value does not count."""
    return str(course.notes.get(how_measured(metric), "")).startswith(_ALONE)


def alone_metrics(problem: Problem) -> list[str]:
    """The constraints that are to be measured alone, by metric."""
    return [constraint.metric for constraint in problem.constraints if constraint.alone]


def may_fall(problem: Problem, founding: Mapping[str, Any]) -> bool:
    """Whether the best of a study may be found to break its limit: some limit is to be measured alone, or was once."""
    return bool(alone_metrics(problem)) or any(one.get("alone") for one in founding.get("constraints", ()))


def was_crowded(problem: Problem, known: Known, number: int, step: int) -> bool:
    """Whether a checkpoint has to be measured again: others ran beside its trial, or its metric says so."""
    if (number, step) in known.remeasured.places:
        return False
    course = known.courses[number]
    if any(how_measured(metric) in course.notes for metric in alone_metrics(problem)):
        return True
    others = (other for i, other in enumerate(known.courses) if i != number)
    return any(other.began < course.ended and not other.ended <= course.began for other in others)


def nearest_broken(problem: Problem, known: Known, alone: Collection[str]) -> tuple[int, Checkpoint] | None:
    """The checkpoint nearest to its limits, and its trial, of those that break only limits that are measured `alone`.

    None if there is none, or if a nearer one was measured again and breaks its limits still: so would this one.
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
    """Whether all limits were measured at a checkpoint, and it breaks none but those of some metrics."""
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
    company: str  # who used the machine the second time; empty if nobody is known to

    @property
    def counts(self) -> bool:
        """Whether the second value takes the place of the first: if others were there, only one that is no worse."""
        first, second = bound(self.constraint, self.was, self.was_error), bound(self.constraint, self.value, self.error)
        return not self.company or self.constraint.sign * (second - first) <= 0.0

    @property
    def is_broken(self) -> bool:
        """Whether the second value counts and breaks the limit."""
        return self.counts and excess(self.constraint, self.value, self.error) > 0.0

    def note(self, step: int) -> str:
        """What the trial's notes say of a second value that does not count."""
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
    """The values and errors of the checkpoint of an event, as they are after it; no errors if all are unknown."""
    before = zip(values, errors or (None,) * len(values), strict=True)
    rows = zip(before, zip(event.values, event.errors, strict=True), strict=True)
    both = [old if new[0] is None else new for old, new in rows]
    known = tuple(error for _, error in both)
    return tuple(value for value, _ in both), known if any(error is not None for error in known) else ()


class SecondMeasurements:
    """What a log says was measured again.

    What an event says of its whole trial is by the limits of its time. To judge `again`, by other limits, trials that
    were measured again, their reports are kept.
    """

    def __init__(self, events: Iterable[Remeasured] = (), *, again: Iterable[int] = ()) -> None:
        self.events = tuple(events)
        self._batches: dict[int, list[Reported]] = {number: [] for number in again}

    @property
    def places(self) -> list[tuple[int, int]]:
        """The trial and step of each."""
        return [(event.number, event.step) for event in self.events]

    def of(self, number: int) -> list[Remeasured]:
        """Those of one trial."""
        return [event for event in self.events if event.number == number]

    def still(self) -> SecondMeasurements:
        """A copy that does not move with this one."""
        return SecondMeasurements(self.events)

    def keep(self, batch: Reported) -> None:
        """Keep reports that are to be judged again."""
        if batch.number in self._batches:
            self._batches[batch.number].append(batch)

    def add(self, problem: Problem, course: Course, event: Remeasured) -> Course:
        """Take in an event: its trial as it is now."""
        self.events = (*self.events, event)
        batches = self._batches.get(event.number)
        if batches is not None:
            event = with_sums(problem, batches, self.of(event.number))
        event = fitted(event, problem)
        notes = {**course.notes, **_notes(problem, course, event)}
        return replace(course, checkpoint=event.checkpoint, peak=event.peak, late=event.late, notes=notes)

    def corrected(self, problem: Problem, batches: Iterable[Reported]) -> list[Reported]:
        """Reports as they count: by the constraints in force, and with the newer values."""
        return [fitted(_corrected(batch, self.of(batch.number)), problem) for batch in batches]


def with_sums(problem: Problem, batches: Iterable[Reported], events: Sequence[Remeasured]) -> Remeasured:
    """The last of a trial's second measurements, with what they make of its reports, by the limits of a problem.

    That is the checkpoint that stands for the trial, its peak and its late check. Events have the log's columns.
    """
    course = Course({}, 0, 0.0)
    for batch in batches:
        for name, value in with_reports(problem, course, _corrected(batch, events)).items():
            setattr(course, name, value)
    last = fitted(events[-1], problem)
    return widened(replace(last, checkpoint=course.checkpoint, peak=course.peak, late=course.late), problem)


def _corrected(batch: Reported, events: Sequence[Remeasured]) -> Reported:
    """A batch with the newer values in the rows that measured them before; all have the log's columns."""
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
