"""`ConstrainedSearchCV`: the best cross-validated configuration within limits, as a scikit-learn estimator."""

from __future__ import annotations

import copy
import difflib
import inspect
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from fairway.errors import StudyFailed, UsageError
from fairway.integrations.sklearn.folds import CrossValidation, Scorer, Scoring
from fairway.integrations.sklearn.results import results_of
from fairway.integrations.sklearn.scorers import GroupScorer
from fairway.parameters import Parameter
from fairway.problem import Constraint, Maximize, Problem
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.space import Space
from fairway.stoppers.ace import ACE
from fairway.stoppers.stopper import Stopper
from fairway.study import Study
from fairway.terminators.regret import RegretBound
from fairway.terminators.terminator import Terminator

# How scikit-learn names scores that are 1 at best.
_UP_TO_ONE = (
    *("accuracy", "average_precision", "balanced_accuracy", "d2", "explained_variance", "f1", "jaccard", "matthews"),
    *("precision", "r2", "recall", "roc_auc", "top_k_accuracy"),
)


def _delegate(method: str) -> Any:
    """A method that the best estimator answers, there where the estimator has it."""

    def has(self: ConstrainedSearchCV) -> bool:
        getattr(getattr(self, "best_estimator_", self.estimator), method)
        return True

    def call(self: ConstrainedSearchCV, X: Any) -> Any:  # noqa: N803 - scikit-learn's name
        if not self.refit and hasattr(self, "study_"):
            raise AttributeError(f"{method} needs the best model: with refit=False there is none, only best_params_")
        check_is_fitted(self, "best_estimator_")
        return getattr(self.best_estimator_, method)(X)

    call.__name__, call.__doc__ = method, f"The best estimator's `{method}`."
    return available_if(has)(call)


