"""The contract of a sampler: a query over history that proposes the next point of the unit cube.

A sampler is a frozen configuration. It keeps nothing between calls: a proposal is a function of the history and of the
generator it is handed, which is seeded by study, trial number and purpose. So a resumed study goes on as if it had
never been interrupted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairway.history import History


@dataclass(frozen=True)
class Sampler(ABC):
    """Which configuration next? The base of all samplers.

    >>> import fairway as fw, numpy as np
    >>> class Middle(fw.Sampler):
    ...     def propose(self, history, rng):
    ...         return np.full(len(history.space), 0.5)
    >>> fw.Study({"x": fw.Int(1, 9)}, fw.Minimize("loss"), sampler=Middle(), seed=0).ask().params
    {'x': 5}
    """

    @abstractmethod
    def propose(self, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
        """The next point of the unit cube, shape (d,); coordinates of inactive parameters do not matter."""

    def choose(self, history: History, candidates: NDArray[np.float64], rng: np.random.Generator) -> int:
        """Which of a table's points (k, d) to run next: by default the nearest to what is proposed.

        A coordinate that is inactive (NaN) on one side only counts as one whole unit apart.
        """
        x = history.space.encode(history.space.decode(self.propose(history, rng)))
        apart = np.where(np.isnan(candidates) & np.isnan(x), 0.0, np.abs(candidates - x))
        return int(np.argmin((np.nan_to_num(apart, nan=1.0) ** 2).sum(axis=1)))
