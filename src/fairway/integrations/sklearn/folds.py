"""Cross-validation as trials: each fold is a step, measured by scorers; `cv_results_` is the table of all of them."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, _num_samples

from fairway import feasibility
from fairway.checks import fraction
from fairway.constraints import model_size
from fairway.engine.record import TrialRecord
from fairway.engine.remeasurement import alone_metrics
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.evidence import Evidence
from fairway.folds import Folds
from fairway.fresh import cost_evidence, cost_metric
from fairway.integrations.sklearn.options import Options
from fairway.measured import Measured
from fairway.study import Study

Scorer = Callable[..., float]


@dataclass
class Scoring:
    """A scorer, the name of its metric, its role in metadata routing, and its arguments beside the data."""

    name: str
    scorer: Scorer
    role: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def at(self, model: Any, data: Any, truth: Any, params: Mapping[str, Any]) -> Any:
        """The score of a model on some rows, with the arguments of those rows."""
        return self.scorer(model, data, *(() if truth is None else (truth,)), **params)


def group_scorer(
    metric: Callable[..., float], column: str | int | None = None, *, threshold: float | None = None
) -> GroupScorer:
    """A scorer from a metric of groups, metric(truth, predicted, sensitive_features=), as in `fairway.constraints`.

    `column` is the name or the position of the column that holds the groups. Without it, pass them beside the data:
    `search.fit(X, y, sensitive_features=groups)`. With a `threshold`, the metric judges the decisions made at it: the
    positive class where its probability is at least the threshold. Without one, it judges those of `predict`.

    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> from fairway.constraints import demographic_parity_difference
    >>> data, labels = np.array([[0], [0], [1], [1]]), np.array([0, 1, 0, 1])
    >>> scorer = group_scorer(demographic_parity_difference, column=0)
    >>> float(scorer(DummyClassifier().fit(data, labels), data, labels))
    0.0
    """
    return GroupScorer(metric, column, None if threshold is None else fraction(threshold, "threshold"))


@dataclass(frozen=True)
class GroupScorer:
    """What `group_scorer` returns."""

    metric: Callable[..., float]
    column: str | int | None = None
    threshold: float | None = None

    def __call__(self, estimator: Any, data: Any, truth: Any, *, sensitive_features: Any = None) -> float:
        """The metric of an estimator's predictions."""
        groups = self.groups(data, sensitive_features)
        return _number(self.metric(truth, self.decided(estimator, data), sensitive_features=groups))

    def decided(self, estimator: Any, data: Any) -> Any:
        """What an estimator decides for each row, by `predict` or at the threshold."""
        if self.threshold is None:
            return estimator.predict(data)
        if not hasattr(estimator, "predict_proba"):
            raise UsageError(f"threshold={self.threshold}: {type(estimator).__name__} has no predict_proba")
        probability = np.asarray(estimator.predict_proba(data))
        if probability.shape[1:] != (2,):
            raise UsageError(f"threshold={self.threshold}: two classes are expected, not {probability.shape[1]}")
        return np.asarray(estimator.classes_)[(probability[:, 1] >= self.threshold).astype(int)]

    def groups(self, data: Any, sensitive_features: Any = None) -> Any:
        """The group of each row: those of the column, or else those that came beside the data."""
        if self.column is None and sensitive_features is not None:
            return sensitive_features
        name = getattr(self.metric, "__name__", "the metric")
        if self.column is None:
            raise UsageError(
                f"{name} needs the groups: group_scorer({name}, column=...), or fit(X, y, sensitive_features=groups)"
            )
        try:
            if hasattr(data, "columns"):  # a table of pandas or polars
                name = self.column if self.column in data.columns else data.columns[self.column]
                return data[name]
            table = data.toarray() if hasattr(data, "toarray") else np.asarray(data)
            return table[:, self.column]  # type: ignore[index]
        except (IndexError, KeyError, TypeError, ValueError):
            raise UsageError(f"{name}: the data has no column {self.column!r}") from None

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn's metadata routing must pass."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="sensitive_features", alias=self.column is None)
        return request


@dataclass(frozen=True)
class CostScorer:
    """A scorer from `latency` or `model_size`, maybe with arguments fixed by `functools.partial`."""

    metric: Callable[..., float]

    def __call__(self, estimator: Any, data: Any, truth: Any = None) -> float:
        """The cost of an estimator."""
        del truth
        return _number(
            self.metric(estimator) if cost_metric(self.metric) is model_size else self.metric(estimator, data)
        )

    def evidence(self, estimator: Any, data: Any, truth: Any = None) -> Evidence:
        """The evidence that fresh rows give for this cost."""
        del truth
        return cost_evidence(self.metric, estimator, data)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of this name, and uses it."""
    if isinstance(function, GroupScorer) and function.column is not None:
        return False
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def splits_of(
    cv: Any, estimator: Any, data: Any, truth: Any, params: Mapping[str, Any]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The rows to train on and to test on, for each fold."""
    splits = list(check_cv(cv, truth, classifier=is_classifier(estimator)).split(data, truth, **params))
    if not splits:
        raise UsageError(f"cv={repr(cv)[:80]} gives no split: it may have been used up by an earlier fit")
    for k, (train, test) in enumerate(splits):
        if len(train) == 0 or len(test) == 0:
            raise UsageError(f"cv: split {k} has no rows to {'test' if len(train) else 'train'} on")
    return splits


