"""The scorers of a search, checked, and the arguments of `fit` that each of them gets."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import check_scoring, get_scorer
from sklearn.utils.metadata_routing import _routing_enabled, process_routing
from sklearn.utils.validation import _num_samples

from fairway.errors import UsageError
from fairway.fresh import cost_metric
from fairway.integrations.sklearn.folds import CostScorer, Scoring, takes
from fairway.parameters import shortened
from fairway.problem import Constraint, Maximize, Problem

_GROUPS = "sensitive_features"
_TRUTHS = ("y_true", "labels_true")  # what metrics, here and in scikit-learn and Fairlearn, call their first argument


def scorings_of(
    estimator: Any, scoring: Any, constraints: Sequence[Constraint] | Constraint, scorers: Any
) -> list[Scoring]:
    """The objective's scorer, then the constraints'."""
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        raise TypeError(f"estimator={estimator!r}: an estimator with a fit method is expected")
    if not hasattr(estimator, "get_params"):
        raise TypeError(f"estimator={estimator!r} has no get_params: inherit it from sklearn's BaseEstimator")
    if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
        raise UsageError(
            f"scoring={scoring!r}: one score is expected, as a name or a function; constraints have scorers"
        )
    if not isinstance(scorers, Mapping | None):
        raise UsageError(f"scorers={scorers!r}: a scorer for each constraint, by name, is expected")
    name = scoring if isinstance(scoring, str) else "score"
    scorings = [Scoring(name, check_scoring(estimator, scoring=scoring), "scorer")]
    given, wanted = dict(scorers or {}), Problem(Maximize(name), constraints).metrics[1:]  # type: ignore[arg-type]
    for metric in wanted:
        if metric == "score":
            raise UsageError("a constraint is called 'score': so is the objective in cv_results_; choose another")
        if metric not in given:
            there = f" is expected; scorers has {shortened([*given])}" if given else ""
            raise UsageError(f"the constraint on {metric!r} has no scorer: scorers={{{metric!r}: ...}}{there}")
    for metric in given:
        if metric not in wanted:
            there = ", ".join(wanted) or "none"
            raise UsageError(f"scorers: there is no constraint on {metric!r}; there are {there}")
    for metric in wanted:
        scorer = get_scorer(given[metric]) if isinstance(given[metric], str) else given[metric]
        scorer = CostScorer(scorer) if callable(scorer) and cost_metric(scorer) else scorer
        if not callable(scorer):
            raise UsageError(f"scorers: {metric!r} is {scorer!r}: a function of (estimator, X, y) is expected")
        _refuse_metric(metric, scorer)
        scorings.append(Scoring(metric, scorer, f"scorer of {metric}"))
    return scorings


def _refuse_metric(name: str, scorer: Any) -> None:
    """Refuse a function of truth and prediction: a scorer gets the estimator, and predicts."""
    try:
        first = next(iter(inspect.signature(scorer).parameters), "")
    except (TypeError, ValueError):  # it does not say what it takes
        return
    if first in _TRUTHS:
        wrap = "group_scorer" if takes(scorer, _GROUPS) else "sklearn.metrics.make_scorer"
        called = getattr(scorer, "__name__", "it")
        raise UsageError(
            f"scorers: {name!r} is {called}, a function of truth and prediction; a function of (estimator, X, y) is "
            f"expected: {wrap}({called}) makes one"
        )


def route(
    search: Any, params: Mapping[str, Any], scorings: Sequence[Scoring], rows: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give each scorer its arguments; returns those for the estimator's `fit`, and those for splitting."""
    for_fit = dict(params)
    if _routing_enabled():
        routed = process_routing(search, "fit", **params)
        for scoring in scorings:
            scoring.params = dict(routed[scoring.role].score)
        for_fit, for_split = dict(routed.estimator.fit), dict(routed.splitter.split)
    else:
        takers = [scoring for scoring in scorings if _GROUPS in for_fit and takes(scoring.scorer, _GROUPS)]
        for scoring in takers:
            scoring.params = {_GROUPS: for_fit[_GROUPS]}
        if _GROUPS in for_fit and not takes(search.estimator.fit, _GROUPS):
            del for_fit[_GROUPS]
            if not takers:
                raise UsageError(f"no scorer takes {_GROUPS}: make one with fairway.integrations.sklearn.group_scorer")
        for_split = {"groups": for_fit.pop("groups")} if "groups" in for_fit else {}
    tables = dict[int, Any]()  # by the mapping's id
    for scoring in scorings:
        if _GROUPS in scoring.params:
            groups = scoring.params[_GROUPS]
            if isinstance(groups, Mapping):  # columns by name become one table for all scorers
                columns = [np.asarray(column, dtype=object) for column in groups.values()]
                groups = tables.setdefault(id(groups), np.column_stack(columns))
            if _num_samples(groups) != rows:
                raise UsageError(f"{_GROUPS} has {_num_samples(groups)} rows and X has {rows}: as many are expected")
            scoring.params = {**scoring.params, _GROUPS: groups}
    return for_fit, for_split
