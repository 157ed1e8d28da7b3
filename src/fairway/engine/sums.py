"""The sums of a trial's reports that its end carries, so that readers need not read the reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairway.engine.course import Course
from fairway.engine.events import Reported, Told

_JUDGED = ("checkpoint", "peak", "late")  # these depend on the limits
_COUNTED = ("steps", "last_step", "total", "interval", "train_ns", "check_ns", "checks", "saved", "means", "halfway")
_SUMS = (*_JUDGED, *_COUNTED)
"""The names of the sums, which `Told` and `Course` share."""

_NEWER = frozenset(("means", "late", "last_step", "halfway"))
"""The sums that older ends lack."""

_SAID = ("number", "status", "reason", "at", "worker", "act", "revived", "notes", "traceback")
"""The other fields of an end."""

SPENT = ("checks", "saved", "train_ns", "check_ns")
"""The sums that are added up over all trials."""


def without_sums(told: Told) -> dict[str, Any]:
    """The fields of an end besides the sums of the trial's reports, by name."""
    return {name: getattr(told, name) for name in _SAID}


def summed_end(
    said: Mapping[str, Any], course: Course, batch: Reported | None, added: Mapping[str, Any] | None, *, judged_by: int
) -> Told:
    """The end of a trial: what is `said` of it, and the sums of its reports; `added` has those with its last batch."""
    known = {name: getattr(course, name) if added is None else added[name] for name in _SUMS}
    stopped = course.stop_reason if batch is None else batch.stop_reason
    left = 0 if stopped is None or known["total"] is None else known["total"] - known["last_step"]
    return Told(**said, left=left, by_stopper=stopped is not None, limits=judged_by, **known)


def take_end(course: Course, told: Told, *, judged_by: int) -> None:
    """Apply an end to its trial, except for what it judged by other limits, if the trial's reports are known."""
    course.status, course.reason, course.notes = told.status, told.reason, {**course.notes, **told.notes}
    course.ended, course.traceback = told.at, told.traceback
    judged_otherwise = told.limits != judged_by and course.steps == told.steps
    for name in _COUNTED if judged_otherwise else _SUMS:
        value = getattr(told, name)
        if value or name not in _NEWER:
            setattr(course, name, value)
    course.by_octave, course.lows = {}, {}