@dataclass
class CrossValidation:
    """What a search runs on each trial: it trains and scores fold by fold, and scores constraints when told to."""

    estimator: Any
    data: Any
    truth: Any
    splits: Sequence[tuple[Any, Any]]
    objective: Scoring
    constraints: Sequence[Scoring]
    fit_params: Mapping[str, Any]
    options: Options

    def __post_init__(self) -> None:
        # Some scores are undefined on a fold with a single class: those folds come first, so that the number of folds
        # that count is known at the first report.
        self.one_class = [self._has_one_class(test) for _, test in self.splits]
        self._order = sorted(range(len(self.splits)), key=lambda k: not self.one_class[k])

    def __call__(self, trial: Trial) -> None:
        """Run one trial."""
        progress = _Progress(self, trial)
        try:
            for step in trial.steps(len(self.splits)):
                progress.fold(self._order[step - 1])
            if progress.undefined == len(self.splits):
                name, folds = self.objective.name, progress.undefined
                raise UsageError(f"{name} is not defined on any of {folds} folds: each shows one class only")
        finally:
            trial.note(**progress.notes())

    def train(self, params: Mapping[str, Any], rows: Any) -> Any:
        """The estimator with these parameters, trained on some rows."""
        model = clone(self.estimator).set_params(**self.options.params(params))
        data, truth = _safe_split(model, self.data, self.truth, rows)
        fit_params = _check_method_params(self.data, params=dict(self.fit_params), indices=rows)
        return model.fit(data, **fit_params) if truth is None else model.fit(data, truth, **fit_params)

    def score(self, scoring: Scoring, model: Any, k: int) -> float:
        """The score of a model on the test rows of fold k."""
        train, test = self.splits[k]
        data, truth = _safe_split(model, self.data, self.truth, test, train)
        params = _check_method_params(self.data, params=dict(scoring.params), indices=test)
        try:
            with warnings.catch_warnings():
                if self.one_class[k]:
                    warnings.simplefilter("ignore", UndefinedMetricWarning)
                given = scoring.at(model, data, truth, params)
            if given is None or isinstance(given, str | bytes | Mapping) or np.ndim(given):
                raise UsageError(f"{repr(given)[:80]} is no score: a number is expected")  # noqa: TRY301 - to be noted
            return _number(given)
        except Exception as error:
            error.add_note(f"raised by the scorer of {scoring.name!r} on fold {k + 1}")
            raise

    def _has_one_class(self, rows: Any) -> bool:
        if self.truth is None or issparse(self.truth):
            return False
        truth = np.asarray(self.truth)[rows]
        return bool(truth.ndim == 1 and len(truth) and (truth == truth[0]).all())


def _number(value: Any) -> float:
    return value if isinstance(value, Measured) else float(value)


class _Progress:
    """What one trial has trained and scored so far."""

    def __init__(self, work: CrossValidation, trial: Trial) -> None:
        self._work, self._trial = work, trial
        self._scores: dict[int, float] = {}  # by fold
        self._constraints: dict[str, dict[int, float]] = {each.name: {} for each in work.constraints}
        self._models: dict[int, Any] = {}  # of folds at which some constraint was not scored yet
        self._fit_seconds: list[float] = []
        self._score_seconds: list[float] = []
        self._sizes: dict[str, int] = {}  # of the last fold
        self.undefined = 0

    def fold(self, k: int) -> None:
        """Train and score one more fold, and report."""
        work, began = self._work, time.perf_counter()
        train, test = work.splits[k]
        model = work.train(self._trial.params, train)
        trained = time.perf_counter()
        score = work.score(work.objective, model, k)
        self._fit_seconds.append(trained - began)
        self._score_seconds.append(time.perf_counter() - trained)
        if math.isnan(score) and work.one_class[k]:  # whatever the model
            self.undefined += 1
            return
        self._scores[k] = score
        if work.constraints:
            self._models[k] = model
        self._sizes = {"test_size": _num_samples(test), "train_size": _num_samples(train)}
        means = Folds(list(self._scores.values()), of=len(work.splits) - self.undefined, **self._sizes)
        offers = {each.name: partial(self._check, each) for each in work.constraints}
        self._trial.report({work.objective.name: means, **offers})

    def _check(self, scoring: Scoring) -> Measured | Folds:
        """A constraint's mean over the folds so far, with its error: by the folds' spread, or by their own errors."""
        known = self._constraints[scoring.name]
        for k, model in self._models.items():
            if k not in known:
                known[k] = self._work.score(scoring, model, k)
        if all(len(scored) == len(self._scores) for scored in self._constraints.values()):
            self._models.clear()
        folds = Folds(list(known.values()), **self._sizes)
        values = [value for value in known.values() if isinstance(value, Measured)]
        if len(values) < len(known) or not math.isfinite(folds.mean):
            return folds
        own = math.hypot(*(value.error for value in values)) / len(values)
        note = next((value.note for value in reversed(values) if value.note), "")
        return Measured(folds.mean, float(np.nanmax([folds.noise, own])), note=note)

    def notes(self) -> dict[str, Any]:
        """What `results_of` reads: one value per fold, None if there is none or none that JSON can hold."""

        def by_fold(scores: Mapping[int, float]) -> list[float | None]:
            folds = range(len(self._work.splits))
            return [scores[k] if math.isfinite(scores.get(k, math.nan)) else None for k in folds]

        return {
            "scores": by_fold(self._scores),
            "limits": {name: by_fold(scores) for name, scores in self._constraints.items()},
            "fit_seconds": self._fit_seconds,
            "score_seconds": self._score_seconds,
            "undefined": self.undefined,
        }


