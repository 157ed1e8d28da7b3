"""The models behind checkpoints: a booster cut back is the booster as it was, and one training gives many of them."""

from __future__ import annotations

import copy
import pickle

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.linear_model import SGDClassifier

import fairway as fw
from fairway.constraints import equalized_odds_difference, model_size
from fairway.demo import auc, credit_table
from fairway.engine.events import Sealed, Surveyed
from fairway.engine.verify import verify
from fairway.integrations import lightgbm as ours_lightgbm
from fairway.integrations import xgboost as ours_xgboost
from fairway.runners.models import cut, rounds_of

X, Y, GROUP = credit_table(6000)
TRAIN, JUDGE, FRESH = slice(0, 1500), slice(1500, 3000), slice(3000, 6000)
LIGHTGBM = {"objective": "binary", "metric": "auc", "verbosity": -1, "num_threads": 1, "num_leaves": 6, "seed": 0}
XGBOOST = {"objective": "binary:logistic", "eval_metric": "auc", "nthread": 1, "max_depth": 3, "seed": 0}
FRAME = pd.DataFrame(X[:, :5], columns=list("abcde")).assign(
    kind=pd.Categorical(np.where(X[:, 5] > 0, "u", np.where(X[:, 6] > 0, "v", "w")))
)


class Watch(xgboost.callback.TrainingCallback):
    """What an XGBoost booster predicts after each round."""

    def __init__(self, rows):
        self.rows, self.seen = rows, {}

    def after_iteration(self, model, epoch, evals_log):
        self.seen[model.num_boosted_rounds()] = model.predict(self.rows)
        return False


def trained_lightgbm(x=X, rounds=25, early=False, first=None, **settings):
    """A booster, and what it predicted after each of its rounds."""
    seen = {}
    y = Y + (X[:, 0] > 0) if settings.get("num_class") else Y
    data = lightgbm.Dataset(x[TRAIN], y[TRAIN], params={"verbosity": -1}, free_raw_data=False)
    valid = data.create_valid(x[JUDGE], y[JUDGE])
    watch = lambda env: seen.update({env.model.current_iteration(): env.model.predict(x[JUDGE])})
    callbacks = [watch, *([lightgbm.early_stopping(3, verbose=False)] if early else [])]
    booster = lightgbm.train({**LIGHTGBM, **settings}, data, rounds, [valid], init_model=first, callbacks=callbacks)
    return booster, seen


