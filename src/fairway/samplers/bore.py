"""BORE (Tiao et al., 2021): a classifier of good points estimates the density ratio of good and bad ones.

The acquisition is the log probability of being in the best `gamma` share, plus those of being feasible and of not
failing, each by a forest. Stopped trials count with their loss so far. Unknown rows are left out of the second forest,
and failed rows out of the first two; running trials count as bad.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from numpy.typing import NDArray

from fairway.checks import checked, fraction, whole
from fairway.errors import MissingDependency
from fairway.history import History
from fairway.samplers.sampler import Sampler

_RANDOM = 1024  # random candidates
_CHANGED = 64  # variations of each of the best trials
_BEST = 4
_ALIKE = 0.1  # a smaller difference in score is ignored


@dataclass(frozen=True)
class BORE(Sampler):
    """Bayesian optimisation by classification, after `start` random trials; needs scikit-learn.

    The best `gamma` share of trials counts as good; each classifier is a forest of `trees` trees.

    >>> import fairway as fw
    >>> fw.BORE(gamma=0.2)
    BORE(start=10, gamma=0.2, trees=50)
    """

    start: int = field(default=10, metadata=checked(whole, least=2))
    _: KW_ONLY
    gamma: float = field(default=0.25, metadata=checked(fraction))
    trees: int = field(default=50, metadata=checked(whole))

    def propose(self, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
        d, ran = len(history.space), ~history.failed
        if np.count_nonzero(ran) < self.start:
            return rng.random(d)
        x = history.candidates(self._candidates(history, rng))
        x = x[history.is_new(x)]
        if not len(x):
            return rng.random(d)
        order = history.best_first
        good = np.zeros(len(history), bool)
        good[order[: max(1, round(self.gamma * len(order)))]] = True
        points = np.concatenate([history.x[ran], history.pending])
        labels = np.concatenate([good[ran], np.zeros(len(history.pending), bool)])
        score = self._log_probability(points, labels, x, rng) + self._log_probability(history.x, ran, x, rng)
        known = ran & ~np.isnan(history.violation)
        if history.problem.constraints and known.any():
            score = score + self._log_probability(history.x[known], history.feasible[known], x, rng)
        best = np.flatnonzero(score >= score.max() - _ALIKE)
        return np.asarray(x[int(rng.choice(best))])

    def _candidates(self, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
        d = len(history.space)
        best = np.nan_to_num(history.x[history.top(_BEST)], nan=0.5)
        changed = np.repeat(best, _CHANGED, axis=0)
        some = rng.random(changed.shape) < max(1.0 / d, 0.2)
        near = np.clip(changed + 0.1 * rng.normal(size=changed.shape), 0.0, 1.0)
        anew = rng.random(changed.shape)
        changed = np.where(some, np.where(rng.random(changed.shape) < 0.5, near, anew), changed)  # noqa: PLR2004
        return np.concatenate([rng.random((_RANDOM, d)), changed])

    def _log_probability(
        self, points: NDArray[np.float64], labels: NDArray[np.bool_], x: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """The log probability that points (k, d) have the label; 0 if all `labels` are equal."""
        if labels.all() or not labels.any():
            return np.zeros(len(x))
        try:
            from sklearn.ensemble import ExtraTreesClassifier  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingDependency("BORE needs scikit-learn: pip install scikit-learn") from None
        seed = int(rng.integers(2**31))
        forest = ExtraTreesClassifier(self.trees, min_samples_leaf=2, max_features=1, random_state=seed, n_jobs=1)
        forest.fit(np.nan_to_num(points, nan=-1.0), labels)
        share = forest.predict_proba(np.nan_to_num(x, nan=-1.0))[:, 1]
        return np.asarray(np.log((share * self.trees + 0.5) / (self.trees + 1.0)))
