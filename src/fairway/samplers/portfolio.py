"""The first configurations of a study that starts from earlier ones: a few of their best, far apart from each other.

After these few trials the search knows only what it has measured itself. `bench/results/carry_over.md` has this beside
a larger portfolio, and beside densities of the earlier trials that fade, which gained nothing on top of it.
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


def portfolio(earlier: Sequence[History], size: int = _SIZE) -> list[NDArray[np.float64]]:
    """At most `size` points (d,) of earlier studies, which take turns; NaN where a study says nothing.

    Of each study the best one comes first, then those of its best tenth that are furthest from all before.
    """
    turns = zip_longest(*(_far_apart(history, size) for history in earlier))
    found: dict[bytes, NDArray[np.float64]] = {}
    for x in chain.from_iterable(turns):
        if x is not None:
            found.setdefault(x.tobytes(), x)
    return list(found.values())[:size]


def _far_apart(history: History, size: int) -> list[NDArray[np.float64]]:
    order = history.best_first
    top = order[: max(size, math.ceil(_BEST * len(order)))]
    points = np.nan_to_num(history.x[top], nan=0.5)
    chosen: list[int] = [0] if len(top) else []
    while 0 < len(chosen) < min(size, len(top)):
        apart = ((points[:, None] - points[chosen]) ** 2).sum(axis=2).min(axis=1)
        chosen.append(int(np.argmax(apart)))
    return [history.x[top[i]] for i in chosen]
