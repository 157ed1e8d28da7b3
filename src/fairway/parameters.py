"""The kinds of parameter, and how each maps its values to a coordinate of the unit cube.

Floats are mapped linearly or on a log scale; integers, stepped floats and choices have cells of equal width on their
scale, so a uniform draw from the cube is a uniform draw of them. A float is decoded to ten significant digits: coarse
enough that decode(encode(value)) returns every proposed value bit for bit, and fine enough that no model can tell the
difference.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.checks import is_finite, is_number
from fairway.errors import UsageError

Value: TypeAlias = bool | int | float | str | None
"""The type of a parameter's value: a JSON scalar."""

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
    def when(self) -> Mapping[str, Value | Sequence[Value]] | None:
        """The values of other parameters for which this one is active; None if it always is."""

    @abstractmethod
    def check(self, value: object) -> Value:
        """The value in canonical form; raises a `UsageError` that says what is allowed."""

    @abstractmethod
    def encode(self, value: Any) -> float:
        """The coordinate in [0, 1] of a checked value."""

    @abstractmethod
    def decode(self, u: float) -> Value:
        """The value at a coordinate in [0, 1]."""

    @property
    @abstractmethod
    def size(self) -> float:
        """The number of distinct values; infinity if continuous."""

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
class Float(Parameter):
    """A real number from `low` to `high`, optionally on a log scale or in multiples of `step` above `low`.

    >>> import fairway as fw
    >>> fw.Float(0.001, 1.0, log=True).decode(0.5)
    0.0316227766
    >>> fw.Float(0.0, 1.0, step=0.1).decode(0.34)
    0.3
    """

    low: float
    high: float
    _: KW_ONLY
    log: bool = False
    step: float | None = None
    when: Mapping[str, Value | Sequence[Value]] | None = None

    def __post_init__(self) -> None:
        low, high = _bounds(self, Real)
        object.__setattr__(self, "low", float(low))
        object.__setattr__(self, "high", float(high))
        width, magnitude = self.high - self.low, max(abs(self.low), abs(self.high))
        if magnitude > _LARGEST:
            raise UsageError(f"{_name(self)}: bounds beyond {_LARGEST:g} overflow; tune the logarithm or another unit")
        if width < _NARROWEST * magnitude:
            raise UsageError(f"{_name(self)}: the range is too narrow for its magnitude; tune the offset from {low}")
        if self.step is not None:
            _check_step(self, Real)
            object.__setattr__(self, "step", float(self.step))

    @property
    def _log_width(self) -> float:
        return math.log(self.high) - math.log(self.low)

    @property
    def _cells(self) -> int:
        assert self.step is not None
        return round((self.high - self.low) / self.step) + 1

    @property
    def size(self) -> float:
        return math.inf if self.step is None else self._cells

    def check(self, value: object) -> float:
        if not is_number(value) or not self.low <= float(value) <= self.high:  # type: ignore[arg-type]
            raise UsageError(f"{value!r}: a number from {self.low} to {self.high} is expected")
        x = float(value)  # type: ignore[arg-type]
        if self.step is None:
            return x
        snapped = self._at(round((x - self.low) / self.step))
        if abs(snapped - x) > 1e-6 * self.step:
            raise UsageError(f"{value!r}: a multiple of {self.step} above {self.low} is expected; nearest: {snapped}")
        return snapped

    def encode(self, value: float) -> float:
        if self.step is not None:
            return (round((value - self.low) / self.step) + 0.5) / self._cells
        if self.log:
            return (math.log(value) - math.log(self.low)) / self._log_width
        return (value - self.low) / (self.high - self.low)

    def decode(self, u: float) -> float:
        if self.step is not None:
            return self._at(_cell(u, self._cells))
        if u <= 0.0:
            return self.low
        if u >= 1.0:
            return self.high
        if self.log:
            x = float(f"{math.exp(math.log(self.low) + u * self._log_width):.{_DIGITS - 1}e}")
        else:
            width, magnitude = self.high - self.low, max(abs(self.low), abs(self.high))
            decimals = min(_DIGITS - math.ceil(math.log10(width)), 14 - math.ceil(math.log10(magnitude)))
            x = round(self.low + u * width, decimals)
        return min(max(x, self.low), self.high)

    def _at(self, cell: int) -> float:
        """The value of a cell of the grid: low + cell * step without its rounding error."""
        assert self.step is not None
        x = round(self.low + cell * self.step, 12 - math.floor(math.log10(self.step)))
        return min(max(x, self.low), self.high)


