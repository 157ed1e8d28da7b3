"""One-parameter changes of points: candidates for any acquisition function.

Points are (n, d) of the unit cube; NaN, an inactive parameter, counts as 0.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.space import Space

MOST_LEVELS = 48
"""A discrete parameter with more levels is treated as a real one."""

MOST_COORDINATES = 2**18
"""The most coordinates, over all points that `each_level` returns: 10,000 points in 26 dimensions, or 170 in 1,500."""

Array = NDArray[np.float64]


def each_level(space: Space, x: Array, rng: np.random.Generator) -> Array:
    """Every point with each discrete parameter set to each of its levels in turn, its own included.

    If that makes too many coordinates in all, only some parameters, chosen at random, are changed.
    """
    changed, filled = [np.zeros((0, len(space)))], np.nan_to_num(x, nan=0.5)
    parameters = [*space.values()]
    discrete = np.array([j for j, parameter in enumerate(parameters) if parameter.size <= MOST_LEVELS], np.intp)
    most = MOST_COORDINATES // (len(space) * max(len(x), 1))  # changes of each point
    if sum(int(parameters[j].size) for j in discrete) > most:
        drawn = rng.permutation(discrete)
        discrete = drawn[np.cumsum([int(parameters[j].size) for j in drawn]) <= most]
    for j in discrete.tolist():
        edges = parameters[j].edges()
        levels = (edges[:-1] + edges[1:]) / 2
        changed.append(_with(filled, j, np.tile(levels, (len(x), 1))))
    return np.concatenate(changed)


def neighbours(space: Space, x: Array, rng: np.random.Generator) -> Array:
    """Every point with one parameter changed: a discrete one to each level, a real one to random and to near values."""
    changed = [each_level(space, x, rng)]
    filled = np.nan_to_num(x, nan=0.5)
    for j, parameter in enumerate(space.values()):
        if parameter.size > MOST_LEVELS:
            anywhere = np.tile(rng.random(4), (len(x), 1))
            near = np.clip(filled[:, j, None] + 0.1 * rng.normal(size=(len(x), 2)), 0.0, 1.0)
            changed.append(_with(filled, j, np.concatenate([anywhere, near], axis=1)))
    return np.concatenate(changed)


def _with(x: Array, j: int, values: Array) -> Array:
    """Copies of points (n, d), one for each value (n, k) of coordinate j."""
    copies = np.repeat(x, values.shape[1], axis=0)
    copies[:, j] = values.ravel()
    return copies