def results_of(study: Study, folds: int, options: Options) -> dict[str, Any]:
    """`cv_results_`: one row per configuration, in the order tried; NaN for folds that were not run or not scored.

    Columns beside scikit-learn's: `split0_test_<constraint>` and `mean_test_<constraint>`, `n_folds`, `status`,
    `reason` and `feasible` (objects: True, False, or None if unknown). `rank_test_score` ranks feasible configurations
    by score, then the others. For a constraint that was measured again, alone, the log has only the new mean: that is
    `mean_test_<constraint>`, and its folds and their spread are NaN.
    """
    records = study.trials
    columns: dict[str, Any] = {}
    for role in ("fit", "score"):
        spent = [record.notes.get(f"{role}_seconds", []) for record in records]
        columns[f"mean_{role}_time"] = np.array([np.mean(times) if times else np.nan for times in spent])
        columns[f"std_{role}_time"] = np.array([np.std(times) if times else np.nan for times in spent])
    columns |= {f"param_{name}": None for name in study.space.names}
    columns["params"] = tried = [options.params(record.params) for record in records]
    for name in study.space.names:
        filled = np.empty(len(records), dtype=object)
        for i, params in enumerate(tried):
            filled[i] = params.get(name)
        columns[f"param_{name}"] = np.ma.MaskedArray(filled, mask=[name not in params for params in tried])
    _add_scores(columns, "score", [record.notes.get("scores", []) for record in records], folds)
    for name in study.problem.metrics[1:]:
        _add_scores(columns, name, [record.notes.get("limits", {}).get(name, []) for record in records], folds)
    for i, step in study.owner.ledger.remeasured.places:
        if records[i].step == step:
            _take_newer(columns, records[i], alone_metrics(study.problem), folds)
    columns["n_folds"] = np.isfinite([columns[f"split{k}_test_score"] for k in range(folds)]).sum(axis=0)
    columns["status"] = np.array([record.status for record in records], dtype=object)
    columns["reason"] = np.array([record.reason for record in records], dtype=object)
    columns["feasible"] = np.array([record.feasible for record in records], dtype=object)
    history = study.history
    away = feasibility.distances(study.problem, history.bounds, history.violation)
    order = feasibility.order(history.loss, np.where(history.partial, np.nan, away))
    ranks = columns["rank_test_score"] = np.full(len(records), len(records), dtype=np.int32)  # running ones are last
    ranks[history.number[order]] = np.arange(1, len(order) + 1)
    return columns


def _take_newer(columns: dict[str, Any], record: TrialRecord, metrics: Sequence[str], folds: int) -> None:
    """Put the values that count into the row of a configuration that was measured again."""
    for name in metrics:
        value, mean = record.metrics[name], columns[f"mean_test_{name}"]
        if value is not None and not math.isclose(value, mean[record.number]):
            mean[record.number] = value
            for column in (f"std_test_{name}", *(f"split{k}_test_{name}" for k in range(folds))):
                columns[column][record.number] = np.nan


def _add_scores(columns: dict[str, Any], name: str, rows: list[list[float | None]], folds: int) -> None:
    table = np.array([[*row, *[None] * (folds - len(row))] for row in rows], dtype=float).reshape(len(rows), folds)
    for k in range(folds):
        columns[f"split{k}_test_{name}"] = table[:, k]
    known = np.isfinite(table)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, table, 0.0).sum(axis=1) / count
        spread = np.sqrt((np.where(known, table - mean[:, None], 0.0) ** 2).sum(axis=1) / count)
    columns[f"mean_test_{name}"], columns[f"std_test_{name}"] = mean, spread
