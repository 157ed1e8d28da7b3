"""The state of a stopper and of a referee as JSON, and back: numbers, texts, lists, and fairway's own small classes.

Reading runs no foreign code: an object is made without calling its class, which must be one that this process has
loaded from fairway's stoppers or engine. An object of another class, such as a stopper of the user's own, is refused.
"""

from __future__ import annotations

import base64
import sys
from array import array
from collections import defaultdict
from functools import partial
from typing import Any

_HOMES = (
    "fairway.stoppers.",
    *("fairway.engine.referee", "fairway.engine.steadiness", "fairway.engine.tracked", "fairway.engine.front"),
)
_PLAIN = (type(None), bool, int, float, str)
_LISTS = {"list": list, "tuple": tuple, "set": set}


class NotPlainError(Exception):
    """A value cannot be written as JSON, or was not written by `to_json`."""


def to_json(value: Any) -> Any:
    """A state as JSON: plain values as they are, everything else as a list that begins with its kind."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind.__name__ in _LISTS and kind is _LISTS[kind.__name__]:
        return [kind.__name__, *map(to_json, value)]
    if kind is array and value.typecode == "d":
        return ["array", base64.b64encode(value.tobytes()).decode()]
    if isinstance(value, dict):
        made = value.default_factory if isinstance(value, defaultdict) else None
        return ["dict", to_json(made), *([to_json(name), to_json(item)] for name, item in value.items())]
    if kind is partial and not value.args:
        return ["partial", to_json(value.func), to_json(value.keywords)]
    if isinstance(value, type):
        return ["class", *_name(value)]
    if isinstance(value, tuple):
        return ["named", *_name(kind), *map(to_json, value)]
    attributes = {name: getattr(value, name) for name in _attributes(value) if hasattr(value, name)}
    return ["object", *_name(kind), to_json(attributes)]


def from_json(data: Any) -> Any:
    """The value that `to_json` wrote; raises `NotPlainError` for anything else."""
    if not isinstance(data, list):
        return data
    kind, *rest = data
    if kind in _LISTS:
        return _LISTS[kind](map(from_json, rest))
    if kind == "array":
        return array("d", base64.b64decode(rest[0]))
    if kind == "dict":
        items = {from_json(name): from_json(item) for name, item in rest[1:]}
        return items if rest[0] is None else defaultdict(from_json(rest[0]), items)
    if kind == "partial":
        return partial(from_json(rest[0]), **from_json(rest[1]))
    if kind not in ("class", "named", "object"):
        raise NotPlainError(f"{kind!r} is no kind of value")
    found = _class(*rest[:2])
    if kind == "class":
        return found
    if kind == "named":
        return tuple.__new__(found, map(from_json, rest[2:]))
    made: Any = object.__new__(found)
    for name, item in from_json(rest[2]).items():
        object.__setattr__(made, name, item)
    return made


def _attributes(value: Any) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*slots, *getattr(value, "__dict__", ())]


def _name(kind: type) -> tuple[str, str]:
    if not kind.__module__.startswith(_HOMES):
        raise NotPlainError(f"{kind.__qualname__} is not fairway's own")
    return kind.__module__, kind.__qualname__


def _class(module: str, name: str) -> type:
    found = getattr(sys.modules.get(module), name, None) if module.startswith(_HOMES) else None
    if not isinstance(found, type) or found.__module__ != module:
        raise NotPlainError(f"{name} of {module} is not fairway's own")
    return found
