"""Compares coordinates of many points with given codes: all comparisons that a space's conditions need, at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SAME = 1e-12  # coordinates that differ by less are equal
_FEW = 16  # up to this many codes are compared one after another; more are searched by bisection


class Matches:
    """Comparisons, each of one coordinate with some codes.

    >>> points = np.array([[0.25, 0.5], [0.75, 0.5]])
    >>> Matches([(0, [0.75]), (1, [0.1, 0.5])]).of(points)
    array([[False,  True],
           [ True,  True]])
    """

    def __init__(self, wanted: Sequence[tuple[int, Sequence[float] | NDArray[np.float64]]]) -> None:
        self._wanted = [(at, np.sort(np.asarray(codes, np.float64))) for at, codes in wanted]
        counts = np.array([len(codes) for _, codes in self._wanted], np.intp)
        self._many = np.flatnonzero(counts > _FEW).tolist()
        self._few = []  # by number of codes: which comparisons, their coordinates, their codes
        for count in sorted({*counts[(counts > 0) & (counts <= _FEW)].tolist()}):
            which = np.flatnonzero(counts == count)
            at = np.array([self._wanted[i][0] for i in which])
            self._few.append((which, at, np.array([self._wanted[i][1] for i in which])))

    def of(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether the points (k, d) match, for each comparison: (comparisons, k)."""
        found, columns = np.zeros((len(self._wanted), len(x)), np.bool_), x.T
        for which, at, codes in self._few:
            values, same = columns[at], np.zeros((len(at), len(x)), np.bool_)
            for code in codes.T:
                same |= np.abs(values - code[:, None]) <= _SAME
            found[which] = same
        for i in self._many:
            place, codes = self._wanted[i]
            nearest = np.minimum(np.searchsorted(codes, columns[place] - _SAME), len(codes) - 1)
            found[i] = np.abs(columns[place] - codes[nearest]) <= _SAME
        return found
