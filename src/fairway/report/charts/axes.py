"""How much of a study fits into a picture: rows that are kept, and the part of an axis that is drawn."""

from __future__ import annotations

import sys
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from fairway.report.marks import Axis
from fairway.text import counted

_FEW = 8  # points that are too few for one to be an outlier


def thinned(n: int, most: int, keep: Collection[int] | NDArray[np.intp] = ()) -> NDArray[np.intp]:
    """At most so many of n rows, evenly, with the first and the last; and all those to keep, however many.

    >>> thinned(10, 4, [5]).tolist()
    [0, 3, 5, 6, 9]
    """
    if n <= most:
        return np.arange(n)
    even = np.linspace(0, n - 1, max(most, 2)).round().astype(np.intp)
    return np.union1d(even, np.asarray(list(keep), np.intp))


def span(values: NDArray[np.float64], keep: Collection[float] = ()) -> tuple[float, float] | None:
    """The range of an axis that outliers would spoil, or None if there are none; `keep` is always inside.

    >>> [round(end, 1) for end in span(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1e9]))]
    [0.2, 22.1]
    >>> span(np.arange(10.0)) is None
    True
    """
    known = values[np.isfinite(values)]
    if len(known) < _FEW:
        return None
    first, last = (float(end) for end in np.quantile(known, [0.1, 0.8]))
    reach = 3 * (last - first)
    low, high = max(float(known.min()), first - reach), min(float(known.max()), last + reach)
    if low == known.min() and high == known.max() or not low < high:
        return None
    inside = [value for value in keep if np.isfinite(value)]
    low, high = min(low, *inside, high), max(high, *inside, low)
    margin = 0.04 * (high - low)
    return held(low - margin, high + margin)


def held(low: float, high: float, *, log: bool = False) -> tuple[float, float]:
    """The ends of an axis, where a float can still hold them.

    >>> held(-1e300 * 1e300, 1.0)
    (-1.7976931348623157e+308, 1.0)
    """
    most = sys.float_info
    return max(low, most.min if log else -most.max), min(high, most.max)


def outside(*sides: tuple[NDArray[np.float64], Axis]) -> str:
    """A sentence on how many trials axes leave out, given their values (n,) on each; empty if none."""
    off = np.zeros(len(sides[0][0]), np.bool_)
    for values, axis in sides:
        if axis.span is not None:
            off |= (values < axis.span[0]) | (values > axis.span[1])
    n = int(np.count_nonzero(off))
    return f" {counted(n, 'outlier')} {'is' if n == 1 else 'are'} not in view." if n else ""
