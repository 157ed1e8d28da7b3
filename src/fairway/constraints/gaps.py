"""How far the largest gap between groups' rates, or their smallest ratio, may be from the truth.

| symbol | meaning |
| --- | --- |
| p | the rate of a cell: the share predicted positive in one group, among the rows with one true label |
| n | the rows of the cell; with weights their effective number, (sum of w)^2 / (sum of w^2) |
| s | the smoothed rate (n p + 1) / (n + 2) of Agresti and Caffo (2000), never 0 or 1 |
| v | s (1 - s) / n, the variance of p |
| h | 1 / (2 n), half a row: the correction for p moving in steps of 1 / n |

The *gap* of an ordered pair of groups (i, j) is p_i - p_j, and its standard error is sqrt(v_i + v_j). With confidence
c, whose normal quantile is z, the true gap is at most max(p_i - p_j, s_i - s_j) + h_i + h_j + z sqrt(v_i + v_j):
smoothing may widen a gap and never narrows it. The *ratio* p_i / p_j has the same bounds on the log scale, where its
variance is (1 - s_i) / (n_i s_i) + (1 - s_j) / (n_j s_j) (delta method), with half a row taken from or added to each
count. A cell where nobody or everybody was predicted positive so never claims certainty.

The true metric is the gap of one pair, whichever it is, so the largest of the pairs' upper bounds holds with confidence
c without a correction for their number. The other side does need one, since the largest of m lower bounds is only as
safe as all of them together: each is taken at the confidence 1 - (1 - c) / m (Bonferroni).
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.measured import Measured, quantile

_ROUNDING = 1e-12


class Cells(NamedTuple):
    """The rates and rows of each cell, (labels, groups)."""

    rates: NDArray[np.float64]  # p; NaN in a cell without rows
    rows: NDArray[np.float64]  # n


class _Pairs(NamedTuple):
    """Each ordered pair of two groups, for each label; (labels * groups * (groups - 1),) each."""

    value: NDArray[np.float64]  # the gap, or the ratio
    smoothed: NDArray[np.float64]  # the same of the smoothed rates
    least: NDArray[np.float64]  # value, and half a row of each cell less
    most: NDArray[np.float64]  # value, and half a row of each cell more
    error: NDArray[np.float64]  # the standard error; of a ratio on the log scale


def largest_gap(cells: Cells, rows: int) -> Measured:
    """The largest gap of a pair of groups; NaN if a rate is, or with fewer than two groups."""
    if cells.rates.shape[1] < 2 or np.isnan(cells.rates).any():  # noqa: PLR2004
        return Measured(math.nan, math.nan)
    pairs = _gaps(cells)
    value = float(pairs.value.max())
    error = float(pairs.error[_alike(pairs, value)].max())
    upper, lower = partial(_gap_at_most, cells, value), partial(_gap_at_least, cells, value)
    return Measured(value, error, rows=rows, upper=upper, lower=lower)


def smallest_ratio(cells: Cells, rows: int) -> Measured:
    """The smallest ratio of a pair of groups with one label; NaN if a rate is, or without two groups, or if all are 0.

    A label for which no group has a positive has no ratio, and the other label's is the value. Its groups may still
    differ in truth, so it counts in the bounds.
    """
    if cells.rates.shape[1] < 2 or np.isnan(cells.rates).any() or not cells.rates.any():  # noqa: PLR2004
        return Measured(math.nan, math.nan)
    pairs = _ratios(cells)
    value = float(np.fmin.reduce(pairs.value))
    error = float((pairs.smoothed * pairs.error)[_alike(pairs, value)].max())
    upper, lower = partial(_ratio_at_most, cells, value), partial(_ratio_at_least, cells, value)
    return Measured(value, error, rows=rows, upper=upper, lower=lower)


def _alike(pairs: _Pairs, value: float) -> NDArray[np.bool_]:
    """The pairs with this value, up to rounding: the least certain of them counts."""
    return np.isclose(pairs.value, value, rtol=0.0, atol=_ROUNDING)


def smoothed(rates: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """s: the rates with one success and one failure more, so that none is 0 or 1."""
    return (rates * rows + 1) / (rows + 2)


def _gap_at_most(cells: Cells, value: float, confidence: float) -> float:
    pairs = _gaps(cells)
    highest = np.maximum(pairs.most, pairs.smoothed) + quantile(confidence) * pairs.error
    return max(value, min(1.0, float(highest.max())))


def _gap_at_least(cells: Cells, value: float, confidence: float) -> float:
    pairs = _gaps(cells)
    lowest = np.minimum(pairs.least, pairs.smoothed) + quantile((1 - confidence) / len(pairs.value)) * pairs.error
    return min(value, max(0.0, float(lowest.max())))


def _ratio_at_least(cells: Cells, value: float, confidence: float) -> float:
    pairs = _ratios(cells)
    lowest = np.minimum(pairs.least, pairs.smoothed) * np.exp(-quantile(confidence) * pairs.error)
    return min(value, float(lowest.min()))


def _ratio_at_most(cells: Cells, value: float, confidence: float) -> float:
    pairs = _ratios(cells)
    z = -quantile((1 - confidence) / len(pairs.value))
    highest = np.maximum(pairs.most, pairs.smoothed) * np.exp(z * pairs.error)
    return max(value, min(1.0, float(highest.min())))


def _gaps(cells: Cells) -> _Pairs:
    rates, rows = cells
    smooth = smoothed(rates, rows)
    first, second = _ordered(rates.shape[1])
    variance, half = smooth * (1 - smooth) / rows, 0.5 / rows
    value, steps = rates[:, first] - rates[:, second], half[:, first] + half[:, second]
    return _Pairs(
        value.ravel(),
        (smooth[:, first] - smooth[:, second]).ravel(),
        (value - steps).ravel(),
        (value + steps).ravel(),
        np.sqrt(variance[:, first] + variance[:, second]).ravel(),
    )


def _ratios(cells: Cells) -> _Pairs:
    rates, rows = cells
    smooth = smoothed(rates, rows)
    first, second = _ordered(rates.shape[1])
    variance, half = (1 - smooth) / (rows * smooth), 0.5 / rows
    fewer, more = np.maximum(rates - half, 0.0), np.minimum(rates + half, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _Pairs(
            (rates[:, first] / rates[:, second]).ravel(),
            (smooth[:, first] / smooth[:, second]).ravel(),
            (fewer[:, first] / more[:, second]).ravel(),
            (more[:, first] / fewer[:, second]).ravel(),
            np.sqrt(variance[:, first] + variance[:, second]).ravel(),
        )


def _ordered(groups: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of all pairs of different groups."""
    first, second = np.nonzero(~np.eye(groups, dtype=bool))
    return first, second
