"""TPE (Bergstra et al., 2011) and c-TPE (Watanabe and Hutter, 2023): one acquisition, with and without constraints.

The objective and every constraint are factors. A factor splits the observations into a good and a bad group with
densities l and g; gamma is the share of its good group. The acquisition is the product over factors of the relative
density ratio r = l / (gamma l + (1 - gamma) g): modification I of c-TPE. A factor whose good group holds every point is
constant, and is left out. Modification II is the objective's split: points join its good group from the best on, until
it holds as many *feasible* points as plain TPE's good group has points; if trials were stopped early, it holds at most
twice as many points in all, since limits that are met only late in training leave stopped trials infeasible. A point
whose constraints were never checked counts as the share of checked points that are feasible; otherwise the few checked
points might not fill the group.

Trials are ranked first by how long they were trained, in groups that each span a factor of 1.75, since a stopper stops
the worse ones first; trials of one group are ranked by their lowest loss. A constraint's value is taken from the later
half of a trial's training. Rows whose constraint is unknown are left out of that constraint's densities. That a trial
does not fail is one more constraint: failed rows are the bad ones of its densities, and are left out of all others.
Running trials count as bad in the objective's densities. If trials were stopped early, a constraint that no trial has
met is not a factor: its good group would be one trial that happened to be trained for long. There are then many trials,
and each says less, so the search starts after 0.6 of `start` trials, with kernels 1.4 times as wide; and an integer's
kernel is at least a quarter of a step wide, instead of a whole step.

Rows of earlier studies join the objective's groups, split by their ranks within their own study. After n trials of this
study, each of e earlier studies contributes at most 20 / e * 20 / (20 + n) good rows and as many bad ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.checks import checked, flag, fraction, one_of, positive, whole
from fairway.history import History
from fairway.samplers.portfolio import knows_most
from fairway.samplers.sampler import Sampler

if TYPE_CHECKING:
    from fairway.models.parzen import Axes, Parzen

_INCUMBENTS = 2  # best trials whose neighbours are candidates
_LONGER = math.log(1.75)  # trials count as trained alike within this factor, in logs
_MOST_GOOD = 2  # times the size of plain TPE's good group, where trials were stopped early
_SOONER, _WIDER, _CELL = 0.6, 1.4, 0.25  # after early stops: share of `start`, factor of `bandwidth`, least width
_UNKNOWN, _HELD, _BROKEN = range(3)  # what the later half of a trial says about its limits
_SOME = 8  # times the size of the good group: the rows scanned first for enough feasible ones
_MOST_RECORDED = 1500  # recorded points to score; of more, a random subset is taken
_CARRIED = 20  # good and bad rows each of earlier studies, before any own trial; half as many after 20 own ones

Points = NDArray[np.float64]


class _Factor(NamedTuple):
    """One factor of the acquisition: the points that its two densities are made of, and the share of the good group."""

    good: Points  # (l, d)
    bad: Points  # (g, d)
    gamma: float
    ranked: bool  # the good points are sorted, best first


@dataclass(frozen=True)
class TPE(Sampler):
    """The tree-structured Parzen estimator, which ignores constraints.

    `start` random trials come first. Of n trials, the best ceil(`gamma` sqrt n) are good, or with `growth="linear"` the
    best min(ceil(`gamma` n), 25). The best of `candidates` draws from the good density is proposed; with `neighbours`,
    changes of one discrete parameter of the best trials compete too. With `ranked`, a better trial weighs more in the
    good density. `bandwidth`, `floor` and `stay` set the width of kernels (`fairway.models.parzen.Kernel`).

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), sampler=fw.TPE(), seed=0)
    >>> study.optimize(lambda trial: (trial.params["x"] - 0.3) ** 2, trials=60)
    >>> abs(study.best.params["x"] - 0.3) < 0.01
    True
    """

    start: int = field(default=10, metadata=checked(whole))
    _: KW_ONLY
    gamma: float = field(default=0.25, metadata=checked(positive))
    growth: Literal["sqrt", "linear"] = field(default="sqrt", metadata=checked(one_of, options=("sqrt", "linear")))
    candidates: int = field(default=64, metadata=checked(whole))
    neighbours: bool = field(default=True, metadata=checked(flag))
    ranked: bool = field(default=True, metadata=checked(flag))
    bandwidth: float = field(default=1.059, metadata=checked(positive))
    floor: float = field(default=0.01, metadata=checked(positive))
    stay: float = field(default=0.8, metadata=checked(fraction))

    def propose(self, history: History, rng: np.random.Generator) -> Points:
        d = len(history.space)
        acquisition = self._acquisition(history)
        if acquisition is None:
            return rng.random(d)
        x = history.candidates(np.concatenate([*self._drawn(history, acquisition.good, rng)]))
        if math.isfinite(history.space.size):
            x = x[history.is_new(x)]
        if not len(x):
            return rng.random(d)
        return np.asarray(x[int(np.argmax(acquisition(x, history.given)))])

    def _drawn(self, history: History, good: Sequence[Parzen], rng: np.random.Generator) -> Iterator[Points]:
        """Points to choose from."""
        from fairway.models.neighbours import each_level  # noqa: PLC0415 - SciPy loads slowly

        for density in good:
            yield density.sample(self.candidates, rng)
        if self.neighbours:
            steps = each_level(history.space, self._incumbents(history), rng)
            yield good[0].nudged(steps, rng)  # of the objective, unless that factor is constant

    def choose(self, history: History, candidates: Points, rng: np.random.Generator) -> int:
        acquisition = self._acquisition(history)
        if acquisition is None:
            return int(rng.integers(len(candidates)))
        some = np.arange(len(candidates))
        if len(some) > _MOST_RECORDED:
            some = rng.choice(some, _MOST_RECORDED, replace=False)
        return int(some[np.argmax(acquisition(candidates[some]))])

    def _acquisition(self, history: History) -> _Acquisition | None:
        """The function that ranks proposals; None for the first trials, and while every factor is constant."""
        stopped = bool(history.partial.any())
        start = math.ceil(_SOONER * self.start) if stopped else self.start
        factors = list(self._factors(history)) if np.count_nonzero(~history.failed) >= start else []
        if not factors:
            return None
        from fairway.models.parzen import Axes, Kernel, Parzen  # noqa: PLC0415 - SciPy loads slowly

        wider, cell = (_WIDER, _CELL) if stopped else (1.0, 1.0)
        axes, kernel = Axes(history.space), Kernel(self.bandwidth * wider, self.floor, self.stay, cell)
        good = [Parzen(axes, factor.good, kernel, ranked=self.ranked and factor.ranked) for factor in factors]
        bad = [Parzen(axes, factor.bad, kernel) for factor in factors]
        return _Acquisition(axes, good, bad, [factor.gamma for factor in factors], self._log_ratio, self._more(history))

    def _more(self, history: History) -> Callable[[Points], NDArray[np.float64]] | None:
        """The log of one more factor (k,), as a function of points (k, d); here there is none."""
        del history
        return None

    def _log_ratio(self, log_ratio: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
        """The log of the relative density ratio, from the log of l / g."""
        return -np.logaddexp(math.log(gamma), math.log1p(-gamma) - log_ratio)

    def _good_size(self, history: History, order: NDArray[np.intp]) -> int:
        """How many of some rows, given from best to worst, are good."""
        del history
        n = len(order)
        return math.ceil(self.gamma * math.sqrt(n)) if self.growth == "sqrt" else min(math.ceil(self.gamma * n), 25)

    def _factors(self, history: History) -> Iterator[_Factor]:
        """The factors that are not constant; here, at most the objective, and whether a trial fails."""
        order = best_trained_first(history)
        for own in _split(history.x, order, self._good_size(history, order), history.pending, ranked=True):
            good, bad = zip(own[:2], *self._carried(history), strict=True)
            yield own._replace(good=np.concatenate(good), bad=np.concatenate(bad))
        if len(order) < len(history):
            ran_first = np.concatenate([np.flatnonzero(~history.failed), np.flatnonzero(history.failed)])
            yield from _split(history.x, ran_first, len(order), history.x[:0], ranked=False)

    def _carried(self, history: History) -> Iterator[tuple[Points, Points]]:
        """The good and the bad rows of each earlier study, fewer with each own trial."""
        alike = [each for each in history.earlier if knows_most(each)]
        most = round(_CARRIED / max(len(alike), 1) * _CARRIED / (_CARRIED + len(history)))
        for each in alike:
            order = best_trained_first(each)
            size = self._good_size(each, order)
            bad = order[size:]
            spread = np.linspace(0, len(bad) - 1, min(most, len(bad))).astype(np.intp)
            yield each.x[order[: min(size, most)]], each.x[bad[spread]]

    def _incumbents(self, history: History) -> Points:
        """The points of the best trials; here, by the objective."""
        return history.x[history.ranked("loss", lambda since: [history.loss[since:]])[:_INCUMBENTS]]


@dataclass(frozen=True)
class CTPE(TPE):
    """TPE under constraints. Identical to `TPE` if no constraint is ever violated.

    `relative` and `feasible_split` are modifications I and II of the paper; `naive` turns both off.

    >>> import fairway as fw
    >>> limits = [fw.AtLeast("x", 0.5)]
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), limits, sampler=fw.CTPE(), seed=0)
    >>> study.optimize(lambda trial: {"loss": trial.params["x"] ** 2, "x": trial.params["x"]}, trials=60)
    >>> 0.5 <= study.best.params["x"] < 0.51
    True
    """

    relative: bool = field(default=True, metadata=checked(flag))
    feasible_split: bool = field(default=True, metadata=checked(flag))
    naive: bool = field(default=False, metadata=checked(flag))

    def _log_ratio(self, log_ratio: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
        return super()._log_ratio(log_ratio, gamma) if self.relative and not self.naive else log_ratio

    def _good_size(self, history: History, order: NDArray[np.intp]) -> int:
        size = super()._good_size(history, order)
        if not self.feasible_split or self.naive:
            return size
        over = [history.late_beyond(i) for i in range(len(history.problem.constraints))]

        def kept(since: int) -> NDArray[np.int8]:
            excess = np.array([column[since:] for column in over]).reshape(len(over), len(history) - since)
            held, broken = (excess <= 0.0).all(axis=0), (excess > 0.0).any(axis=0)
            return np.where(held, _HELD, np.where(broken, _BROKEN, _UNKNOWN)).astype(np.int8)

        late = history.derived.column("kept late", len(history), kept)
        feasible = np.count_nonzero((late == _HELD) & ~history.failed)
        share = (feasible + 1) / (feasible + np.count_nonzero(late == _BROKEN) + 2)  # with one of each kind added
        enough = _reaching(size, np.array([share, 1.0, 0.0]), late, order)
        return min(enough, _MOST_GOOD * size) if history.partial.any() else enough

    def _factors(self, history: History) -> Iterator[_Factor]:
        others = list(super()._factors(history))
        yield from others
        if others and self._leaves_limits(history):
            return
        stopped = bool(history.partial.any())
        for i in range(len(history.problem.constraints)):
            over = history.late_beyond(i)
            order = history.ranked(f"late {i}", lambda since, over=over: [over[since:]])  # type: ignore[misc]
            order = order[: np.count_nonzero(~np.isnan(over))]  # failed ones are unknown too
            within = int(np.count_nonzero(over <= 0.0))
            if within or order.size and not stopped:
                yield from _split(history.x, order, max(within, 1), history.x[:0], ranked=False)

    def _leaves_limits(self, history: History) -> bool:
        """Whether the constraints need no factors, if there are others; here they always do."""
        del history
        return False

    def _incumbents(self, history: History) -> Points:
        return history.x[history.top(_INCUMBENTS)]


class _Acquisition:
    """The log of the product over factors, at any points."""

    def __init__(
        self,
        axes: Axes,
        good: Sequence[Parzen],
        bad: Sequence[Parzen],
        gammas: Sequence[float],
        log_ratio: Callable[[NDArray[np.float64], float], NDArray[np.float64]],
        more: Callable[[Points], NDArray[np.float64]] | None,
    ) -> None:
        self.good = good
        self._more = more
        self._axes, self._bad, self._gammas, self._log_ratio = axes, bad, gammas, log_ratio

    def __call__(self, x: Points, given: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """The log (k,) at points (k, d).

        Given coordinates are ignored: where they are far from all good points, kernels say nothing about the other
        ones.
        """
        total = np.zeros(len(x)) if self._more is None else self._more(x)
        x = x if given is None else np.where(np.isnan(given), x, np.nan)
        cells = self._axes.one_hot(x)
        for good, bad, gamma in zip(self.good, self._bad, self._gammas, strict=True):
            total = total + self._log_ratio(good.log_density(x, cells) - bad.log_density(x, cells), gamma)
        return total


def best_trained_first(history: History) -> NDArray[np.intp]:
    """The rows that did not fail, by how long each trial was trained, in whole factors, and then by lowest loss.

    Trials reported fold by fold are sorted by loss alone: folds are not training, and their means are corrected.
    """

    def keys(since: int) -> tuple[NDArray[np.float64], ...]:
        factors = np.floor(np.log(np.maximum(history.reached[since:], 1)) / _LONGER + 1e-9)
        failed = history.failed[since:].astype(np.float64)
        return failed, -factors if history.means is None else np.zeros(len(factors)), history.lowest[since:]

    return history.ranked("best trained first", keys)[: np.count_nonzero(~history.failed)]


def _reaching(size: int, chances: NDArray[np.float64], late: NDArray[np.int8], order: NDArray[np.intp]) -> int:
    """How many rows, in order, it takes until their chances sum to `size`; one more than all rows if they never do."""
    some = _SOME * size
    while True:
        sums = np.cumsum(chances[late[order[:some]]])
        if some >= len(order) or sums[-1] >= size:
            return int(np.searchsorted(sums, size)) + 1
        some *= 4


def _split(x: Points, order: NDArray[np.intp], size: int, worse: Points, *, ranked: bool) -> Iterator[_Factor]:
    """A factor whose good group is the first `size` rows of an order; nothing if that is all of them."""
    from fairway.models.parzen import thinned  # noqa: PLC0415 - SciPy loads slowly

    n = len(order) - size  # bad rows, before the points that are worse than all
    if n > 0:
        places = thinned(n + len(worse))
        bad = np.concatenate([x[order[size + places[places < n]]], worse[places[places >= n] - n]])
        yield _Factor(x[order[thinned(size)]], bad, size / len(order), ranked)
