"""The default sampler: c-TPE, joined by Gaussian processes where trials were stopped early.

c-TPE's densities are built from ranks, so they ignore by how much one trial was better than another. A Gaussian process
uses these differences and needs fewer trials, but it must know how good a stopped trial would have become. So the
lowest loss of each trial is extrapolated to the end of the longest training: over each octave of steps (1, 2 to 3, 4 to
7 and so on) it changes by the median change per doubling in the trials that ended in the next octave, or in the nearest
octave with data. The more it had to be extrapolated, the less it counts: its deviation is the sum, over the same
octaves, of three times the median distance of those changes from their median (shrunk towards that of all octaves).
Under limits, a stopped trial is not extrapolated to below the median of the completed trials that are, like it,
feasible or infeasible. Losses are capped at median + 2 (median - best).

The acquisition is c-TPE's factor for the objective (and, where trials failed, that for failures) times the expected
improvement over the best feasible trial, if there is one, times the probability that each constraint holds (with a
process for each, as in `GP`). c-TPE's factors for the constraints are left out, or each limit would count twice; they
stay where there is no other. The processes join once a trial was stopped early, in spaces of at most 60 features.
Otherwise this is c-TPE. Where they join, a running trial that has reported counts, in the densities too, as if it had
been stopped there: the best trials train longest, and would otherwise be known last.

Once more than 100 trials have begun, the processes learn from 100 of them, half of them the best trained (in c-TPE's
order) and half the latest, and c-TPE makes every other proposal alone: it refines the best where differences are too
small for a process. Where a mean trial costs less than 0.03 seconds, so much thought does not pay: c-TPE makes all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairway.history import History
from fairway.models.blas import one_thread
from fairway.samplers.gp import best_and_latest, limit_terms, objective_process
from fairway.samplers.tpe import CTPE, Points, best_trained_first

if TYPE_CHECKING:
    from fairway.models.parzen import Parzen

_MOST = 100  # trials to learn from
_SECONDS = 0.03  # of a mean trial, from which on the processes join after more trials than that
_FEATURES = 60
_RANDOM = 256  # random candidates, beside those drawn from the densities
_CAP = 2.0  # times the distance from the best to the median
_DEVIATIONS = 3.0  # times the median distance of slopes from their octave's median: two deviations if they are normal
_POOLED = 3  # slopes: the weight of the spread over all octaves, beside an octave's own
_MOST_DEVIATIONS = 5.0  # the most that a loss may be off, in standard deviations of the losses
_LARGEST = 1e100  # losses are clipped to this, so that sums and differences stay finite


@dataclass(frozen=True)
class Compass(CTPE):
    """c-TPE and, where trials were stopped early, Gaussian processes: the default sampler.

    Its settings are those of `CTPE`.

    >>> import fairway as fw
    >>> def train(trial):
    ...     for step in trial.steps(30):
    ...         trial.report(loss=(trial.params["x"] - 0.3) ** 2 + 1 / step)
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Compass(), seed=0)
    >>> study.optimize(train, trials=40)
    >>> abs(study.best.params["x"] - 0.3) < 0.01
    True
    """

    def sees_running(self, history: History) -> bool:
        return _joins(history)

    def propose(self, history: History, rng: np.random.Generator) -> Points:
        if not _joins(history):
            return super().propose(history, rng)
        with one_thread():
            return self._with_processes().propose(history.with_running(), rng)

    def choose(self, history: History, candidates: Points, rng: np.random.Generator) -> int:
        if not _joins(history):
            return super().choose(history, candidates, rng)
        with one_thread():
            return self._with_processes().choose(history.with_running(), candidates, rng)

    def _with_processes(self) -> CTPE:
        return _WithProcesses(**{each.name: getattr(self, each.name) for each in fields(self)})


@dataclass(frozen=True)
class _WithProcesses(CTPE):
    """c-TPE with Gaussian processes."""

    def _leaves_limits(self, history: History) -> bool:
        del history
        return True

    def _more(self, history: History) -> Callable[[Points], NDArray[np.float64]] | None:
        return _improvement(history)

    def _drawn(self, history: History, good: Sequence[Parzen], rng: np.random.Generator) -> Iterator[Points]:
        yield from super()._drawn(history, good, rng)
        yield rng.random((_RANDOM, len(history.space)))


def _joins(history: History) -> bool:
    """Whether Gaussian processes join: a trial was stopped, trials are few or dear, and the space has few features."""
    begun = len(history) + len(history.pending)
    if not history.partial.any() or begun > _MOST and (begun % 2 or history.seconds.mean() < _SECONDS):
        return False
    from fairway.models.gaussian_process import Features  # noqa: PLC0415 - SciPy is slow to load, and must be before `one_thread`

    return len(Features(history.space).of) <= _FEATURES


def _improvement(history: History) -> Callable[[Points], NDArray[np.float64]] | None:
    """The log of the expected improvement within the limits (k,), as a function of points; None if nothing is known."""
    from fairway.models.acquisition import log_expected_improvement  # noqa: PLC0415 - SciPy loads slowly
    from fairway.models.gaussian_process import Features  # noqa: PLC0415
    from fairway.models.search import Surface, Term  # noqa: PLC0415
    from fairway.models.transform import Transform  # noqa: PLC0415

    features, rows = Features(history.space), _rows(history)
    terms = [*limit_terms(features, history, rows)]
    held = [history.late_beyond(i)[rows] <= 0.0 for i in range(len(history.problem.constraints))]  # late in training
    feasible = np.all([np.ones(len(rows), np.bool_), *held], axis=0)
    continued, deviation = _continued(history)
    loss = _capped(_plausible(history, rows, continued[rows], feasible))
    move = Transform(loss)
    if feasible.any() and not move.flat:
        doubt = np.minimum(deviation[rows] / loss.std(), _MOST_DEVIATIONS) ** 2
        process, best = objective_process(features, history, rows, move(loss), feasible, doubt)
        terms.append(Term(process, partial(log_expected_improvement, best=best)))
    return Surface(features, terms) if terms else None


def _rows(history: History) -> NDArray[np.intp]:
    """The rows to learn from: all, or the best one, the best trained ones and the latest."""
    best, trained = history.best_first[:1], best_trained_first(history)
    return best_and_latest(np.concatenate([best, trained[~np.isin(trained, best)]]), _MOST)


def _capped(loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """Losses without outliers on the bad side."""
    middle, best = np.median(loss), loss.min()
    return np.minimum(loss, middle + _CAP * (middle - best)) if middle > best else loss


def _plausible(
    history: History, rows: NDArray[np.intp], loss: NDArray[np.float64], feasible: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The extrapolated losses of some rows; under limits, no stopped trial is below the median of completed ones.

    A loss that was measured may be lower, and so may that of a running trial. Only completed trials are compared that
    are, like the stopped one, feasible or infeasible: after a limit was changed, infeasible ones may have been trained
    longest, and have fallen by more. Without this bound, a stopped trial would seem better than all completed ones like
    it, again and again.
    """
    lowest, running = history.lowest[rows], rows >= len(history) - history.count_running
    stopped, completed = history.partial[rows] & ~running, ~history.partial[rows]
    for alike in (feasible, ~feasible) if history.problem.constraints else ():
        if (alike & completed).any():
            most = np.minimum(lowest, np.median(lowest[alike & completed]))
            loss = np.where(alike & stopped, np.maximum(loss, most), loss)
    return loss


