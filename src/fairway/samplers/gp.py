"""Bayesian optimisation with Gaussian processes, one for the objective and one for each constraint.

The acquisition is the log expected improvement over the best feasible point plus the log probability that each
constraint holds (Gardner et al., 2014); until something is feasible, only the latter. A stopped trial counts with the
median loss of the completed ones, or with its own loss so far if `impute` is False or if it holds the best feasible
checkpoint. Unknown rows are left out of a constraint's process. That a trial does not fail is one more constraint; its
process also learns from the latest 150 failed trials, which are left out of the other processes. Running trials are
assumed to reach the predicted mean. The less a trial was trained, the less its constraints' values may count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fairway.checks import checked, flag, number, one_of, positive, whole
from fairway.history import History
from fairway.models.blas import one_thread
from fairway.samplers.initial import Design, initial_point
from fairway.samplers.sampler import Sampler

if TYPE_CHECKING:
    from fairway.models.gaussian_process import Features, GaussianProcess
    from fairway.models.search import Term

Array = NDArray[np.float64]

_RANDOM = 512  # points to start the search from
_FAILED = 150  # failed trials to learn from, at most: the latest
_INCUMBENTS = 5  # best trials whose one-parameter changes are starting points too


@dataclass(frozen=True)
class GP(Sampler):
    """Bayesian optimisation with Gaussian processes, under constraints.

    `start` points of the `initial` design come first. `acquisition` is "ei", "pi" or "ucb" (with `width` deviations).
    `transform` fits a power transform of the objective, `warp` a warp of each numerical input. `random_share` of the
    proposals are random. If there are more than `most` trials, the best and the latest are used, half each.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), sampler=fw.GP(), seed=0)
    >>> study.optimize(lambda trial: (trial.params["x"] - 0.3) ** 2, trials=20)
    >>> abs(study.best.params["x"] - 0.3) < 0.001
    True
    """

    start: int = field(default=10, metadata=checked(whole, least=2))
    _: KW_ONLY
    initial: Design = field(default="sobol", metadata=checked(one_of, options=get_args(Design)))
    acquisition: Literal["ei", "pi", "ucb"] = field(default="ei", metadata=checked(one_of, options=("ei", "pi", "ucb")))
    width: float = field(default=2.0, metadata=checked(positive))
    transform: bool = field(default=True, metadata=checked(flag))
    warp: bool = field(default=True, metadata=checked(flag))
    impute: bool = field(default=True, metadata=checked(flag))
    random_share: float = field(
        default=0.0, metadata=checked(number, what="a number from 0 to below 1", within=lambda share: 0 <= share < 1)
    )
    most: int = field(default=300, metadata=checked(whole, least=20))

    @classmethod
    def cikm2021(cls) -> GP:
        """The contest winner's settings: furthest-first design, EI, 10% random proposals, no transform, no warp."""
        return cls(10, initial="furthest", transform=False, warp=False, random_share=0.1)

    def propose(self, history: History, rng: np.random.Generator) -> Array:
        if len(history) + len(history.pending) < self.start:
            return initial_point(self.initial, self.start, history, rng)
        if np.count_nonzero(~history.failed) < 2 or rng.random() < self.random_share:  # noqa: PLR2004
            return rng.random(len(history.space))
        from fairway.models.gaussian_process import Features  # noqa: PLC0415 - SciPy loads slowly
        from fairway.models.neighbours import neighbours  # noqa: PLC0415
        from fairway.models.search import Surface, maximise  # noqa: PLC0415

        space, features = history.space, Features(history.space)
        with one_thread():
            terms = self._terms(features, history, best_and_latest(history.best_first, self.most))
            if not terms:
                return rng.random(len(space))
            incumbents = history.x[history.top(_INCUMBENTS)]
            pool = np.concatenate([rng.random((_RANDOM, len(space))), neighbours(space, incumbents, rng)])
            x, _ = maximise(Surface(features, terms), pool, history.is_new, rng)
        return np.asarray(x[0]) if len(x) else rng.random(len(space))

    def _terms(self, features: Features, history: History, rows: NDArray[np.intp]) -> list[Term]:
        from fairway.models import acquisition as functions  # noqa: PLC0415
        from fairway.models.search import Term  # noqa: PLC0415
        from fairway.models.transform import Transform, likeliest  # noqa: PLC0415

        z = features(history.x[rows])
        terms = []
        feasible = history.feasible[rows]
        if feasible.any():
            loss = self._imputed(history, rows)
            move = likeliest(features, z, loss) if self.transform else Transform(loss)
            process, best = objective_process(features, history, rows, move(loss), feasible, warp=self.warp)
            value: dict[str, Callable[[Array, Array], tuple[Array, Array, Array]]] = {
                "ei": partial(functions.log_expected_improvement, best=best),
                "pi": partial(functions.log_probability_below, limit=best),
                "ucb": partial(functions.lower_confidence_bound, width=self.width),
            }
            terms.append(Term(process, value[self.acquisition]))
        return [*terms, *limit_terms(features, history, rows, warp=self.warp)]

    def _imputed(self, history: History, rows: NDArray[np.intp]) -> Array:
        loss, stopped = history.gap[rows], history.partial[rows]
        if self.impute and stopped.any() and not stopped.all():
            median = np.median(loss[~stopped])
            stopped[np.argmin(np.where(history.feasible[rows], loss, np.inf))] = False
            loss[stopped] = median
        return loss


