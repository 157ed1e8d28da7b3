"""Rows that a cross-validated search leaves alone, and what they say of each limit: a certificate for its estimator."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, precision_score, recall_score
from sklearn.model_selection import PredefinedSplit, check_cv
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, _num_samples

from fairway.checks import fraction
from fairway.constraints.rows import grouped
from fairway.errors import UsageError
from fairway.evidence import Decisions, Evidence, Exact, Mean, Resampled
from fairway.fresh import FAIRNESS
from fairway.integrations.sklearn.folds import GroupScorer, Scoring
from fairway.measured import Measured
from fairway.problem import Constraint
from fairway.study import Study
from fairway.text import counted

_PREDICTIONS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples")


@dataclass
class Rows:
    """Some of the rows that `fit` was given, with the arguments that go with them."""

    data: Any
    truth: Any
    fit: Mapping[str, Any]  # for the estimator's fit
    split: Mapping[str, Any]  # for splitting
    scorings: Sequence[Scoring]  # the objective's, then the constraints'

    def at(self, estimator: Any, places: Any, trained: Any = None) -> Rows:
        """The rows at these places; of a kernel, with the columns of the rows `trained` on."""
        data, truth = _safe_split(estimator, self.data, self.truth, places, trained)

        def taken(params: Mapping[str, Any]) -> dict[str, Any]:
            return dict(_check_method_params(self.data, params=dict(params), indices=places))

        scorings = [Scoring(each.name, each.scorer, each.role, taken(each.params)) for each in self.scorings]
        return Rows(data, truth, taken(self.fit), taken(self.split), scorings)

    @property
    def groups(self) -> list[Any]:
        """The groups that constraints compare, each once."""
        found = list[Any]()
        for each in self.scorings[1:]:
            if isinstance(each.scorer, GroupScorer):
                groups = each.scorer.groups(self.data, each.params.get("sensitive_features"))
                if not any(groups is known for known in found):
                    found.append(groups)
        return found


def keep_back(rows: Rows, share: float, estimator: Any, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of the rows to search by, and of a share of the rows to certify on.

    Each combination of class and group gives its share, by systematic sampling of the sorted rows. If `groups` came for
    splitting, each of those stays together, in the combination of its first row.
    """
    n, rng = _num_samples(rows.data), np.random.default_rng(seed)
    stratum = np.zeros(n, dtype=np.int64)
    columns = [grouped(stratum, stratum, groups, None).number for groups in rows.groups]
    if is_classifier(estimator) and np.size(rows.truth) == n:
        columns.append(np.unique(np.ravel(rows.truth), return_inverse=True)[1])
    for column in columns:
        stratum = stratum * (int(column.max()) + 1) + column
    whole = rows.split.get("groups")
    unit = np.arange(n) if whole is None else np.unique(np.asarray(whole), return_inverse=True)[1]
    first = np.unique(unit, return_index=True)[1]
    order = np.lexsort((rng.random(len(first)), stratum[first]))
    taken = np.diff(np.floor(share * np.arange(len(first) + 1) + rng.random())) > 0
    fresh = np.isin(unit, order[taken])
    if fresh.all() or not fresh.any():
        what = counted(len(first), "sample" if whole is None else "group")
        raise UsageError(f"certify={share:g} of {what} leaves {'all' if fresh.all() else 'none'} to certify on")
    return np.flatnonzero(~fresh), np.flatnonzero(fresh)


def splits_within(places: NDArray[np.int64], cv: Any) -> Any:
    """Splits that name rows by their places, as splits of the rows at some places; any other `cv` as it is."""
    if not isinstance(cv, PredefinedSplit) and (cv is None or isinstance(cv, Integral) or hasattr(cv, "split")):
        return cv
    splits = [tuple(map(np.asarray, split)) for split in check_cv(cv).split()]
    new = np.full(1 + max(int(part.max(initial=0)) for part in (places, *sum(splits, ()))), -1)
    new[places] = np.arange(len(places))
    return [(new[train][new[train] >= 0], new[test][new[test] >= 0]) for train, test in splits]


def share_of(certify: Any, confidence: Any, constraints: Sequence[Scoring]) -> float | None:
    """The share of rows to certify on, checked; None without a certificate."""
    if certify is None:
        return None
    if fraction(confidence, "confidence") < 0.5:  # noqa: PLR2004
        raise UsageError(f"confidence={confidence!r}: at least 0.5 is expected, such as 0.95")
    if not constraints:
        raise UsageError(f"certify={certify!r}: there is no limit to certify; give constraints")
    return fraction(certify, "certify")


