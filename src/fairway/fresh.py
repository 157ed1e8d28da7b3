"""Rows that no search has seen: what a model decides on them, and whether somebody has seen them after all."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway import constraints
from fairway.checks import is_number
from fairway.constraints.rows import column, labels
from fairway.errors import UsageError
from fairway.evidence import Decisions, Evidence, Exact, Quantile, Resampled

Metric: TypeAlias = Callable[..., Any]

_FAIRNESS = (
    constraints.equalized_odds_difference,
    constraints.equalized_odds_ratio,
    constraints.equal_opportunity_difference,
    constraints.demographic_parity_difference,
    constraints.demographic_parity_ratio,
)
_CALLS = 300  # timed for a limit on latency
_WARM_UP = 3


class FreshRows:
    """Rows that the search never saw, for `study.certify`: what a model decides on them, and what its limits come to.

    `rows` are what the model predicts from, `truth` their labels (0 and 1), `groups` the group of each. Each limit of
    the study comes by name, with the metric it is on: one of the five fairness metrics, `latency`, `model_size`, or any
    function of (truth, decision), or of (truth, decision, groups) where there are groups, which is bootstrapped.

    A model decides 1 where its probability (`predict_proba`, or what `predict` or the model itself returns) is at least
    `threshold`, a number or a function of the model; labels are taken as they are. `predict=lambda model, rows: ...`
    makes probabilities or labels of any other model. `weights` and `clusters`, one for each row, say that rows do not
    count alike, or are not independent (several of one person).

    >>> import numpy as np, fairway as fw
    >>> from fairway.constraints import demographic_parity_difference
    >>> rows = np.random.default_rng(0).normal(size=(400, 1))
    >>> truth, groups = rows[:, 0] > 0, ["a", "b"] * 200
    >>> fresh = fw.FreshRows(rows, truth, groups=groups, parity=demographic_parity_difference)
    >>> evidence = fresh(lambda rows: 1 / (1 + np.exp(-rows[:, 0])))["parity"]
    >>> evidence.rows, round(evidence.positive_share, 2)
    (400, 0.47)
    """

    def __init__(
        self,
        rows: Any,
        truth: Any,
        *,
        groups: Any = None,
        threshold: float | Callable[[Any], float] = 0.5,
        predict: Callable[[Any, Any], Any] | None = None,
        weights: Any = None,
        clusters: Any = None,
        **limits: Metric,
    ) -> None:
        if not limits:
            raise UsageError("FreshRows: no limit came; give each by name, as in eod=equalized_odds_difference")
        for name, metric in limits.items():
            if not callable(metric):
                raise UsageError(
                    f"FreshRows: {name}={metric!r}: a metric, such as equalized_odds_difference, is expected"
                )
            if metric in _FAIRNESS and groups is None:
                raise UsageError(f"FreshRows: {name} compares groups: pass groups=, the group of each row")
        if not callable(threshold) and not is_number(threshold):
            raise UsageError(f"FreshRows: threshold={threshold!r}: a number, or a function of the model, is expected")
        self.rows = rows
        self._truth = column(truth, "truth")
        self._groups, self._weights, self._clusters = groups, weights, clusters
        self._threshold, self._predict, self._limits = threshold, predict, limits
        n = _count(rows)
        for name, given in (("truth", truth), ("groups", groups), ("weights", weights), ("clusters", clusters)):
            if given is not None and not isinstance(given, Mapping) and len(given) != n:
                raise UsageError(f"FreshRows: {name} has {len(given)} rows and rows has {n}: as many are expected")

    def __len__(self) -> int:
        return _count(self.rows)

    def __call__(self, model: Any) -> dict[str, Evidence]:
        """What these rows say of each limit of a model."""
        timed = {constraints.latency, constraints.model_size}
        decided = self.decide(model) if set(self._limits.values()) - timed else None
        return {name: self._evidence(metric, model, decided) for name, metric in self._limits.items()}

    def decide(self, model: Any) -> NDArray[np.int64]:
        """The model's decisions, 0 or 1 for each row."""
        said = np.asarray(self._said(model))
        if said.ndim == 2 and said.shape[1] == 2:  # noqa: PLR2004
            said = said[:, 1]
        said = said[:, 0] if said.ndim == 2 and said.shape[1] == 1 else said  # noqa: PLR2004
        if said.shape != (len(self),):
            raise UsageError(
                f"the model returned shape {said.shape} for {len(self)} rows: one probability or label each is expected"
            )
        if said.dtype.kind == "f" and not np.isin(said, (0.0, 1.0)).all():
            if np.isnan(said).any():
                raise UsageError("the model returned NaN for some rows: probabilities or labels are expected")
            said = said >= (self._threshold(model) if callable(self._threshold) else self._threshold)
        return labels(said, "what the model returned")

    def _said(self, model: Any) -> Any:
        if self._predict is not None:
            return self._predict(model, self.rows)
        if type(model).__module__.startswith("xgboost") and type(model).__name__ == "Booster":
            xgboost = __import__("xgboost")
            return model.predict(xgboost.DMatrix(self.rows))
        for name in ("predict_proba", "predict"):
            if hasattr(model, name):
                return getattr(model, name)(self.rows)
        if callable(model):
            return model(self.rows)
        raise UsageError(
            f"the model is a {type(model).__name__} without predict: give FreshRows predict=lambda model, rows: ..."
        )

    def _evidence(self, metric: Metric, model: Any, decided: NDArray[np.int64] | None) -> Evidence:
        if metric in _FAIRNESS:
            rows = (self._truth, decided, self._groups)
            return Decisions(metric, *rows, weights=self._weights, clusters=self._clusters)
        if metric is constraints.model_size:
            return Exact(float(constraints.model_size(model)))
        if metric is constraints.latency:
            return Quantile(self._times(model), quantile=0.95)
        columns = (self._truth, decided) if self._groups is None else (self._truth, decided, np.asarray(self._groups))
        found = metric(*columns)
        return found if isinstance(found, Evidence) else Resampled(metric, *columns, clusters=self._clusters)

    def _times(self, model: Any) -> list[float]:
        """The seconds of single predictions, one row each."""
        n, times = len(self), []
        predict = getattr(model, "predict", model)
        for i in range(_CALLS + _WARM_UP):
            row = _at(self.rows, i % n)
            began = perf_counter()
            predict(row)
            times.append(perf_counter() - began)
        return times[_WARM_UP:]


