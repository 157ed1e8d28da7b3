"""One configuration under cross-validation: each fold is a step of its trial."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, _num_samples

from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.folds import Folds

Scorer = Callable[..., float]


@dataclass
class Scoring:
    """A scorer, its name, and what is handed to it beside the data: by row, or as it is."""

    name: str
    scorer: Scorer
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class CrossValidation:
    """What a search runs on each trial: it trains and scores fold by fold, and pays for limits when it is told to."""

    estimator: Any
    data: Any
    truth: Any
    splits: Sequence[tuple[Any, Any]]
    objective: Scoring
    limits: Sequence[Scoring]
    fit_params: Mapping[str, Any]

    def __post_init__(self) -> None:
        # Where a fold shows one class only, some scores are not defined: those folds come first, so that how many
        # folds count is known at the first report.
        self._one_class = [self._shows_one_class(test) for _, test in self.splits]
        self._order = sorted(range(len(self.splits)), key=lambda k: not self._one_class[k])

    def __call__(self, trial: Trial) -> None:
        """Report one trial."""
        progress = _Progress(self, trial)
        try:
            for step in trial.steps(len(self.splits)):
                progress.fold(self._order[step - 1])
            progress.close()
        finally:
            trial.note(**progress.notes())

    def train(self, params: Mapping[str, Any], rows: Any) -> Any:
        """The estimator with these parameters, trained on some rows."""
        model = clone(self.estimator).set_params(**params)
        data, truth = _safe_split(model, self.data, self.truth, rows)
        fit_params = _check_method_params(self.data, params=dict(self.fit_params), indices=rows)
        return model.fit(data, **fit_params) if truth is None else model.fit(data, truth, **fit_params)

    def score(self, scoring: Scoring, model: Any, k: int) -> float:
        """What a scorer gives a model on the rows of fold k that it has not seen."""
        train, test = self.splits[k]
        data, truth = _safe_split(model, self.data, self.truth, test, train)
        params = _check_method_params(self.data, params=dict(scoring.params), indices=test)
        try:
            with warnings.catch_warnings():
                if self._one_class[k]:
                    warnings.simplefilter("ignore", UndefinedMetricWarning)
                given = (
                    scoring.scorer(model, data, **params)
                    if truth is None
                    else scoring.scorer(model, data, truth, **params)
                )
            return _number(given)
        except Exception as error:
            error.add_note(f"raised by the scorer of {scoring.name!r} on fold {k + 1}")
            raise

    def is_undefined(self, score: float, k: int) -> bool:
        """Whether a score is none because fold k shows one class only, whatever the model."""
        return math.isnan(score) and self._one_class[k]

    def _shows_one_class(self, rows: Any) -> bool:
        if self.truth is None or issparse(self.truth):
            return False
        shown = np.asarray(self.truth)[rows]
        return bool(shown.ndim == 1 and len(shown) and (shown == shown[0]).all())


class _Progress:
    """How far one trial is."""

    def __init__(self, work: CrossValidation, trial: Trial) -> None:
        self._work, self._trial = work, trial
        self._scores: dict[int, float] = {}  # by fold
        self._limits: dict[str, dict[int, float]] = {limit.name: {} for limit in work.limits}
        self._models: dict[int, Any] = {}  # of folds at which some limit was not paid for yet
        self._undefined = 0
        self._fit_seconds: list[float] = []
        self._score_seconds: list[float] = []

    def fold(self, k: int) -> None:
        """Train and score one more fold, and report."""
        work, began = self._work, time.perf_counter()
        train, test = work.splits[k]
        model = work.train(self._trial.params, train)
        trained = time.perf_counter()
        score = work.score(work.objective, model, k)
        self._fit_seconds.append(trained - began)
        self._score_seconds.append(time.perf_counter() - trained)
        if work.is_undefined(score, k):
            self._undefined += 1
            return
        self._scores[k] = score
        if work.limits:
            self._models[k] = model
        sizes = {"test_size": _num_samples(test), "train_size": _num_samples(train)}
        values, of = list(self._scores.values()), len(work.splits) - self._undefined
        offers = {limit.name: self._offer(limit) for limit in work.limits}
        self._trial.report({work.objective.name: Folds(values, of=of, **sizes), **offers})

    def close(self) -> None:
        """Say so if no fold could be scored."""
        if self._undefined == len(self._work.splits):
            name = self._work.objective.name
            raise UsageError(f"{name} is not defined on any of {self._undefined} folds: each shows one class only")

    def _offer(self, limit: Scoring) -> Callable[[], float]:
        """A limit, to be called if it is worth its price: its mean over the folds so far."""

        def mean() -> float:
            known = self._limits[limit.name]
            for k, model in self._models.items():
                if k not in known:
                    known[k] = self._work.score(limit, model, k)
            if all(len(paid) == len(self._scores) for paid in self._limits.values()):
                self._models.clear()
            return float(np.mean(list(known.values())))

        return mean

    def notes(self) -> dict[str, Any]:
        """What the table of results is made from."""
        return {
            "scores": _as_list(self._scores, len(self._work.splits)),
            "limits": {name: _as_list(paid, len(self._work.splits)) for name, paid in self._limits.items()},
            "fit_seconds": self._fit_seconds,
            "score_seconds": self._score_seconds,
            "undefined": self._undefined,
        }


def _number(given: Any) -> float:
    if given is None or isinstance(given, str | bytes | Mapping) or np.ndim(given):
        raise UsageError(f"{repr(given)[:80]} is no score: a number is expected")
    return float(given)


def _as_list(by_fold: Mapping[int, float], n: int) -> list[float | None]:
    """A value a fold; None where there is none, or none that JSON can hold."""
    return [by_fold[k] if math.isfinite(by_fold.get(k, math.nan)) else None for k in range(n)]
