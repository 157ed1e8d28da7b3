"""scikit-learn's iterative estimators as training loops: `partial_fit`, or `fit` with `warm_start`, step by step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _num_samples

from fairway.checks import whole
from fairway.engine.trial import Trial
from fairway.errors import UsageError

_SIZES = ("n_estimators", "max_iter")  # of an estimator with warm_start


def fit_steps(
    trial: Trial, estimator: Any, data: Any, truth: Any = None, *, total: int, **fit_params: Any
) -> Iterator[Any]:
    """Train an estimator in `total` steps, and yield it after each; the loop ends by itself when the trial is stopped.

    An estimator with `partial_fit` sees all rows at each step, shuffled by `trial.seed`; one with `warm_start`
    (forests, boosting, networks, linear models) grows evenly to its own `n_estimators` or `max_iter`. Set the trial's
    parameters yourself: `fit_steps(trial, SGDClassifier(**trial.params), ...)`. Every step yields the same estimator,
    which continues training: to keep a checkpoint, copy it.

    >>> import fairway as fw
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import SGDClassifier
    >>> data, truth = make_classification(random_state=0)
    >>> study = fw.Study({"alpha": fw.Float(1e-5, 1.0, log=True)}, fw.Maximize("accuracy"), seed=0)
    >>> def train(trial):
    ...     for model in fit_steps(trial, SGDClassifier(**trial.params, random_state=0), data, truth, total=5):
    ...         trial.report(accuracy=model.score(data, truth))
    ...     return model
    >>> study.optimize(train, trials=5)
    >>> study.rebuild(train).score(data, truth) == study.best.metrics["accuracy"]
    True
    """
    total = whole(total, "total")
    model = clone(estimator)
    settings = model.get_params(deep=False)
    if settings.get("early_stopping") is True:
        raise UsageError(f"{type(model).__name__} has early_stopping=True: set it to False, the trial is stopped here")
    if "early_stopping" in settings:
        model.set_params(early_stopping=False)
    if hasattr(model, "partial_fit"):
        steps = _passes(model, trial.seed, data, truth, fit_params)
    else:
        steps = _growth(model, data, truth, total, fit_params)
    for _, trained in zip(trial.steps(total), steps, strict=False):
        yield trained


def _passes(model: Any, seed: int, data: Any, truth: Any, fit_params: dict[str, Any]) -> Iterator[Any]:
    """One pass over all rows per step, in a fresh order."""
    random, rows = check_random_state(seed), _num_samples(data)
    if is_classifier(model):
        fit_params = {"classes": np.unique(np.asarray(truth)), **fit_params}
    weight = fit_params.get("sample_weight")
    while True:
        order = random.permutation(rows)
        if weight is not None:
            fit_params = {**fit_params, "sample_weight": _safe_indexing(weight, order)}
        label = None if truth is None else _safe_indexing(truth, order)
        yield model.partial_fit(_safe_indexing(data, order), label, **fit_params)


def _growth(model: Any, data: Any, truth: Any, total: int, fit_params: dict[str, Any]) -> Iterator[Any]:
    """One `fit` after another, each continuing where the last one ended."""
    settings = model.get_params(deep=False)
    size = next((name for name in _SIZES if name in settings), None)
    if "warm_start" not in settings or size is None or settings.get("solver") == "liblinear":  # which ignores it
        raise UsageError(
            f"{type(model).__name__} cannot be trained in steps: it has no partial_fit, and no warm_start with "
            f"{' or '.join(_SIZES)}"
        )
    final = whole(settings[size], size)
    if final < total:
        raise UsageError(f"{type(model).__name__} has {size}={final}: it cannot be trained in {total} steps")
    model.set_params(warm_start=True)
    boosting = isinstance(model, HistGradientBoostingClassifier | HistGradientBoostingRegressor)
    for step in range(1, total + 1):
        before, now = round((step - 1) * final / total), round(step * final / total)
        model.set_params(**{size: now if boosting or size == "n_estimators" else now - before})  # others count per fit
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # on the way there
            model.fit(data, truth, **fit_params)
        yield model
