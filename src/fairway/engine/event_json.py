"""Events as JSON and back. The JSON names the kind of event; reading it runs no code.

Fields that have their default are left out, and a peak or late check that equals the trial's checkpoint is 0. Older
logs lack some fields and name others differently; only this module translates them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from fairway.engine.events import Event, Judged, Remeasured, Reported, Sealed, Surveyed, Tested, Told
from fairway.errors import UsageError
from fairway.feasibility import Checkpoint

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_EMPTY = object()  # stands for defaults that a factory makes for each event: all of them are empty
_RENAMED = {"losses": "times_lost", "verdict": "stop_reason"}  # what the first version called them, and their names now
_COLUMNS = {
    "acts": np.int64,
    "step": np.int64,
    "objective": np.float64,
    "values": np.float64,
    "train_ns": np.int64,
    "check_ns": np.int64,
    "payments": np.int64,
    "noise": np.float64,
    "errors": np.float64,
}
_REPEATING = ("peak", "late")  # these often equal the checkpoint
_OFTEN_EMPTY = ("payments", "noise", "errors")  # these columns are left out if they are empty


def to_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values; numbers that JSON lacks become the strings "nan", "inf" and "-inf"."""
    return {name: _plain(value) for name, value in _content(event).items()}


def to_text(event: Event) -> str:
    """An event as the JSON text of `to_json`.

    >>> from fairway.engine.events import Ended
    >>> to_text(Ended(reason="time is up", at=1.5))
    '{"event":"Ended","reason":"time is up","at":1.5}'
    """
    try:
        return _QUICK.encode(_content(event))
    except (TypeError, ValueError):  # a number that JSON lacks, a mapping that is no dict, or what is not plain
        return _STRICT.encode(to_json(event))


def _content(event: Event) -> dict[str, Any]:
    """The fields of an event that differ from their defaults."""
    kind = type(event)
    names, defaults, values = _FIELDS[kind]
    content = {
        name: value
        for name, default, value in zip(names, defaults, values(event), strict=True)
        if value is not default and (default is not _EMPTY or len(value))
    }
    if kind is Told or kind is Remeasured:
        for name in _REPEATING:
            if name in content and content[name] == content.get("checkpoint"):
                content[name] = 0
    return content


def _fields(kind: type[Any]) -> tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names in an event's JSON, the values that are left out, and a function that gets an event's values."""
    empty = _OFTEN_EMPTY if kind is Reported else ()
    defaults = [
        _EMPTY if item.default_factory is not MISSING or item.name in empty else item.default for item in fields(kind)
    ]
    names = [item.name for item in fields(kind)]
    return ("event", *names), (MISSING, *defaults), attrgetter("__class__.__name__", *names)


_FIELDS = {kind: _fields(kind) for kind in _KINDS.values()}


def from_json(data: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote."""
    try:
        content = dict(data)
        kind = _KINDS[content.pop("event")]
        for old, new in _RENAMED.items():
            if old in content:
                content[new] = content.pop(old)
        if kind is Reported:
            for name, dtype in _COLUMNS.items():
                content[name] = np.array(content.get(name, []) if name in _OFTEN_EMPTY else content[name], dtype)
            content["payments"] = content["payments"].reshape(-1, 3)
            content["noise"] = _of_all(content["noise"])
            content["errors"] = content["errors"].reshape(-1, 3)
        if kind in (Told, Remeasured):
            given = [name for name in ("checkpoint", *_REPEATING) if content.get(name)]
            content |= {name: _checkpoint(*content[name]) for name in given}
            content |= {name: content.get("checkpoint") for name in _REPEATING if content.get(name) == 0}
        if kind is Remeasured:
            content |= {name: _numbers(content[name]) for name in ("values", "errors")}
        if kind is Told:
            content["means"] = {int(folds): float(mean) for folds, mean in content.get("means", {}).items()}
            if content.get("halfway") is not None:
                step, loss = content["halfway"]
                content["halfway"] = int(step), float(loss)
        if kind is Judged:
            content |= {name: float(content[name]) for name in ("value", "threshold")}
            content |= {name: int(content[name]) for name in ("worker", "finished")}
        if kind is Surveyed:
            content["step"] = [int(step) for step in content["step"]]
            content["objective"] = [float(value) for value in content["objective"]]
            content["values"] = [[float(value) for value in row] for row in content["values"]]
            content["errors"] = [_numbers(row) for row in content["errors"]]
        if kind is Sealed:
            content["candidates"] = [
                (*each[:2], float(each[2]), *map(_numbers, each[3:])) for each in content["candidates"]
            ]
            best = content.get("best")
            content["best"] = None if best is None else (int(best[0]), int(best[1]))
        if kind is Tested:
            content["p_values"] = {name: float(p) for name, p in content["p_values"].items()}
        event: Event = kind(**content)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{str(data)[:80]!r}: no event of a fairway log") from error
    return event


def _checkpoint(
    step: Any, objective: Any, values: Any, noise: Any = None, folds: Any = 1, of: Any = None, errors: Any = ()
) -> Checkpoint:
    """A checkpoint from its JSON; older logs lack the errors, the noise, or the total number of folds."""
    of = folds if of is None else of
    spread = None if noise is None else float(noise)
    return Checkpoint(int(step), float(objective), _numbers(values), spread, int(folds), int(of), _numbers(errors))


def _numbers(values: Any) -> tuple[float | None, ...]:
    return tuple(None if value is None else float(value) for value in values)


def _of_all(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """The `noise` column, (k, 4); older logs lack the total number of folds."""
    if noise.ndim == 2 and noise.shape[1] == 3:  # noqa: PLR2004
        return np.column_stack([noise, noise[:, 2]])
    return noise.reshape(-1, 4)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "i" or all(map(math.isfinite, value.ravel().tolist())):  # a ufunc is slow on few
            return value.tolist()
        odd = ~np.isfinite(value)
        plain = value.astype(object)
        plain[odd] = value[odd].astype(str)
        return plain.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_key(name): _plain(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _key(name: Any) -> str:
    return str(name) if isinstance(name, str | int | float) else _refuse(name)


def _refuse(value: Any) -> NoReturn:
    raise TypeError(f"{value!r} is not plain")


# Both refuse numbers that JSON lacks. The first is quick, and knows only dicts and arrays; the second says what is odd.
_QUICK = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"), default=np.ndarray.tolist)
_STRICT = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"), default=_refuse)
