"""Rows as independent variables: those of a cluster become one."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.evidence.tails import chernoff, hoeffding_bentkus

Array: TypeAlias = NDArray[np.float64]


class Variables(NamedTuple):
    """Independent variables in [0, 1], each with its weight in a sum."""

    values: Array  # (n,)
    weights: Array  # (n,), positive

    @classmethod
    def of(cls, values: Array, weights: Array, clusters: NDArray[np.int64] | None) -> Variables:
        """The variables of rows (n,); rows of a cluster add up to one, so they may depend on each other in any way."""
        if clusters is not None:
            _, place = np.unique(clusters, return_inverse=True)
            total = np.bincount(place, weights).astype(float)
            some = total > 0
            values = np.clip(np.bincount(place, weights * values)[some] / total[some], 0.0, 1.0)
            weights = total[some]
        return cls(values[weights > 0], weights[weights > 0])

    @property
    def total(self) -> float:
        return float(self.values @ self.weights)

    def p_value(self, limit: float, *, scale: float = 1.0) -> float:
        """The p-value of "the expected sum is at least the limit", with `scale` times as many rows of such weights."""
        whole = float(self.weights.sum())
        if limit >= whole:
            return 0.0
        if limit <= 0:
            return 1.0
        weights, counts = np.unique(self.weights, return_counts=True)
        if np.ptp(weights) <= 1e-12 * whole:
            return hoeffding_bentkus(self.total / whole, len(self.weights) * scale, limit / whole)
        return chernoff(self.total, weights / scale, counts.astype(float) * scale, limit)
