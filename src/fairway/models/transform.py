"""Output transforms: a Gaussian process fits smooth functions, not losses that span orders of magnitude.

Positive values get the Box-Cox transform, others Yeo-Johnson's; power 1 is linear, power 0 a logarithm. The result is
standardised, and large values are clipped, since it does not matter how bad a bad configuration is. The power is chosen
by maximum likelihood, the process's times the slope of the transform (Snelson et al., 2004).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fairway.models.gaussian_process import Features, fit

Array = NDArray[np.float64]

_POWERS = (1.0, 0.5, 0.0)
_JUDGED = 60  # points, at most, to compare powers on
_WORST = 4.0  # deviations from the mean
_LARGEST = 1e100  # its square is still finite


class Transform:
    """An increasing map fitted to values (n,), of which lower is better; `cut` clips those above 4 deviations."""

    def __init__(self, values: Array, power: float = 1.0, *, cut: bool = True) -> None:
        self.power, self._cut = power, cut
        finite = np.clip(values[np.isfinite(values)], -_LARGEST, _LARGEST)
        finite = finite if len(finite) else np.zeros(1)
        self._positive = bool(finite.min() > 0.0)
        self._centre = 0.0 if self._positive else float(np.median(finite))
        high, low = np.quantile(finite, [0.75, 0.25])
        self._unit = 1.0 if self._positive else float(high - low) or float(finite.std()) or 1.0
        moved = self._move(finite)
        self._mean, self._deviation = float(moved.mean()), float(moved.std())
        if not self._deviation > 1e-12 * max(1.0, abs(self._mean)):
            self._deviation = math.inf  # a constant

    @property
    def flat(self) -> bool:
        """Whether the values were all equal, up to rounding."""
        return math.isinf(self._deviation)

    def __call__(self, values: Array) -> Array:
        """The standardised values."""
        moved = (self._move(values) - self._mean) / self._deviation
        moved = np.nan_to_num(moved, nan=_WORST, posinf=_WORST, neginf=-_WORST)
        return np.minimum(moved, _WORST) if self._cut else np.clip(moved, -10.0, 10.0)

    def inverse(self, values: Array) -> Array:
        """The original values of standardised ones (n,), except where they were clipped."""
        moved, power = values * (self._deviation if np.isfinite(self._deviation) else 0.0) + self._mean, self.power
        with np.errstate(over="ignore"):
            if self._positive:
                if power == 1.0:
                    return 1.0 + moved
                return np.exp(moved) if power == 0.0 else _root(1.0 + power * moved, power)
            up = np.exp(moved) if power == 0.0 else _root(1.0 + power * np.maximum(moved, 0.0), power)
            down = _root(1.0 + (2.0 - power) * np.maximum(-moved, 0.0), 2.0 - power)
            return np.where(moved >= 0.0, up - 1.0, 1.0 - down) * self._unit + self._centre

    def log_slope(self, values: Array) -> float:
        """The sum over values of the log of the map's derivative."""
        if self._positive:
            slope = (self.power - 1.0) * np.log(np.maximum(values, 1e-300))
        else:
            u = (values - self._centre) / self._unit
            slope = (self.power - 1.0) * np.sign(u) * np.log1p(np.abs(u)) - np.log(self._unit)
        return float((slope - np.log(self._deviation)).sum())

    def _move(self, values: Array) -> Array:
        power, values = self.power, np.clip(values, -_LARGEST, _LARGEST)
        with np.errstate(invalid="ignore", over="ignore"):
            if self._positive:
                logs = np.log(np.maximum(values, 1e-300))
                return logs if power == 0.0 else np.expm1(power * logs) / power
            u = (values - self._centre) / self._unit
            up, down = np.log1p(np.maximum(u, 0.0)), np.log1p(np.maximum(-u, 0.0))
            right = up if power == 0.0 else np.expm1(power * up) / power
            return np.where(u >= 0.0, right, -np.expm1((2.0 - power) * down) / (2.0 - power))


def _root(values: Array, power: float) -> Array:
    return np.asarray(np.maximum(values, 0.0) ** (1.0 / power))


def likeliest(features: Features, z: Array, values: Array) -> Transform:
    """The transform under which values (n,) at features (n, p) are likeliest."""
    order = np.argsort(values, kind="stable")
    some = np.sort(np.unique(order[np.linspace(0, len(order) - 1, min(len(order), _JUDGED)).astype(int)]))
    z, judged = z[some], np.clip(values[some], -_LARGEST, _LARGEST)
    best, found = -np.inf, Transform(values)
    if len(np.unique(judged)) < 4:  # noqa: PLR2004 - too few to compare powers
        return found
    for power in _POWERS:
        transform = Transform(judged, power, cut=False)
        score = fit(features, z, transform(judged), steps=12).log_likelihood + transform.log_slope(judged)
        if score > best:
            best, found = score, Transform(values, power)
    return found
