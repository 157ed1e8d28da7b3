"""The sums of a trial's reports that its end carries, so that readers need not read the reports."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from fairway.engine.course import Course
from fairway.engine.events import Reported, Status, Told

_JUDGED = ("checkpoint", "peak", "late")  # these depend on the limits
_COUNTED = ("steps", "last_step", "total", "interval", "train_ns", "check_ns", "checks", "saved", "means", "halfway")
_SUMS = (*_JUDGED, *_COUNTED)
"""The names of the sums, which `Told` and `Course` share."""

_sums_of = attrgetter(*_SUMS)

_NEWER = frozenset(("means", "late", "last_step", "halfway"))
"""The sums that older ends lack."""

SPENT = ("checks", "saved", "train_ns", "check_ns")
"""The sums that are added up over all trials."""


class Outcome(NamedTuple):
    """How a trial ended: the fields of `Told` that do not follow from the trial's reports."""

    number: int
    status: Status
    reason: str
    at: float
    worker: int
    act: int
    revived: bool = False
    notes: Mapping[str, Any] = {}
    traceback: str = ""

    @classmethod
    def of(cls, told: Told) -> Outcome:
        """The outcome that an end tells of."""
        return cls(*(getattr(told, name) for name in cls._fields))


def summed_end(
    outcome: Outcome, course: Course, batch: Reported | None, added: Mapping[str, Any] | None, *, judged_by: int
) -> Told:
    """The end of a trial: its outcome and the sums of its reports; `added` has the sums with its last batch."""
    sums = added or dict(zip(_SUMS, _sums_of(course), strict=True))
    known = {name: sums[name] for name in _SUMS}
    stopped = course.stop_reason if batch is None else batch.stop_reason
    left = 0 if stopped is None or known["total"] is None else known["total"] - known["last_step"]
    return Told(**outcome._asdict(), left=left, by_stopper=stopped is not None, limits=judged_by, **known)


def take_end(course: Course, told: Told, *, judged_by: int) -> None:
    """Apply an end to its trial, except for what it judged by other limits, if the trial's reports are known."""
    course.status, course.reason, course.notes = told.status, told.reason, {**course.notes, **told.notes}
    course.ended, course.traceback = told.at, told.traceback
    sums = _sums_of(told)
    if sums != _sums_of(course):  # not all of its reports are known here, or they were judged by other limits
        judged_otherwise = told.limits != judged_by and course.steps == told.steps
        for name, value in zip(_SUMS, sums, strict=True):
            if (value or name not in _NEWER) and not (judged_otherwise and name in _JUDGED):
                setattr(course, name, value)
    course.by_octave, course.lows = {}, {}
