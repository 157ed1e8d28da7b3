"""The first configurations of a study that starts from earlier ones: a few of their best, far apart from each other.

The best one comes last, so that a stopper has whole curves of several good ones before it compares others with it.
Measured by regret, the best one first did as well (`bench/results/carry_over.md`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, zip_longest

import numpy as np
from numpy.typing import NDArray

from fairway.history import History

_SIZE = 5  # configurations
_BEST = 0.1  # the share of a study's trials that they are chosen from
_KNOWN = 0.5  # the least share of parameters that an earlier study knows


def portfolio(earlier: Sequence[History], size: int = _SIZE) -> list[NDArray[np.float64]]:
    """At most `size` points (d,) of earlier studies that know most parameters; they take turns. NaN is left open.

    Of each study the best one comes last, and before it those of its best tenth that are furthest from all after.
    """
    turns = zip_longest(*(_far_apart(history, size) for history in earlier if knows_most(history)))
    found: dict[bytes, NDArray[np.float64]] = {}
    for x in chain.from_iterable(turns):
        if x is not None:
            found.setdefault(x.tobytes(), x)
    return list(found.values())[:size][::-1]


def knows_most(earlier: History) -> bool:
    """Whether an earlier study says something of at least half of the parameters; of fewer, the rest decides."""
    return bool((~np.isnan(earlier.x)).any(axis=0).mean() >= _KNOWN)


def _far_apart(history: History, size: int) -> list[NDArray[np.float64]]:
    order = history.best_first
    top = order[: max(size, math.ceil(_BEST * len(order)))]
    points = np.nan_to_num(history.x[top], nan=0.5)
    chosen: list[int] = [0] if len(top) else []
    while 0 < len(chosen) < min(size, len(top)):
        apart = ((points[:, None] - points[chosen]) ** 2).sum(axis=2).min(axis=1)
        chosen.append(int(np.argmax(apart)))
    return [history.x[top[i]] for i in chosen]
