"""fairway inside XGBoost: a callback that reports each boosting round, and the best round as a model.

For `xgboost.train`, `xgboost.cv` and the scikit-learn estimators.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairway.checks import whole
from fairway.engine.trial import Trial
from fairway.errors import MissingDependency, UsageError
from fairway.integrations import boosting
from fairway.integrations.boosting import Evaluated, Measure, Rounds
from fairway.runners.rebuild import Again
from fairway.study import Study

try:
    import xgboost
except ImportError:
    raise MissingDependency("fairway.integrations.xgboost needs XGBoost: pip install 'fairway[xgboost]'") from None

__all__ = ["best_model", "callback"]

_TRAINING = {"train", "training", "dtrain"}  # what training sets are called; XGBoost does not say which one it is
_HIGHER = {"auc", "aucpr", "map", "ndcg", "pre", "interval-regression-accuracy"}
_LOWER = {
    *("rmse", "rmsle", "mae", "mape", "mphe", "logloss", "error", "merror", "mlogloss", "quantile", "expectile"),
    *("poisson-nloglik", "gamma-nloglik", "gamma-deviance", "tweedie-nloglik", "cox-nloglik", "aft-nloglik"),
}


def callback(
    trial: Trial,
    metric: str,
    *,
    constraints: Mapping[str, Measure | float] | None = None,
    valid: str | None = None,
    total: int | None = None,
    save_to: str | os.PathLike[str] | None = None,
) -> xgboost.callback.TrainingCallback:
    """Report each round to a trial, and end training where the trial is stopped; for `callbacks=[...]`.

    `metric` is XGBoost's name of what the study's objective is ("auc"), on the only data set that is not called
    "train", or on the one named `valid`. `constraints` maps each limit to a function of the booster and a number of
    rounds, such as `lambda booster, rounds: eod(booster.predict(data, iteration_range=(0, rounds)))`. It is called only
    when that is worth its price. XGBoost does not say how many rounds are to come: `total` does, and lets a dear check
    wait for the end, when it looks at the best round (DART and linear boosters have only their last).

    A round that becomes the best of the study is saved in the folder `save_to`, one file a trial; `best_model` finds
    it. XGBoost's own early stopping may go beside this.

    >>> import xgboost, numpy as np, fairway as fw
    >>> from fairway.integrations.xgboost import callback
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
    >>> data, valid = xgboost.DMatrix(x[:200], y[:200]), xgboost.DMatrix(x[200:], y[200:])
    >>> def size(booster, rounds):
    ...     return len(booster[:rounds].save_raw()) / 1000
    >>> def train(trial):
    ...     settings = {"objective": "binary:logistic", "eval_metric": "auc", "nthread": 1, **trial.params}
    ...     report = callback(trial, "auc", constraints={"kilobytes": size}, total=20)
    ...     return xgboost.train(settings, data, 20, evals=[(valid, "valid")], verbose_eval=False, callbacks=[report])
    >>> limits = [fw.AtMost("kilobytes", 15)]
    >>> study = fw.Study({"max_depth": fw.Int(1, 6)}, fw.Maximize("auc"), limits, seed=0)
    >>> study.optimize(train, trials=5)
    >>> study.best.metrics["kilobytes"] <= 15
    True
    """
    total = None if total is None else whole(total, "total")
    return _Callback(
        Rounds(_XGBOOST, trial, metric, constraints=constraints, valid=valid, save_to=save_to), total=total
    )


def best_model(
    study: Study, train: Callable[[Trial], Any], *, saved_in: str | os.PathLike[str] | None = None
) -> xgboost.Booster | Any:
    """The best model of a study, at the round that was best; a plain `predict` uses just its rounds.

    A booster from the folder `saved_in` (which was the callback's `save_to`) if it is there. Else what `train` returns
    when it is run again: it is the function that was optimised, and returns its booster or fitted estimator.

    >>> import xgboost, numpy as np, fairway as fw
    >>> from fairway.integrations.xgboost import best_model, callback
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
    >>> def train(trial):
    ...     report = callback(trial, "logloss", total=20)
    ...     model = xgboost.XGBClassifier(n_estimators=20, n_jobs=1, callbacks=[report], **trial.params)
    ...     return model.fit(x[:200], y[:200], eval_set=[(x[200:], y[200:])], verbose=False)
    >>> study = fw.Study({"learning_rate": fw.Float(0.1, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(train, trials=5)
    >>> best_model(study, train).get_booster().num_boosted_rounds() == study.best.step
    True
    """
    return boosting.best_model(_XGBOOST, study, train, saved_in)


class _Callback(xgboost.callback.TrainingCallback):
    def __init__(self, rounds: Rounds, *, total: int | None) -> None:
        super().__init__()
        self._rounds = rounds
        self._total = total
        self._lasting = True

    def before_training(self, model: Any) -> Any:
        self._rounds.begin(self._total)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, list[Any]]]) -> bool:
        rounds = self._rounds
        if epoch == 0:
            self._lasting = _is_lasting(model)
        elif rounds.cut:
            return True
        elif rounds.over:
            raise UsageError(f"total={self._total}, and XGBoost goes on: give it the same number of rounds")
        stop = rounds.report(model, epoch + 1, _evaluated(evals_log), training=_TRAINING, lasting=self._lasting)
        stop = stop or rounds.cut
        if stop and (isinstance(rounds.trial.driver, Again) or model.attr("best_iteration") is None):
            # What estimators predict with, and what EarlyStopping(save_best=True) keeps.
            model.set_attr(best_iteration=str(_count(model) - 1), best_score=str(rounds.value))
        return stop


def _evaluated(evals_log: Mapping[str, Mapping[str, list[Any]]]) -> Iterator[Evaluated]:
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            kind = metric.partition("@")[0].rstrip("-")  # as in ndcg@5-
            higher = True if kind in _HIGHER else False if kind in _LOWER else None
            yield Evaluated(data, metric, values[-1][0] if isinstance(values[-1], tuple) else values[-1], higher)


def _is_cv(model: Any) -> bool:
    return hasattr(model, "cvfolds")


def _is_lasting(model: Any) -> bool:
    """Whether earlier rounds stay as they are: DART rescales its trees, a linear booster changes its weights."""
    booster = model.cvfolds[0].bst if _is_cv(model) else model
    return bool(json.loads(booster.save_config())["learner"]["gradient_booster"]["name"] == "gbtree")


def _count(model: Any) -> int:
    return int(model.num_boosted_rounds())


def _dump(model: Any, rounds: int) -> bytes:
    if _is_cv(model):
        raise UsageError("save_to: xgboost.cv trains a model a fold, and none that could be saved")
    if rounds < _count(model):
        model = model[:rounds]
    return bytes(model.save_raw("ubj"))


def _load(path: Path) -> Any:
    return xgboost.Booster(model_file=path)


_XGBOOST = boosting.Library("XGBoost", ".ubj", _count, _dump, _load)
