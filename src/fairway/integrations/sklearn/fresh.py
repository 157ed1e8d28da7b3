"""Evidence for each limit of an estimator, from the rows that a cross-validated search kept back."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, precision_score, recall_score
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params, _num_samples

from fairway.errors import UsageError
from fairway.evidence import Decisions, Evidence, Exact, Mean, Resampled
from fairway.evidence.decisions import METRICS
from fairway.integrations.sklearn.folds import GroupScorer, Scoring
from fairway.integrations.sklearn.rows import Rows
from fairway.measured import Measured
from fairway.problem import Constraint

_PREDICTIONS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples")


class FreshEvidence:
    """Evidence for each limit of a fitted estimator, from fresh rows: the `evaluate` of `study.certify`."""

    def __init__(self, rows: Rows, share: float, confidence: float, constraints: Sequence[Constraint]) -> None:
        self.rows, self._clusters = rows, rows.split.get("groups")
        for scoring, constraint in zip(rows.scorings[1:], constraints, strict=True):
            if isinstance(scoring.scorer, GroupScorer) and scoring.scorer.metric in METRICS:
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
        if isinstance(scorer, GroupScorer) and scorer.metric in METRICS:
            return self._decisions(scoring, scorer.decided(model, rows.data))
        proportion = self._proportion(scoring, model)
        if proportion is not None:
            return proportion
        value = scoring.at(model, rows.data, rows.truth, scoring.params)
        if isinstance(value, Measured) and value.rows is None and value.error:
            raise UsageError(
                f"the scorer of {scoring.name!r} returned {value!r}, whose error is not one of rows: give scorers "
                f"{{{scoring.name!r}: latency}} of fairway.constraints, or one with evidence(estimator, X, y)"
            )
        if _is_constant(scoring, model, rows.truth, value):
            return Exact(float(value))
        return self._resampled(scoring, model)

    def _proportion(self, scoring: Scoring, model: Any) -> Mean | None:
        """The evidence of a proportion of rows, such as an accuracy: a mean of zeros and ones."""
        scorer, truth = scoring.scorer, np.asarray(self.rows.truth)
        metric, settings = getattr(scorer, "_score_func", None), getattr(scorer, "_kwargs", None) or {}
        if metric not in (accuracy_score, recall_score, precision_score) or getattr(scorer, "_sign", 0) != 1:
            return None
        if {*settings} - {"average"} or settings.get("average", "binary") != "binary" or truth.ndim != 1:
            return None
        said = np.asarray(model.predict(self.rows.data))
        among = {recall_score: truth == 1, precision_score: said == 1}
        included = among.get(metric, np.ones(len(said), dtype=bool))
        if not included.any() or {*scoring.params} - {"sample_weight"}:
            return None
        weights, clusters = scoring.params.get("sample_weight"), self._clusters
        return Mean(
            (said == truth)[included],
            weights=None if weights is None else np.asarray(weights)[included],
            clusters=None if clusters is None else np.asarray(clusters)[included],
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
