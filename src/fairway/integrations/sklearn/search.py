"""`ConstrainedSearchCV`: the best feasible cross-validated configuration, as a scikit-learn estimator."""

from __future__ import annotations

import copy
import difflib
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils._set_output import _safe_set_output
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from fairway import hints
from fairway.checks import whole
from fairway.engine.certificate import Certificate
from fairway.engine.obstacles import obstacles
from fairway.engine.record import Best
from fairway.errors import StudyFailed, UsageError
from fairway.feasibility import nearest
from fairway.integrations.bridge import reopened
from fairway.integrations.sklearn.folds import CrossValidation, Scorer, Scoring, results_of, splits_of
from fairway.integrations.sklearn.fresh import FreshEvidence
from fairway.integrations.sklearn.options import Options, SearchSpace
from fairway.integrations.sklearn.resuming import refuse_another_search
from fairway.integrations.sklearn.rows import (
    Rows,
    checked_share,
    keep_back,
    splits_within,
    tell_searched,
)
from fairway.integrations.sklearn.scorings import route, scorings_of
from fairway.problem import Constraint, Maximize
from fairway.runners.callbacks import Callback
from fairway.samplers.sampler import Sampler
from fairway.stoppers.ace import ACE
from fairway.stoppers.pilot import Pilot
from fairway.stoppers.stopper import Stopper
from fairway.study import Study
from fairway.terminators.regret import RegretBound
from fairway.terminators.terminator import Terminator
from fairway.text import number

_UP_TO_ONE = (  # how scikit-learn names scores that are 1 at best
    *("accuracy", "average_precision", "balanced_accuracy", "d2", "explained_variance", "f1", "jaccard", "matthews"),
    *("precision", "r2", "recall", "roc_auc", "top_k_accuracy"),
)