def _continued(history: History) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest losses (n,), extrapolated to the end of the longest training, and the deviations (n,) of these.

    Means over folds stay as they are.
    """
    lowest = np.clip(history.lowest, -_LARGEST, _LARGEST)
    step, halfway = history.halfway.T
    known = ~np.isnan(step)
    if history.means is not None or not known.any():
        return lowest, np.zeros(len(lowest))
    trained = np.log2(np.maximum(history.reached, 1))
    octave, doublings = np.floor(trained), trained[known] - np.log2(step[known])
    slope = (lowest[known] - np.clip(halfway[known], -_LARGEST, _LARGEST)) / doublings
    ended = octave[known]
    there, place, count = np.unique(ended, return_inverse=True, return_counts=True)
    slopes = np.array([np.median(slope[ended == each]) for each in there])
    apart = np.abs(slope - slopes[place])
    several = count[place] > 1
    pooled = np.median(apart[several]) if several.any() else np.median(np.abs(slope))
    own = np.array([np.median(apart[ended == each]) for each in there])
    spread = ((count - 1) * own + _POOLED * pooled) / (count - 1 + _POOLED)
    octaves = np.arange(octave.max() + 1)
    after = np.abs(there - octaves[:, None] - 1).argmin(axis=1)  # the octave after each, or the nearest that is known

    def ahead(each: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of what changes with each octave, from where a trial ended to the longest training."""
        sums = np.interp(trained, np.arange(len(octaves) + 1), np.concatenate([[0.0], np.cumsum(each[after])]))
        return np.asarray(sums[np.argmax(trained)] - sums)

    return lowest + ahead(slopes), _DEVIATIONS * ahead(spread)
