"""Checks that an event from a file has the types and shapes that all other code takes for granted.

A file may be damaged or made by hand. An event that passes here and fits the events before it can be shown, judged and
resumed; any other raises one clear sentence instead of a stray exception far from its cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from fairway.errors import FairwayError, StorageError, UsageError
from fairway.feasibility import Checkpoint

_DEEPEST = 100  # levels of nested lists and mappings
_LARGEST = 2**63  # whole numbers must be below this
_LARGEST_NOTED = 10**4300  # the same in notes, which hold whatever can be written as JSON
_LATEST = 250_000_000_000  # seconds: in the year 9892, near the end of Python's calendar
_STATUSES = ("completed", "stopped", "failed")
_UNFIT = (ArithmeticError, AttributeError, FairwayError, LookupError, RecursionError, TypeError, ValueError)


def check(event: Any) -> None:
    """Raise a `UsageError` if a field of an event has a wrong type or shape."""
    kind = type(event)
    for name, sound in _rules(kind):  # type: ignore[arg-type]
        if not sound(getattr(event, name)):
            raise UsageError(f"{kind.__name__}.{name} is {repr(getattr(event, name))[:40]}")
    if kind.__name__ == "Reported":
        _check_columns(event)


class fitting:  # noqa: N801 - used like a function; a generator would take three times as long, for every event
    """Turn what replaying an event raises into a `StorageError`: the event does not fit those before it."""

    __slots__ = ("_event",)

    def __init__(self, event: Any) -> None:
        self._event = event

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is None or isinstance(error, StorageError) or not isinstance(error, _UNFIT):
            return
        number = getattr(self._event, "number", None)
        of = "" if number is None else f" of trial {number}"
        raise StorageError(
            f"the log has a {type(self._event).__name__}{of} that does not fit what comes before it "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}): it is damaged"
        ) from error


def refuse_other_constraints(event: Any, least: int, most: int) -> None:
    """Raise a `StorageError` unless an event has a number of columns that the study had at some time."""
    right = not hasattr(event, "values") or least <= (np.shape(event.values) or (0,))[-1] <= most
    for one in (event.checkpoint, event.peak, event.late) if hasattr(event, "checkpoint") else ():
        if one is not None:
            right = right and least <= len(one.values) <= most and len(one.errors) in (0, len(one.values))
    if not right:
        raise StorageError(f"the log has other constraints for trial {event.number}: it is damaged")


def _check_columns(event: Any) -> None:
    n = len(event.step)
    for name in ("acts", "step", "objective", "train_ns"):
        if getattr(event, name).shape != (n,):
            raise UsageError(f"Reported.{name} does not have {n} rows")
    if not n or event.values.ndim != 2 or len(event.values) != n or event.check_ns.shape != event.values.shape:  # noqa: PLR2004
        raise UsageError(f"Reported.values and check_ns do not have {n} rows")
    for name in ("noise", "errors", "payments"):
        rows = getattr(event, name)[:, 0]
        if not ((rows >= 0) & (rows < n)).all():
            raise UsageError(f"Reported.{name} is of rows that are not there")
    of = event.errors[:, 1]
    if not ((of >= 0) & (of < event.values.shape[1])).all() or not (abs(event.noise[:, 2:]) < _LARGEST).all():
        raise UsageError("Reported.errors or noise is of what is not there")


@cache
def _rules(kind: type[Any]) -> list[tuple[str, Callable[[Any], bool]]]:
    """A test for each field of a kind of event, chosen by the field's name or its declared type."""
    chosen = [(item.name, _BY_NAME.get(item.name) or _BY_TYPE.get(str(item.type))) for item in fields(kind)]
    return [(name, sound) for name, sound in chosen if sound is not None]


def _is_whole(value: Any) -> bool:
    return type(value) is int and -_LARGEST <= value < _LARGEST


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_whole(value)


def _is_place(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_time(value: Any) -> bool:
    return _is_number(value) and abs(value) <= _LATEST  # false for NaN


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and not _is_deep(value)


def _are_notes(value: Any) -> bool:
    return isinstance(value, Mapping) and not _is_deep(value, largest=_LARGEST_NOTED)


def _are_checkpoints(value: Any) -> bool:
    return value is None or isinstance(value, Checkpoint) and all(map(_is_whole, (value.step, value.folds, value.of)))


def _are_candidates(value: Any) -> bool:
    return isinstance(value, list) and all(len(each) == 5 and all(map(_is_place, each[:2])) for each in value)  # noqa: PLR2004


def _is_evidence(value: Any) -> bool:
    return _is_mapping(value) and all(isinstance(each, Mapping) for each in value.values())


def _are_names(value: Any) -> bool:
    return value is None or isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_rows(value: Any) -> bool:
    return isinstance(value, Sequence)


def _are_limits(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_number(each) and math.isfinite(each) for each in value.values())


def _or_none(sound: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or sound(value)


def _is_deep(value: Any, *, largest: int = _LARGEST) -> bool:
    """Whether lists and mappings are nested too deeply for their readers, or hold too large a whole number."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, list | dict)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, list | dict) or type(inner) is int and not -largest <= inner < largest
        ]
        if any(type(inner) is int for inner in level):
            return True  # too large to be written again
        if not level:
            return False
    return True


_BY_NAME: dict[str, Callable[[Any], bool]] = {
    "number": _or_none(_is_place),
    "worker": _is_place,
    "seen": _or_none(_is_place),
    "certification": _is_place,
    "place": _is_place,
    "at": _is_time,
    "notes": _are_notes,
    "aim": _are_limits,
    "status": lambda value: isinstance(value, str) and value in _STATUSES,
    "candidates": _are_candidates,
    "evidence": _is_evidence,
    "groups": _are_names,
    "change": _is_place,
    "constraints": lambda value: isinstance(value, list) and all(map(_is_mapping, value)),
    "dropped": lambda value: value is not None and _are_names(value),
    "paths": _are_names,
    "continues": _or_none(_is_place),
    "uses": lambda value: _is_place(value) and value > 0,
    "confidence": lambda value: _is_number(value) and 0.0 < value < 1.0 and math.isfinite(value),
}
_BY_TYPE: dict[str, Callable[[Any], bool]] = {
    "int": _is_whole,
    "int | None": _or_none(_is_whole),
    "float": _is_number,
    "str": lambda value: isinstance(value, str),
    "str | None": _or_none(lambda value: isinstance(value, str)),
    "bool": lambda value: isinstance(value, bool),
    "bool | None": _or_none(lambda value: isinstance(value, bool)),
    "Checkpoint | None": _are_checkpoints,
    "tuple[int, float] | None": lambda value: value is None or _is_whole(value[0]),
    "Mapping[str, Any]": _is_mapping,
    "Mapping[str, Value]": _is_mapping,
    "Sequence[int]": _are_rows,
    "Sequence[float]": _are_rows,
    "Sequence[float | None]": _are_rows,
    "Sequence[Sequence[float]]": _are_rows,
    "Sequence[Sequence[float | None]]": _are_rows,
}
