"""Random search: the baseline that every sampler has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairway.history import History
from fairway.samplers.sampler import Sampler


@dataclass(frozen=True)
class Random(Sampler):
    """Draws uniformly from the unit cube, whatever was measured.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Random(), seed=7)
    >>> study.ask().params
    {'x': 0.5803583592}
    """

    def propose(self, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.random(len(history.space))

    def choose(self, history: History, candidates: NDArray[np.float64], rng: np.random.Generator) -> int:
        del history
        return int(rng.integers(len(candidates)))
