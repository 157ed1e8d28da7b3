"""One-parameter changes of points: candidates for any acquisition function.

Points are (n, d) of the unit cube; NaN, an inactive parameter, counts as 0.5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.space import Space

MOST_LEVELS = 48
"""A discrete parameter with more levels is treated as a real one."""

Array = NDArray[np.float64]


def each_level(space: Space, x: Array) -> Array:
    """Every point with each discrete parameter set to each of its levels in turn, its own included."""
    changed = [np.zeros((0, len(space)))]
    for j, parameter in enumerate(space.values()):
        if parameter.size <= MOST_LEVELS:
            edges = parameter.edges()
            levels = (edges[:-1] + edges[1:]) / 2
            changed.append(_with(np.nan_to_num(x, nan=0.5), j, np.tile(levels, (len(x), 1))))
    return np.concatenate(changed)


def neighbours(space: Space, x: Array, rng: np.random.Generator) -> Array:
    """Every point with one parameter changed: a discrete one to each level, a real one to random and to near values."""
    changed = [each_level(space, x)]
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
