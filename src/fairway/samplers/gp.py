"""Bayesian optimisation with Gaussian processes, one for the objective and one for each constraint.

The acquisition is log expected improvement over the best feasible point, plus the log of the probability that each
constraint is met (Gardner et al., 2014); while nothing is feasible it is that probability alone. It is maximised by
L-BFGS-B in the continuous parameters and by exact search in the discrete ones, from the best of many random points and
of one-parameter changes of the best trials. `GP.cikm2021()` is the winning solution of the CIKM 2021 contest.

Rows of stopped trials (partial) are taken for at best the median of the completed ones, unless `impute` is False.
Unknown rows are left out of a constraint's process and are never feasible. Failed rows are left out. Running trials
are believed to come out at the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.checks import flag, positive, whole
from fairway.errors import UsageError
from fairway.history import History
from fairway.samplers.initial import Design, check_design, initial_point
from fairway.samplers.sampler import Sampler, is_new
from fairway.space import Space

if TYPE_CHECKING:
    from fairway.models.gaussian_process import Features, GaussianProcess

Array = NDArray[np.float64]

_RANDOM = 512  # points at which the acquisition is first looked at
_INCUMBENTS = 5  # whose one-parameter changes are looked at too
_STARTS = 10  # of the local search
_ROUNDS = 4  # of it, at most
_MOST_LEVELS = 48  # of a discrete parameter that are looked at, at a time


class _Term(NamedTuple):
    """One summand of the acquisition: a process, and a function of its mean and deviation with derivatives."""

    process: GaussianProcess
    value: Callable[[Array, Array], tuple[Array, Array, Array]]


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
    warp: bool = False
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
        """The winning solution: furthest-first start, EI, one proposal in ten at random, no transform."""
        return cls(10, initial="furthest", transform=False, random_share=0.1)

    def propose(self, history: History, rng: np.random.Generator) -> Array:
        """The point with the highest acquisition."""
        if len(history) + len(history.pending) < self.start:
            return initial_point(self.initial, self.start, history, rng)
        if np.count_nonzero(~history.failed) < 2 or rng.random() < self.random_share:  # noqa: PLR2004
            return rng.random(len(history.space))
        from fairway.models.gaussian_process import Features  # noqa: PLC0415 - SciPy takes its time to load

        features = Features(history.space)
        rows = self._rows(history)
        terms = self._terms(features, history, rows)
        if not terms:
            return rng.random(len(history.space))
        return _maximise(_Acquisition(features, terms), history, rng)

    def _rows(self, history: History) -> NDArray[np.intp]:
        """The trials to learn from: all, or the better and the later ones."""
        order = history.order[: np.count_nonzero(~history.failed)]
        if len(order) <= self.most:
            return np.sort(order)
        better = order[: self.most // 2]
        later = np.setdiff1d(order, better)[-(self.most - len(better)) :]
        return np.sort(np.concatenate([better, later]))

    def _terms(self, features: Features, history: History, rows: NDArray[np.intp]) -> list[_Term]:
        from fairway.models import acquisition as functions  # noqa: PLC0415
        from fairway.models.gaussian_process import fit  # noqa: PLC0415
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
            terms.append(_Term(process, choose[self.acquisition]))
        for i, constraint in enumerate(history.problem.constraints):
            over = constraint.sign * (history.values[rows, i] - constraint.threshold)
            over[np.isnan(over) & np.isinf(history.violation[rows])] = np.inf
            known = ~np.isnan(over)
            if np.count_nonzero(known) < 2:  # noqa: PLR2004 - nothing to learn from
                continue
            move = Transform(over[known], cut=False)
            limit = float(move(np.zeros(1))[0])
            process = fit(features, z[known], move(over[known]), warp=self.warp)

            def met(mean: Array, deviation: Array, limit: float = limit) -> tuple[Array, Array, Array]:
                return functions.log_probability_below(mean, deviation, limit)

            terms.append(_Term(process, met))
        return terms

    def _imputed(self, history: History, rows: NDArray[np.intp]) -> Array:
        loss = history.loss[rows].copy()
        partial = history.partial[rows]
        if self.impute and partial.any() and not partial.all():
            best = np.argmin(np.where(history.feasible[rows], loss, np.inf))
            partial = partial.copy()
            partial[best] = False  # what may be shipped is known
            loss[partial] = np.maximum(loss[partial], np.median(loss[~history.partial[rows]]))
        return loss


class _Acquisition:
    """The sum of some terms, as a function of points of the unit cube."""

    def __init__(self, features: Features, terms: Sequence[_Term]) -> None:
        self._features, self._terms = features, terms
        self.feature = {int(j): k for k, j in enumerate(features.of)}  # of a numerical parameter

    def __call__(self, x: Array) -> Array:
        """At points (k, d): (k,)."""
        z = self._features(x)
        total = np.zeros(len(x))
        for process, value in self._terms:
            total += value(*process.predict(z))[0]
        return total

    def with_gradient(self, x: Array) -> tuple[float, Array]:
        """At one point (d,), and the gradient by its features (p,)."""
        z = self._features(x[None])[0]
        total, gradient = 0.0, np.zeros(len(z))
        for process, value in self._terms:
            mean, deviation, by_mean, by_deviation = process.predict_with_gradient(z)
            one, slope_mean, slope_deviation = value(np.array([mean]), np.array([deviation]))
            total += float(one[0])
            gradient += slope_mean[0] * by_mean + slope_deviation[0] * by_deviation
        return total, gradient


def _maximise(acquisition: _Acquisition, history: History, rng: np.random.Generator) -> Array:
    """The best point that was not tried yet."""
    space = history.space
    sizes = np.array([parameter.size for parameter in space.values()])
    continuous = np.flatnonzero(sizes > _MOST_LEVELS * 4)
    continuous = np.array([j for j in continuous if j in acquisition.feature and not _is_unordered(space, int(j))], int)
    incumbents = history.x[history.order[:_INCUMBENTS]]
    pool = space.snap(np.concatenate([rng.random((_RANDOM, len(space))), _neighbours(space, incumbents, rng)]))
    x, value = _best(acquisition, history, pool, _STARTS)
    for _ in range(_ROUNDS if len(x) else 0):
        before = value[0]
        moved = [_climb(acquisition, point, continuous) for point in x] if continuous.size else list(x)
        pool = np.concatenate(
            [x, space.snap(np.array(moved)), space.snap(_neighbours(space, np.array(moved[:3]), rng))]
        )
        x, value = _best(acquisition, history, pool, 3)
        if value[0] <= before + 1e-6:
            break
    return x[0] if len(x) else rng.random(len(space))


def _is_unordered(space: Space, j: int) -> bool:
    return getattr(space[space.names[j]], "ordered", True) is False


def _best(acquisition: _Acquisition, history: History, x: Array, most: int) -> tuple[Array, Array]:
    """The best few of some points that were not tried yet, and their values."""
    _, first = np.unique(history.space.fingerprints(x), return_index=True)
    x = x[np.sort(first)]
    x = x[is_new(history, x)]
    if not len(x):
        return x, np.zeros(0)
    value = acquisition(x)
    order = np.argsort(-value, kind="stable")[:most]
    return x[order], value[order]


def _neighbours(space: Space, x: Array, rng: np.random.Generator) -> Array:
    """Every point with one parameter changed: to all other levels of a discrete one, a little and a lot otherwise."""
    changed = []
    for j, parameter in enumerate(space.values()):
        if parameter.size <= _MOST_LEVELS:
            edges = parameter.edges()
            levels = (edges[:-1] + edges[1:]) / 2
        else:
            levels = rng.random(4)
        for point in np.nan_to_num(x, nan=0.5):
            near = (
                np.clip(point[j] + 0.1 * rng.normal(size=2), 0.0, 1.0) if parameter.size > _MOST_LEVELS else levels[:0]
            )
            values = np.concatenate([levels, near])
            copies = np.repeat(point[None], len(values), axis=0)
            copies[:, j] = values
            changed.append(copies)
    return np.concatenate(changed) if changed else np.zeros((0, len(space)))


def _climb(acquisition: _Acquisition, point: Array, continuous: NDArray[np.int_]) -> Array:
    """Move a point's continuous parameters uphill, the others held."""
    from scipy.optimize import minimize  # noqa: PLC0415 - SciPy takes its time to load

    free = continuous[~np.isnan(point[continuous])]
    if not free.size:
        return point
    columns = np.array([acquisition.feature[int(j)] for j in free])

    def downhill(u: Array) -> tuple[float, Array]:
        there = point.copy()
        there[free] = u
        value, gradient = acquisition.with_gradient(there)
        return -value, -gradient[columns]

    found = minimize(
        downhill, point[free], jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(free), options={"maxiter": 12}
    )
    moved = point.copy()
    moved[free] = np.clip(found.x, 0.0, 1.0)
    return moved
