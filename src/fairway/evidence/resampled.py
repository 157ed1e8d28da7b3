"""Evidence for any other metric: a percentile bootstrap over rows, which holds its level only in large samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.checks import short, whole
from fairway.constraints.resampling import MOST_RESAMPLES, draws, resampled, value_of
from fairway.errors import UsageError
from fairway.evidence.evidence import Cells, Evidence
from fairway.problem import Constraint
from fairway.rows import clusters_of, column, same_length

_FEWEST = 30  # rows, below which a bootstrap's level is not even approximate


class Resampled(Evidence):
    """A function of columns of rows, resampled: rows are drawn with replacement, or whole clusters of rows.

    p = (1 + resampled values at or beyond the limit) / (1 + resamples). A resample counts as beyond if the metric is
    NaN there or divides by 0. If the metric is the same in all resamples, they say nothing about other rows, and p is
    1; it is also 1 with fewer than 30 rows. The level is approximate. Use `Decisions` or `Mean` where they apply.

    >>> import fairway as fw
    >>> from fairway.evidence import Resampled
    >>> spread = Resampled(lambda loss: loss.std(), [0.1, 0.2, 0.3, 0.4] * 50, resamples=200)
    >>> spread, spread.p_value(fw.AtMost("spread", 0.2)) < 0.01
    (Resampled(0.111803, rows=200), True)
    """

    kind = "resampled"
    approximate = True

    def __init__(
        self, metric: Callable[..., float], *columns: Any, clusters: Any = None, seed: int = 0, resamples: int = 2000
    ) -> None:
        if not callable(metric):
            raise UsageError(f"metric={short(metric)}: a function of the columns is expected")
        given = [column(each, f"column {i}") for i, each in enumerate(columns, 1)]
        if not given or not len(given[0]):
            raise UsageError("columns is empty: at least one column with one row is expected")
        rows = len(given[0])
        for i, each in enumerate(given, 1):
            same_length(f"column {i}", each, rows)
        whole(seed, "seed", least=0)
        number = whole(resamples, "resamples", most=MOST_RESAMPLES)
        drawn = draws(rows, clusters_of(clusters, rows), seed=seed, resamples=number)
        self._keep(value_of(metric, given, {}), rows, seed, resampled(metric, given, {}, drawn))

    def _keep(self, value: float, rows: int, seed: int, values: NDArray[np.float64]) -> None:
        self.value, self.rows, self._seed, self._resampled = value, rows, seed, values
        known = values[np.isfinite(values)]
        self.error = float(known.std(ddof=1)) if len(known) > 1 else math.nan

    def cells(self) -> Cells:
        return {"all": {"rows": self.rows, "resamples": len(self._resampled)}}

    def _p_value(self, constraint: Constraint) -> float:
        excess = self._excess(constraint)
        if self.rows < _FEWEST or excess.min() == excess.max():
            return 1.0
        beyond = excess >= constraint.sign * constraint.threshold
        return (1 + int(beyond.sum())) / (1 + len(self._resampled))

    def _bound(self, constraint: Constraint, level: float) -> float:
        allowed = math.floor(level * (1 + len(self._resampled)) + 1e-9) - 1  # values that may lie beyond the bound
        excess = np.sort(self._excess(constraint))
        if allowed < 0 or self.rows < _FEWEST or excess[0] == excess[-1]:
            return constraint.sign * math.inf
        nearest = float(excess[-1 - allowed])
        return constraint.sign * math.nextafter(nearest, math.inf)

    def _least_p(self, constraint: Constraint, scale: float) -> float:  # noqa: ARG002 - the same for any limit
        return 1.0 if self.rows * scale < _FEWEST else 1 / (1 + len(self._resampled))

    def _excess(self, constraint: Constraint) -> NDArray[np.float64]:
        """The resampled values (n,), higher is worse."""
        return np.where(np.isnan(self._resampled), np.inf, constraint.sign * self._resampled)

    def _to_json(self) -> dict[str, Any]:
        return {
            "value": _plain(self.value),
            "rows": self.rows,
            "seed": self._seed,
            "resampled": [_plain(value) for value in self._resampled.tolist()],
        }

    def _read(self, data: Mapping[str, Any]) -> None:
        found = np.array([float(value) for value in data["resampled"]])
        self._keep(float(data["value"]), data["rows"], data["seed"], found)


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)  # JSON has no NaN
