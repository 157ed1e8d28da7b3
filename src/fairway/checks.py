"""Shared checks of arguments: one rule and one error message for each kind of number."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import fields
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeGuard

from fairway.errors import UsageError

MOST = 10**15
"""The largest whole number accepted; the log stores int64."""


def whole(value: Any, name: str, *, least: int = 1, most: int = MOST) -> int:
    """The argument as an int, if it is a whole number from `least` to `most`; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        too_large = most < MOST and is_number(value) and value > most
        allowed = f"of at most {most:,}" if too_large else f"of at least {least}"
        raise UsageError(f"{name}={short(value)}: a whole number {allowed} is expected")
    return int(value)


def number(value: Any, name: str, *, what: str, within: Callable[[Any], bool]) -> float:
    """The argument as a float, if it is a number for which `within` holds; errors call such a number `what`."""
    if not is_number(value) or not within(value):
        raise UsageError(f"{name}={short(value)}: {what} is expected")
    return float(value)


def positive(value: Any, name: str, *, what: str = "number") -> float:
    """The argument as a float, if it is a number above 0; infinity is allowed."""
    return number(value, name, what=f"a positive {what}", within=lambda given: given > 0)


positive_finite = partial(number, what="a positive, finite number", within=lambda given: 0 < given < math.inf)
at_least_zero = partial(number, what="a number of at least 0", within=lambda given: given >= 0)


def fraction(value: Any, name: str, *, ends: Container[float] = ()) -> float:
    """The argument as a float, if it is between 0 and 1; `ends` lists which of 0 and 1 are allowed too."""
    if not is_number(value) or not (0 < value < 1 or value in ends):
        hint = f"; did you mean {value / 100:g}?" if is_number(value) and 1 < value < 100 else ""  # noqa: PLR2004
        raise UsageError(f"{name}={short(value)}: a fraction between 0 and 1 is expected{hint}")
    return float(value)


def confidence(value: Any, name: str = "confidence") -> float:
    """The argument as a float, if it is a fraction of at least 0.5."""
    if fraction(value, name) < 0.5:  # noqa: PLR2004 - below it, a bound lies on the wrong side of the value
        raise UsageError(f"{name}={short(value)}: at least 0.5 is expected, such as 0.95")
    return float(value)


def flag(value: Any, name: str) -> None:
    """Raise a `UsageError` unless the argument is True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}={short(value)}: True or False is expected")


def one_of(value: Any, name: str, *, options: tuple[str, ...]) -> None:
    """Raise a `UsageError` unless the argument is one of the options."""
    if not isinstance(value, str) or value not in options:
        *others, last = map(repr, options)
        raise UsageError(f"{name}={short(value)}: {', '.join(others)} or {last} is expected")


def instance(name: str, given: Any, kind: type[Any], default: Any) -> Any:
    """The argument, if it is an instance of `kind`; the default for None."""
    if given is None:
        return default
    if not isinstance(given, kind):
        hint = f"; did you mean {given.__name__}()?" if isinstance(given, type) else ""
        raise UsageError(f"{name}={short(given)}: a {name} is expected{hint}")
    return given


def checked(check: Callable[..., Any], **rule: Any) -> dict[str, Any]:
    """The metadata of a dataclass field that `check_fields` passes to a check, as in `checked(whole, least=2)`."""
    return {"check": partial(check, **rule)}


def check_fields(owner: Any) -> None:
    """Check the fields of a frozen dataclass; a number that JSON cannot hold, such as numpy's, becomes a plain one."""
    for item in fields(owner):
        value = getattr(owner, item.name)
        if "check" in item.metadata and (value is not None or item.default is not None):
            plain = item.metadata["check"](value, item.name)
            if type(value) not in (bool, int, float, str):
                object.__setattr__(owner, item.name, plain)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a real number that fits a double; NaN and infinity are, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def is_finite(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite real number."""
    return is_number(value) and math.isfinite(value)


def short(value: Any) -> str:
    """A value's repr on one line of at most 80 characters, for an error message."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - whatever its own repr raises
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004
