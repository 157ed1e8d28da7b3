"""fairway inside LightGBM: a callback that reports each round, predictions round by round, the best round as a model.

For `lightgbm.train`, `lightgbm.cv` and the `fit` of its scikit-learn estimators.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fairway.engine.record import Best
from fairway.engine.trial import Trial
from fairway.errors import MissingDependency
from fairway.integrations import boosting
from fairway.integrations.boosting import Evaluated, Measure, Rounds, RowPredictor
from fairway.study import Study

try:
    import lightgbm
except ImportError:
    raise MissingDependency("fairway.integrations.lightgbm needs LightGBM: pip install 'fairway[lightgbm]'") from None

__all__ = ["Predictor", "best_model", "callback"]

Array: TypeAlias = NDArray[np.float64]

_IDENTITY = (
    *("regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank", "rank_xendcg", "custom"),
)


def callback(
    trial: Trial,
    metric: str,
    *,
    constraints: Mapping[str, Measure | float] | None = None,
    valid: str | None = None,
    save_to: str | os.PathLike[str] | None = None,
) -> Callable[[lightgbm.callback.CallbackEnv], None]:
    """Report each round to a trial, and end training when the trial is stopped; for `callbacks=[...]`.

    `metric` is LightGBM's name for the study's objective ("auc"), evaluated on the only validation set or on the one
    named `valid`. `constraints` maps each constraint to a function of the booster and a number of rounds, such as
    `lambda booster, rounds: eod(predict(booster, rounds))` with `predict = Predictor(x)`. It is called only when the
    check is worth its cost, maybe after training, with the best round (with DART, the last). With `lightgbm.cv`, the
    mean over folds is reported, and the function gets the `CVBooster`.

    A round that becomes the best of the study is saved in the folder `save_to`, one file per trial; `best_model` finds
    it. LightGBM's `early_stopping` can run beside this if it watches the same metric; else it drops the best round.

    >>> import lightgbm, numpy as np, fairway as fw
    >>> from fairway.integrations.lightgbm import callback
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
    >>> def size(booster, rounds):
    ...     return len(booster.model_to_string(num_iteration=rounds)) / 1000
    >>> def train(trial):
    ...     settings = {"objective": "binary", "metric": "auc", "verbosity": -1, "num_threads": 1}
    ...     data = lightgbm.Dataset(x[:200], y[:200])
    ...     report = callback(trial, "auc", constraints={"kilobytes": size})
    ...     valid = data.create_valid(x[200:], y[200:])
    ...     return lightgbm.train({**settings, **trial.params}, data, 20, [valid], callbacks=[report])
    >>> space, constraint = {"num_leaves": fw.Int(2, 16)}, fw.AtMost("kilobytes", 12)
    >>> study = fw.Study(space, fw.Maximize("auc"), constraint, seed=0)
    >>> study.optimize(train, trials=5)
    >>> study.best.metrics["kilobytes"] <= 12
    True
    """
    return _Callback(Rounds(_LIGHTGBM, trial, metric, constraints, valid, save_to))


class Predictor(RowPredictor):
    """Predicts the same rows at one round after another, and computes only the rounds since the last call.

    With `predict = Predictor(x)`, `predict(booster, rounds)` is `booster.predict(x, num_iteration=rounds)`; without
    `rounds`, it uses all that the booster has. The raw scores of the rows are kept as long as their booster exists, so
    a check at round 300 costs no more than one at round 3. DART, which changes earlier rounds, and a call for an
    earlier round than the last are computed from the start. A `CVBooster` gives a list, one array per fold. Between
    calls a booster may grow, but not change otherwise, as `rollback_one_iter` does.

    One predictor serves all trials, also in several threads or processes. It predicts with the `num_threads` that the
    booster trains with. A plain `predict` without `num_threads` makes LightGBM continue the training with all cores.

    >>> import lightgbm, numpy as np
    >>> from fairway.integrations.lightgbm import Predictor
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
    >>> predict = Predictor(x[200:])
    >>> booster = lightgbm.Booster({"objective": "binary", "verbosity": -1}, lightgbm.Dataset(x[:200], y[:200]))
    >>> for _ in range(20):
    ...     _ = booster.update()
    ...     chance = predict(booster)
    >>> bool(np.allclose(chance, booster.predict(x[200:])))
    True
    """

    def __init__(self, rows: Any) -> None:
        super().__init__(_LIGHTGBM, rows)
        self._scores: WeakKeyDictionary[lightgbm.Booster, _Scores] = WeakKeyDictionary()

    def _predict(self, booster: lightgbm.Booster, rounds: int) -> Array:
        if booster not in self._scores:
            self._scores[booster] = _Scores(booster)
        return self._scores[booster].predict(self._rows, booster, rounds)


def best_model(
    study: Study,
    train: Callable[[Trial], Any],
    *,
    saved_in: str | os.PathLike[str] | None = None,
    best: Best | None = None,
) -> lightgbm.Booster | Any:
    """The best model of a study, at its best round; a plain `predict` uses exactly those rounds.

    If the folder `saved_in` (the callback's `save_to`) holds it, the booster is loaded from there. If not, `train`, the
    function that was optimised, runs again; it must return its booster or fitted estimator. `best` asks for another
    checkpoint than the study's best, as in
    `study.certify(fresh, models=lambda best: best_model(study, train, saved_in="models", best=best))`.

    >>> import lightgbm, numpy as np, fairway as fw
    >>> from fairway.integrations.lightgbm import best_model, callback
    >>> x = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = (x[:, 0] + x[:, 1] ** 2 > 1).astype(int)
    >>> def train(trial):
    ...     model = lightgbm.LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1, **trial.params)
    ...     report = callback(trial, "binary_logloss")
    ...     return model.fit(x[:200], y[:200], eval_X=x[200:], eval_y=y[200:], callbacks=[report])
    >>> study = fw.Study({"learning_rate": fw.Float(0.1, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(train, trials=5)
    >>> best_model(study, train).n_estimators_ == study.best.step
    True
    """
    return boosting.best_model(_LIGHTGBM, study, train, saved_in, best)


class _Scores:
    """The raw scores of some rows after some rounds of a booster, and how its predictions follow from them."""

    def __init__(self, booster: lightgbm.Booster) -> None:
        text = booster.model_to_string(num_iteration=1)  # which has settings as LightGBM read them, aliases resolved

        def said(pattern: str, otherwise: str) -> str:
            found = re.search(pattern, text, re.MULTILINE)
            return found[1] if found else otherwise

        self._threads = int(said(r"^\[num_threads: (\d+)\]$", "0"))
        self._averages = "\naverage_output\n" in text  # a random forest
        is_dart = said(r"^\[boosting: (\w+)\]$", "") == "dart"
        self._link = None if is_dart else _link(said(r"^objective=(.+)$", "custom"))
        self._rounds, self._raw = 0, np.zeros(())

    def predict(self, rows: Any, booster: lightgbm.Booster, rounds: int) -> Array:
        """The predictions by this many rounds; only rounds that are not in the scores yet are computed."""
        if self._link is None:
            return self._computed(rows, booster, 0, rounds)
        if not self._raw.ndim or rounds < self._rounds:
            self._rounds, self._raw = rounds, self._computed(rows, booster, 0, rounds, raw_score=True)
        elif rounds > self._rounds:
            self._raw += self._computed(rows, booster, self._rounds, rounds, raw_score=True)
            self._rounds = rounds
        with np.errstate(over="ignore"):
            return self._link(self._raw / max(rounds, 1) if self._averages else self._raw)

    def _computed(
        self, rows: Any, booster: lightgbm.Booster, begin: int, end: int, *, raw_score: bool = False
    ) -> Array:
        predicted = booster.predict(
            rows,
            start_iteration=begin,
            num_iteration=end - begin,
            raw_score=raw_score,
            num_threads=self._threads,  # LightGBM keeps this number for everything after, even training
        )
        return np.asarray(predicted)


def _link(objective: str) -> Callable[[Array], Array] | None:
    """The function from raw scores to predictions, a new array, for an objective as in a model file; None if unknown.

    >>> _link("binary sigmoid:2")(np.zeros(1))
    array([0.5])
    """
    name, *settings = objective.split()
    sigmoid = next((each.removeprefix("sigmoid:") for each in settings if each.startswith("sigmoid:")), "1")
    if len(sigmoid) > 6:  # noqa: PLR2004 - the file has six digits, maybe of more
        return None
    links: dict[str, Callable[[Array], Array]] = {
        **dict.fromkeys(_IDENTITY, np.copy),
        **dict.fromkeys(("binary", "multiclassova", "cross_entropy"), lambda raw: _logistic(float(sigmoid) * raw)),
        **dict.fromkeys(("poisson", "gamma", "tweedie"), np.exp),
        "cross_entropy_lambda": lambda raw: np.log1p(np.exp(raw)),
        "multiclass": _softmax,
    }
    return _signed_square if "sqrt" in settings else links.get(name)


def _logistic(raw: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-raw))


def _signed_square(raw: Array) -> Array:
    return np.sign(raw) * raw**2


def _softmax(raw: Array) -> Array:
    scaled = np.exp(raw - raw.max(axis=1, keepdims=True))
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


class _Callback:
    """Runs before LightGBM's own early stopping (order 30), which skips later callbacks when it ends training."""

    def __init__(self, rounds: Rounds) -> None:
        self.order = 25  # LightGBM reads it from the instance
        self.before_iteration = False
        self._rounds = rounds
        self._created = rounds.driver.now()  # the best guess of when training starts: the first call is after round 1

    def __call__(self, env: lightgbm.callback.CallbackEnv) -> None:
        model: Any = env.model
        rounds, step = self._rounds, env.iteration - env.begin_iteration + 1
        if step == 1:
            rounds.begin(env.end_iteration - env.begin_iteration, since=self._created)
        if not rounds.driver.is_over:
            found = [_evaluated(*each[:4]) for each in env.evaluation_result_list or ()]
            validation = {"valid"} if _is_cv(model) else set(model.name_valid_sets)
            training = {each.data for each in found} - validation  # which LightGBM may evaluate too
            # DART rescales earlier trees as it adds new ones.
            lasting = all(env.params.get(alias) != "dart" for alias in ("boosting", "boosting_type", "boost"))
            stop = rounds.report(model, step, found, training=training, lasting=lasting)
            if not stop and (not rounds.driver.is_over or env.iteration + 1 == env.end_iteration):
                return
        # LightGBM drops the rounds after the best one; name the current one, since a later check may need any.
        raise lightgbm.callback.EarlyStopException(_count(model) - 1, env.evaluation_result_list or [])


def _evaluated(data: str, metric: str, value: float, higher_is_better: bool) -> Evaluated:
    if data == "cv_agg":  # until LightGBM 4.6, cv gave "valid auc" of "cv_agg"
        data, _, metric = metric.partition(" ")
    return Evaluated(data, metric, value, higher_is_better)


def _is_cv(model: Any) -> bool:
    return isinstance(model, lightgbm.CVBooster)


def _count(model: Any) -> int:
    """The rounds of a model; fewer than were trained if a round found nothing to split."""
    count = model.current_iteration()
    return int(count[0] if _is_cv(model) else count)


def _dump(model: Any, rounds: int) -> bytes:
    text: str = model.model_to_string(num_iteration=rounds)
    return text.encode()


def _load(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    is_cv = text.startswith("{")
    models = json.loads(text)["boosters"] if is_cv else [text]
    if not all("\nend of trees\n" in model and "\npandas_categorical:" in model for model in models):
        raise ValueError("it is cut short")  # LightGBM would end the process
    if is_cv:
        return lightgbm.CVBooster().model_from_string(text)
    booster = lightgbm.Booster(model_str=text)
    booster.best_iteration = booster.current_iteration()
    return booster


_LIGHTGBM = boosting.Library(
    "LightGBM", ".txt", _count, _dump, _load, lambda model: model.boosters if _is_cv(model) else None
)
