"""The default sampler: c-TPE, joined by a Gaussian process where trials were stopped early.

Densities are made of ranks and forget by how much one trial was better than another. A Gaussian process knows, and
finds good regions with fewer trials; but it must be told how good a trial would have become that was stopped. So the
lowest loss of each trial is moved to the end of the longest training: over each octave of steps (1, 2 to 3, 4 to 7 and
so on) by the median fall over a doubling in the trials that ended in the next octave, or in the nearest that is known.
A loss above the median counts at most as far above it as twice the way from the best to the median.

The acquisition is that of c-TPE times the expected improvement over the best trial within the limits, times the chance
that each limit is kept (of a process for each, as in `GP`). The processes are asked during the first 100 trials, where
they are worth their milliseconds, in spaces of at most 60 features. After that, and while no trial was stopped early,
this is c-TPE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fairway.history import History
from fairway.models.blas import one_thread
from fairway.parameters import Choice
from fairway.samplers.gp import limit_terms
from fairway.samplers.tpe import CTPE, Acquisition, Points
from fairway.space import Space

if TYPE_CHECKING:
    from fairway.models.parzen import Parzen
    from fairway.models.search import Surface

_TRIALS = 100
_FEATURES = 60
_RANDOM = 256  # points to choose from, beside those that the densities draw
_BAD = 2.0  # times the way from the best to the median: losses further than that above the median are alike


@dataclass(frozen=True)
class Compass(CTPE):
    """c-TPE and, where trials were stopped early, a Gaussian process: the default sampler.

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

    def propose(self, history: History, rng: np.random.Generator) -> Points:
        with one_thread():
            return super().propose(history, rng)

    def choose(self, history: History, candidates: Points, rng: np.random.Generator) -> int:
        with one_thread():
            return super().choose(history, candidates, rng)

    def _acquisition(self, history: History) -> Acquisition | None:
        acquisition = super()._acquisition(history)
        if acquisition is not None and _is_asked(history):
            acquisition.beside = _improvement(history)
        return acquisition

    def _drawn(self, history: History, good: Sequence[Parzen], rng: np.random.Generator) -> Iterator[Points]:
        yield from super()._drawn(history, good, rng)
        if _is_asked(history):
            yield rng.random((_RANDOM, len(history.space)))


def _is_asked(history: History) -> bool:
    """Whether the process is asked."""
    return len(history) <= _TRIALS and _features(history.space) <= _FEATURES and bool(history.partial.any())


def _features(space: Space) -> float:
    """How many features the process would have: as many as options for an unordered choice, else one a parameter."""
    unordered = [isinstance(each, Choice) and not each.ordered for each in space.values()]
    return sum(each.size if spread else 1 for each, spread in zip(space.values(), unordered, strict=True))


def _improvement(history: History) -> Surface | None:
    """The log of the expected improvement within the limits, as a function of points; None if nothing is known."""
    from fairway.models.acquisition import log_expected_improvement  # noqa: PLC0415 - SciPy loads slowly
    from fairway.models.gaussian_process import Features, fit  # noqa: PLC0415
    from fairway.models.search import Surface, Term  # noqa: PLC0415
    from fairway.models.transform import Transform  # noqa: PLC0415

    features, rows = Features(history.space), np.flatnonzero(~history.failed)
    terms = [*limit_terms(features, history, rows)]
    held = [history.late_beyond(i)[rows] <= 0.0 for i in range(len(history.problem.constraints))]
    feasible = np.all([np.ones(len(rows), np.bool_), *held], axis=0)
    loss = _cut(_continued(history)[rows])
    move = Transform(loss)
    if feasible.any() and not move.flat:
        z, pending = features(history.x[rows]), features(history.pending)
        process = fit(features, z, move(loss))
        best = float(process.predict(z[feasible])[0].min())
        process = process.joined_by(pending) if len(pending) else process
        terms.append(Term(process, partial(log_expected_improvement, best=best)))
    return Surface(features, terms) if terms else None


def _cut(loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """Losses without outliers on the bad side."""
    middle = np.median(loss)
    return np.asarray(np.minimum(loss, middle + _BAD * (middle - loss.min())))


def _continued(history: History) -> NDArray[np.float64]:
    """The lowest losses (n,), moved to the end of the longest training. Means over folds are corrected already."""
    if history.means is not None:
        return history.lowest
    trained = np.log2(np.maximum(history.reached, 1))
    octave = np.floor(trained)
    known = ~np.isnan(history.halfway) & (octave > 1)
    if not known.any():
        return history.lowest
    ended, doublings = octave[known], trained[known] - np.log2(np.exp2(octave[known] - 1) - 1)
    slope = (history.lowest[known] - history.halfway[known]) / doublings
    there = np.unique(ended)
    slopes = np.array([np.median(slope[ended == each]) for each in there])
    octaves = np.arange(octave.max() + 1)
    after = np.abs(there - octaves[:, None] - 1).argmin(axis=1)  # the octave after each, or the nearest that is known
    change = np.interp(trained, np.arange(len(octaves) + 1), np.concatenate([[0.0], np.cumsum(slopes[after])]))
    return np.asarray(history.lowest + change[np.argmax(trained)] - change)
