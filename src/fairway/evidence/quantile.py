"""Evidence for a quantile of measured times, such as a latency."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fairway.checks import fraction
from fairway.errors import UsageError
from fairway.evidence.evidence import Cells, Evidence
from fairway.problem import Constraint
from fairway.rows import numbers


class Quantile(Evidence):
    """A quantile of independent measurements, such as the 0.95 quantile of call times; no distribution is assumed.

    With X of n times within the limit, p = P(Binomial(n, quantile) >= X), and the bound is one of the times. Times that
    were measured one after another depend on each other; spread them out.

    >>> import fairway as fw
    >>> from fairway.evidence import Quantile
    >>> times = Quantile([0.010] * 90 + [0.020] * 10, 0.9)
    >>> times, round(times.p_value(fw.AtMost("latency", 0.015)), 3), times.bound(fw.AtMost("latency", 0.015), 0.95)
    (Quantile(0.01, rows=100), 0.583, 0.02)
    """

    kind = "quantile"

    def __init__(self, times: Any, quantile: float = 0.95) -> None:
        self._keep(np.sort(numbers(times, "times")), fraction(quantile, "quantile"))

    def _keep(self, times: NDArray[np.float64], quantile: float) -> None:
        self._times, self.quantile, self.rows = times, quantile, len(times)
        spread = math.sqrt(self.quantile * (1 - self.quantile) / self.rows)
        shares = np.clip([self.quantile, self.quantile - spread, self.quantile + spread], 0, 1)
        value, low, high = np.quantile(self._times, shares, method="inverted_cdf")
        self.value, self.error = float(value), float(high - low) / 2

    def cells(self) -> Cells:
        return {"all": {"rows": self.rows, "quantile": self.quantile}}

    def _p_value(self, constraint: Constraint) -> float:
        _at_most(constraint)
        return float(self._tail(int(np.searchsorted(self._times, constraint.threshold, side="right")), self.rows))

    def _bound(self, constraint: Constraint, level: float) -> float:
        _at_most(constraint)
        within = np.flatnonzero(self._tail(np.arange(1, self.rows + 1), self.rows) <= level)
        return float(self._times[within[0]]) if len(within) else math.inf

    def _least_p(self, constraint: Constraint, scale: float) -> float:
        _at_most(constraint)
        rows = round(self.rows * scale)
        return float(self._tail(rows, rows))

    def _tail(self, within: Any, rows: int) -> Any:
        """P(Binomial(rows, quantile) >= within)."""
        within = np.asarray(within)
        least = np.maximum(within, 1)
        return np.where(within > 0, special.betainc(least, np.maximum(rows, 1) - least + 1, self.quantile), 1.0)

    def _to_json(self) -> dict[str, Any]:
        return {"quantile": self.quantile, "times": self._times.tolist()}

    def _read(self, data: Mapping[str, Any]) -> None:
        self._keep(np.array(data["times"], float), data["quantile"])


def _at_most(constraint: Constraint) -> None:
    if constraint.sign < 0:
        raise UsageError(f"{constraint!r}: AtMost is expected, because times are certified to be below a limit")
