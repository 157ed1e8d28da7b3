"""A measured value that knows how far it may be from the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Self, TypeAlias

from fairway.checks import fraction, is_number, short, whole
from fairway.errors import UsageError

Bound: TypeAlias = Callable[[float], float]
"""A bound of the true value, as a function of the confidence."""


class Measured(float):
    """A value with its standard error on the rows it was measured on; report it like a number.

    All metrics in `fairway.constraints` but `group_gap` return it, and `bootstrap` makes it from any other. Under a
    constraint with `confidence=` the upper bound is compared with the limit (`AtLeast`: the lower bound): by default
    the value plus or minus z errors. A metric with a better bound gives it as a function of the confidence, `upper` or
    `lower`. `rows` is the number of rows behind the value, if there are rows. If you multiply or divide it by a
    positive number, to change the unit, it keeps all of these; other arithmetic gives plain numbers. `note` says what
    else ran during the measurement, such as "beside 1 other worker"; a trial that reports the value keeps the note.

    >>> import fairway as fw
    >>> gap = fw.Measured(0.08, error=0.01, rows=2000)
    >>> gap, gap + 1, 100 * gap, round(gap.upper(0.95), 3)
    (Measured(0.08, error=0.01), 1.08, Measured(8, error=1), 0.096)
    """

    __slots__ = ("_lower", "_upper", "error", "note", "rows")

    def __new__(
        cls,
        value: float,
        error: float,
        *,
        rows: int | None = None,
        upper: Bound | None = None,
        lower: Bound | None = None,
        note: str = "",
    ) -> Self:
        """Check the arguments."""
        if not is_number(value):
            raise UsageError(f"Measured({short(value)}): a number is expected")
        if not is_number(error) or not (0.0 <= error < math.inf or math.isnan(error) and math.isnan(value)):
            raise UsageError(
                f"Measured({float(value):.6g}, error={short(error)}): a finite number of at least 0 is expected"
            )
        for name, given in (("upper", upper), ("lower", lower)):
            if given is not None and not callable(given):
                raise UsageError(f"Measured: {name}={short(given)}: a function of the confidence is expected")
        if not isinstance(note, str):
            raise UsageError(f"Measured: note={short(note)}: a text is expected")
        measured = super().__new__(cls, value)
        measured.error = float(error)
        measured.rows = None if rows is None else whole(rows, "rows")
        measured._upper, measured._lower, measured.note = upper, lower, note
        return measured

    error: float
    rows: int | None
    note: str
    _upper: Bound | None
    _lower: Bound | None

    def upper(self, confidence: float) -> float:
        """The upper bound of the true value at the given confidence."""
        if self._upper is not None:
            return float(self._upper(fraction(confidence, "confidence")))
        return float(self) + quantile(confidence) * self.error

    def lower(self, confidence: float) -> float:
        """The lower bound of the true value at the given confidence."""
        if self._lower is not None:
            return float(self._lower(fraction(confidence, "confidence")))
        return float(self) - quantile(confidence) * self.error

    def error_at(self, confidence: float, *, upper: bool) -> float:
        """(bound - value) / z at this confidence, which is the standard error unless the value has its own bound.

        >>> import fairway as fw
        >>> gap = fw.Measured(0.08, error=0.01, upper=lambda confidence: 0.12)
        >>> round(gap.error_at(0.95, upper=True), 4), gap.error_at(0.95, upper=False)
        (0.0243, 0.01)
        """
        z, own = quantile(confidence), self._upper if upper else self._lower
        if own is None or not z:
            return self.error
        return max((own(confidence) - self if upper else self - own(confidence)) / z, 0.0)

    def __mul__(self, factor: float, /) -> float:
        if isinstance(factor, Measured) or not is_number(factor) or not 0.0 < factor < math.inf:
            return float(self) * (float(factor) if isinstance(factor, Measured) else factor)
        upper, lower = (None if own is None else partial(_scaled, own, factor) for own in (self._upper, self._lower))
        return Measured(
            float(self) * factor, self.error * factor, rows=self.rows, upper=upper, lower=lower, note=self.note
        )

    __rmul__ = __mul__

    def __truediv__(self, divisor: float, /) -> float:
        if isinstance(divisor, Measured) or not is_number(divisor) or not 0.0 < divisor < math.inf:
            return float(self) / divisor
        return self * (1.0 / divisor)

    def __repr__(self) -> str:
        return f"Measured({float(self):.6g}, error={self.error:.3g})"

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (float(self), self.error, self.rows, self._upper, self._lower, self.note)


def _again(
    value: float, error: float, rows: int | None, upper: Bound | None, lower: Bound | None, note: str = ""
) -> Measured:
    return Measured(value, error, rows=rows, upper=upper, lower=lower, note=note)


def _scaled(bound: Bound, factor: float, confidence: float) -> float:
    return factor * bound(confidence)


def quantile(confidence: float) -> float:
    """The number z that a standard normal variable stays below with this probability.

    >>> round(quantile(0.95), 3)
    1.645
    """
    return NormalDist().inv_cdf(fraction(confidence, "confidence"))
