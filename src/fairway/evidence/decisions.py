"""Evidence for the fairness of yes/no decisions: gaps and ratios between groups of people.

A fairness metric is the worst of several contrasts: one for each label that it looks at and each ordered pair of
groups. It breaks its limit if any contrast does. The null is thus a union, and the p-value the maximum over contrasts
(Berger, 1982); no correction is paid. Plain rows are reduced to counts, which `proportions.exact` tests. With weights
or clusters, a contrast a p1 - b p2 is the sum of independent variables a w X / W1 and b v (1 - X) / W2 minus b, which
`tails.chernoff` covers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.checks import short
from fairway.constraints import fairness, gaps
from fairway.errors import UsageError
from fairway.evidence.evidence import Cells, Evidence, crossing
from fairway.evidence.proportions import Array, Comparison, Table, exact, least, line, settled
from fairway.evidence.variables import Variables
from fairway.problem import Constraint
from fairway.rows import clusters_of, group_names, labels, numbered_groups, same_length, weights_of


class _Contrasts(NamedTuple):
    comparison: Comparison
    among: tuple[int | None, ...]  # the labels whose rows count; None means all rows


_CONTRASTS = {
    "equalized_odds_difference": _Contrasts("difference", (1, 0)),
    "equalized_odds_ratio": _Contrasts("ratio", (1, 0)),
    "equal_opportunity_difference": _Contrasts("difference", (1,)),
    "demographic_parity_difference": _Contrasts("difference", (None,)),
    "demographic_parity_ratio": _Contrasts("ratio", (None,)),
}
METRICS = tuple(getattr(fairness, name) for name in _CONTRASTS)
"""The metrics that `Decisions` has an exact test for."""

_NAMES = {1: "positives", 0: "negatives", None: "rows"}


class _Rows(NamedTuple):
    """What weights or clusters need: every row, (n,) each."""

    truth: NDArray[np.int64]
    decision: NDArray[np.int64]
    group: NDArray[np.int64]
    weights: Array | None
    clusters: NDArray[np.int64] | None


class Decisions(Evidence):
    """Yes/no decisions on fresh rows, for one of fairway's five fairness metrics, given as a function or by its name.

    Differences need an `AtMost` limit, ratios an `AtLeast` limit. The test is exact in groups of any size. Rows of the
    same cluster (a person, a household) may depend on each other; weights are fixed numbers. Both make the bound wider.

    >>> import fairway as fw
    >>> from fairway.evidence import Decisions
    >>> truth, group = [1, 1, 0, 0] * 100, ["a"] * 200 + ["b"] * 200
    >>> decision = [1, 1, 1, 0] * 50 + [1, 0, 1, 0, 1, 1, 1, 0] * 25
    >>> tpr = Decisions("equal_opportunity_difference", truth, decision, group)
    >>> tpr, round(tpr.p_value(fw.AtMost("tpr", 0.4)), 3), round(tpr.bound(fw.AtMost("tpr", 0.4), 0.95), 3)
    (Decisions(0.25, rows=400), 0.002, 0.331)
    """

    kind = "decisions"

    def __init__(
        self,
        metric: str | Callable[..., float],
        truth: Any,
        decision: Any,
        group: Any,
        *,
        weights: Any = None,
        clusters: Any = None,
    ) -> None:
        name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
        if name not in _CONTRASTS or not (isinstance(metric, str) or metric in METRICS):
            named = ", ".join(_CONTRASTS)
            raise UsageError(f"metric={short(metric)}: one of {named} is expected; Resampled takes any other")
        true, decided = labels(truth, "truth"), labels(decision, "decision")
        if not len(true):
            raise UsageError("truth is empty: at least one row is expected")
        same_length("decision", decided, len(true))
        number, keys = numbered_groups(group, "group")
        same_length("group", number, len(true))
        weight, cluster = weights_of(weights, len(true)), clusters_of(clusters, len(true))
        if len(keys) == 1:
            raise UsageError(f"group has only {keys[0]!r}: at least two groups are expected")
        every = np.ones(len(true)) if weight is None else weight
        cell = true * len(keys) + number
        n, k = (
            np.bincount(cell, each, 2 * len(keys)).reshape(2, -1).astype(float) for each in (every, every * decided)
        )  # (2, groups)
        rows = None if weight is None and cluster is None else _Rows(true, decided, number, weight, cluster)
        self._keep(name, group_names(keys), n, k, rows, len(true), digest(decided))

    def _keep(
        self, metric: str, groups: tuple[str, ...], n: Array, k: Array, per_row: _Rows | None, rows: int, digest: str
    ) -> None:
        self.metric, self.groups, self.rows, self.digest = metric, groups, rows, digest
        self._n, self._k, self._per_row = n, k, per_row
        self._comparison, self._among = _CONTRASTS[metric]
        for label in self._among:
            empty = np.flatnonzero(self._counts(label)[1] <= 0)
            if len(empty):
                raise UsageError(
                    f"group {groups[empty[0]]!r} has no {_NAMES[label]}, which {metric} needs: "
                    "more rows, or larger groups, are expected"
                )
        self.positive_share, self.base_rate = float(k.sum() / n.sum()), float(n[1].sum() / n.sum())
        self.value, self.error = self._plug_in()

    def cells(self) -> Cells:
        found = {}
        for label in self._among:
            k, n = self._counts(label)
            for group, positive, rows in zip(self.groups, k.tolist(), n.tolist(), strict=True):
                found[group if label is None else f"{group}, label {label}"] = {"positive": positive, "rows": rows}
        return found

    def _counts(self, label: int | None) -> tuple[Array, Array]:
        """Positive decisions and rows of each group, (groups,) each; sums of weights if there are weights."""
        return (self._k.sum(0), self._n.sum(0)) if label is None else (self._k[label], self._n[label])

    def _plug_in(self) -> tuple[float, float]:
        """The metric and its standard error, as `gaps` derives them."""
        counts = [self._counts(label) for label in self._among]
        cells = gaps.Cells(
            np.array([k / n for k, n in counts]), np.array([self._effective(label) for label in self._among])
        )
        found = (gaps.largest_gap if self._comparison == "difference" else gaps.smallest_ratio)(cells, self.rows)
        return float(found), found.error

    def _effective(self, label: int | None) -> Array:
        """The rows of each group; with weights or clusters, as many equal, independent rows (Kish), (groups,)."""
        if self._per_row is None:
            return self._counts(label)[1]
        truth, _, group, weights, clusters = self._per_row
        weights = np.ones(len(truth)) if weights is None else weights
        rows = np.empty(len(self.groups))
        for i in range(len(rows)):
            of = (group == i) & ((truth == label) if label is not None else True)
            sums = weights[of] if clusters is None else np.bincount(clusters[of], weights[of])
            rows[i] = sums.sum() ** 2 / (sums**2).sum()
        return rows

    def _p_value(self, constraint: Constraint) -> float:
        self._check(constraint)
        return max(self._p(contrast, constraint.threshold) for contrast in self._contrasts())

    def _bound(self, constraint: Constraint, level: float) -> float:
        self._check(constraint)
        bound, loose = (0.0, 1.0) if self._comparison == "difference" else (1.0, 0.0)
        for contrast in self._contrasts():  # one that keeps the bound so far cannot loosen it

            def kept(limit: float, contrast: Any = contrast) -> bool:
                return self._p(contrast, limit) <= level

            bound = crossing(kept, bound, loose)
        return bound

    def _least_p(self, constraint: Constraint, scale: float) -> float:
        """The least p-value of the two smallest groups of a label; larger groups are never the obstacle."""
        self._check(constraint)
        if self._per_row is not None:
            share = 0 if self._comparison == "difference" else 1
            return max(self._p(best, constraint.threshold, scale) for best in self._contrasts(share=share))
        found = []
        for label in self._among:
            n1, n2 = (max(1, round(n * scale)) for n in np.sort(self._counts(label)[1])[:2].tolist())
            found.append(least(n1, n2, self._comparison, constraint.threshold))
        return max(found)

    def _contrasts(self, *, share: int | None = None) -> Iterator[Table | _Pair]:
        """What each label and each ordered pair of groups is tested on; `share` replaces the decisions of pairs."""
        for label in self._among:
            k, n = self._counts(label)
            for i, j in permutations(range(len(self.groups)), 2):
                if self._per_row is None:
                    yield Table(int(k[i]), int(n[i]), int(k[j]), int(n[j]))
                else:
                    yield _pair(self._per_row, label, i, j, share)

    def _p(self, contrast: Table | _Pair, limit: float, scale: float = 1.0) -> float:
        sure = settled(self._comparison, limit)
        if sure is not None:
            return sure
        if isinstance(contrast, Table):
            return exact(contrast, self._comparison, limit)
        return contrast.p_value(self._comparison, limit, scale)

    def _check(self, constraint: Constraint) -> None:
        if (self._comparison == "difference") != (constraint.sign > 0):
            right, why = ("AtMost", "a gap") if self._comparison == "difference" else ("AtLeast", "a ratio")
            raise UsageError(f"{constraint!r}: {right} is expected, because {self.metric} is {why}")

    def _to_json(self) -> dict[str, Any]:
        rows = self._per_row
        return {
            "metric": self.metric,
            "groups": [*self.groups],
            "rows": self.rows,
            "cell_rows": self._n.tolist(),
            "cell_positive": self._k.tolist(),
            "per_row": rows and {name: None if of is None else of.tolist() for name, of in rows._asdict().items()},
            "digest": self.digest,
        }

    def _read(self, data: Mapping[str, Any]) -> None:
        rows: dict[str, Any] | None = data["per_row"]
        per_row = rows and _Rows(*(None if of is None else np.array(of) for of in rows.values()))  # type: ignore[arg-type]
        n, k = (np.array(data[name], float) for name in ("cell_rows", "cell_positive"))
        if not all(isinstance(group, str) for group in data["groups"]):
            raise TypeError("the name of a group is no text")
        self._keep(data["metric"], tuple(data["groups"]), n, k, per_row or None, data["rows"], data["digest"])


def digest(decisions: Any) -> str:
    """The SHA-256 of decisions, one byte each: models with the same digest decide alike on the same rows.

    >>> digest([1, 0, 1]) == digest([True, False, True]) != digest([1, 1, 0])
    True
    """
    return hashlib.sha256(labels(decisions, "decisions").astype(np.uint8).tobytes()).hexdigest()


class _Pair(NamedTuple):
    """The rows of two groups, (m,) each; a weight is 0 in the rows of the other group."""

    decision: Array
    first: Array  # weights in group 1, with sum 1
    second: Array  # weights in group 2, with sum 1
    clusters: NDArray[np.int64] | None

    def p_value(self, comparison: Comparison, limit: float, scale: float) -> float:
        a, b, d = (float(each) for each in line(comparison, limit))
        values = np.where(self.first > 0, self.decision, 1 - self.decision)
        return Variables.of(values, a * self.first + b * self.second, self.clusters).p_value(d + b, scale=scale)


def _pair(rows: _Rows, label: int | None, i: int, j: int, share: int | None) -> _Pair:
    of = ((rows.group == i) | (rows.group == j)) & ((rows.truth == label) if label is not None else True)
    weights = np.ones(int(of.sum())) if rows.weights is None else rows.weights[of]
    first, second = (np.where(rows.group[of] == at, weights, 0.0) for at in (i, j))
    decision = rows.decision[of].astype(float) if share is None else np.full(len(weights), float(share))
    clusters = None if rows.clusters is None else rows.clusters[of]
    return _Pair(decision, first / first.sum(), second / second.sum(), clusters)
