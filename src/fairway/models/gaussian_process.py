"""A small Gaussian process: Matern-5/2, one length scale per parameter, type-II maximum likelihood.

The notation is that of Rasmussen and Williams (2006). Distances are Euclidean in a feature space: a numerical parameter
is one feature; an unordered choice is a one-hot block with one length scale, scaled so that two different options are
at distance 1. An inactive numerical parameter is 0.5, an inactive choice all zeros.

| symbol | shape | meaning |
| --- | --- | --- |
| z | (n, p) | features of the points |
| y | (n,) | values, standardised by the caller |
| doubt | (n,) | variances of single values, beside the noise that all share; by default 0 |
| theta | (d + 3,) | log length scales, log amplitude, log noise variance, log factor of doubt |
| | (3 d + 3,) | the same, then the logs of a and b of Kumaraswamy's warp of each numerical input (Snoek et al., 2014) |
| K | (n, n) | covariance of the values, noise included |
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

from fairway.parameters import Choice
from fairway.space import Space

Array = NDArray[np.float64]

_SQRT5 = math.sqrt(5.0)
_LENGTH = (0.03, 30.0)  # bounds of a length scale
_AMPLITUDE = (0.05, 50.0)
_NOISE = (1e-6, 1.0)
_FACTOR = (1e-6, 1.0)  # of doubt, where it is scaled


class Features:
    """Maps points of a space to features."""

    def __init__(self, space: Space) -> None:
        self.space = space
        options = [
            int(parameter.size) if isinstance(parameter, Choice) and not parameter.ordered else 0
            for parameter in space.values()
        ]
        self.of = np.repeat(np.arange(len(space)), np.maximum(options, 1))  # the parameter of each feature
        self.numerical = np.equal(options, 0)[self.of]  # by feature
        first = np.searchsorted(self.of, np.arange(len(space)))
        self._blocks = [(j, int(first[j]), count) for j, count in enumerate(options) if count]

    def __call__(self, x: Array) -> Array:
        """Features (n, p) of points (n, d) of the unit cube, NaN where inactive."""
        z = x[:, self.of]
        z[np.isnan(z)] = 0.5
        for j, first, options in self._blocks:
            u = x[:, j]
            there = np.flatnonzero(~np.isnan(u))
            option = np.minimum(u[there] * options, options - 1).astype(int)
            z[:, first : first + options] = 0.0
            z[there, first + option] = math.sqrt(0.5)
        return z


def _covariance(square: Array) -> tuple[Array, Array]:
    """The Matern-5/2 correlation at squared distances, and the factor that its derivatives by length scales share."""
    r = np.sqrt(np.maximum(square, 0.0))
    decay = np.exp(-_SQRT5 * r)
    linear = 1.0 + _SQRT5 * r
    return (linear + (5.0 / 3.0) * square) * decay, (5.0 / 3.0) * linear * decay


def _squared_distances(a: Array, b: Array) -> Array:
    square: Array = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * (a @ b.T)
    return np.maximum(square, 0.0)


class _Warped:
    """Features (n, p) after the warp 1 - (1 - z^a)^b of the numerical ones, and its derivatives."""

    def __init__(self, features: Features, z: Array, theta: Array) -> None:
        d = len(features.space)
        self.z, self.by_z = z, np.ones_like(z)
        self.by_log_a = self.by_log_b = np.zeros_like(z)
        if len(theta) == d + 3:
            return
        a, b = np.exp(theta[d + 3 : 2 * d + 3])[features.of], np.exp(theta[2 * d + 3 :])[features.of]
        inside = np.clip(z, 1e-6, 1.0 - 1e-6)
        power = inside**a
        rest = 1.0 - power
        warped = 1.0 - rest**b
        by_power = b * rest ** (b - 1.0)
        self.z = np.where(features.numerical, warped, z)
        self.by_z = np.where(features.numerical, by_power * a * power / inside, 1.0)
        self.by_log_a = np.where(features.numerical, by_power * power * np.log(inside) * a, 0.0)
        self.by_log_b = np.where(features.numerical, -(rest**b) * np.log(rest) * b, 0.0)


def _inverse(chol: Array) -> Array:
    """The inverse of a matrix, from its lower Cholesky factor with zeros above."""
    half, _ = dpotri(chol, lower=1)
    inverse: Array = half + half.T
    inverse[np.diag_indices_from(inverse)] *= 0.5
    return inverse


class GaussianProcess:
    """A Gaussian process with hyperparameters theta, conditioned on values y (n,) at features z (n, p)."""

    def __init__(self, features: Features, z: Array, y: Array, theta: Array, doubt: Array | None = None) -> None:
        self._features, self._y, self.theta = features, y, theta
        self._doubt = np.zeros(len(y)) if doubt is None else doubt
        d = len(features.space)
        self._scale = np.exp(-theta[:d])[features.of]
        self.amplitude, self.noise, self.factor = np.exp(theta[d : d + 3]).tolist()
        self._z = z
        self._a = _Warped(features, z, theta).z * self._scale
        covariance, _ = _covariance(_squared_distances(self._a, self._a))
        covariance *= self.amplitude
        covariance[np.diag_indices_from(covariance)] = self.amplitude + self.noise + 1e-10 + self.factor * self._doubt
        self._chol = np.asarray(np.linalg.cholesky(covariance), np.float64)
        self._alpha = cho_solve((self._chol, True), y)
        self._inverse = _inverse(self._chol)

    @property
    def log_likelihood(self) -> float:
        """The log likelihood of y under theta: Rasmussen and Williams (2.30)."""
        logdet = np.log(np.diag(self._chol)).sum()
        return float(-0.5 * self._y @ self._alpha - logdet - 0.5 * len(self._y) * math.log(2 * math.pi))

    def predict(self, z: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the noise-free function at features (k, p): both (k,)."""
        warped = _Warped(self._features, z, self.theta).z
        covariance, _ = _covariance(_squared_distances(warped * self._scale, self._a))
        covariance *= self.amplitude
        mean = covariance @ self._alpha
        variance = np.maximum(self.amplitude - ((covariance @ self._inverse) * covariance).sum(axis=1), 1e-12)
        return mean, np.sqrt(variance)

    def predict_with_gradient(self, z: Array) -> tuple[float, float, Array, Array]:
        """Mean and deviation at one point's features (p,), and their gradients (p,)."""
        warped = _Warped(self._features, z, self.theta)
        difference = warped.z * self._scale - self._a
        covariance, shared = _covariance((difference * difference).sum(axis=1))
        covariance *= self.amplitude
        slope = -(self.amplitude * shared)[:, None] * difference * self._scale  # d k(z, z_i) / d z
        weights = self._inverse @ covariance
        variance = max(self.amplitude - float(covariance @ weights), 1e-12)
        deviation = math.sqrt(variance)
        by_mean, by_deviation = slope.T @ self._alpha, -(slope.T @ weights) / deviation
        return float(covariance @ self._alpha), deviation, by_mean * warped.by_z, by_deviation * warped.by_z

    def joined_by(self, z: Array) -> GaussianProcess:
        """The process conditioned on its own mean at further features (k, p), those of running trials."""
        mean, _ = self.predict(z)
        values, doubt = np.concatenate([self._y, mean]), np.concatenate([self._doubt, np.zeros(len(z))])
        return GaussianProcess(self._features, np.concatenate([self._z, z]), values, self.theta, doubt)


