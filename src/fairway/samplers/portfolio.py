"""The first configurations of a study that starts from earlier ones: a few of their best, far apart from each other.

The best one comes last, so that a stopper has seen whole curves of several good ones before it compares others with the
best.
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
_KNOWN = 0.5  # the share of parameters that an earlier study must know


def portfolio(earlier: Sequence[History], size: int = _SIZE) -> list[NDArray[np.float64]]:
    """At most `size` points (d,), taken in turn from the earlier studies that know most parameters; NaN is left open.

    The best point of each study comes last; each point before it is the one of its best tenth furthest from all later
    ones.
    """
    turns = zip_longest(*(_far_apart(history, size) for history in earlier if knows_most(history)))
    found: dict[bytes, NDArray[np.float64]] = {}
    for x in chain.from_iterable(turns):
        if x is not None:
            found.setdefault(x.tobytes(), x)
    return list(found.values())[:size][::-1]


def knows_most(earlier: History) -> bool:
    """Whether an earlier study has values for at least half of the parameters; with fewer, the others decide."""
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
