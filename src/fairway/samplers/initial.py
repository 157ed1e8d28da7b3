"""Initial designs: the points to try before there is anything to learn from.

A design depends only on the study's seed and on the number of trials so far, so that several workers, or a resumed
study, complete the same design.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.history import History
from fairway.seeds import stream

Design: TypeAlias = Literal["random", "sobol", "latin", "furthest"]

_FURTHEST_OF = 256  # random candidates


def initial_point(design: Design, size: int, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
    """The next point (d,) of a design of `size` points.

    "random": uniform; "sobol": a scrambled Sobol sequence; "latin": a Latin hypercube; "furthest": each point as far as
    possible from those before it, as in the winning solution of the CIKM 2021 contest.
    """
    d, place = len(history.space), len(history) + len(history.pending)
    if design == "furthest":
        before = np.nan_to_num(np.concatenate([history.x, history.pending]), nan=0.5)
        drawn = np.nan_to_num(history.space.snap(rng.random((_FURTHEST_OF, d))), nan=0.5)
        if not len(before):
            return np.asarray(drawn[0])
        apart = ((drawn[:, None] - before) ** 2).sum(axis=2).min(axis=1)
        return np.asarray(drawn[int(np.argmax(apart))])
    if design == "random" or place >= size:
        return rng.random(d)
    from scipy.stats import qmc  # noqa: PLC0415 - loads slowly

    shared = stream(history.seed, 0, design)
    if design == "latin":
        return np.asarray(qmc.LatinHypercube(d, rng=shared).random(size)[place])
    sequence = qmc.Sobol(d, scramble=True, rng=shared)
    return np.asarray(sequence.fast_forward(place).random(1)[0] if place else sequence.random(1)[0])
