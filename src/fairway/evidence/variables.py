"""Rows as independent variables: weights and clusters are read here, and the rows of a cluster become one variable."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.constraints.rows import column
from fairway.errors import UsageError
from fairway.evidence.bounds import chernoff, hoeffding_bentkus

Array: TypeAlias = NDArray[np.float64]


class Variables(NamedTuple):
    """Independent variables in [0, 1], each with its weight in a sum."""

    values: Array  # (n,)
    weights: Array  # (n,), positive

    @classmethod
    def of(cls, values: Array, weights: Array, clusters: NDArray[np.int64] | None) -> Variables:
        """Of rows (n,); those of a cluster add up to one variable, so they may depend on each other in any way."""
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


def numbers(values: Any, name: str) -> Array:
    """A finite number for each row, (n,)."""
    try:
        given = column(values, name).astype(float)
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{name}={repr(values)[:80]}: a number for each row is expected") from None
    if not len(given):
        raise UsageError(f"{name} is empty: at least one row is expected")
    if not np.isfinite(given).all():
        raise UsageError(f"{name} has missing or infinite values: remove these rows, or give them a value")
    return given


def weights_of(values: Any, rows: int) -> Array | None:
    """The weight of each row, (n,); None if all weigh the same."""
    if values is None:
        return None
    given = numbers(values, "weights")
    same_length("weights", given, rows)
    if (given < 0).any() or not given.any():
        raise UsageError("weights has negative values, or only zeros: numbers of at least 0 are expected")
    return None if (given == given[0]).all() else given


def clusters_of(values: Any, rows: int) -> NDArray[np.int64] | None:
    """The number of each row's cluster, (n,); None if each row is its own."""
    if values is None:
        return None
    keys = column(values, "clusters").tolist()
    same_length("clusters", keys, rows)
    number: dict[Any, int] = {}
    given = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
    if any(key is None or key != key for key in number):  # noqa: PLR0124 - NaN is the only value unlike itself
        raise UsageError("clusters has missing values: give each such row a cluster of its own, or remove it")
    return None if len(number) == rows else given


def same_length(name: str, values: Any, rows: int) -> None:
    """Raise a `UsageError` unless there is a value for each row."""
    if len(values) != rows:
        raise UsageError(f"{name} has {len(values)} rows where {rows} are expected: one for each row")
