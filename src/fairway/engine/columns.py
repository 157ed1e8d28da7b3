"""Map between the columns of a log and the constraints in force, which differ once a limit was added or dropped.

A log has a column for each constraint that the study ever had, in the order in which they were added. Code that replays
an event fits it to the constraints in force (`fitted`); code that writes one widens it (`widened`). If no constraint
was added or dropped, both return the event unchanged.
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
    """An event with a column for each constraint in force; one that the event lacks counts as not offered."""
    if not isinstance(event, Reported):
        return _ends(event, problem, len(problem.constraints), places_of(problem))
    if problem.places is None and event.values.shape[1] == len(problem.constraints):
        return event
    return _selected(event, places_of(problem))


def widened(event: _Written, problem: Problem) -> _Written:
    """An event with all columns of the log, made from one with the constraints in force."""
    if problem.places is None:
        return event
    into = _into(problem)
    if isinstance(event, Told | Remeasured):
        return _ends(event, problem, len(problem.columns), into)
    return _selected(event, into)


def stretched(values: Sequence[Any], problem: Problem, missing: Any) -> list[Any]:
    """The values of the constraints in force, spread over the columns of the log; `missing` elsewhere."""
    return [values[j] if j < len(values) else missing for j in _into(problem)]


def _into(problem: Problem) -> list[int]:
    """The index of each column's constraint among those in force; one past the last if it was dropped."""
    places = places_of(problem)
    return [places.index(k) if k in places else len(places) for k in range(len(problem.columns))]


def places_of(problem: Problem) -> Sequence[int]:
    """The column of each constraint in force."""
    return range(len(problem.constraints)) if problem.places is None else problem.places


def picked(values: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """The values at some places; None where there is no such place."""
    return tuple(values[k] if k < len(values) else None for k in places)


def _ends(event: _Ended, problem: Problem, width: int, places: Sequence[int]) -> _Ended:
    """The end of a trial, or a second measurement, with other columns."""
    if isinstance(event, Remeasured) and (problem.places is not None or len(event.values) != width):
        event = replace(event, values=picked(event.values, places), errors=picked(event.errors, places))
    ends = event.checkpoint, event.peak, event.late
    if problem.places is None and {len(one.values) for one in ends if one is not None} <= {width}:
        return event
    checkpoint, peak, late = (_checkpoint(one, places) for one in ends)
    return replace(event, checkpoint=checkpoint, peak=peak, late=late)


def _checkpoint(one: Checkpoint | None, places: Sequence[int]) -> Checkpoint | None:
    if one is None:
        return None
    errors = picked(one.errors, places)
    known = any(error is not None for error in errors)
    return one._replace(values=picked(one.values, places), errors=errors if known else ())


def _selected(event: Reported, places: Sequence[int]) -> Reported:
    """Reports with the columns at some places; one that they lack counts as not offered."""
    n, width = event.values.shape
    known = [(j, k) for j, k in enumerate(places) if k < width]
    values, check_ns = np.full((n, len(places)), np.nan), np.full((n, len(places)), ABSENT, np.int64)
    for j, k in known:
        values[:, j], check_ns[:, j] = event.values[:, k], event.check_ns[:, k]
    return replace(event, values=values, check_ns=check_ns, errors=_errors(event.errors, {k: j for j, k in known}))


def _errors(errors: NDArray[np.float64], known: dict[int, int]) -> NDArray[np.float64]:
    kept = [(row, known[int(k)], error) for row, k, error in errors.tolist() if int(k) in known]
    return np.array(kept, np.float64).reshape(-1, 3)
