"""Blended search, after Wang et al. (2021): a global sampler and local randomised direct searches share the trials.

A local search steps from a good trial in a random direction, then in the opposite one. Centres, step sizes and shares
are derived from the history. Centres are chosen by the feasibility order: unknown rows come after measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from numpy.typing import NDArray

from fairway import registry
from fairway.checks import checked, positive, whole
from fairway.history import History
from fairway.parameters import Value
from fairway.samplers.sampler import Sampler
from fairway.samplers.tpe import CTPE

Array = NDArray[np.float64]

_RECENT = 30  # trials by which local and global search are compared
_SMALLEST_STEP = 1e-3


@dataclass(frozen=True)
class Blend(Sampler):
    """Mixes local searches around the best trials with proposals of `around`, by default c-TPE.

    `start_at` is the first configuration to try, ideally one that trains fast. There are `threads` local searches at a
    time; `step` is their initial step size in the unit cube.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Blend({"x": -0.5}), seed=0)
    >>> study.ask().params
    {'x': -0.5}
    """

    start_at: Mapping[str, Value] | None = None
    _: KW_ONLY
    threads: int = field(default=3, metadata=checked(whole))
    step: float = field(default=0.2, metadata=checked(positive))
    around: CTPE = field(default_factory=CTPE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.around, Mapping):  # from JSON
            settings = dict(self.around)
            kind = registry.kind(settings.pop("kind", CTPE.__name__)) or CTPE
            object.__setattr__(self, "around", kind(**settings))

    def sees_running(self, history: History) -> bool:
        return self.around.sees_running(history)

    def propose(self, history: History, rng: np.random.Generator) -> Array:
        if not len(history) and not len(history.pending) and self.start_at is not None:
            return np.nan_to_num(history.space.encode(self.start_at), nan=0.5)
        if history.failed.all() or rng.random() >= self._local_share(history):
            return self.around.propose(history, rng)
        centres = self._centres(history)
        weights = 0.5 ** np.arange(len(centres))
        return self._local(history, int(rng.choice(centres, p=weights / weights.sum())), rng)

    def _near(self, history: History, row: int) -> NDArray[np.bool_]:
        """Whether each trial lies in the neighbourhood of a centre."""
        x = np.nan_to_num(history.x, nan=0.5)
        return np.asarray(np.sqrt(((x - x[row]) ** 2).sum(axis=1)) <= 2.0 * self.step)

    def _centres(self, history: History) -> list[int]:
        """The rows of the best trials, each the best of its neighbourhood."""
        taken, centres = np.zeros(len(history), bool), []
        for row in history.best_first:
            if not taken[row]:
                centres.append(int(row))
                taken |= self._near(history, int(row))
            if len(centres) == self.threads:
                break
        return centres

    def _local_share(self, history: History) -> float:
        """The share of local proposals: (local + 1) / (local + global + 2), both counted in recent improvements."""
        rank = np.empty(len(history))
        rank[history.order] = np.arange(len(history))
        local = far = 1.0
        best = None
        for row in np.flatnonzero(~history.failed).tolist():
            if best is None or rank[row] < rank[best]:
                if best is not None and row >= len(history) - _RECENT:
                    near = bool(self._near(history, best)[row])
                    local, far = local + near, far + (not near)
                best = row
        return local / (local + far)

    def _local(self, history: History, centre: int, rng: np.random.Generator) -> Array:
        """A step from a centre: opposite to the last one if that brought no improvement, else in a random direction."""
        x = np.nan_to_num(history.x, nan=0.5)
        later = np.flatnonzero(self._near(history, centre) & (np.arange(len(history)) > centre))
        step = max(self.step * 0.5 ** (len(later) / (2.0 * len(history.space))), _SMALLEST_STEP)
        if len(later) % 2:
            opposite = x[centre] - (x[later[-1]] - x[centre])
            if ((opposite >= 0.0) & (opposite <= 1.0)).all():
                return np.asarray(opposite)
        direction = rng.normal(size=len(history.space))
        moved = x[centre] + step * math.sqrt(len(direction)) * direction / np.linalg.norm(direction)
        for j, parameter in enumerate(history.space.values()):  # a small step would stay in its cell
            if rng.random() < step and math.isfinite(parameter.size):
                moved[j] = rng.random()
        return np.asarray(np.clip(np.where(moved > 1.0, 2.0 - moved, np.abs(moved)), 0.0, 1.0))