def hashes(rows: Any) -> NDArray[np.uint64]:
    """A hash of each row (n,): equal rows have equal hashes, whatever holds them.

    >>> import numpy as np
    >>> bool((hashes([[1, 2], [3, 4]]) == hashes(np.array([[1.0, 2.0], [3.0, 4.0]]))).all())
    True
    """
    if hasattr(rows, "tocsr"):
        rows = rows.toarray()
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
        rows = rows.to_numpy()
    table = np.asarray(rows) if hasattr(rows, "__array__") or isinstance(rows, np.ndarray) else None
    if table is None:
        if isinstance(rows, str) or not isinstance(rows, Sequence):
            raise UsageError(f"rows is a {type(rows).__name__}: an array, a DataFrame or a list is expected")
        try:
            table = np.asarray(rows, dtype=float)
        except (TypeError, ValueError):
            table = None
    if table is not None and table.dtype.kind in "biuf" and table.ndim:
        flat = np.ascontiguousarray(table.reshape(len(table), -1), dtype=np.float64) + 0.0  # -0.0 becomes 0.0
        parts = [row.tobytes() for row in flat]
    else:
        parts = [
            repr(row.tolist() if hasattr(row, "tolist") else row).encode() for row in (rows if table is None else table)
        ]
    digests = b"".join(hashlib.blake2b(part, digest_size=8).digest() for part in parts)
    return np.frombuffer(digests, np.uint64)


def pack(hashed: NDArray[np.uint64]) -> str:
    """Hashes as text, for the log."""
    return base64.b64encode(hashed.tobytes()).decode()


def unpack(packed: str) -> NDArray[np.uint64]:
    """The hashes that `pack` made text of."""
    return np.frombuffer(base64.b64decode(packed), np.uint64)


def overlap(fresh: NDArray[np.uint64], others: NDArray[np.uint64]) -> tuple[int, bool]:
    """How many fresh rows equal one of the others, and whether that is more than duplicates explain.

    Rows of one table may be equal by chance. Then as many fresh rows have a twin among the fresh ones as among others
    of the same number, so twice that many and one in a hundred are let pass.

    >>> overlap(hashes([[1], [2], [3]]), hashes([[3], [4]]))
    (1, True)
    """
    found = int(np.isin(fresh, others).sum())
    _, counts = np.unique(fresh, return_counts=True)
    twins = int(counts[counts > 1].sum()) * max(1.0, len(others) / max(len(fresh), 1))
    return found, found > 2.0 * twins + 0.01 * len(fresh)


def _count(rows: Any) -> int:
    if isinstance(rows, str) or not (hasattr(rows, "shape") and rows.shape or isinstance(rows, Sequence)):
        raise UsageError(f"rows is a {type(rows).__name__}: an array, a DataFrame or a list is expected")
    n = int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
    if not n:
        raise UsageError("rows is empty: at least one fresh row is expected")
    return n


def _at(rows: Any, i: int) -> Any:
    return getattr(rows, "iloc", rows)[i : i + 1]