class ConstrainedSearchCV(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Finds the parameters with the best cross-validated score whose limits hold, and trains the estimator with them.

    `space` maps parameters of the estimator to `fw.Float`, `fw.Int` and `fw.Choice`; each metric of `constraints` has
    its scorer in `scorers`, called as scorer(estimator, X, y), or by name ("recall"). Folds are steps: a hopeless
    configuration is stopped after a few, limits are scored only when that is worth its price, and with
    `terminator="cv"` (that is, `RegretBound("cv")`) the search ends when what is left to gain is below the noise of
    cross-validation. It ends after `trials` configurations or `timeout` seconds at the latest, and on Ctrl-C, with the
    best so far. Without a `sampler` configurations are random; without a `stopper` it is `Pilot`, or `ACE` where a
    terminator needs whole trials to go by. `workers` train in processes of their own. All of it can be looked at in
    `study_`.

    >>> import fairway as fw
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from fairway.integrations.sklearn import ConstrainedSearchCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = ConstrainedSearchCV(
    ...     DecisionTreeClassifier(random_state=0),
    ...     {"max_depth": fw.Int(1, 10), "min_samples_leaf": fw.Int(1, 50, log=True)},
    ...     constraints=[fw.AtMost("leaves", 8)],
    ...     scorers={"leaves": lambda tree, X, y: tree.get_n_leaves()},
    ...     cv=5, trials=20, random_state=0,
    ... )
    >>> round(search.fit(X, y).best_score_, 2), search.best_limits_["leaves"] <= 8
    (0.93, True)
    """

    def __init__(
        self,
        estimator: Any,
        space: Space | Mapping[str, Parameter],
        *,
        scoring: str | Scorer | None = None,
        constraints: Sequence[Constraint] | Constraint = (),
        scorers: Mapping[str, str | Scorer] | None = None,
        cv: Any = 10,
        trials: int | None = 50,
        timeout: float | None = None,
        sampler: Sampler | None = None,
        stopper: Stopper | None = None,
        terminator: Terminator | Literal["cv"] | None = "cv",
        workers: int = 1,
        random_state: Any = None,
        refit: bool = True,
    ) -> None:
        self.estimator = estimator
        self.space = space
        self.scoring = scoring
        self.constraints = constraints
        self.scorers = scorers
        self.cv = cv
        self.trials = trials
        self.timeout = timeout
        self.sampler = sampler
        self.stopper = stopper
        self.terminator = terminator
        self.workers = workers
        self.random_state = random_state
        self.refit = refit

    def fit(self, X: Any, y: Any = None, **params: Any) -> ConstrainedSearchCV:  # noqa: N803 - scikit-learn's name
        """Search, and train the estimator with the best parameters on all rows (with `refit`).

        Further arguments are routed as scikit-learn's metadata routing says. Where that is not enabled,
        `sensitive_features` go to the scorers that take them, and all others to the estimator's `fit`.
        """
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # of an earlier fit
        objective, limits = self._scorings()
        study = self._study(objective.name)
        if y is None and get_tags(self.estimator).target_tags.required:
            raise UsageError(f"{type(self.estimator).__name__} requires y to be passed, but the target y is None")
        data, truth = indexable(X, y)
        fit_params, split_params = self._route(params, objective, limits)
        for scoring in (objective, *limits):
            scoring.params = {name: _by_row(name, given, data) for name, given in scoring.params.items()}
        splitter = check_cv(self.cv, truth, classifier=is_classifier(self.estimator))
        splits = list(splitter.split(data, truth, **split_params))
        _check_splits(splits, self.cv)
        work = CrossValidation(self.estimator, data, truth, splits, objective, limits, fit_params)
        self.study_, self.scorer_, self.n_splits_ = study, objective.scorer, len(splits)
        self.multimetric_ = False
        try:
            study.optimize(work, trials=self.trials, timeout=self.timeout, workers=self.workers)
        except StudyFailed as failed:
            raise (failed.__cause__ or failed) from None
        self._warn_of_undefined(objective)
        self.cv_results_ = results_of(study, self.n_splits_)
        best = study.best
        if best is None:
            return self._without_best(study)
        self.best_index_, self.best_params_ = best.number, dict(best.params)
        self.best_score_ = best.metrics[objective.name]
        self.best_limits_ = {limit.name: best.metrics[limit.name] for limit in limits}
        if self.refit:
            began = time.perf_counter()
            model = clone(self.estimator).set_params(**self.best_params_)
            self.best_estimator_ = model.fit(X, **fit_params) if y is None else model.fit(X, y, **fit_params)
            self.refit_time_ = time.perf_counter() - began
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    # What it asks for

    def _scorings(self) -> tuple[Scoring, list[Scoring]]:
        """The objective's scorer and the limits', by name."""
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "fit"):
            raise TypeError(f"estimator={self.estimator!r}: an estimator with a fit method is expected")
        if not hasattr(self.estimator, "get_params"):
            raise TypeError(f"estimator={self.estimator!r} has no get_params: scikit-learn's BaseEstimator brings it")
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise UsageError(
                f"scoring={self.scoring!r}: one score is expected, as a name or a function; limits have scorers"
            )
        if not isinstance(self.scorers, Mapping | None):
            raise UsageError(f"scorers={self.scorers!r}: a scorer for each limit, by name, is expected")
        name = self.scoring if isinstance(self.scoring, str) else "score"
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        given = dict(self.scorers or {})
        problem = Problem(Maximize(name), self.constraints)  # type: ignore[arg-type]
        wanted = [constraint.metric for constraint in problem.constraints]
        if "score" in wanted:
            raise UsageError("a limit is called 'score': that is the objective's name in cv_results_, choose another")
        without = [metric for metric in wanted if metric not in given]
        if without:
            raise UsageError(f"the limit on {without[0]!r} has no scorer: scorers={{{without[0]!r}: ...}}")
        beside = [metric for metric in given if metric not in wanted]
        if beside:
            raise UsageError(f"scorers: there is no limit on {beside[0]!r}; there are {', '.join(wanted) or 'none'}")
        limits = []
        for metric in wanted:
            limit = get_scorer(given[metric]) if isinstance(given[metric], str) else given[metric]
            if not callable(limit):
                raise UsageError(f"scorers: {metric!r} is {limit!r}: a function of (estimator, X, y) is expected")
            limits.append(Scoring(metric, limit))
        return Scoring(name, scorer), limits

    def _objective(self, name: str) -> Maximize:
        """The score, with the best that it can be where that is known."""
        if name.startswith("neg_"):
            return Maximize(name, best=0.0)
        bounded = self.scoring is None and (is_classifier(self.estimator) or is_regressor(self.estimator))
        return Maximize(name, best=1.0 if bounded or name.startswith(_UP_TO_ONE) else None)

    def _study(self, objective: str) -> Study:
        space = self.space if isinstance(self.space, Space) else Space(self.space)
        known = self.estimator.get_params()
        for name in space:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
                raise UsageError(f"{type(self.estimator).__name__} has no parameter {name!r}: {hint}")
        terminator = RegretBound("cv") if self.terminator == "cv" else self.terminator
        return Study(
            space,
            self._objective(objective),
            self.constraints,
            sampler=Random() if self.sampler is None else self.sampler,  # what bench/search_cv.py found best
            stopper=ACE() if self.stopper is None and terminator is not None else self.stopper,
            terminator=terminator,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    def _route(
        self, params: Mapping[str, Any], objective: Scoring, limits: Sequence[Scoring]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Hand each scorer what it asked for; what is left for the estimator's `fit` and for splitting."""
        if _routing_enabled():
            routed = process_routing(self, "fit", **params)
            for scoring, role in zip((objective, *limits), self._roles(limits), strict=True):
                scoring.params = dict(routed[role].score)
            return dict(routed.estimator.fit), dict(routed.splitter.split)
        for_fit, name = dict(params), "sensitive_features"
        if name in for_fit:
            takers = [scoring for scoring in (objective, *limits) if _takes(scoring.scorer, name)]
            for scoring in takers:
                scoring.params = {name: for_fit[name]}
            if not _takes(self.estimator.fit, name):
                del for_fit[name]
                if not takers:
                    raise UsageError(
                        f"{name} came, and no scorer takes them: fairway.integrations.sklearn.group_scorer"
                    )
        split = {"groups": for_fit.pop("groups")} if "groups" in for_fit else {}
        return for_fit, split

    @staticmethod
    def _roles(limits: Sequence[Scoring]) -> list[str]:
        return ["scorer", *(f"scorer of {limit.name}" for limit in limits)]

    def get_metadata_routing(self) -> MetadataRouter:
        """Who is handed what, for scikit-learn's metadata routing."""
        objective, limits = self._scorings()
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=to_fit)
        both = MethodMapping().add(caller="score", callee="score").add(caller="fit", callee="score")
        in_fit = MethodMapping().add(caller="fit", callee="score")
        for scoring, role in zip((objective, *limits), self._roles(limits), strict=True):
            router.add(**{role: scoring.scorer}, method_mapping=both if scoring is objective else in_fit)
        return router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))

    # What came of it

    def _warn_of_undefined(self, objective: Scoring) -> None:
        left_out = max((record.notes.get("undefined", 0) for record in self.study_.trials), default=0)
        if left_out:
            folds = "1 fold shows" if left_out == 1 else f"{left_out} folds show"
            warnings.warn(
                f"{folds} one class only, where {objective.name} is not defined: left out of {self.n_splits_}",
                stacklevel=3,
            )

    def _without_best(self, study: Study) -> ConstrainedSearchCV:
        """Nothing may be shipped: say what came nearest."""
        if study.ended == "interrupted":
            raise KeyboardInterrupt
        measured = [record for record in study.trials if record.feasible is False]
        said = (
            f"none of {len(study.trials)} configurations had all {self.n_splits_} folds when the search ended "
            f"({study.ended}): give it more time"
        )
        if measured:
            history = study.history
            closest = int(history.number[np.nanargmin(np.where(history.violation > 0, history.violation, np.nan))])
            record = study.trials[closest]
            shown = ", ".join(f"{name} {value:.4g}" for name, value in record.metrics.items() if value is not None)
            said = (
                f"none of {len(study.trials)} configurations is within the limits; the nearest had {shown} with "
                f"{dict(record.params)}: loosen a limit, widen the space, or search longer (study_ keeps all of it)"
            )
        if self.refit:
            raise StudyFailed(said)
        warnings.warn(said, stacklevel=3)
        return self

    def score(self, X: Any, y: Any = None, **params: Any) -> float:  # noqa: N803
        """The score of the best estimator on these rows."""
        check_is_fitted(self, "best_estimator_")
        if _routing_enabled():
            params = dict(process_routing(self, "score", **params).scorer.score)
        return float(self.scorer_(self.best_estimator_, X, y, **params))

    predict = _delegate("predict")
    predict_proba = _delegate("predict_proba")
    predict_log_proba = _delegate("predict_log_proba")
    decision_function = _delegate("decision_function")
    transform = _delegate("transform")
    inverse_transform = _delegate("inverse_transform")
    score_samples = _delegate("score_samples")

    @property
    def n_features_in_(self) -> int:
        """How many features the best estimator saw."""
        try:
            check_is_fitted(self, "best_estimator_")
        except Exception as error:
            raise AttributeError(f"{type(self).__name__} has no n_features_in_ before it is fitted") from error
        return int(self.best_estimator_.n_features_in_)

    @property
    def classes_(self) -> Any:
        """The best estimator's classes."""
        return getattr(self, "best_estimator_", self.estimator).classes_

    def __getstate__(self) -> dict[str, Any]:
        """A study does not pickle: a copy in another process would not be the study. What it consists of does."""
        state = dict(super().__getstate__())
        if "study_" in state:
            study = state["study_"]
            rules = {"sampler": study.sampler, "stopper": study.stopper, "terminator": study.terminator}
            state["study_"] = (study.space, study.problem, {**rules, "storage": study.log, "seed": study.seed})
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "study_" in state:
            space, problem, rest = state["study_"]
            state = {**state, "study_": Study(space, problem.objective, problem.constraints, **rest)}
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = copy.deepcopy(inner.classifier_tags)
        tags.regressor_tags = copy.deepcopy(inner.regressor_tags)
        tags.target_tags = copy.deepcopy(inner.target_tags)
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags


def _by_row(name: str, given: Any, data: Any) -> Any:
    """What is handed to a scorer with each fold's rows; columns by name become a table."""
    if name == "sensitive_features":
        if isinstance(given, Mapping):
            given = np.column_stack([np.asarray(column, dtype=object) for column in given.values()])
        if _num_samples(given) != _num_samples(data):
            raise UsageError(
                f"{name} has {_num_samples(given)} rows and X has {_num_samples(data)}: as many are expected"
            )
    return given


def _check_splits(splits: Sequence[tuple[Any, Any]], cv: Any) -> None:
    if not splits:
        raise UsageError(f"cv={repr(cv)[:80]} gives no split: it may have been used up by an earlier fit")
    for k, (train, test) in enumerate(splits):
        for rows, what in ((train, "train on"), (test, "judge by")):
            if len(rows) == 0:
                raise UsageError(f"cv: split {k} has no rows to {what}")


def _takes(scorer: Scorer, name: str) -> bool:
    """Whether a function has an argument of this name, and use for it."""
    if isinstance(scorer, GroupScorer) and not scorer.needs_groups:
        return False
    try:
        parameters = inspect.signature(scorer).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters
