"""How differently a model treats groups of people: Fairlearn's metrics, in a hundredth of its time.

Cheap constraints are checked more often, so speed matters. The functions agree with Fairlearn's of the same names,
except that input which would give a wrong number is refused, and an undefined metric is NaN, which fairway counts as
violated. Fairlearn takes the rate of a group without cases to be 0, so a tiny sample can look fair.

Each returns a `fairway.Measured`: Fairlearn's number, its standard error on the rows given, and bounds of the true
value, which `gaps` derives. The rows count as independent; for rows that come in clusters, such as several of one
person, use `bootstrap(metric, ..., clusters=person)`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fairway.checks import is_number, short
from fairway.constraints.gaps import Cells, largest_gap, smallest_ratio
from fairway.errors import MissingDependency, UsageError
from fairway.measured import Measured
from fairway.rows import column, grouped, labels


def equalized_odds_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> Measured:
    """The larger of the gaps between groups in true-positive and in false-positive rate; 0 is fair.

    Labels are 0 and 1, or -1 and 1. `sensitive_features` has one value per row, or several columns whose combinations
    are the groups. NaN if a group has no positives or no negatives.

    `error` is the standard error of the gap that is the value. `upper(confidence)` is the largest gap that the rows
    allow, in any pair of groups and for either label, so it also counts a small group whose gap is merely uncertain.

    >>> from fairway.constraints import equalized_odds_difference
    >>> truth, group = [0, 0, 1, 1] * 50, ["a", "b"] * 100
    >>> gap = equalized_odds_difference(truth, [1, 0, 1, 1] + [0, 0, 1, 1] * 49, sensitive_features=group)
    >>> gap
    Measured(0.02, error=0.0334)
    >>> round(gap.upper(0.95), 2)  # 1 of 50 negatives in a, and none of 50 in b, were predicted positive
    0.09
    """
    cells, rows = _cells(y_true, y_pred, sensitive_features, sample_weight, among=(1, 0))
    return largest_gap(cells, rows)


def equalized_odds_ratio(y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None) -> Measured:
    """The smaller of the ratios between groups of true-positive and of false-positive rates; 1 is fair.

    NaN if a group has no positives or no negatives, or if nothing is predicted positive in any group. `lower` is the
    smallest ratio that the rows allow; it is near 0 while a group has next to no false positives.

    >>> from fairway.constraints import equalized_odds_ratio
    >>> groups = ["a", "a", "a", "b", "b", "b"]
    >>> equalized_odds_ratio([0, 1, 1, 0, 1, 1], [1, 1, 0, 1, 1, 1], sensitive_features=groups)
    Measured(0.5, error=0.544)
    """
    cells, rows = _cells(y_true, y_pred, sensitive_features, sample_weight, among=(1, 0))
    return smallest_ratio(cells, rows)


def equal_opportunity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> Measured:
    """The gap between groups in true-positive rate; 0 is fair. NaN if a group has no positives.

    >>> from fairway.constraints import equal_opportunity_difference
    >>> float(equal_opportunity_difference([0, 0, 1, 1], [1, 0, 1, 1], sensitive_features=["a", "b", "a", "b"]))
    0.0
    """
    cells, rows = _cells(y_true, y_pred, sensitive_features, sample_weight, among=(1,))
    return largest_gap(cells, rows)


def demographic_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> Measured:
    """The gap between groups in the share predicted positive; 0 is fair.

    >>> from fairway.constraints import demographic_parity_difference
    >>> float(demographic_parity_difference([0, 0, 1, 1], [1, 0, 1, 1], sensitive_features=["a", "b", "a", "b"]))
    0.5
    """
    cells, rows = _cells(y_true, y_pred, sensitive_features, sample_weight)
    return largest_gap(cells, rows)


def demographic_parity_ratio(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> Measured:
    """The smallest share predicted positive in a group over the largest; 1 is fair.

    NaN if nobody is predicted positive. The "four-fifths rule" is `fw.AtLeast("parity", 0.8)`.

    >>> from fairway.constraints import demographic_parity_ratio
    >>> said, groups = [1] * 80 + [0] * 20 + [1] * 70 + [0] * 30, ["a"] * 100 + ["b"] * 100
    >>> parity = demographic_parity_ratio([1] * 200, said, sensitive_features=groups)
    >>> parity, round(parity.lower(0.95), 2)
    (Measured(0.875, error=0.0731), 0.75)
    """
    cells, rows = _cells(y_true, y_pred, sensitive_features, sample_weight)
    return smallest_ratio(cells, rows)


def group_gap(
    metric: Callable[..., float], y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> float:
    """The largest minus the smallest `metric(y_true, y_pred)` of a group, for any metric; NaN if one group's is.

    It also works for probabilities and for regression. `sample_weight` is passed on to the metric. Needs Fairlearn. The
    result is a plain number; `bootstrap` measures its error.

    >>> from fairway.constraints import group_gap
    >>> def error(y_true, y_pred):
    ...     return abs(y_true - y_pred).mean()
    >>> group_gap(error, [1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.0, 4.0], sensitive_features=["a", "a", "b", "b"])
    0.5
    """
    try:
        frame = importlib.import_module("fairlearn.metrics").MetricFrame  # untyped
    except ImportError:
        raise MissingDependency("group_gap needs Fairlearn: pip install 'fairway[fairlearn]'") from None
    if not callable(metric):
        raise UsageError(f"metric={short(metric)}: a function of (y_true, y_pred) is expected")
    truth, predicted = column(y_true, "y_true"), column(y_pred, "y_pred")
    groups, _, weights = grouped(truth, predicted, sensitive_features, sample_weight)

    def measured(truth: Any, predicted: Any, **weighted: Any) -> float:
        value = metric(truth, predicted, **weighted)
        if not is_number(value):
            raise UsageError(f"metric returned {short(value)}: one number is expected")
        return float(value)

    params = None if weights is None else {"sample_weight": weights}
    found = frame(metrics=measured, y_true=truth, y_pred=predicted, sensitive_features=groups, sample_params=params)
    by_group = found.by_group
    return math.nan if len(by_group) < 2 or by_group.isna().any() else float(found.difference())  # noqa: PLR2004


def _cells(
    y_true: Any, y_pred: Any, sensitive_features: Any, sample_weight: Any, *, among: tuple[int, ...] | None = None
) -> tuple[Cells, int]:
    """The share predicted positive in each group, among rows with each of these true labels or all; the rows' number.

    NaN for a group without such rows.
    """
    truth, predicted = labels(y_true, "y_true"), labels(y_pred, "y_pred")
    groups, names, weights = grouped(truth, predicted, sensitive_features, sample_weight)
    cell, size = (groups, len(names)) if among is None else (2 * groups + truth, 2 * len(names))
    with np.errstate(invalid="ignore"):
        if weights is None:
            counts = np.bincount(2 * cell + predicted, minlength=2 * size).reshape(size, 2)
            rows = counts.sum(axis=1).astype(float)
            rates = counts[:, 1] / rows
        else:
            total = np.bincount(cell, weights, size)
            rates = np.bincount(cell, weights * predicted, size) / total
            unit = weights.max(initial=0.0)  # so that squares neither overflow nor vanish
            rows = np.fmax((total / unit) ** 2 / np.bincount(cell, (weights / unit) ** 2, size), 1.0)
    if among is None:
        return Cells(rates[None], rows[None]), len(truth)
    chosen = list(among)
    return Cells(rates.reshape(-1, 2).T[chosen], rows.reshape(-1, 2).T[chosen]), len(truth)
