"""Values computed from the rows of a history, kept from one snapshot to the next so that an ask need not start over.

Rows are only ever appended, and never change. So a computed column only grows, a new row is inserted into a sorted
order, and an earlier snapshot's order is a later one's without the newer rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FEW = 64  # new rows that are placed one by one; more are sorted together with the others

Keys = Sequence[NDArray[Any]]
"""Columns to sort rows by, the most important one first."""


class _Order(NamedTuple):
    """All rows, sorted by some keys and then by number; with the keys in that order."""

    rows: NDArray[np.intp]
    keys: Keys


class Derived:
    """Cached columns, orders and fingerprints of a history's rows, extended as rows are added.

    Threads may share it: at worst, two that ask for the same thing at once both compute it.

    >>> losses = np.array([0.3, 0.1, 0.2])
    >>> derived = Derived()
    >>> derived.order("loss", 2, lambda since: [losses[since:2]])
    array([1, 0])
    >>> derived.order("loss", 3, lambda since: [losses[since:]])
    array([1, 2, 0])
    """

    def __init__(self) -> None:
        self._columns: dict[str, tuple[NDArray[Any], int]] = {}  # and the number of rows computed so far
        self._orders: dict[str, _Order] = {}
        self._first: dict[float, int] = {}  # row, by fingerprint
        self._fingerprinted = 0  # rows

    def column(self, name: str, n: int, values: Callable[[int], NDArray[Any]]) -> NDArray[Any]:
        """The first n values of a column; `values(row)` computes those from that row on."""
        buffer, known = self._columns.get(name, (np.empty(0), 0))
        if known < n:
            new = values(known)
            if len(buffer) < n:
                grown = np.empty(max(64, n, 2 * known), new.dtype)
                grown[:known], buffer = buffer[:known], grown
            buffer[known:n] = new
            self._columns[name] = buffer, n
        view = buffer[:n]
        view.flags.writeable = False
        return view

    def order(self, name: str, n: int, keys: Callable[[int], Keys]) -> NDArray[np.intp]:
        """The first n rows, sorted by keys and then by number, NaN last; `keys(row)` computes them from that row on."""
        known = self._orders.get(name)
        before = 0 if known is None else len(known.rows)
        if known is None or n - before > _FEW:
            known = self._orders[name] = _sorted(keys(0))
        elif before < n:
            new = [key.tolist() for key in keys(before)]
            for i, values in enumerate(zip(*new, strict=True)):
                known = _with(known, before + i, values)
            self._orders[name] = known
        return known.rows if len(known.rows) == n else known.rows[known.rows < n]

    def first_with(self, n: int, fingerprints: Callable[[int], NDArray[np.float64]]) -> dict[float, int]:
        """The first row with each fingerprint, for at least n rows; `fingerprints(row)` computes them from there on."""
        if self._fingerprinted < n:
            for row, fingerprint in enumerate(fingerprints(self._fingerprinted).tolist(), self._fingerprinted):
                self._first.setdefault(fingerprint, row)
            self._fingerprinted = n
        return self._first


def _sorted(keys: Keys) -> _Order:
    rows = np.lexsort([*reversed(keys)])
    return _Order(rows, [key[rows] for key in keys])


def _with(order: _Order, row: int, values: Sequence[Any]) -> _Order:
    """The order with one more row, placed after rows with equal keys."""
    low, high = 0, len(order.rows)
    for key, value in zip(order.keys, values, strict=True):
        among = key[low:high]
        low, high = low + int(np.searchsorted(among, value)), low + int(np.searchsorted(among, value, side="right"))
    keys = [np.insert(key, high, value) for key, value in zip(order.keys, values, strict=True)]
    return _Order(np.insert(order.rows, high, row), keys)
