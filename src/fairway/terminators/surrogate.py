"""Gaussian processes fitted to finished trials: one for the objective, one for each constraint ever violated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fairway.history import History
from fairway.models.acquisition import log_expected_improvement, log_probability_below, lower_confidence_bound
from fairway.models.gaussian_process import Features, GaussianProcess, fit
from fairway.models.neighbours import neighbours
from fairway.models.search import Surface, Term, maximise
from fairway.models.transform import Transform

Array = NDArray[np.float64]
Value = Callable[..., tuple[Array, Array, Array]]

_LEARNED_FROM = 150  # points, at most, to fit hyperparameters to; the process is conditioned on all
_POINTS_TO_WARP = 10  # per parameter
_RANDOM = 1000  # points to start the search from
_STARTS, _ROUNDS = 4, 3  # of the local search
_STEEP = 100.0  # penalty: _STEEP * excess^2, so an excess of 0.01 deviations costs 0.01


class Surrogate:
    """Processes fitted to some rows of a history: the objective to `rows`, best first, the constraints to `known`.

    `power` is the exponent of the objective's transform if all losses are positive. `warp` learns a warp of each input
    once there are ten points per parameter; with fewer it would overfit.
    """

    def __init__(
        self,
        history: History,
        rows: NDArray[np.intp],
        known: NDArray[np.intp],
        *,
        power: float = 1.0,
        warp: bool = False,
    ) -> None:
        self._history, self._rows = history, rows
        self.features = Features(history.space)
        z = self.features(history.x[rows])
        loss = history.gap[rows]
        self.transform = Transform(loss, power if loss.min() > 0.0 else 1.0)
        enough = len(rows) >= _POINTS_TO_WARP * len(history.space)
        self.objective = self._process(z, self.transform(loss), warp=warp and enough)
        self.feasible = self.objective.predict(z[history.feasible[rows]])  # mean and deviation at feasible rows
        self._constraints: list[tuple[GaussianProcess, float]] = []  # with their standardised limits
        for i in range(len(history.problem.constraints)):
            over = history.beyond(i)[known]
            measured = ~np.isnan(over)
            if (over[measured] > 0.0).any():  # a constraint never violated is assumed to hold everywhere
                move = Transform(over[measured], cut=False)
                process = self._process(self.features(history.x[known[measured]]), move(over[measured]))
                self._constraints.append((process, float(move(np.zeros(1))[0])))

    def _process(self, z: Array, y: Array, *, warp: bool = False) -> GaussianProcess:
        if len(z) <= _LEARNED_FROM:
            return fit(self.features, z, y, warp=warp)
        some = np.linspace(0, len(z) - 1, _LEARNED_FROM).astype(int)
        return GaussianProcess(self.features, z, y, fit(self.features, z[some], y[some], warp=warp).theta)

    def is_plausible(self, x: Array, width: float) -> NDArray[np.bool_]:
        """Whether every constraint may hold at points (k, d): its lower confidence bound is within its limit."""
        plausible, z = np.ones(len(x), bool), self.features(x)
        for process, limit in self._constraints:
            mean, deviation = process.predict(z)
            plausible &= mean - width * deviation <= limit
        return plausible

    def optimism(self, width: float) -> Surface:
        """Minus the objective's lower confidence bound, less a smooth penalty for each constraint that cannot hold.

        The penalty is 0 where a constraint may hold; it keeps a local search plausible.
        """

        def penalty(mean: Array, deviation: Array, limit: float) -> tuple[Array, Array, Array]:
            over = np.maximum(mean - width * deviation - limit, 0.0)
            return -_STEEP * over**2, -2.0 * _STEEP * over, 2.0 * _STEEP * width * over

        return self._surface(partial(lower_confidence_bound, width=width), penalty)

    def improvement(self) -> tuple[Surface, Surface]:
        """The logs of the expected improvement on the best feasible trial and of the probability of one.

        Both include the log of the probability that every constraint holds.
        """
        best = float(self.feasible[0].min())
        gains = partial(log_expected_improvement, best=best), partial(log_probability_below, limit=best)
        gain, chance = (self._surface(value, log_probability_below) for value in gains)
        return gain, chance

    def _surface(self, value: Value, by_limit: Value) -> Surface:
        """The sum of a function of the objective and, for each constraint, a function of it and its limit."""
        others = [Term(process, partial(by_limit, limit=limit)) for process, limit in self._constraints]
        return Surface(self.features, [Term(self.objective, value), *others])

    def highest(
        self, surface: Surface, rng: np.random.Generator, keep: Callable[[Array], NDArray[np.bool_]]
    ) -> tuple[Array, float] | None:
        """The highest point of a surface among those that `keep` accepts, and its height; None if there is none."""
        space, best = self._history.space, self._history.x[self._rows]
        pool = [rng.random((_RANDOM, len(space))), np.nan_to_num(best, nan=0.5), neighbours(space, best[:1], rng)]
        x, value = maximise(surface, np.concatenate(pool), keep, rng, starts=_STARTS, rounds=_ROUNDS)
        return (x[0], float(value[0])) if len(x) else None
