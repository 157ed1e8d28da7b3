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
    """Which configuration next?"""

    @abstractmethod
    def propose(self, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
        """The next point of the unit cube, shape (d,); coordinates of inactive parameters do not matter."""

    def choose(self, history: History, candidates: NDArray[np.float64], rng: np.random.Generator) -> int:
        """Which of a table's points (k, d) to run next: by default the nearest to what is proposed.

        A coordinate that is inactive (NaN) on one side only counts as one whole unit apart.
        """
        params = history.space.decode(self.propose(history, rng))
        apart = np.abs(candidates - history.space.encode(params))
        both = np.isnan(candidates) & np.isnan(history.space.encode(params))
        apart = np.where(both, 0.0, np.where(np.isnan(apart), 1.0, apart))
        return int(np.argmin((apart**2).sum(axis=1)))