class Judge:
    """What fresh rows say of each limit of a fitted estimator: the `evaluate` of `study.certify`."""

    def __init__(self, rows: Rows, share: float, confidence: float, constraints: Sequence[Constraint]) -> None:
        self.rows, self._clusters = rows, rows.split.get("groups")
        for scoring, constraint in zip(rows.scorings[1:], constraints, strict=True):
            if isinstance(scoring.scorer, GroupScorer) and scoring.scorer.metric in FAIRNESS:
                ideal = self._decisions(scoring, rows.truth)
                least, level = ideal.least_p(constraint), 1.0 - confidence
                if least > level:
                    raise UsageError(
                        f"certify={share:g} leaves {ideal.rows} rows, too few for the limit on {scoring.name}: "
                        f"whatever they say, p is at least {least:.2g}, and {level:.2g} is needed; give more rows"
                    )

    def __call__(self, model: Any) -> dict[str, Evidence]:
        """Evidence for each limit."""
        return {each.name: self._evidence(each, model) for each in self.rows.scorings[1:]}

    def _decisions(self, scoring: Scoring, decided: Any) -> Decisions:
        scorer = scoring.scorer
        assert isinstance(scorer, GroupScorer)
        groups = scorer.groups(self.rows.data, scoring.params.get("sensitive_features"))
        return Decisions(scorer.metric, self.rows.truth, decided, groups, clusters=self._clusters)

    def _evidence(self, scoring: Scoring, model: Any) -> Evidence:
        """Exact where the metric is known, or does not depend on rows; else a bootstrap of the scorer."""
        rows, scorer = self.rows, scoring.scorer
        if hasattr(scorer, "evidence"):
            found: Evidence = scorer.evidence(model, rows.data, rows.truth, **scoring.params)
            return found
        if isinstance(scorer, GroupScorer) and scorer.metric in FAIRNESS:
            return self._decisions(scoring, model.predict(rows.data))
        share = self._share(scoring, model)
        if share is not None:
            return share
        value = scoring.at(model, rows.data, rows.truth, scoring.params)
        if isinstance(value, Measured) and value.rows is None and value.error:
            raise UsageError(
                f"the scorer of {scoring.name!r} returned {value!r}, whose error is not one of rows: give scorers "
                f"{{{scoring.name!r}: latency}} of fairway.constraints, or one with evidence(estimator, X, y)"
            )
        if _is_constant(scoring, model, rows.truth, value):
            return Exact(float(value))
        return self._resampled(scoring, model)

    def _share(self, scoring: Scoring, model: Any) -> Mean | None:
        """The evidence of a share of rows, such as an accuracy: a mean of zeros and ones."""
        scorer, truth = scoring.scorer, np.asarray(self.rows.truth)
        metric, settings = getattr(scorer, "_score_func", None), getattr(scorer, "_kwargs", None) or {}
        if metric not in (accuracy_score, recall_score, precision_score) or getattr(scorer, "_sign", 0) != 1:
            return None
        if {*settings} - {"average"} or settings.get("average", "binary") != "binary" or truth.ndim != 1:
            return None
        said = np.asarray(model.predict(self.rows.data))
        among = {recall_score: truth == 1, precision_score: said == 1}
        counted = among.get(metric, np.ones(len(said), dtype=bool))
        if not counted.any() or {*scoring.params} - {"sample_weight"}:
            return None
        weights, clusters = scoring.params.get("sample_weight"), self._clusters
        return Mean(
            (said == truth)[counted],
            weights=None if weights is None else np.asarray(weights)[counted],
            clusters=None if clusters is None else np.asarray(clusters)[counted],
        )

    def _resampled(self, scoring: Scoring, model: Any) -> Resampled:
        rows = self.rows
        once = _Once(model, rows.data)

        def measure(places: NDArray[np.int64]) -> float:
            data = _safe_indexing(rows.data, places)
            truth = None if rows.truth is None else _safe_indexing(rows.truth, places)
            params = _check_method_params(rows.data, params=dict(scoring.params), indices=places)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UndefinedMetricWarning)
                try:
                    return float(scoring.at(once.at(data, places), data, truth, params))
                except (ValueError, ZeroDivisionError):  # say, a class that was not drawn
                    return float("nan")

        return Resampled(measure, np.arange(_num_samples(rows.data)), clusters=self._clusters)


class _Once:
    """A fitted estimator that predicts all rows once, and looks up what it predicts for some of them."""

    def __init__(self, model: Any, data: Any) -> None:
        self._model, self._all = copy.copy(model), data
        self._data, self._places = data, np.arange(_num_samples(data))
        self._known: dict[str, Any] = {}
        for name in _PREDICTIONS:
            if hasattr(model, name):
                setattr(self._model, name, self._lookup(name, getattr(model, name)))

    def at(self, data: Any, places: NDArray[np.int64]) -> Any:
        """The estimator, to be asked for the rows at these places."""
        self._data, self._places = data, places
        return self._model

    def _lookup(self, name: str, predict: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(predict)  # scorers tell methods apart by their names
        def looked_up(data: Any, *args: Any, **more: Any) -> Any:
            if data is not self._data or args or more:
                return predict(data, *args, **more)
            if name not in self._known:
                self._known[name] = predict(self._all)
            return _safe_indexing(self._known[name], self._places)

        return looked_up


def _is_constant(scoring: Scoring, model: Any, truth: Any, value: float) -> bool:
    """Whether a score depends on the estimator alone, as the number of its leaves: it is the same without any rows."""
    if isinstance(value, Measured) and value.rows is None and value.error == 0.0:
        return True
    try:
        return bool(scoring.scorer(model, *([None] if truth is None else [None, None])) == value)
    except Exception:  # noqa: BLE001 - whatever a scorer does that misses its rows
        return False


def tell_searched(study: Study, rows: Rows, estimator: Any) -> bool:
    """Name the searching rows to a study; False for a kernel, whose rows cannot be compared."""
    if get_tags(estimator).input_tags.pairwise:
        return False
    groups = rows.groups
    study.searched_by(rows.data, groups=groups[0] if len(groups) == 1 else None)
    return True