def trained_xgboost(x=X, rounds=25, first=None, more=(), **settings):
    y = Y + (X[:, 0] > 0) if settings.get("num_class") else Y
    data, valid = (xgboost.DMatrix(x[rows], y[rows], enable_categorical=True) for rows in (TRAIN, JUDGE))
    watch = Watch(valid)
    settings = {name: value for name, value in {**XGBOOST, **settings}.items() if value is not None}
    given = {"evals": [(valid, "judge")], "verbose_eval": False, "callbacks": [watch, *more], "xgb_model": first}
    return xgboost.train(settings, data, rounds, **given), watch.seen, valid


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"early": True},
        {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6},
        {"data_sample_strategy": "goss"},
        {"linear_tree": True},
        {"objective": "multiclass", "num_class": 3, "metric": "multi_logloss"},
        {"objective": "regression_l1", "metric": "l1"},
        {"x": FRAME},
        {"first": 5},
    ],
    ids=str,
)
def test_a_cut_lightgbm_booster_predicts_what_it_predicted_then(settings):
    if "first" in settings:
        settings = {"first": trained_lightgbm(rounds=5)[0]}
    booster, seen = trained_lightgbm(**settings)
    rows = settings.get("x", X)[JUDGE]
    kept = [rounds for rounds in seen if rounds <= booster.current_iteration()]
    assert len(kept) > 1
    for rounds in kept:
        shorter = cut(booster, rounds)
        assert rounds_of(shorter) == rounds
        np.testing.assert_array_equal(shorter.predict(rows), seen[rounds])
    assert cut(booster, booster.current_iteration() + 1) is cut(booster, 0) is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_parallel_tree": 3, "subsample": 0.7},
        {"objective": "multi:softprob", "num_class": 3, "eval_metric": "mlogloss"},
        {"objective": "reg:absoluteerror", "eval_metric": "mae"},
        {"x": FRAME},
        {"more": [True]},
        {"more": [False]},
        {"first": 5},
    ],
    ids=str,
)
def test_a_cut_xgboost_booster_predicts_what_it_predicted_then(settings):
    if "first" in settings:
        settings = {"first": trained_xgboost(rounds=5)[0]}
    if "more" in settings:
        settings = {"more": [xgboost.callback.EarlyStopping(rounds=3, save_best=settings["more"][0])], "rounds": 80}
    booster, seen, valid = trained_xgboost(**settings)
    kept = [rounds for rounds in seen if rounds <= booster.num_boosted_rounds()]
    assert len(kept) > 1
    for rounds in kept:
        np.testing.assert_array_equal(cut(booster, rounds).predict(valid), seen[rounds])
    assert cut(booster, booster.num_boosted_rounds() + 1) is cut(booster, 0) is None


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("kind", [lightgbm.LGBMClassifier, lightgbm.LGBMRegressor])
def test_a_cut_estimator_of_lightgbm_predicts_what_it_predicted_then(kind, early):
    seen = {}
    watch = lambda env: seen.update({env.model.current_iteration(): env.model.predict(X[JUDGE])})
    callbacks = [watch, *([lightgbm.early_stopping(3, verbose=False)] if early else [])]
    model = kind(n_estimators=25, n_jobs=1, verbose=-1)
    model.fit(X[TRAIN], Y[TRAIN], eval_X=X[JUDGE], eval_y=Y[JUDGE], callbacks=callbacks)
    before = model.n_estimators_
    for rounds in range(1, before + 1):
        shorter = cut(model, rounds)
        said = shorter.predict_proba(X[JUDGE])[:, 1] if kind is lightgbm.LGBMClassifier else shorter.predict(X[JUDGE])
        np.testing.assert_array_equal(said, seen[rounds])
        assert shorter.n_estimators_ == shorter.best_iteration_ == rounds
    assert model.n_estimators_ == before  # the model itself stays


@pytest.mark.parametrize("early", [None, 3])
@pytest.mark.parametrize("kind", [xgboost.XGBClassifier, xgboost.XGBRegressor])
def test_a_cut_estimator_of_xgboost_predicts_what_it_predicted_then(kind, early):
    watch = Watch(xgboost.DMatrix(X[JUDGE]))
    model = kind(n_estimators=25, n_jobs=1, early_stopping_rounds=early, callbacks=[watch])
    model.fit(X[TRAIN], Y[TRAIN], eval_set=[(X[JUDGE], Y[JUDGE])], verbose=False)
    before = rounds_of(model)
    for rounds in range(1, before + 1):
        shorter = cut(model, rounds)
        said = shorter.predict_proba(X[JUDGE])[:, 1] if kind is xgboost.XGBClassifier else shorter.predict(X[JUDGE])
        np.testing.assert_array_equal(said, watch.seen[rounds])
    assert rounds_of(model) == before


def test_what_changes_its_earlier_rounds_or_has_none_is_not_cut():
    dart, _ = trained_lightgbm(boosting="dart", rounds=5)
    estimator = lightgbm.LGBMClassifier(boosting_type="dart", n_estimators=5, verbose=-1, n_jobs=1)
    others = [
        dart,
        lightgbm.Booster(model_str=dart.model_to_string()),
        estimator.fit(X[TRAIN], Y[TRAIN]),
        trained_xgboost(booster="dart", rounds=5)[0],
        trained_xgboost(booster="gblinear", rounds=5, max_depth=None)[0],
        xgboost.XGBClassifier(booster="gblinear", n_estimators=5, n_jobs=1).fit(X[TRAIN], Y[TRAIN]),
        SGDClassifier().fit(X[TRAIN], Y[TRAIN]),
        lambda rows: rows,
        "a path",
    ]
    assert [cut(model, 3) for model in others] == [None] * len(others)
    assert rounds_of(others[-1]) is None


# One training, many candidates


