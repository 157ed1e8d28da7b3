"""Acquisition functions, as logarithms: these have a gradient even where the function itself underflows to 0.

Losses are minimised: `mean` and `deviation` are of the loss, `best` is the loss to improve on. Each function returns
its value and its derivatives by mean and by deviation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

Array = NDArray[np.float64]

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)
_SURE = 20.0  # above it the expected improvement is z
_FAR = -200.0  # below it 1 + z m(z) is 1 / z^2


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> tuple[Array, Array, Array]:
    """Log E[max(best - f, 0)]; where that underflows, as in Ament et al. (2023)."""
    z = (best - mean) / deviation
    sure, far = z > _SURE, z < _FAR
    # phi(z) + z Phi(z) = phi(z) (1 + z m(z)), m(z) = Phi(z) / phi(z) = sqrt(pi / 2) erfcx(-z / sqrt 2)
    mills = _SQRT_HALF_PI * erfcx(-np.minimum(z, _SURE) / math.sqrt(2))
    tail = np.where(far, 1.0 / np.maximum(z * z, 1.0), np.maximum(1.0 + z * mills, 1e-300))
    near = np.where(sure, np.log(np.maximum(z, 1.0)), -0.5 * z * z - _LOG_SQRT_2PI + np.log(tail))
    slope = np.where(sure, 1.0 / np.maximum(z, 1.0), np.where(far, -z, mills / tail))  # Phi / (phi + z Phi)
    return near + np.log(deviation), -slope / deviation, (1.0 - z * slope) / deviation


def log_probability_below(mean: Array, deviation: Array, limit: float) -> tuple[Array, Array, Array]:
    """Log P[f <= limit]: the probability of improvement, or that a constraint holds."""
    z = (limit - mean) / deviation
    with np.errstate(over="ignore", divide="ignore"):
        log, slope = log_ndtr(z), 1.0 / (_SQRT_HALF_PI * erfcx(-z / math.sqrt(2)))  # phi / Phi
    return log, -slope / deviation, -slope * z / deviation


def lower_confidence_bound(mean: Array, deviation: Array, width: float) -> tuple[Array, Array, Array]:
    """Minus the lower confidence bound: width * deviation - mean."""
    return width * deviation - mean, np.full_like(mean, -1.0), np.full_like(mean, width)
