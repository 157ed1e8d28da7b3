"""Bayesian optimisation with Gaussian processes, one for the objective and one for each constraint.

The acquisition is log expected improvement over the best feasible point, plus the log of the probability that each
constraint is met (Gardner et al., 2014); while nothing is feasible it is that probability alone. It is maximised by
L-BFGS-B in the continuous parameters and by exact search in the discrete ones, from the best of many random points and
of one-parameter changes of the best trials. `GP.cikm2021()` is the winning solution of the CIKM 2021 contest.

Rows of stopped trials (partial) are taken for the median of the completed ones, unless `impute` is False: then for what
they showed. The best feasible checkpoint counts for what it is.
Unknown rows are left out of a constraint's process and are never feasible. Failed rows are left out. Running trials
are believed to come out at the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fairway.checks import flag, positive, whole
from fairway.errors import UsageError
from fairway.history import History
from fairway.samplers.initial import Design, check_design, initial_point
from fairway.samplers.sampler import Sampler

if TYPE_CHECKING:
    from fairway.models.gaussian_process import Features
    from fairway.models.search import Term

Array = NDArray[np.float64]

_RANDOM = 512  # points at which the acquisition is first looked at
_INCUMBENTS = 5  # whose one-parameter changes are looked at too


@dataclass(frozen=True)
class GP(Sampler):
    """Gaussian-process search under constraints.

    `start` points of the `initial` design come first. `acquisition`: "ei", "pi" or "ucb" (of `width` deviations).
    `transform` chooses a power of the objective from the data; `warp` learns a bend of each numerical input.
    `random_share` of the proposals are random. Of more than `most` trials, the better and the later ones are used.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), sampler=fw.GP(), seed=0)
    >>> study.optimize(lambda trial: (trial.params["x"] - 0.3) ** 2, trials=20)
    >>> abs(study.best.params["x"] - 0.3) < 0.001
    True
    """

    start: int = 10
    _: KW_ONLY
    initial: Design = "sobol"
    acquisition: Literal["ei", "pi", "ucb"] = "ei"
    width: float = 2.0
    transform: bool = True
    warp: bool = True
    impute: bool = True
    random_share: float = 0.0
    most: int = 300

    def __post_init__(self) -> None:
        whole(self.start, "start", least=2)
        whole(self.most, "most", least=20)
        check_design(self.initial)
        positive(self.width, "width", what="number")
        for name in ("transform", "warp", "impute"):
            flag(getattr(self, name), name)
        if not 0.0 <= self.random_share < 1.0:
            raise UsageError(f"random_share={self.random_share!r}: a number from 0 to below 1 is expected")
        if self.acquisition not in ("ei", "pi", "ucb"):
            raise UsageError(f"acquisition={self.acquisition!r}: 'ei', 'pi' or 'ucb' is expected")

    @classmethod
    def cikm2021(cls) -> GP:
        """The winning solution: furthest-first start, EI, one proposal in ten at random, no transform and no warp."""
        return cls(10, initial="furthest", transform=False, warp=False, random_share=0.1)

    def propose(self, history: History, rng: np.random.Generator) -> Array:
        """The point with the highest acquisition."""
        if len(history) + len(history.pending) < self.start:
            return initial_point(self.initial, self.start, history, rng)
        if np.count_nonzero(~history.failed) < 2 or rng.random() < self.random_share:  # noqa: PLR2004
            return rng.random(len(history.space))
        from fairway.models.gaussian_process import Features  # noqa: PLC0415 - SciPy takes its time to load
        from fairway.models.neighbours import neighbours  # noqa: PLC0415
        from fairway.models.search import Surface, maximise  # noqa: PLC0415

        space, features = history.space, Features(history.space)
        rows = self._rows(history)
        terms = self._terms(features, history, rows)
        if not terms:
            return rng.random(len(space))
        incumbents = history.x[history.order[:_INCUMBENTS]]
        pool = np.concatenate([rng.random((_RANDOM, len(space))), neighbours(space, incumbents, rng)])
        x, _ = maximise(Surface(features, terms), pool, history.is_new, rng)
        return np.asarray(x[0]) if len(x) else rng.random(len(space))

    def _rows(self, history: History) -> NDArray[np.intp]:
        """The trials to learn from: all, or the better and the later ones."""
        order = history.order[: np.count_nonzero(~history.failed)]
        if len(order) <= self.most:
            return np.sort(order)
        better = order[: self.most // 2]
        later = np.setdiff1d(order, better)[-(self.most - len(better)) :]
        return np.sort(np.concatenate([better, later]))

    def _terms(self, features: Features, history: History, rows: NDArray[np.intp]) -> list[Term]:
        from fairway.models import acquisition as functions  # noqa: PLC0415
        from fairway.models.gaussian_process import fit  # noqa: PLC0415
        from fairway.models.search import Term  # noqa: PLC0415
        from fairway.models.transform import Transform, likeliest  # noqa: PLC0415

        z, pending = features(history.x[rows]), features(history.pending)
        terms = []
        feasible = history.feasible[rows]
        if feasible.any():
            loss = self._imputed(history, rows)
            move = likeliest(features, z, loss) if self.transform else Transform(loss)
            process = fit(features, z, move(loss), warp=self.warp)
            best = float(process.predict(z[feasible])[0].min())
            if len(pending):
                process = process.joined_by(pending)
            choose: dict[str, Callable[[Array, Array], tuple[Array, Array, Array]]] = {
                "ei": lambda mean, deviation: functions.log_expected_improvement(mean, deviation, best),
                "pi": lambda mean, deviation: functions.log_probability_below(mean, deviation, best),
                "ucb": lambda mean, deviation: functions.lower_confidence_bound(mean, deviation, self.width),
            }
            terms.append(Term(process, choose[self.acquisition]))
        for i in range(len(history.problem.constraints)):
            over = history.beyond(i)[rows]
            known = ~np.isnan(over)
            if np.count_nonzero(known) < 2:  # noqa: PLR2004 - nothing to learn from
                continue
            move = Transform(over[known], cut=False)
            limit = float(move(np.zeros(1))[0])
            process = fit(features, z[known], move(over[known]), warp=self.warp)

            def met(mean: Array, deviation: Array, limit: float = limit) -> tuple[Array, Array, Array]:
                return functions.log_probability_below(mean, deviation, limit)

            terms.append(Term(process, met))
        return terms

    def _imputed(self, history: History, rows: NDArray[np.intp]) -> Array:
        loss = history.gap[rows].copy()
        partial = history.partial[rows]
        if self.impute and partial.any() and not partial.all():
            best = np.argmin(np.where(history.feasible[rows], loss, np.inf))
            partial = partial.copy()
            partial[best] = False  # what may be shipped is known
            loss[partial] = np.median(loss[~history.partial[rows]])
        return loss
