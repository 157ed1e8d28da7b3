"""The kinds of parameter, and how each maps its values to a coordinate of the unit cube.

Floats are mapped linearly or on a log scale; integers, stepped floats and choices have cells of equal width on their
scale, so a uniform draw from the cube is a uniform draw of them. A float is decoded to ten significant digits: coarse
enough that decode(encode(value)) returns every proposed value bit for bit, and fine enough that no model can tell the
difference.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.checks import flag, is_finite, is_number, short
from fairway.conditions import Function
from fairway.errors import UsageError

Value: TypeAlias = bool | int | float | str | None
"""The type of a parameter's value: a JSON scalar."""

When: TypeAlias = Mapping[str, Value | Sequence[Value]] | Function
"""When a parameter is active: values that other parameters must all have, or a function of those declared above it."""

_DIGITS = 10
_NARROWEST = 1e-9  # width over magnitude; in a narrower range a double has too few digits
_LARGEST = 1e300  # above it rounding may overflow
_MAX_CELLS = 2**50  # with more, a double cannot distinguish neighbouring cells
_MAX_LOG_INT = 2**40  # above it exp(log(k)) may round to another integer


@dataclass(frozen=True)
class Parameter(ABC):
    """One coordinate of the search space: the base of `Float`, `Int` and `Choice`."""

    @property
    @abstractmethod
    def when(self) -> When | None:
        """When this parameter is active; None if it always is."""

    @abstractmethod
    def check(self, value: object) -> Value:
        """The value in canonical form; raises a `UsageError` that says what is allowed."""

    @property
    @abstractmethod
    def size(self) -> float:
        """The number of distinct values, each with its cell; infinity if continuous."""

    @property
    def is_even(self) -> bool:
        """Whether all cells have the same width in the cube, so that the base's `snap` applies; True if continuous."""
        return True

    @abstractmethod
    def _cell(self, value: Any) -> int:
        """The cell of a checked value."""

    @abstractmethod
    def _value(self, cell: int) -> Value:
        """The value of a cell."""

    def encode(self, value: Any) -> float:
        """The coordinate in [0, 1] of a checked value."""
        return (self._cell(value) + 0.5) / self.size

    def decode(self, u: float) -> Value:
        """The value at a coordinate in [0, 1]."""
        cells = int(self.size)
        return self._value(min(int(u * cells), cells - 1))

    def snap(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates moved to the middle of their cells; unchanged if continuous."""
        if math.isinf(self.size):
            return np.clip(u, 0.0, 1.0)
        cells = int(self.size)
        return np.asarray((np.clip(np.floor(u * cells), 0, cells - 1) + 0.5) / cells)

    def edges(self) -> NDArray[np.float64]:
        """The boundaries of the cells, from 0 to 1."""
        return np.linspace(0.0, 1.0, int(self.size) + 1)


@dataclass(frozen=True)
class _Number(Parameter):
    """What `Float` and `Int` share: two bounds, a log scale and steps."""

    low: float
    high: float
    _: KW_ONLY
    log: bool = False
    step: float | None = None
    when: When | None = None
    _margin: ClassVar[float] = 0.0  # from a bound to the outer edge of its cell

    def __post_init__(self) -> None:
        kind, what, plain = (Integral, "whole", int) if isinstance(self, Int) else (Real, "finite", float)
        low, high = self.low, self.high
        for bound in (low, high):
            if not isinstance(bound, kind) or not is_finite(bound):
                raise UsageError(f"{self._name}: bounds must be {what} numbers, not {short(bound)}")
        flag(self.log, f"{self._name}: log")
        if low >= high:
            swapped = f"did you mean {type(self).__name__}({high}, {low})?"
            hint = swapped if low > high else "a constant is not a parameter"
            raise UsageError(f"{self._name}: low must be below high; {hint}")
        if self.log and low <= 0:
            raise UsageError(f"{self._name}: log=True needs low above 0")
        object.__setattr__(self, "low", plain(low))
        object.__setattr__(self, "high", plain(high))
        if self.step is not None or isinstance(self, Int):
            if not isinstance(self.step, kind) or not is_finite(self.step) or not self.step > 0:
                raise UsageError(f"{self._name}: step={short(self.step)}: a positive number is expected")
            self._check_cells(self.step)
            object.__setattr__(self, "step", plain(self.step))

    def _check_cells(self, step: float) -> None:
        if self.log and not (isinstance(self, Int) and step == 1):
            raise UsageError(f"{self._name}: log=True and step={step} cannot be combined")
        cells = (self.high - self.low) / step
        if cells > _MAX_CELLS:
            raise UsageError(f"{self._name}: too wide to be exact; use Float(...) and round it yourself")
        if round(cells) < 1 or abs(cells - round(cells)) > 1e-6 * max(1.0, cells * 1e-3):
            high = f"{self.low + max(1, math.floor(cells)) * step:.12g}"
            raise UsageError(f"{self._name}: the range is not a multiple of step={step}; did you mean high={high}?")

    @property
    def _name(self) -> str:
        return f"{type(self).__name__}({short(self.low)}, {short(self.high)})"

    @property
    def _logs(self) -> tuple[float, float]:
        """The logarithm at coordinate 0, and its change up to coordinate 1."""
        first = math.log(self.low - self._margin)
        return first, math.log(self.high + self._margin) - first

    def encode(self, value: float) -> float:
        if self.log:
            first, width = self._logs
            return (math.log(value) - first) / width
        return super().encode(value) if self.step is not None else (value - self.low) / (self.high - self.low)

    def _unlog(self, u: float) -> float:
        first, width = self._logs
        return math.exp(first + u * width)


@dataclass(frozen=True)
class Float(_Number):
    """A real number from `low` to `high`, optionally on a log scale or in multiples of `step` above `low`.

    >>> import fairway as fw
    >>> fw.Float(0.001, 1.0, log=True).decode(0.5)
    0.0316227766
    >>> fw.Float(0.0, 1.0, step=0.1).decode(0.34)
    0.3
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.low, self.high
        magnitude = max(abs(low), abs(high))
        if magnitude > _LARGEST:
            raise UsageError(f"{self._name}: bounds beyond {_LARGEST:g} overflow; tune the logarithm or another unit")
        if high - low < _NARROWEST * magnitude:
            raise UsageError(f"{self._name}: the range is too narrow for its magnitude; tune the offset from {low}")

    @property
    def size(self) -> float:
        return math.inf if self.step is None else round((self.high - self.low) / self.step) + 1

    def check(self, value: object) -> float:
        if not is_number(value) or not self.low <= float(value) <= self.high:
            raise UsageError(f"{short(value)}: a number from {self.low} to {self.high} is expected")
        x = float(value)
        if self.step is None:
            return x
        snapped = self._value(self._cell(x))
        if abs(snapped - x) > 1e-6 * self.step:
            raise UsageError(
                f"{short(value)}: a multiple of {self.step} above {self.low} is expected; nearest: {snapped}"
            )
        return snapped

    def decode(self, u: float) -> Value:
        if self.step is not None:
            return super().decode(u)
        if u <= 0.0:
            return self.low
        if u >= 1.0:
            return self.high
        if self.log:
            x = float(f"{self._unlog(u):.{_DIGITS - 1}e}")
        else:
            width, magnitude = self.high - self.low, max(abs(self.low), abs(self.high))
            decimals = min(_DIGITS - math.ceil(math.log10(width)), 14 - math.ceil(math.log10(magnitude)))
            x = round(self.low + u * width, decimals)
        again = self.encode(min(max(x, self.low), self.high))
        if 0.0 < again < 1.0:
            return x
        return self.low if again <= 0.0 else self.high  # x and this bound have the same coordinate

    def _cell(self, value: float) -> int:
        assert self.step is not None
        return round((value - self.low) / self.step)

    def _value(self, cell: int) -> float:
        """The sum low + cell * step without its rounding error."""
        assert self.step is not None
        x = round(self.low + cell * self.step, 12 - math.floor(math.log10(self.step)))
        return min(max(x, self.low), self.high)


@dataclass(frozen=True)
class Int(_Number):
    """A whole number from `low` to `high`, optionally on a log scale or in multiples of `step` above `low`.

    >>> import fairway as fw
    >>> fw.Int(4, 2048, log=True).decode(0.5)
    85
    """

    low: int
    high: int
    _: KW_ONLY
    step: int = 1
    _margin = 0.5  # on a log scale, the cell of k goes from log(k - 1/2) to log(k + 1/2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.log and self.high > _MAX_LOG_INT:
            raise UsageError(f"{self._name}: too wide to be exact; use Float(..., log=True) and round it yourself")

    @property
    def size(self) -> float:
        return (self.high - self.low) // self.step + 1

    def check(self, value: object) -> int:
        if not is_number(value) or not float(value).is_integer() or not self.low <= int(value) <= self.high:
            raise UsageError(f"{short(value)}: a whole number from {self.low} to {self.high} is expected")
        if (int(value) - self.low) % self.step:
            raise UsageError(f"{short(value)}: {self.low} plus a multiple of {self.step} is expected")
        return int(value)

    def decode(self, u: float) -> Value:
        return min(max(round(self._unlog(u)), self.low), self.high) if self.log else super().decode(u)

    @property
    def is_even(self) -> bool:
        return not self.log

    def _cell(self, value: int) -> int:
        return (value - self.low) // self.step

    def _value(self, cell: int) -> int:
        return self.low + self.step * cell

    def snap(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.log:
            return super().snap(u)
        first, width = self._logs
        return np.asarray((np.log(np.clip(np.round(np.exp(first + u * width)), self.low, self.high)) - first) / width)

    def edges(self) -> NDArray[np.float64]:
        if not self.log:
            return super().edges()
        first, width = self._logs
        return np.asarray((np.log(np.arange(self.low, self.high + 2) - 0.5) - first) / width)


@dataclass(frozen=True)
class Choice(Parameter):
    """One of several JSON scalars; `ordered=True` tells samplers that neighbouring options are similar.

    >>> import fairway as fw
    >>> fw.Choice(["gbdt", "dart"]).decode(0.7)
    'dart'
    """

    options: Sequence[Value]
    _: KW_ONLY
    ordered: bool = False
    when: When | None = None

    def __post_init__(self) -> None:
        if isinstance(self.options, str | bytes | Mapping) or not isinstance(self.options, Sequence):
            raise UsageError(
                f"Choice({short(self.options)}): a list of options is expected, for example Choice(['a', 'b'])"
            )
        object.__setattr__(self, "options", tuple(_plain(option) for option in self.options))
        if not self.options:
            raise UsageError("Choice([]): at least one option is expected")
        if len(self._cells) < len(self.options):
            raise UsageError(f"Choice({short(list(self.options))}): each option may be listed once")

    @cached_property
    def _cells(self) -> dict[tuple[type, object], int]:
        return {identity(option): i for i, option in enumerate(self.options)}

    @property
    def size(self) -> float:
        return len(self.options)

    def check(self, value: object) -> Value:
        with contextlib.suppress(UsageError):
            plain = _plain(value)
            if identity(plain) in self._cells:
                return plain
        raise UsageError(f"{short(value)}: one of {shortened(self.options)} is expected")

    def _cell(self, value: Value) -> int:
        return self._cells[identity(value)]

    def _value(self, cell: int) -> Value:
        return self.options[cell]


def identity(value: object) -> tuple[type, object]:
    """A key that tells True, 1 and 1.0 apart, which are equal in Python."""
    return (type(value), value)


def _plain(value: object) -> Value:
    """A JSON scalar as one of Python's own types; converts numpy's scalars and enumerations of strings or numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            value = value if type(value) is kind else kind(getattr(value, "value", value))
            break
    else:
        if value is not None:
            raise UsageError(
                f"Choice: {short(value)}: a JSON scalar is expected; use names and look the objects up by name, "
                "or in ConstrainedSearchCV give a list of the objects instead of a Choice"
            )
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"Choice: {short(value)}: JSON has no such number; use names and look the numbers up by name")
    return value


def shortened(values: Sequence[object], most: int = 8) -> str:
    """The first values as text for a message, and how many more there are."""
    shown = ", ".join(repr(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"
