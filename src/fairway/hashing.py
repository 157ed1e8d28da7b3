"""Hashes of rows, which show whether fresh rows were seen before without storing the rows."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.checks import is_number
from fairway.rows import count_rows, missing

DIGEST = "digest of "
"""The prefix of notes that identify what a stored search was run on; they mean nothing to people."""

_NUMBERS = "biuf"  # numpy's kinds of them
_CELLS = 4_000_000  # numbers that are hashed at a time
_ERRORS = 4.0  # beyond what duplicates explain
_FEW = 0.01  # of the fresh rows may equal rows of the search in any case


def hashes(rows: Any) -> NDArray[np.uint64]:
    """A hash of each row (n,): equal rows have equal hashes, in whatever container.

    A row of numbers is hashed as doubles, any other as the text of its values.

    >>> import numpy as np
    >>> bool((hashes([[1, 2], [3, 4]]) == hashes(np.array([[1.0, 2.0], [3.0, 4.0]]))).all())
    True
    """
    n = count_rows(rows)
    rows = rows.tocsr() if hasattr(rows, "tocsr") else rows
    size = max(1, _CELLS // max(1, math.prod(getattr(rows, "shape", (n, 1))[1:])))
    digests = bytearray()
    for start in range(0, n, size):
        for row in _encoded(getattr(rows, "iloc", rows)[start : start + size]):
            digests += hashlib.blake2b(row, digest_size=8).digest()
    return np.frombuffer(bytes(digests), np.uint64)


def _encoded(rows: Any) -> Iterator[bytes]:
    """The bytes of each row."""
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    rows = rows.to_numpy() if hasattr(rows, "to_numpy") else np.asarray(rows) if hasattr(rows, "__array__") else rows
    if isinstance(rows, Sequence) and not isinstance(rows[0], str):
        with contextlib.suppress(ValueError):  # rows of different lengths
            rows = table if (table := np.asarray(rows)).dtype.kind in _NUMBERS else rows
    if isinstance(rows, np.ndarray) and rows.dtype.kind in _NUMBERS:
        yield from map(bytes, _doubles(rows.reshape(len(rows), -1)))
        return
    for row in rows:
        cells = list(_cells(row))
        numeric = all(type(cell) is float for cell in cells)
        yield bytes(_doubles(np.array(cells))) if numeric else repr(cells).encode()


def _doubles(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers as doubles with one zero and one NaN, so that equal numbers have equal bytes."""
    given = np.ascontiguousarray(numbers, dtype=np.float64)
    return np.where(np.isnan(given), np.nan, given + 0.0)


def _cells(value: Any) -> Iterator[float | str]:
    """The values of a row: numbers as floats, missing ones as NaN, anything else as text."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key)
            yield from _cells(value[key])
    elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        for each in value:
            yield from _cells(each)
    elif isinstance(value, bool | np.bool_) or is_number(value):
        yield float(value) + 0.0
    else:
        yield math.nan if missing(value) else str(value)


def pack(hashed: NDArray[np.uint64]) -> str:
    """Hashes as text, for the log."""
    return base64.b64encode(hashed.tobytes()).decode()


def unpack(packed: str) -> NDArray[np.uint64]:
    """The hashes in a text that `pack` returned."""
    return np.frombuffer(base64.b64decode(packed), np.uint64)


def overlap(fresh: NDArray[np.uint64], others: NDArray[np.uint64]) -> tuple[int, bool]:
    """How many fresh rows equal one of the others, and whether that is more than duplicates explain.

    Rows of one table may be equal by chance. Let s be the share of the m others that have a twin among them (Wilson's
    upper bound at z = 4, 1927). Of n fresh rows, more than n s + 4 sqrt(n s (1 - s)) + n / 100 matches are too many. If
    no two of the others are equal, more than 5 n / m + n / 100 + 3 are too many, and so are n. The same rows in the
    same order are always too many.

    >>> overlap(hashes([[1], [2], [3]]), hashes([[1], [2], [3], [4]]))
    (3, True)
    """
    n, m, z = len(fresh), max(len(others), 1), _ERRORS
    found = int(np.isin(fresh, others).sum())
    counts = np.unique(others, return_counts=True)[1]
    twins = int(counts[counts > 1].sum())
    share = (twins + z**2 / 2 + z * math.sqrt(twins * (m - twins) / m + z**2 / 4)) / (m + z**2)
    explained = n * share + z * math.sqrt(n * share * (1 - share)) if twins else 5.0 * n / m + 3.0
    same = len(counts) > 1 and np.array_equal(fresh, others)
    return found, same or found > explained + _FEW * n or found == n and not twins
