"""Shared checks of arguments: one rule and one error message for each kind of number."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from fairway.errors import UsageError

MOST = 10**15
"""The largest whole number accepted; the log stores int64."""


def whole(value: Any, name: str, *, least: int = 1) -> int:
    """The argument as an int, if it is a whole number of at least `least`; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= MOST:
        raise UsageError(f"{name}={_short(value)}: a whole number of at least {least} is expected")
    return int(value)


def positive(value: Any, name: str, *, what: str = "number") -> float:
    """The argument as a float, if it is a number above 0; infinity is allowed."""
    if not is_number(value) or not value > 0:
        raise UsageError(f"{name}={_short(value)}: a positive {what} is expected")
    return float(value)


def fraction(value: Any, name: str, *, ends: bool = False) -> float:
    """The argument as a float, if it is between 0 and 1; `ends` allows 0 and 1 themselves."""
    if not is_number(value) or not (0 <= value <= 1 if ends else 0 < value < 1):
        hint = f"; did you mean {value / 100:g}?" if is_number(value) and 1 < value < 100 else ""  # noqa: PLR2004
        raise UsageError(f"{name}={_short(value)}: a fraction between 0 and 1 is expected{hint}")
    return float(value)


def flag(value: Any, name: str) -> None:
    """Raise a `UsageError` unless the argument is True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}={_short(value)}: True or False is expected")


def is_number(value: Any) -> bool:
    """Whether a value is a real number that fits a double; NaN and infinity are, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def is_finite(value: Any) -> bool:
    """Whether a value is a finite real number."""
    return is_number(value) and math.isfinite(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004
