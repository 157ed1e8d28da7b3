"""Maximises a sum of functions of Gaussian processes over a space of real, integer and categorical parameters.

It uses L-BFGS-B in the continuous parameters and exact search in the discrete ones, starting from a pool of points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fairway.models.gaussian_process import Features, GaussianProcess
from fairway.models.neighbours import MOST_LEVELS, neighbours

Array = NDArray[np.float64]

_STEPS = 12  # of L-BFGS-B in each round
_KEPT = 3  # points, after the first round
_HALVINGS = 10  # of the way back to an acceptable point


class Term(NamedTuple):
    """One summand: a process, and a function of its mean and deviation that also returns its derivatives by both."""

    process: GaussianProcess
    value: Callable[[Array, Array], tuple[Array, Array, Array]]


class Surface:
    """A sum of terms, as a function of points of the unit cube."""

    def __init__(self, features: Features, terms: Sequence[Term]) -> None:
        self.space = features.space
        self._features, self._terms = features, terms
        column = {int(j): k for k, j in enumerate(features.of)}  # the feature of a numerical parameter
        sizes = [parameter.size for parameter in self.space.values()]
        self._continuous = np.array(
            [j for j, size in enumerate(sizes) if size > MOST_LEVELS * 4 and features.numerical[column[j]]], int
        )
        self._columns = np.array([column[int(j)] for j in self._continuous], int)

    def __call__(self, x: Array) -> Array:
        """The sum (k,) at points (k, d)."""
        z = self._features(x)
        total = np.zeros(len(x))
        for process, value in self._terms:
            total += value(*process.predict(z))[0]
        return total

    def with_gradient(self, z: Array) -> tuple[float, Array]:
        """The sum at one point's features (p,), and its gradient (p,)."""
        total, gradient = 0.0, np.zeros(len(z))
        for process, value in self._terms:
            mean, deviation, by_mean, by_deviation = process.predict_with_gradient(z)
            one, slope_mean, slope_deviation = value(np.array([mean]), np.array([deviation]))
            total += float(one[0])
            gradient += slope_mean[0] * by_mean + slope_deviation[0] * by_deviation
        return total, gradient

    def climb(self, point: Array) -> Array:
        """The point after a local search in its active continuous parameters, the others fixed."""
        here = ~np.isnan(point[self._continuous])
        free, columns = self._continuous[here], self._columns[here]
        if not free.size:
            return point

        z = self._features(point[None])[0]

        def downhill(u: Array) -> tuple[float, Array]:
            z[columns] = u
            value, gradient = self.with_gradient(z)
            return -value, -gradient[columns]

        found = minimize(
            downhill,
            point[free],
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * len(free),
            options={"maxiter": _STEPS},
        )
        moved = point.copy()
        moved[free] = np.clip(found.x, 0.0, 1.0)
        return moved


def maximise(
    surface: Surface,
    pool: Array,
    keep: Callable[[Array], NDArray[np.bool_]],
    rng: np.random.Generator,
    *,
    starts: int = 10,
    rounds: int = 4,
) -> tuple[Array, Array]:
    """The highest points found that `keep` accepts, best first, and their values; the search starts at a pool (k, d).

    Both are empty if `keep` rejects the whole pool.
    """
    space = surface.space
    x, value = _best(surface, keep, space.snap(pool), starts)
    for _ in range(rounds if len(x) else 0):
        before = value[0]
        moved = _pulled_back(x, space.snap(np.array([surface.climb(point) for point in x])), keep)
        pool = np.concatenate([x, space.snap(moved), space.snap(neighbours(space, moved[:_KEPT], rng))])
        x, value = _best(surface, keep, pool, _KEPT)
        if value[0] <= before + 1e-6:
            break
    return x, value


def _pulled_back(x: Array, moved: Array, keep: Callable[[Array], NDArray[np.bool_]]) -> Array:
    """The moved points (k, d); bisection replaces a rejected one by an accepted point on the way from x."""
    rejected = ~keep(moved)
    if not rejected.any():
        return moved
    inside, outside, moved = x[rejected], moved[rejected], moved.copy()
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        kept = keep(middle)[:, None]
        inside, outside = np.where(kept, middle, inside), np.where(kept, outside, middle)
    moved[rejected] = inside
    return moved


def _best(surface: Surface, keep: Callable[[Array], NDArray[np.bool_]], x: Array, most: int) -> tuple[Array, Array]:
    """The `most` highest distinct points that `keep` accepts, and their values."""
    _, first = np.unique(surface.space.fingerprints(x), return_index=True)
    x = x[np.sort(first)]
    x = x[keep(x)]
    if not len(x):
        return x, np.zeros(0)
    value = surface(x)
    order = np.argsort(-value, kind="stable")[:most]
    return x[order], value[order]
