"""fairway inside XGBoost: a callback that reports each round, predictions round by round, the best round as a model.

For `xgboost.train`, `xgboost.cv` and the scikit-learn estimators.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.checks import whole
from fairway.engine.record import Best
from fairway.engine.trial import Trial
from fairway.errors import MissingDependency, UsageError
from fairway.integrations import boosting
from fairway.integrations.boosting import Evaluated, Measure, Rounds, RowPredictor
from fairway.study import Study

try:
    import xgboost
except ImportError:
    raise MissingDependency("fairway.integrations.xgboost needs XGBoost: pip install 'fairway[xgboost]'") from None

__all__ = ["Predictor", "best_model", "callback"]

_TRAINING = {"train", "training", "dtrain"}  # names of training sets; XGBoost does not say which it is
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
    """Report each round to a trial, and end training when the trial is stopped; for `callbacks=[...]`.

    `metric` is XGBoost's name for the study's objective ("auc"), evaluated on the only data set not called "train" or
    on the one named `valid`. `constraints` maps each constraint to a function of the booster and a number of rounds,
    such as `lambda booster, rounds: eod(predict(booster, rounds))` with `predict = Predictor(x)`. It is called only
    when the check is worth its cost. XGBoost does not say how many rounds it plans; `total` does, so that an expensive
    check can wait for the end and measure the best round (with DART and linear boosters, the last).

    A round that becomes the best of the study is saved in the folder `save_to`, one file per trial; `best_model` finds
    it. XGBoost's own early stopping can run beside this.

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
    >>> space, constraint = {"max_depth": fw.Int(1, 6)}, fw.AtMost("kilobytes", 15)
    >>> study = fw.Study(space, fw.Maximize("auc"), constraint, seed=0)
    >>> study.optimize(train, trials=5)
    >>> study.best.metrics["kilobytes"] <= 15
    True
    """
    total = None if total is None else whole(total, "total")
    return _Callback(Rounds(_XGBOOST, trial, metric, constraints, valid, save_to), total)


class Predictor(RowPredictor):
    """Predicts the same rows at one round after another, and computes only the rounds since the last call.

    With `predict = Predictor(x)`, `predict(booster, rounds)` is what `booster.predict` gives with
    `iteration_range=(0, rounds)`; without `rounds`, it uses all that the booster has. XGBoost keeps the scores of a
    `DMatrix` that it sees again. Here one is made of `x` and kept, so a check at round 300 costs no more than one at
    round 3. DART, which changes earlier rounds, and a call for an earlier round than the last are computed from the
    start. In `xgboost.cv` a list is returned, one array per fold.

    `x` may be a `DMatrix` itself: that of `evals` has its scores already. One predictor serves all trials; for several
    processes, give it the array, since XGBoost cannot pickle a `DMatrix`.

    >>> import xgboost, numpy as np
    >>> from fairway.integrations.xgboost import Predictor
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
    >>> predict, data = Predictor(x[200:]), xgboost.DMatrix(x[:200], y[:200])
    >>> booster = xgboost.Booster({"objective": "binary:logistic"}, [data])
    >>> for k in range(20):
    ...     booster.update(data, k)
    ...     chance = predict(booster)
    >>> bool((chance == booster.predict(xgboost.DMatrix(x[200:]))).all())
    True
    """

    def __init__(self, rows: Any) -> None:
        super().__init__(_XGBOOST, rows)
        is_made = isinstance(rows, xgboost.DMatrix)
        self._matrix = rows if is_made else xgboost.DMatrix(rows, enable_categorical=True)

    def _predict(self, booster: xgboost.Booster, rounds: int) -> NDArray[np.float32]:
        return booster.predict(self._matrix, iteration_range=(0, rounds))


def best_model(
    study: Study,
    train: Callable[[Trial], Any],
    *,
    saved_in: str | os.PathLike[str] | None = None,
    best: Best | None = None,
) -> xgboost.Booster | Any:
    """The best model of a study, at its best round; a plain `predict` uses exactly those rounds.

    If the folder `saved_in` (the callback's `save_to`) holds it, the booster is loaded from there. If not, `train`, the
    function that was optimised, runs again; it must return its booster or fitted estimator. `best` asks for another
    checkpoint than the study's best, as in
    `study.certify(fresh, models=lambda best: best_model(study, train, saved_in="models", best=best))`.

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
    return boosting.best_model(_XGBOOST, study, train, saved_in, best)


class _Callback(xgboost.callback.TrainingCallback):
    def __reduce__(self) -> tuple[Any, ...]:
        # An estimator keeps its callbacks. Copied or pickled with it, this one reports to nobody.
        return xgboost.callback.TrainingCallback, ()

    def __init__(self, rounds: Rounds, total: int | None) -> None:
        super().__init__()
        self._rounds, self._total, self._lasting = rounds, total, True

    def before_training(self, model: Any) -> Any:
        self._rounds.begin(self._total)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, list[Any]]]) -> bool:
        rounds = self._rounds
        if epoch == 0:
            # DART rescales earlier trees, and a linear booster changes its weights.
            config = json.loads((model.cvfolds[0].bst if _is_cv(model) else model).save_config())
            self._lasting = config["learner"]["gradient_booster"]["name"] == "gbtree"
        elif rounds.cut:
            return True
        elif rounds.driver.is_over:
            raise UsageError(f"total={self._total}, but XGBoost continues: give it the same number of rounds")
        stop = rounds.report(model, epoch + 1, _evaluated(evals_log), training=_TRAINING, lasting=self._lasting)
        stop = stop or rounds.cut
        if stop and (rounds.rebuilds or model.attr("best_iteration") is None):
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


def _count(model: Any) -> int:
    return int(model.num_boosted_rounds())


def _dump(model: Any, rounds: int) -> bytes:
    if _is_cv(model):
        raise UsageError("save_to: xgboost.cv trains one model per fold, and none that could be saved")
    return bytes((model[:rounds] if rounds < _count(model) else model).save_raw("ubj"))


def _folds(model: Any) -> list[xgboost.Booster] | None:
    return [fold.bst for fold in model.cvfolds] if _is_cv(model) else None


_XGBOOST = boosting.Library("XGBoost", ".ubj", _count, _dump, lambda path: xgboost.Booster(model_file=path), _folds)