def eod(predicted, rows=JUDGE):
    return equalized_odds_difference(Y[rows], predicted >= 0.5, sensitive_features=GROUP[rows])


class Job:
    """A training with fairway's callback; counts how often it ran."""

    def __init__(self, library, **more):
        self.library, self.more, self.trainings = library, more, 0

    def __call__(self, trial):
        self.trainings += 1
        settings = {**(LIGHTGBM if self.library == "lightgbm" else XGBOOST), **trial.params}
        return getattr(self, self.library)(trial, {**settings, **self.more.get("settings", {})})

    def lightgbm(self, trial, settings):
        check = lambda booster, rounds: eod(booster.predict(X[JUDGE], num_iteration=rounds))
        report = ours_lightgbm.callback(trial, "auc", constraints={"eod": check}, save_to=self.more.get("save_to"))
        data = lightgbm.Dataset(X[TRAIN], Y[TRAIN], params={"verbosity": -1}, free_raw_data=False)
        valid = data.create_valid(X[JUDGE], Y[JUDGE])
        return lightgbm.train(settings, data, 40, [valid], init_model=self.more.get("first"), callbacks=[report])

    def xgboost(self, trial, settings):
        data, valid = xgboost.DMatrix(X[TRAIN], Y[TRAIN]), xgboost.DMatrix(X[JUDGE], Y[JUDGE])
        check = lambda booster, rounds: eod(booster.predict(valid, iteration_range=(0, rounds)))
        more = {"save_to": self.more.get("save_to"), "total": 40}
        report = ours_xgboost.callback(trial, "auc", constraints={"eod": check}, **more)
        evals = [(valid, "judge")]
        given = {"xgb_model": self.more.get("first"), "callbacks": [report]}
        return xgboost.train(settings, data, 40, evals=evals, verbose_eval=False, **given)


def searched(job, trials=8):
    space = {"learning_rate": fw.Float(0.05, 0.3, log=True), "reg_lambda": fw.Float(1e-2, 1e2, log=True)}
    study = fw.Study(space, fw.Maximize("auc"), [fw.AtMost("eod", 0.3)], seed=0)
    study.optimize(job, trials=trials)
    study.searched_by(X[TRAIN])
    study.searched_by(X[JUDGE], groups=GROUP[JUDGE])
    return study


def fresh_rows():
    return fw.FreshRows(X[FRESH], Y[FRESH], groups=GROUP[FRESH], eod=equalized_odds_difference)


@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_one_training_of_a_trial_gives_several_candidates(library, continued):
    first = None
    if continued:
        first = (trained_lightgbm if library == "lightgbm" else trained_xgboost)(rounds=3)[0]
    job = Job(library, first=first)
    study = searched(job)
    before, fresh = job.trainings, fresh_rows()
    certificate = study.certify(fresh, job)
    surveyed = [event for event in study.log.read() if isinstance(event, Surveyed)]
    assert all(event.cuts for event in surveyed)
    assert job.trainings - before == len(surveyed)  # none for a candidate of its own
    candidates = next(event.candidates for event in study.log.read() if isinstance(event, Sealed))
    assert len(candidates) > len({number for number, *_ in candidates})
    assert certificate.matches(fresh.decide(certificate.model))
    assert certificate.overlap == 0
    assert verify(study.log.read()).faults == []
    if certificate.certified:  # the model is the one that the search measured
        rows = X[JUDGE] if library == "lightgbm" else xgboost.DMatrix(X[JUDGE])
        assert auc(Y[JUDGE], certificate.model.predict(rows).astype(float)) == pytest.approx(
            certificate.metrics["auc"], abs=1e-6
        )


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_dart_gives_one_model_a_training(library):
    settings = {"boosting": "dart"} if library == "lightgbm" else {"booster": "dart", "rate_drop": 0.3}
    job = Job(library, settings=settings)
    study = searched(job, trials=4)
    certificate = study.certify(fresh_rows(), job)
    assert not any(event.cuts for event in study.log.read() if isinstance(event, Surveyed))
    numbers = [each.candidate.number for each in certificate.tested]
    assert len(numbers) == len(set(numbers))


