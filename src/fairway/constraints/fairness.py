"""How differently a model treats groups of people: Fairlearn's metrics, in a hundredth of its time.

Cheap constraints are checked more often, so speed matters. The functions agree with Fairlearn's of the same names,
except that input which would give a wrong number is refused, and an undefined metric is NaN, which fairway counts as
violated. Fairlearn takes the rate of a group without cases to be 0, so a tiny sample can look fair.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.checks import is_number
from fairway.constraints.rows import column, grouped, labels
from fairway.errors import MissingDependency, UsageError


def equalized_odds_difference(y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None) -> float:
    """The larger of the gaps between groups in true-positive and in false-positive rate; 0 is fair.

    Labels are 0 and 1, or -1 and 1. `sensitive_features` has one value per row, or several columns whose combinations
    are the groups. NaN if a group has no positives or no negatives.

    >>> from fairway.constraints import equalized_odds_difference
    >>> equalized_odds_difference([0, 0, 1, 1], [1, 0, 1, 1], sensitive_features=["a", "b", "a", "b"])
    1.0
    """
    positives, negatives = _rates(y_true, y_pred, sensitive_features, sample_weight, among=(1, 0))
    return float(np.maximum(_difference(positives), _difference(negatives)))  # NaN if one is


def equalized_odds_ratio(y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None) -> float:
    """The smaller of the ratios between groups of true-positive and of false-positive rates; 1 is fair.

    NaN if a group has no positives or no negatives, or if nothing is predicted positive in any group.

    >>> from fairway.constraints import equalized_odds_ratio
    >>> groups = ["a", "a", "a", "b", "b", "b"]
    >>> equalized_odds_ratio([0, 1, 1, 0, 1, 1], [1, 1, 0, 1, 1, 1], sensitive_features=groups)
    0.5
    """
    positives, negatives = _rates(y_true, y_pred, sensitive_features, sample_weight, among=(1, 0))
    if np.isnan([positives, negatives]).any():
        return math.nan
    return float(np.fmin(_ratio(positives), _ratio(negatives)))  # the one that is defined, if only one is


def equal_opportunity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> float:
    """The gap between groups in true-positive rate; 0 is fair. NaN if a group has no positives.

    >>> from fairway.constraints import equal_opportunity_difference
    >>> equal_opportunity_difference([0, 0, 1, 1], [1, 0, 1, 1], sensitive_features=["a", "b", "a", "b"])
    0.0
    """
    return _difference(*_rates(y_true, y_pred, sensitive_features, sample_weight, among=(1,)))


def demographic_parity_difference(
    y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> float:
    """The gap between groups in the share predicted positive; 0 is fair.

    >>> from fairway.constraints import demographic_parity_difference
    >>> demographic_parity_difference([0, 0, 1, 1], [1, 0, 1, 1], sensitive_features=["a", "b", "a", "b"])
    0.5
    """
    return _difference(*_rates(y_true, y_pred, sensitive_features, sample_weight))


def demographic_parity_ratio(y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None) -> float:
    """The smallest share predicted positive in a group over the largest; 1 is fair. NaN if nobody is.

    The "four-fifths rule" is `fw.AtLeast("parity", 0.8)`.

    >>> from fairway.constraints import demographic_parity_ratio
    >>> demographic_parity_ratio([0, 0, 1, 1], [1, 0, 1, 1], sensitive_features=["a", "b", "a", "b"])
    0.5
    """
    return _ratio(*_rates(y_true, y_pred, sensitive_features, sample_weight))


def group_gap(
    metric: Callable[..., float], y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None
) -> float:
    """The largest minus the smallest `metric(y_true, y_pred)` of a group, for any metric; NaN if one group's is.

    It also works for probabilities and for regression. `sample_weight` is passed on to the metric. Needs Fairlearn.

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
        raise UsageError(f"metric={metric!r}: a function of (y_true, y_pred) is expected")
    truth, predicted = column(y_true, "y_true"), column(y_pred, "y_pred")
    groups, _, weights = grouped(truth, predicted, sensitive_features, sample_weight)

    def measured(truth: Any, predicted: Any, **weighted: Any) -> float:
        value = metric(truth, predicted, **weighted)
        if not is_number(value):
            raise UsageError(f"metric returned {value!r}: one number is expected")
        return float(value)

    params = None if weights is None else {"sample_weight": weights}
    found = frame(metrics=measured, y_true=truth, y_pred=predicted, sensitive_features=groups, sample_params=params)
    by_group = found.by_group
    return math.nan if len(by_group) < 2 or by_group.isna().any() else float(found.difference())  # noqa: PLR2004


def _rates(
    y_true: Any, y_pred: Any, sensitive_features: Any, sample_weight: Any, *, among: tuple[int | None, ...] = (None,)
) -> list[NDArray[np.float64]]:
    """The share predicted positive in each group (groups,), among rows with each true label; None means all rows.

    NaN for a group without such rows.
    """
    truth, predicted = labels(y_true, "y_true"), labels(y_pred, "y_pred")
    groups, _, weights = grouped(truth, predicted, sensitive_features, sample_weight)
    every = np.ones(len(groups)) if weights is None else weights
    counted = [every if label is None else every * (truth == label) for label in among]
    with np.errstate(invalid="ignore"):
        return [np.bincount(groups, rows * predicted) / np.bincount(groups, rows) for rows in counted]


def _difference(rates: NDArray[np.float64]) -> float:
    return float(rates.max() - rates.min()) if len(rates) > 1 else math.nan


def _ratio(rates: NDArray[np.float64]) -> float:
    highest = float(rates.max())
    return float(rates.min()) / highest if len(rates) > 1 and highest else math.nan