def best_and_latest(order: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Some rows to learn from, given all from best to worst: all, or the best and the latest, half each; sorted.

    >>> best_and_latest(np.array([3, 0, 1, 2, 5, 4]), most=4).tolist()
    [0, 3, 4, 5]
    """
    if len(order) <= most:
        return np.sort(order)
    better = order[: most // 2]
    later = np.setdiff1d(order, better)[-(most - len(better)) :]
    return np.sort(np.concatenate([better, later]))


def objective_process(
    features: Features,
    history: History,
    rows: NDArray[np.intp],
    y: Array,
    feasible: NDArray[np.bool_],
    doubt: Array | None = None,
    *,
    warp: bool = False,
) -> tuple[GaussianProcess, float]:
    """A process fitted to losses y at some rows, joined by the running trials; and its lowest mean at feasible rows.

    `doubt` has variances of single losses (`fairway.models.gaussian_process`).
    """
    from fairway.models.gaussian_process import fit  # noqa: PLC0415 - SciPy loads slowly

    z, pending = features(history.x[rows]), features(history.pending)
    process = fit(features, z, y, doubt, warp=warp)
    best = float(process.predict(z[feasible])[0].min())
    return process.joined_by(pending) if len(pending) else process, best


def _lacking(history: History) -> Array:
    """The doublings of training (n,) by which each trial is shorter than the longest.

    All are 0 where `halfway` is unknown: where trials are short, or are represented by a checkpoint of their front.
    """
    trained = np.log2(np.maximum(history.reached, 1))
    unknown = history.means is not None or np.isnan(history.halfway).all()
    return np.zeros(len(trained)) if unknown else trained.max() - trained


def limit_terms(features: Features, history: History, rows: NDArray[np.intp], *, warp: bool = False) -> Iterator[Term]:
    """For each constraint, the log probability that it holds late in training, learned from some rows.

    A value measured early may say little about the trained model, or everything (its size). So each value gets a
    variance of factor * (missing doublings)^2, and the factor is fitted with the length scales. If a trial failed, the
    log probability that a trial does not fail comes last.
    """
    from fairway.models.acquisition import log_probability_below  # noqa: PLC0415 - SciPy loads slowly
    from fairway.models.gaussian_process import fit  # noqa: PLC0415
    from fairway.models.search import Term  # noqa: PLC0415
    from fairway.models.transform import Transform  # noqa: PLC0415

    doubt = _lacking(history)[rows] ** 2
    limits = [(rows, history.late_beyond(i)[rows], doubt) for i in range(len(history.problem.constraints))]
    failed = np.flatnonzero(history.failed)[-_FAILED:]
    if len(failed):
        ran_or_not = np.concatenate([rows, failed])
        limits.append((ran_or_not, np.where(history.failed[ran_or_not], 1.0, -1.0), np.zeros(len(ran_or_not))))
    for where, over, doubted in limits:
        known = ~np.isnan(over)
        if np.count_nonzero(known) >= 2:  # noqa: PLR2004
            z, move = features(history.x[where[known]]), Transform(over[known], cut=False)
            process = fit(features, z, move(over[known]), doubted[known], scaled=True, warp=warp)
            yield Term(process, partial(log_probability_below, limit=float(move(np.zeros(1))[0])))