def test_a_loop_with_several_rounds_a_step_is_not_cut_at_the_wrong_round():
    def train(trial):
        data = lightgbm.Dataset(X[TRAIN], Y[TRAIN], params={"verbosity": -1})
        booster = lightgbm.Booster({**LIGHTGBM, **trial.params}, data)
        for _ in trial.steps(10):
            for _ in range(4):
                booster.update()
            said = booster.predict(X[JUDGE])
            trial.report(auc=auc(Y[JUDGE], said), eod=lambda said=said: eod(said))
        return booster

    study = fw.Study({"learning_rate": fw.Float(0.05, 0.3)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.5)], seed=0)
    study.optimize(train, trials=4)
    certificate = study.certify(fresh_rows(), train)
    assert rounds_of(certificate.model) == 4 * certificate.step


def test_checkpoints_that_are_models_are_candidates_and_those_that_are_not_are_left():
    def train(trial, keep):
        model = SGDClassifier(loss="log_loss", random_state=trial.seed, **trial.params)
        for step in trial.steps(6):
            model.partial_fit(X[TRAIN], Y[TRAIN], classes=[0, 1])
            said, scores = model.predict(X[JUDGE]), model.decision_function(X[JUDGE])
            check = lambda checkpoint, said=said: eod(said)
            trial.report(auc=auc(Y[JUDGE], scores), eod=check, checkpoint=keep(model, step))
        return model

    for keep, cuts in ((lambda model, step: copy.deepcopy(model), True), (lambda model, step: f"{step}.pt", False)):
        study = fw.Study({"alpha": fw.Float(1e-4, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.5)], seed=0)
        study.optimize(lambda trial, keep=keep: train(trial, keep), trials=4)
        certificate = study.certify(fresh_rows(), lambda trial, keep=keep: train(trial, keep))
        surveyed = [event for event in study.log.read() if isinstance(event, Surveyed) and len(event.step) > 1]
        assert {event.cuts for event in surveyed} == {cuts}
        assert isinstance(certificate.model, SGDClassifier)


# Models from elsewhere


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_saved_rounds_are_certified_without_a_training_and_others_are_trained_again(library, tmp_path):
    job, ours = Job(library, save_to=tmp_path), {"lightgbm": ours_lightgbm, "xgboost": ours_xgboost}[library]
    study = searched(job)
    before, asked = job.trainings, []

    def model(best):
        asked.append(best)
        return ours.best_model(study, job, saved_in=tmp_path, best=best)

    certificate = study.certify(fresh_rows(), models=model)
    assert certificate.tested
    missing = [best for best in asked if not list(tmp_path.glob(f"trial{best.number}-round{best.step}-*"))]
    assert job.trainings - before == len(missing)
    assert rounds_of(certificate.model) == certificate.step
    trained = job.trainings
    assert rounds_of(model(study.best)) == study.best.step
    assert job.trainings == trained  # it is in a file
    with pytest.raises(fw.UsageError, match="best=3: a checkpoint of this study is expected"):
        ours.best_model(study, job, best=3)


def test_an_xgboost_estimator_with_fairways_callback_can_be_copied_pickled_and_measured():
    def train(trial):
        report = ours_xgboost.callback(trial, "logloss", constraints={"bytes": 0.0}, total=9)
        model = xgboost.XGBClassifier(n_estimators=9, n_jobs=1, callbacks=[report], **trial.params)
        return model.fit(X[TRAIN], Y[TRAIN], eval_set=[(X[JUDGE], Y[JUDGE])], verbose=False)

    study = fw.Study({"learning_rate": fw.Float(0.1, 0.9)}, fw.Minimize("loss"), [fw.AtMost("bytes", 1e6)], seed=0)
    study.optimize(train, trials=2)
    certificate = study.certify(fw.FreshRows(X[FRESH], Y[FRESH], bytes=model_size), train)
    back = pickle.loads(pickle.dumps(certificate.model))
    np.testing.assert_array_equal(back.predict(X[FRESH]), certificate.model.predict(X[FRESH]))
    assert copy.deepcopy(certificate.model).n_estimators == 9