def negative_log_likelihood(
    theta: Array, features: Features, z: Array, y: Array, doubt: Array | float = 0.0
) -> tuple[float, Array]:
    """Minus the log marginal likelihood of theta, and its gradient in the shape of theta."""
    d = len(features.space)
    scale = np.exp(-theta[:d])[features.of]
    amplitude, noise, factor = np.exp(theta[d : d + 3]).tolist()
    warped = _Warped(features, z, theta)
    a = warped.z * scale
    correlation, shared = _covariance(_squared_distances(a, a))
    covariance = amplitude * correlation
    diagonal = np.diag_indices_from(covariance)
    covariance[diagonal] = amplitude + noise + 1e-10 + factor * doubt
    chol, failed = dpotrf(covariance, lower=1, overwrite_a=0)
    if failed:
        return 1e25, np.zeros_like(theta)
    alpha = cho_solve((chol, True), y, check_finite=False)
    value = 0.5 * y @ alpha + np.log(chol[diagonal]).sum() + 0.5 * len(y) * math.log(2 * math.pi)
    weight = _inverse(chol) - np.outer(alpha, alpha)  # d value / d K, times 2
    gradient = np.zeros_like(theta)
    by_square = weight * shared
    by_square *= amplitude
    by_place = by_square.sum(axis=1)[:, None] * a - by_square @ a  # minus d value / d a
    gradient[:d] = np.bincount(features.of, weights=(a * by_place).sum(axis=0), minlength=d)
    gradient[d] = 0.5 * amplitude * (weight * correlation).sum()
    gradient[d + 1] = 0.5 * noise * weight[diagonal].sum()
    gradient[d + 2] = 0.5 * factor * (weight[diagonal] * doubt).sum()
    if len(theta) > d + 3:
        for start, slope in ((d + 3, warped.by_log_a), (2 * d + 3, warped.by_log_b)):
            by_feature = -(by_place * scale * slope).sum(axis=0)
            gradient[start : start + d] = np.bincount(features.of, weights=by_feature, minlength=d)
    return float(value), gradient


def _minus_log_prior(theta: Array, d: int) -> tuple[float, Array]:
    """Minus a weak log prior that prevents overfitting to few points: length scales near 1, little noise, no warp."""
    centre, width = np.zeros_like(theta), np.full_like(theta, 0.5)
    centre[:d], width[:d] = math.log(0.7), 1.5
    width[d] = math.inf
    centre[d + 1], width[d + 1] = math.log(1e-3), 2.0
    width[d + 2] = math.inf
    away = (theta - centre) / width
    return 0.5 * float(away @ away), away / width


def fit(
    features: Features,
    z: Array,
    y: Array,
    doubt: Array | None = None,
    *,
    scaled: bool = False,
    prior: bool = True,
    warp: bool = False,
    steps: int = 40,
) -> GaussianProcess:
    """The process whose hyperparameters maximise the likelihood of values y (n,) at features z (n, p).

    The doubt counts as it is or, if it is to be `scaled`, times the likeliest factor.
    """
    d = len(features.space)
    doubted = np.zeros(len(y)) if doubt is None else doubt
    bounds = np.log([_LENGTH] * d + [_AMPLITUDE, _NOISE, _FACTOR if scaled else (1.0, 1.0)]).tolist()
    bounds += [(-1.5, 1.5)] * (2 * d if warp else 0)

    def objective(theta: Array) -> tuple[float, Array]:
        value, gradient = negative_log_likelihood(theta, features, z, y, doubted)
        if prior:
            more, slope = _minus_log_prior(theta, d)
            value, gradient = value + more, gradient + slope
        return value, gradient

    begin = np.zeros(len(bounds))
    begin[:d], begin[d + 1], begin[d + 2] = math.log(0.7), math.log(1e-2), math.log(1e-2) if scaled else 0.0
    precision = 1e-6 if prior else 1e-11  # with the prior, more precision changes no proposal
    found = minimize(
        objective, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps, "ftol": precision}
    )
    return GaussianProcess(features, z, y, np.asarray(found.x), doubt)