def _delegate(method: str) -> Any:
    """A method of the best estimator, present if the estimator has it."""

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
    """Finds the parameters with the best cross-validated score among the feasible, and trains the estimator with them.

    `space` maps parameters of the estimator to `fw.Float`, `fw.Int` and `fw.Choice`, to a list of options, such as
    tuples or estimators, or to a dict of options by name; the log keeps names. Each metric of `constraints` has its
    scorer in `scorers`, called as scorer(estimator, X, y), or given by name ("recall"). Folds are steps: a hopeless
    configuration is stopped after a few, and constraints are scored only when that is worth its cost. The search ends
    after `trials` configurations or `timeout` seconds; with `terminator="cv"` (that is, `RegretBound("cv")`) also when
    the possible gain is below the noise of cross-validation. By default the sampler is `Compass`, the stopper `ACE`
    with a terminator, `Pilot` without. `workers` (n_jobs elsewhere) is how many configurations are trained at once, in
    processes of their own if there are several; `progress=False` prints no progress. The whole search is in `study_`;
    after Ctrl-C, which is raised, `study_`, `cv_results_` and `best_params_` have what was found so far. With a
    `storage`, such as "sqlite:///search.db", the search is kept under its `name`, and `fit` on the same rows resumes it
    until it has `trials` configurations.

    With `certify=0.25`, a quarter of the rows (of each class and group) takes no part in the search. At the end,
    candidates, each fitted once on all other rows, are tested on these from safe to bold. The best that passed becomes
    `best_estimator_`: it meets its limits with this `confidence` for rows drawn like these. `certificate_` says so, or
    why none passed; then a warning does too, and `best_estimator_` is what the search found. Either way it is fitted on
    the searching rows alone. Rows that belong together come as `groups` and stay together.

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

    @hints.hinting(hints.SEARCH)
    def __init__(
        self,
        estimator: Any,
        space: SearchSpace,
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
        callbacks: Sequence[Callback] = (),
        progress: bool = True,
        storage: str | None = None,
        name: str = "study",
        random_state: Any = None,
        refit: bool = True,
        certify: float | None = None,
        confidence: float = 0.95,
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
        self.callbacks = callbacks
        self.progress = progress
        self.storage = storage
        self.name = name
        self.random_state = random_state
        self.refit = refit
        self.certify = certify
        self.confidence = confidence

    def fit(self, X: Any, y: Any = None, **params: Any) -> ConstrainedSearchCV:  # noqa: N803 - scikit-learn's name
        """Search, and train the estimator with the best parameters on all rows (with `refit`) but those kept back.

        Further arguments follow scikit-learn's metadata routing. If that is not enabled, `sensitive_features` go to the
        scorers that take them, and all others to the estimator's `fit`.
        """
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # of an earlier fit
        objective, *constraints = scorings = self._scorings()
        study = self._study(objective.name)
        if y is None and get_tags(self.estimator).target_tags.required:
            raise UsageError(f"{type(self.estimator).__name__} requires y to be passed, but the target y is None")
        share = checked_share(self.certify, self.confidence, constraints)
        data, truth = indexable(X, y)
        fit_params, split_params = route(self, params, scorings, _num_samples(data))
        every = searching = Rows(data, truth, fit_params, split_params, scorings)
        cv, evaluate = self.cv, None
        if share is not None:
            places, others = keep_back(every, share, self.estimator, study.seed)
            searching, fresh = every.at(self.estimator, places), every.at(self.estimator, others, places)
            evaluate = FreshEvidence(fresh, share, self.confidence, study.problem.constraints)
            cv = splits_within(places, cv)
        splits = splits_of(cv, self.estimator, searching.data, searching.truth, searching.split)
        objective, *constraints = searching.scorings
        data, truth = searching.data, searching.truth
        work = CrossValidation(
            self.estimator, data, truth, splits, objective, constraints, searching.fit, self._options
        )
        if self.storage is not None:
            refuse_another_search(study, searching, splits, self.estimator, self._options.space.names)
        self.study_, self.scorer_, self.n_splits_ = study, objective.scorer, len(splits)
        self.multimetric_ = False
        try:
            self._search(study, work)
        except StudyFailed as failed:
            raise (failed.__cause__ or failed) from None
        except KeyboardInterrupt as interrupt:
            self.cv_results_ = results_of(study, self.n_splits_, self._options)
            if study.best is not None:
                self._choose(study.best)
            later = "" if self.storage is None else "; fit on the same rows continues"
            interrupt.add_note(f"fairway: study_ and cv_results_ have what was found so far{later}")
            raise
        undefined = max((record.notes.get("undefined", 0) for record in study.trials), default=0)
        if undefined:
            folds = "1 fold shows" if undefined == 1 else f"{undefined} folds show"
            said = f"{folds} one class only, where {objective.name} is not defined: left out of {len(splits)}"
            warnings.warn(said, stacklevel=2)
        self.cv_results_ = results_of(study, self.n_splits_, self._options)
        if study.best is None:
            return self._without_best(study)
        self._choose(study.best)
        if evaluate is not None:
            self._certify(evaluate, searching)
        elif self.refit:
            self._keep(*self._trained(Rows(X, y, fit_params, {}, ())))
        return self

    def _search(self, study: Study, work: CrossValidation) -> None:
        """Run the configurations that are missing."""
        study.optimize(
            work,
            total=None if self.trials is None else whole(self.trials, "trials"),
            timeout=self.timeout,
            workers=self.workers,
            callbacks=self.callbacks,
            progress=self.progress,
        )

    def _choose(self, chosen: Best | Certificate) -> None:
        """Take a configuration as the best."""
        objective, *limits = self.study_.problem.metrics
        self.best_index_, self.best_params_ = chosen.number, self._options.params(chosen.params)
        self.best_score_ = chosen.metrics[objective]
        self.best_limits_ = {name: chosen.metrics[name] for name in limits}

    def _trained(self, rows: Rows, params: Mapping[str, Any] | None = None) -> tuple[Any, float]:
        """The estimator with these parameters, by default the best, trained on rows; and the seconds it took."""
        began = time.perf_counter()
        model = clone(self.estimator).set_params(**clone(self.best_params_ if params is None else params, safe=False))
        model = model.fit(rows.data, **rows.fit) if rows.truth is None else model.fit(rows.data, rows.truth, **rows.fit)
        return model, time.perf_counter() - began

    def _keep(self, model: Any, seconds: float) -> None:
        """Take a trained estimator as the best."""
        self.best_estimator_, self.refit_time_ = model, seconds
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_

    def _certify(self, evaluate: FreshEvidence, searching: Rows) -> None:
        """Certify a configuration on the rows that were kept back, and take it as the best; warn if there is none."""
        rows = evaluate.rows.data if tell_searched(self.study_, searching, self.estimator) else None
        trained: dict[int, tuple[Any, float]] = {}

        def model(best: Best) -> Any:
            trained[best.number] = self._trained(searching, self._options.params(best.params))
            return trained[best.number][0]

        try:
            found = self.study_.certify(
                evaluate,
                models=model,
                confidence=self.confidence,
                rows=rows,
                progress=False,
                callbacks=self.callbacks,
            )
            self.certificate_ = found
            if found.certified:
                self._choose(found)
            else:
                warnings.warn(str(found), stacklevel=3)
        finally:
            if self.refit:
                self._keep(*(trained.get(self.best_index_) or self._trained(searching)))

    def _scorings(self) -> list[Scoring]:
        return scorings_of(self.estimator, self.scoring, self.constraints, self.scorers)

    def _study(self, metric: str) -> Study:
        self._options, known = Options(self.space), self.estimator.get_params()
        for name in self._options.space.names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
                raise UsageError(f"{type(self.estimator).__name__} has no parameter {name!r}: {hint}")
        default = self.scoring is None and (is_classifier(self.estimator) or is_regressor(self.estimator))
        best = 0.0 if metric.startswith("neg_") else 1.0 if default or metric.startswith(_UP_TO_ONE) else None
        terminator = RegretBound("cv") if self.terminator == "cv" else self.terminator
        # A certificate may go to a configuration that is safer than the best: then all have their constraints scored.
        usual = (Pilot if terminator is None else ACE)(skip=self.certify is None)
        return Study(
            self._options.space,
            Maximize(metric, best=best),
            copy.deepcopy(self.constraints),  # which keep what they have computed
            sampler=self.sampler,
            stopper=usual if self.stopper is None else self.stopper,
            terminator=terminator,
            storage=self.storage,
            name=self.name,
            seed=None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1)),
        )

    def get_metadata_routing(self) -> MetadataRouter:
        """The arguments that each part takes, for scikit-learn's metadata routing."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=to_fit)
        for i, scoring in enumerate(self._scorings()):
            mapping = MethodMapping().add(caller="fit", callee="score")
            if i == 0:
                mapping.add(caller="score", callee="score")
            router.add(**{scoring.role: scoring.scorer}, method_mapping=mapping)
        return router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))

    def _without_best(self, study: Study) -> ConstrainedSearchCV:
        """Say which configuration came nearest, and which limit stands in the way: nothing is feasible."""
        said, courses = f"none of {len(study.trials)} configurations", study.owner.ledger.courses
        known = {k: course.checkpoint for k, course in enumerate(courses) if course.checkpoint is not None}
        closest = nearest(study.problem, known)
        if closest is not None:
            record = study.trials[closest]
            parts = [f"{name} {'not measured' if v is None else number(v)}" for name, v in record.metrics.items()]
            said += (
                f" is within the limits; the nearest had {', '.join(parts)} with {dict(record.params)}: "
                f"{obstacles(study.problem, courses, study.owner.referee.saved)[0]} (study_ keeps all of it)"
            )
        else:
            said += f" had all {self.n_splits_} folds when the search ended ({study.ended}): give it more time"
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

    def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> ConstrainedSearchCV:
        """Choose what `transform` returns, as of any transformer; in a pipeline, of every step."""
        for model in (self.estimator, getattr(self, "best_estimator_", None)):
            if isinstance(model, Pipeline):  # whose last step need not transform
                model.set_output(transform=transform)
            elif model is not None:
                _safe_set_output(model, transform=transform)
        return self

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
        state = dict(super().__getstate__())
        return {**state, "study_": reopened(state["study_"])} if "study_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "study_": state["study_"]()} if "study_" in state else state)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = copy.deepcopy(inner.classifier_tags)
        tags.regressor_tags = copy.deepcopy(inner.regressor_tags)
        tags.target_tags = copy.deepcopy(inner.target_tags)
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags
