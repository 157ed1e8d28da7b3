"""Tails of means of independent variables in [0, 1], for which only the mean's limit is known.

| notation | meaning |
| --- | --- |
| R | the observed mean, sum of w_i X_i |
| a | the limit; the null is that the expected mean is at least a |
| w | weights of the variables; their sum is W |

Each function returns an upper bound of P(mean <= R) under the null; `AtLeast` comes from 1 - X and W - a.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array: TypeAlias = NDArray[np.float64]

_LARGEST = 600.0  # of lambda * w, so that exp(-lambda * w) stays above 0
_SMALLEST = 1e-6
_STEPS = 48  # of the golden section
_GOLDEN = (math.sqrt(5) - 1) / 2


def binomial(successes: float, rows: float, rate: float) -> float:
    """P(Binomial(rows, rate) <= successes), the exact tail for 0/1 variables of equal weight."""
    if successes >= rows:
        return 1.0
    return float(special.betainc(rows - successes, successes + 1, 1 - rate))


def hoeffding_bentkus(mean: float, rows: float, limit: float) -> float:
    """min(exp(-n h(R, a)), e P(Bin(n, a) <= ceil(n R))), equal weights; h is the Kullback-Leibler divergence.

    Bates, Angelopoulos, Lei, Malik and Jordan (2021), proposition 3.
    """
    if mean >= limit:
        return 1.0
    hoeffding = math.exp(-rows * float(special.rel_entr(mean, limit) + special.rel_entr(1 - mean, 1 - limit)))
    count = math.ceil(rows * mean - 1e-9)  # the sum, not the rounding of its last bit
    return min(hoeffding, math.e * binomial(count, rows, limit))


def chernoff(mean: float, weights: Array, counts: Array, limit: float) -> float:
    """The infimum over lambda of exp(lambda R) max over mu of prod(1 - mu_i g_i).

    g_i = 1 - exp(-lambda w_i), and the means mu_i have the weighted sum a. `weights` are the distinct weights (m,) and
    `counts` how many variables have each (m,). By convexity E exp(-lambda w X) <= 1 - mu g for any X in [0, 1].
    Equal weights give exp(-n h(R, a)). Any lambda gives a valid bound, so the search need not be exact.
    """
    if mean >= limit:
        return 1.0
    widest = float(weights.max())

    def exponent(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return rate * mean + _log_product(rate * weights, weights, counts, limit)

    low, high = math.log(_SMALLEST / widest), math.log(_LARGEST / widest)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = exponent(left), exponent(right)
    for _ in range(_STEPS):  # the exponent is convex in lambda, so it has one valley in log lambda
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = exponent(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = exponent(right)
    return math.exp(min(at_left, at_right, 0.0))


def _log_product(scaled: Array, weights: Array, counts: Array, limit: float) -> float:
    """The largest sum of log(1 - mu_i g_i) with means (m,) in [0, 1] whose weighted sum is the limit.

    The sum is concave in mu; with a multiplier 1/s for the weighted sum, mu_i = clip(1/g_i - s/w_i, 0, 1). The weighted
    sum of these is piecewise linear in s, with a kink where a mean reaches 1 and one where it reaches 0.
    """
    reach = -np.expm1(-scaled)
    top = weights / reach
    kinks = np.concatenate([top - weights, top])
    order = np.argsort(kinks, kind="stable")
    kinks = kinks[order]
    slopes = np.cumsum(np.concatenate([-counts, counts])[order])
    sums = float(weights @ counts) + np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(kinks))])
    s = np.interp(limit, np.minimum.accumulate(sums)[::-1], kinks[::-1])
    means = np.clip(1 / reach - s / weights, 0.0, 1.0)
    return float(counts @ np.log(1 - means + means * np.exp(-scaled)))
