"""Gaussian processes fitted to finished trials: one for the objective, one for each constraint ever violated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fairway.history import History
from fairway.models.acquisition import log_probability_below
from fairway.models.gaussian_process import Features, GaussianProcess, fit
from fairway.models.neighbours import neighbours
from fairway.models.search import Surface, Term, maximise
from fairway.models.transform import Transform

Array = NDArray[np.float64]

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
        self.z = self.features(history.x[rows])
        loss = history.gap[rows]
        self.transform = Transform(loss, power if loss.min() > 0.0 else 1.0)
        enough = len(rows) >= _POINTS_TO_WARP * len(history.space)
        self.objective = self._process(self.z, self.transform(loss), warp=warp and enough)
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

    def implausibility(self, width: float) -> list[Term]:
        """A smooth penalty for each constraint that cannot hold, 0 where it may; keeps a local search plausible."""

        def term(process: GaussianProcess, limit: float) -> Term:
            def penalty(mean: Array, deviation: Array) -> tuple[Array, Array, Array]:
                over = np.maximum(mean - width * deviation - limit, 0.0)
                return -_STEEP * over**2, -2.0 * _STEEP * over, 2.0 * _STEEP * width * over

            return Term(process, penalty)

        return [term(process, limit) for process, limit in self._constraints]

    def feasibility(self) -> list[Term]:
        """The log of the probability that each constraint holds."""

        def term(process: GaussianProcess, limit: float) -> Term:
            return Term(process, lambda mean, deviation: log_probability_below(mean, deviation, limit))

        return [term(process, limit) for process, limit in self._constraints]

    def highest(
        self, terms: list[Term], rng: np.random.Generator, keep: Callable[[Array], NDArray[np.bool_]]
    ) -> tuple[Array, float] | None:
        """The point with the highest sum of terms of those that `keep` accepts, and that sum; None without a point."""
        space, best = self._history.space, self._history.x[self._rows]
        pool = [rng.random((_RANDOM, len(space))), np.nan_to_num(best, nan=0.5), neighbours(space, best[:1], rng)]
        surface = Surface(self.features, terms)
        x, value = maximise(surface, np.concatenate(pool), keep, rng, starts=_STARTS, rounds=_ROUNDS)
        return (x[0], float(value[0])) if len(x) else None