@dataclass(frozen=True)
class Int(Parameter):
    """A whole number from `low` to `high`, optionally on a log scale or in multiples of `step` above `low`.

    >>> import fairway as fw
    >>> fw.Int(4, 2048, log=True).decode(0.5)
    85
    """

    low: int
    high: int
    _: KW_ONLY
    log: bool = False
    step: int = 1
    when: Mapping[str, Value | Sequence[Value]] | None = None

    def __post_init__(self) -> None:
        low, high = _bounds(self, Integral)
        object.__setattr__(self, "low", int(low))
        object.__setattr__(self, "high", int(high))
        _check_step(self, Integral)
        object.__setattr__(self, "step", int(self.step))
        if self.log and self.high > _MAX_LOG_INT:
            raise UsageError(f"{_name(self)}: too wide to be exact; use Float(..., log=True) and round it yourself")

    @property
    def size(self) -> float:
        return (self.high - self.low) // self.step + 1

    @property
    def _log_edges(self) -> tuple[float, float]:
        """The outer edges of the first and last cell; that of k goes from log(k - 1/2) to log(k + 1/2)."""
        return math.log(self.low - 0.5), math.log(self.high + 0.5)

    def check(self, value: object) -> int:
        k = _as_whole(value)
        if k is None or not self.low <= k <= self.high:
            raise UsageError(f"{value!r}: a whole number from {self.low} to {self.high} is expected")
        if (k - self.low) % self.step:
            raise UsageError(f"{value!r}: {self.low} plus a multiple of {self.step} is expected")
        return k

    def encode(self, value: int) -> float:
        if self.log:
            first, last = self._log_edges
            return (math.log(value) - first) / (last - first)
        return ((value - self.low) // self.step + 0.5) / self.size

    def decode(self, u: float) -> int:
        if self.log:
            first, last = self._log_edges
            return min(max(round(math.exp(first + u * (last - first))), self.low), self.high)
        return self.low + self.step * _cell(u, int(self.size))

    def snap(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.log:
            return super().snap(u)
        first, last = self._log_edges
        value = np.clip(np.round(np.exp(first + u * (last - first))), self.low, self.high)
        return np.asarray((np.log(value) - first) / (last - first))

    def edges(self) -> NDArray[np.float64]:
        if not self.log:
            return super().edges()
        first, last = self._log_edges
        return np.asarray((np.log(np.arange(self.low, self.high + 2) - 0.5) - first) / (last - first))


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
    when: Mapping[str, Value | Sequence[Value]] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.options, str | bytes | Mapping) or not isinstance(self.options, Sequence):
            raise UsageError(f"Choice({self.options!r}): a list of options is expected, for example Choice(['a', 'b'])")
        options = tuple(_plain(option) for option in self.options)
        object.__setattr__(self, "options", options)
        if not options:
            raise UsageError("Choice([]): at least one option is expected")
        if len({identity(option) for option in options}) < len(options):
            raise UsageError(f"Choice({list(options)!r}): each option may be listed once")
        object.__setattr__(self, "_index", {identity(option): i for i, option in enumerate(options)})

    @property
    def size(self) -> float:
        return len(self.options)

    def check(self, value: object) -> Value:
        try:
            plain = _plain(value)
            known = identity(plain) in self._index  # type: ignore[attr-defined]
        except UsageError:
            known = False
        if not known:
            raise UsageError(f"{value!r}: one of {shortened(self.options)} is expected")
        return plain

    def encode(self, value: Value) -> float:
        return (int(self._index[identity(value)]) + 0.5) / len(self.options)  # type: ignore[attr-defined]

    def decode(self, u: float) -> Value:
        return self.options[_cell(u, len(self.options))]


def identity(value: object) -> tuple[type, object]:
    """A key by which True, 1 and 1.0, equal in Python, are three different options."""
    return (type(value), value)


def _as_whole(value: object) -> int | None:
    """A whole number, such as 5 or 5.0, as an int; None for anything else."""
    if not is_number(value) or not float(value).is_integer():  # type: ignore[arg-type]
        return None
    return int(value)  # type: ignore[call-overload,no-any-return]


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
            raise UsageError(f"Choice: {value!r}: a JSON scalar is expected; use names and look the objects up by name")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"Choice: {value!r}: JSON has no such number; use names and look the numbers up by name")
    return value


def _cell(u: float, cells: int) -> int:
    return min(int(u * cells), cells - 1)


def _name(parameter: Float | Int) -> str:
    return f"{type(parameter).__name__}({parameter.low}, {parameter.high})"


def shortened(values: Sequence[object], most: int = 8) -> str:
    """The first values, for a sentence."""
    shown = ", ".join(repr(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"


def _bounds(parameter: Float | Int, kind: type[Any]) -> tuple[Any, Any]:
    """The bounds, after checking `low`, `high` and `log`."""
    low, high, what = parameter.low, parameter.high, "whole" if kind is Integral else "finite"
    for bound in (low, high):
        if not isinstance(bound, kind) or not is_finite(bound):
            raise UsageError(f"{_name(parameter)}: bounds must be {what} numbers, not {bound!r}")
    if low >= high:
        hint = (
            f"did you mean {type(parameter).__name__}({high}, {low})?"
            if low > high
            else "a constant is not a parameter"
        )
        raise UsageError(f"{_name(parameter)}: low must be below high; {hint}")
    if parameter.log and low <= 0:
        raise UsageError(f"{_name(parameter)}: log=True needs low above 0")
    return low, high


def _check_step(parameter: Float | Int, kind: type[Any]) -> None:
    step: Any = parameter.step
    if not isinstance(step, kind) or not is_finite(step) or not step > 0:
        raise UsageError(f"{_name(parameter)}: step={step!r}: a positive number is expected")
    if parameter.log and not (kind is Integral and step == 1):
        raise UsageError(f"{_name(parameter)}: log=True and step={step} cannot be combined")
    cells = (parameter.high - parameter.low) / step
    if cells > _MAX_CELLS:
        raise UsageError(f"{_name(parameter)}: too wide to be exact; use Float(...) and round it yourself")
    if round(cells) < 1 or abs(cells - round(cells)) > 1e-6 * max(1.0, cells * 1e-3):
        nearest = parameter.low + max(1, math.floor(cells)) * step
        raise UsageError(
            f"{_name(parameter)}: the range is not a multiple of step={step}; did you mean high={nearest:.12g}?"
        )
