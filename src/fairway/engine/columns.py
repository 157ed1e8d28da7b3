"""The columns of a log and the constraints in force: where limits were added or dropped, these are not the same.

A log has a column for each constraint there ever was, in the order in which they came. Whoever replays an event fits
it to the constraints in force (`fitted`); whoever writes one widens it (`widened`). Where no constraint was added or
dropped, both return what they got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairway.engine.events import ABSENT, Remeasured, Reported, Told
from fairway.feasibility import Checkpoint
from fairway.problem import Problem

_Ended = TypeVar("_Ended", Told, Remeasured)
_Written = TypeVar("_Written", Reported, Told, Remeasured)


def fitted(event: _Written, problem: Problem) -> _Written:
    """An event with a column for each constraint in force; what it has no column for was not offered."""
    if not isinstance(event, Reported):
        return _ends(event, problem, len(problem.constraints), places_of(problem))
    if problem.places is None and event.values.shape[1] == len(problem.constraints):
        return event
    return _selected(event, places_of(problem))


def widened(event: _Written, problem: Problem) -> _Written:
    """An event of the constraints in force, with all columns of the log."""
    if problem.places is None:
        return event
    into = _into(problem)
    if isinstance(event, Told | Remeasured):
        return _ends(event, problem, len(problem.columns), into)
    return _selected(event, into)


def stretched(values: Sequence[Any], problem: Problem, missing: Any) -> list[Any]:
    """A value for each constraint in force as one for each column of the log."""
    return [values[j] if j < len(values) else missing for j in _into(problem)]


def _into(problem: Problem) -> list[int]:
    """The constraint of each column; one past the last where its limit was dropped."""
    places = places_of(problem)
    return [places.index(k) if k in places else len(places) for k in range(len(problem.columns))]


def places_of(problem: Problem) -> Sequence[int]:
    """The column of each constraint in force."""
    return range(len(problem.constraints)) if problem.places is None else problem.places


def picked(values: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """The values at some places; None for what is not there."""
    return tuple(values[k] if k < len(values) else None for k in places)


def _ends(event: _Ended, problem: Problem, width: int, places: Sequence[int]) -> _Ended:
    """An end, or what was measured again, with other columns."""
    if isinstance(event, Remeasured) and (problem.places is not None or len(event.values) != width):
        event = replace(event, values=picked(event.values, places), errors=picked(event.errors, places))
    ends = {name: getattr(event, name) for name in ("checkpoint", "peak", "late")}
    if problem.places is None and all(one is None or len(one.values) == width for one in ends.values()):
        return event
    fit = {name: _checkpoint(one, places) for name, one in ends.items()}
    return replace(event, checkpoint=fit["checkpoint"], peak=fit["peak"], late=fit["late"])


def _checkpoint(one: Checkpoint | None, places: Sequence[int]) -> Checkpoint | None:
    if one is None:
        return None
    errors = picked(one.errors, places)
    known = any(error is not None for error in errors)
    return one._replace(values=picked(one.values, places), errors=errors if known else ())


def _selected(event: Reported, places: Sequence[int]) -> Reported:
    """Reports with the columns at some places; those that are not there were not offered."""
    n, width = event.values.shape
    known = [(j, k) for j, k in enumerate(places) if k < width]
    values, check_ns = np.full((n, len(places)), np.nan), np.full((n, len(places)), ABSENT, np.int64)
    for j, k in known:
        values[:, j], check_ns[:, j] = event.values[:, k], event.check_ns[:, k]
    return replace(event, values=values, check_ns=check_ns, errors=_errors(event.errors, {k: j for j, k in known}))


def _errors(errors: NDArray[np.float64], known: dict[int, int]) -> NDArray[np.float64]:
    kept = [(row, known[int(k)], error) for row, k, error in errors.tolist() if int(k) in known]
    return np.array(kept, np.float64).reshape(-1, 3)
