"""The front: the checkpoints for which no other is as good in the objective and in every tracked metric.

All values here are times their sign, so that lower is better, both for a loss and for a tracked metric.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Mark(NamedTuple):
    """A checkpoint on a front: its loss and its tracked metrics."""

    loss: float
    values: tuple[float, ...]
    number: int
    step: int


class Front:
    """Marks that do not beat each other, sorted by loss. The order in which marks are added does not matter.

    >>> front = Front()
    >>> for loss, ms in ((0.3, 10.0), (0.2, 20.0), (0.25, 30.0)):
    ...     front.add(Mark(loss, (ms,), number=0, step=1))
    >>> [(mark.loss, *mark.values) for mark in front.marks]
    [(0.2, 20.0), (0.3, 10.0)]
    >>> front.best((15.0,)), front.best((5.0,))
    (0.3, inf)
    """

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def add(self, mark: Mark) -> None:
        """Add a checkpoint, unless another is as good; of equal ones, the earlier trial and step stays."""
        if any(_beats(one, mark) for one in self.marks):
            return
        self.marks = [one for one in self.marks if not _beats(mark, one)]
        insort(self.marks, mark)

    def remove(self, number: int, step: int) -> None:
        """Remove a checkpoint that broke a limit when it was measured again."""
        self.marks = [one for one in self.marks if (one.number, one.step) != (number, step)]

    def best(self, limits: Sequence[float]) -> float:
        """The best loss within limits on the tracked metrics; infinity if no mark keeps them."""
        for mark in self.marks:
            if all(value <= limit for value, limit in zip(mark.values, limits, strict=True)):
                return mark.loss
        return math.inf


def _beats(one: Mark, other: Mark) -> bool:
    """Whether one checkpoint is as good as another in everything, and better in something or earlier."""
    if one.loss > other.loss or any(mine > its for mine, its in zip(one.values, other.values, strict=True)):
        return False
    return one[:2] != other[:2] or one[2:] <= other[2:]


def rows_on_front(marks: NDArray[np.float64]) -> NDArray[np.intp]:
    """The rows of a table (n, 1 + k) of losses and tracked metrics that are on its front, the best loss first.

    >>> rows_on_front(np.array([[0.3, 10.0], [0.25, 30.0], [0.2, 20.0]]))
    array([2, 0])
    """
    rows, found = np.lexsort(marks.T[::-1]), list[int]()
    while len(rows):
        found.append(int(rows[0]))
        rows = rows[(marks[rows, 1:] < marks[rows[0], 1:]).any(axis=1)]
    return np.array(found, np.intp)
