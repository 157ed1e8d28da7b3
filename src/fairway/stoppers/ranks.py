"""The rank of a new report among all earlier ones, in O(log n) time and 8 bytes per key.

Larger keys are worse. Two sorted arrays hold them: new keys are inserted into a small recent one, which is merged into
a large settled one from time to time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict

import numpy as np

DUST = 1e-9
"""Tolerance in rank <= share * n + DUST, which means rank <= floor(share * n) without rounding errors: 0.29 * 100."""

_NEAR = 6  # the fewest neighbours that are looked for
_RECENT = 2048  # up to this length, inserting into a sorted array is fastest


class Ranks:
    """Sorted floats.

    >>> ranks = Ranks()
    >>> [ranks.add(loss) for loss in (0.5, 0.2, 0.9)]
    [1, 2, 1]
    """

    __slots__ = ("_recent", "_settled", "size")

    def __init__(self) -> None:
        self.size = 0
        self._settled = array("d")
        self._recent = array("d")

    def __len__(self) -> int:
        return self.size

    def add(self, key: float) -> int:
        """Insert a key and return its rank from the worst end: how many keys, itself included, are at least as bad."""
        recent, settled = self._recent, self._settled
        self.size += 1
        place = bisect_left(recent, key)
        recent.insert(place, key)
        size = len(recent)
        rank = size - place
        if settled:
            rank += len(settled) - bisect_left(settled, key)
        if size > _RECENT and size > len(settled) >> 5:
            self._settle()
        return rank

    def rank(self, key: float) -> int:
        """How many keys are at least as bad as this one; does not insert it."""
        return self.size - bisect_left(self._recent, key) - bisect_left(self._settled, key)

    def _settle(self) -> None:
        settled, recent = np.frombuffer(self._settled), np.frombuffer(self._recent)
        merged = np.insert(settled, np.searchsorted(settled, recent), recent)
        self._settled, self._recent = array("d", merged.tobytes()), array("d")


class PairRanks:
    """Pairs of floats, sorted by the first and then by the second."""

    __slots__ = ("_recent", "_settled")

    def __init__(self) -> None:
        self._settled, self._recent = (array("d"), array("d")), (array("d"), array("d"))

    def __len__(self) -> int:
        return len(self._settled[0]) + len(self._recent[0])

    def add(self, first: float, second: float) -> int:
        """Insert a pair and return its rank from the worst end, as `Ranks.add` does."""
        firsts, seconds = self._recent
        place = _place(self._recent, first, second)
        firsts.insert(place, first)
        seconds.insert(place, second)
        size, settled = len(firsts), len(self._settled[0])
        rank = size - place
        if settled:
            rank += settled - _place(self._settled, first, second)
        if size > _RECENT and size > settled >> 5:
            self._settle()
        return rank

    def _settle(self) -> None:
        columns = [
            np.concatenate([np.frombuffer(old), np.frombuffer(new)])
            for old, new in zip(self._settled, self._recent, strict=True)
        ]
        order = np.lexsort((columns[1], columns[0]))
        first, second = (array("d", column[order].tobytes()) for column in columns)
        self._settled, self._recent = (first, second), (array("d"), array("d"))


def _place(pairs: tuple[array[float], array[float]], first: float, second: float) -> int:
    firsts, seconds = pairs
    low = bisect_left(firsts, first)
    if low == len(firsts) or firsts[low] != first:
        return low
    return bisect_left(seconds, second, low, bisect_right(firsts, first, low))


class Strata:
    """Ranks reports within their stratum of ACE (section 3.4), among reports of the same step (or rung).

    Valid and not evaluated reports are ranked by loss, invalid ones by violation and then by loss.
    """

    __slots__ = ("_invalid", "_unevaluated", "_valid")

    def __init__(self) -> None:
        self._valid: defaultdict[int, Ranks] = defaultdict(Ranks)
        self._invalid: defaultdict[int, PairRanks] = defaultdict(PairRanks)
        self._unevaluated: defaultdict[int, Ranks] = defaultdict(Ranks)

    def among_worst(self, share: float, step: int, loss: float, violation: float | None) -> int:
        """Add a report; the new size of its stratum if the report is among the worst floor(share * size), else 0.

        Reports that tie across that boundary are not among the worst.
        """
        if violation:
            pairs = self._invalid[step]
            rank, n = pairs.add(violation, loss), len(pairs)
        else:
            ranks = (self._unevaluated if violation is None else self._valid)[step]
            rank, n = ranks.add(loss), ranks.size
        return n if rank <= share * n + DUST else 0


class Neighbours:
    """Floats, each at a place; a new one is ranked among the third of them whose places are nearest in sorted order.

    >>> neighbours = Neighbours()
    >>> [neighbours.add((ms,), loss) for ms, loss in ((1.0, 0.5), (1.0, 0.2), (9.0, 0.9))]
    [(1, 1), (2, 2), (1, 3)]
    """

    __slots__ = ("_keys", "_places")

    def __init__(self) -> None:
        self._places: list[tuple[float, ...]] = []  # sorted
        self._keys: list[float] = []

    def add(self, place: tuple[float, ...], key: float) -> tuple[int, int]:
        """Insert a key; how many of its neighbours, itself included, are at least as bad, and how many there are."""
        places, keys = self._places, self._keys
        low, high = bisect_left(places, place), bisect_right(places, place)
        places.insert(high, place)
        keys.insert(high, key)
        high += 1
        wanted = max(_NEAR, len(keys) // 3)
        while high - low < wanted and (low > 0 or high < len(keys)):  # whole groups at one place, from both sides
            if low > 0:
                low = bisect_left(places, places[low - 1])
            if high < len(keys):
                high = bisect_right(places, places[high])
        near = keys[low:high]
        return sum(each >= key for each in near), len(near)
