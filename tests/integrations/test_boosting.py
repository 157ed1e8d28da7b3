"""fairway's callback in real trainings of LightGBM and XGBoost, on a small table with an unfair feature."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import ClassVar

import lightgbm
import pytest
import xgboost

import fairway as fw
from fairway.constraints import equalized_odds_difference
from fairway.demo import auc, credit_table
from fairway.engine.verify import verify
from fairway.integrations import lightgbm as ours_lightgbm
from fairway.integrations import xgboost as ours_xgboost

X, Y, GROUP = credit_table(1600)
TRAIN, JUDGE = (X[::2], Y[::2]), (X[1::2], Y[1::2])
SPACE = {"learning_rate": fw.Float(0.02, 0.5, log=True), "reg_lambda": fw.Float(1e-2, 1e2, log=True)}
ROUNDS = 25


def judged(chances):
    """The auc and the eod of predictions for the judging half."""
    return auc(JUDGE[1], chances), equalized_odds_difference(JUDGE[1], chances >= 0.5, sensitive_features=GROUP[1::2])


class LightGBM:
    """One training of it under fairway; `calls` are the rounds at which the limit was checked."""

    ours, own = ours_lightgbm, lightgbm
    settings: ClassVar = {
        "objective": "binary",
        "metric": "auc",
        "verbosity": -1,
        "num_threads": 1,
        "num_leaves": 8,
        "seed": 0,
    }
    stump: ClassVar = {"num_leaves": 2}
    dart: ClassVar = {"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0}

    def __init__(self, save_to=None, rounds=ROUNDS, others=(), eod=None, **settings):
        self.calls, self.trained = [], 0
        self.save_to, self.rounds, self.others = save_to, rounds, others
        self.eod = eod or self.measure
        self.more = settings

    def measure(self, booster, rounds):
        self.calls.append(rounds)
        return judged(self.predict(booster, rounds))[1]

    def callback(self, trial, metric="auc", **more):
        given = {"constraints": {"eod": self.eod}, "save_to": self.save_to, **more}
        return self.ours.callback(trial, metric, **given)

    def __call__(self, trial):
        self.trained += 1
        params = {**self.settings, **trial.params, **self.more}
        return self.train(params, [self.callback(trial), *(make() for make in self.others)])

    def train(self, params, callbacks, sets=("judge",)):
        data = lightgbm.Dataset(*TRAIN, params={"verbosity": -1})
        known = {"judge": data.create_valid(*JUDGE), "other": data.create_valid(*JUDGE), "train": data}
        return lightgbm.train(
            params, data, self.rounds, [known[name] for name in sets], list(sets), callbacks=callbacks
        )

    @staticmethod
    def predict(booster, rounds=None):
        return booster.predict(JUDGE[0], num_iteration=rounds)

    @staticmethod
    def count(booster):
        return booster.current_iteration()


class XGBoost(LightGBM):
    ours, own = ours_xgboost, xgboost
    settings: ClassVar = {"objective": "binary:logistic", "eval_metric": "auc", "nthread": 1, "max_depth": 3, "seed": 0}
    stump: ClassVar = {"max_depth": 1}
    dart: ClassVar = {"booster": "dart", "rate_drop": 0.5}
    data, valid = xgboost.DMatrix(*TRAIN), xgboost.DMatrix(*JUDGE)

    def callback(self, trial, metric="auc", **more):
        return super().callback(trial, metric, **{"total": self.rounds, **more})

    def train(self, params, callbacks, sets=("judge",)):
        evals = [(self.data if name == "train" else self.valid, name) for name in sets]
        return xgboost.train(params, self.data, self.rounds, evals=evals, verbose_eval=False, callbacks=callbacks)

    @classmethod
    def predict(cls, booster, rounds=0):
        return booster.predict(cls.valid, iteration_range=(0, rounds)).astype(float)

    @staticmethod
    def count(booster):
        return booster.num_boosted_rounds()


BOTH = pytest.mark.parametrize("task", [LightGBM, XGBoost])


def new_study(stopper=None, limit=0.25, **more):
    return fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", limit)], stopper=stopper, seed=0, **more)


def assert_is_best(study, chances):
    """These predictions have, to the last digit, what the study says of its best checkpoint."""
    measured = judged(chances)
    assert measured == pytest.approx((study.best.metrics["auc"], study.best.metrics["eod"]), abs=1e-12)


# Reports


@BOTH
def test_each_round_is_reported_once(task):
    study = new_study(fw.Never())
    booster = task()(study.ask())
    assert task.count(booster) == ROUNDS
    study.owner.journal.flush()
    study.owner.journal.catch_up()
    rows = [event for event in study.log.read() if hasattr(event, "objective")]
    steps = [step for event in rows for step in event.step.tolist() if step]
    assert sorted(set(steps)) == list(range(1, ROUNDS + 1))
    assert len(steps) <= ROUNDS + 1  # and once more where a check was paid at the end


@BOTH
def test_the_limit_is_checked_only_where_that_is_worth_its_price(task):
    study, job = new_study(), task()
    study.optimize(job, trials=12)
    offered = study.costs.checks + study.costs.saved_checks
    assert 0 < len(job.calls) == study.costs.checks < offered
    assert study.best.metrics["eod"] <= 0.25
    assert study.costs.training_seconds > 0
    assert verify(study.log.read()).faults == []


@BOTH
def test_a_check_at_the_end_looks_at_the_best_round(task):
    study, job = new_study(fw.Never(interval="end"), limit=1.0), task(rounds=60, learning_rate=0.5)
    study.optimize(job, trials=3)
    assert len(job.calls) <= 3
    assert job.calls[0] < 60  # overfitted by then
    assert study.best.step == job.calls[-1]
    assert_is_best(study, task.predict(study.rebuild(job)))


@BOTH
@pytest.mark.parametrize("interval", [1, "end"])
@pytest.mark.parametrize("dart", [False, True])
def test_a_predictor_measures_what_a_plain_prediction_does(task, interval, dart):
    predict, more = task.ours.Predictor(JUDGE[0]), task.dart if dart else {}
    eod = lambda booster, rounds: judged(predict(booster, rounds).astype(float))[1]
    found = []
    for job in (task(**more), task(eod=eod, **more)):
        study = new_study(fw.ACE(interval=interval))
        study.optimize(job, trials=8)
        found.append([(record.steps, record.status, record.metrics) for record in study.trials])
    assert found[0] == found[1]


@BOTH
def test_a_hopeless_trial_is_stopped_without_an_exception(task):
    study = new_study(fw.ACE(interval="end", grace=2))
    study.optimize(task(), trials=6)
    study.enqueue({"learning_rate": 0.02, "reg_lambda": 100.0})
    trial = study.ask()
    booster = task(**task.stump)(trial)
    assert trial.stopped
    assert task.count(booster) < ROUNDS
    assert len(task.predict(booster)) == len(JUDGE[1])
    study.tell(trial)
    assert study.trials[-1].status == "stopped"
    with pytest.raises(fw.UsageError, match="has reported a training already"):
        task()(trial)


@BOTH
def test_a_stopper_that_knows_the_longest_trial_ends_training_there(task):
    study = new_study(fw.ASHA(max_steps=9))
    booster = task()(trial := study.ask())
    assert task.count(booster) == trial.last_step == 9
    assert not study.tell(trial) or study.best.step <= 9


@BOTH
def test_training_that_is_continued_counts_from_where_it_begins(task):
    job = task(rounds=5)
    first = job.train(job.settings, [])
    study = new_study(fw.ACE(), limit=1.0)
    trial = study.ask()
    report = job.callback(trial)
    if task is LightGBM:
        data = lightgbm.Dataset(*TRAIN, params={"verbosity": -1}, free_raw_data=False)
        valid = lightgbm.Dataset(*JUDGE, reference=data, free_raw_data=False)
        lightgbm.train(job.settings, data, 6, [valid], ["judge"], init_model=first, callbacks=[report])
    else:
        evals = [(job.valid, "judge")]
        report = job.callback(trial, total=6)
        xgboost.train(job.settings, job.data, 6, evals=evals, verbose_eval=False, xgb_model=first, callbacks=[report])
    study.tell(trial)
    assert trial.last_step == 6
    assert job.calls == [5 + study.best.step]  # what to predict with
    assert study.best.metrics["auc"] > judged(task.predict(first))[0]


@BOTH
def test_a_metric_that_is_not_a_number_fails_its_trial(task):
    study = fw.Study(SPACE, fw.Maximize("auc"), seed=0)
    job, trial = task(), study.ask()
    report = job.callback(trial, "odd", constraints=None)
    data = (lightgbm.Dataset if task is LightGBM else xgboost.DMatrix)(*TRAIN)
    if task is LightGBM:
        odd = lambda chances, data: ("odd", math.nan, True)
        job.own.train(job.settings, data, 9, [data.create_valid(*JUDGE)], feval=odd, callbacks=[report])
    else:
        odd = lambda chances, data: ("odd", math.nan)
        settings = {name: value for name, value in job.settings.items() if name != "eval_metric"}
        job.own.train(
            {**settings, "disable_default_eval_metric": 1},
            data,
            9,
            evals=[(job.valid, "judge")],
            custom_metric=odd,
            verbose_eval=False,
            callbacks=[report],
        )
    study.tell(trial)
    assert study.last_failure.endswith("auc is nan at step 1")


@BOTH
def test_a_limit_that_cannot_be_measured_fails_its_trial_and_the_study_goes_on(task):
    job = task()

    def broken(booster, rounds):
        if len(job.calls) == 2:
            job.calls.append(rounds)
            raise ZeroDivisionError("no such group")
        return job.measure(booster, rounds)

    job.eod = broken
    study = new_study(fw.Never(interval=5, skip=False))
    study.optimize(job, trials=4)
    assert study.counts["failed"] == 1
    assert "ZeroDivisionError: no such group, raised by constraint 'eod' of trial" in study.last_failure
    assert verify(study.log.read()).faults == []


@BOTH
def test_several_workers_share_the_study(task, tmp_path):
    study, folder = new_study(limit=1.0), tmp_path / "models"
    study.optimize(task(save_to=folder), trials=6, workers=2)
    assert study.counts["failed"] == 0, study.last_failure
    assert study.best is not None
    assert_is_best(study, task.predict(task.ours.best_model(study, unwanted, saved_in=folder)))
    assert verify(study.log.read()).faults == []


# Beside others


def test_lightgbms_early_stopping_goes_beside_it():
    study = new_study(limit=1.0)
    job = LightGBM(others=[lambda: lightgbm.early_stopping(4, verbose=False)], rounds=80)
    study.optimize(job, trials=4)
    assert study.counts["failed"] == 0
    assert max(record.steps for record in study.trials) < 80
    assert_is_best(study, job.predict(study.rebuild(job)))


def test_early_stopping_that_drops_the_round_to_check_is_told_what_to_do():
    study = new_study(fw.Never(interval="end"), limit=1.0)
    stopping = lambda: lightgbm.early_stopping(2, first_metric_only=True, verbose=False)
    job = LightGBM(others=[stopping], rounds=80, metric=["binary_error", "auc"], learning_rate=0.02)
    with pytest.raises(fw.UsageError, match=r"early stopping kept \d+: have it look at auc alone"):
        study.optimize(job, trials=3)


def test_xgboosts_early_stopping_goes_beside_it():
    study = new_study(limit=1.0)
    stopping = lambda: xgboost.callback.EarlyStopping(rounds=4, save_best=True)
    job = XGBoost(others=[stopping], rounds=80)
    study.optimize(job, trials=4)
    assert study.counts["failed"] == 0
    assert max(record.steps for record in study.trials) < 80
    assert_is_best(study, job.predict(study.rebuild(job)))


def test_lightgbms_estimators_take_it():
    job = LightGBM()

    def train(trial):
        model = lightgbm.LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1, random_state=0, **trial.params)
        callbacks = [job.callback(trial), lightgbm.early_stopping(6, verbose=False)]
        return model.fit(*TRAIN, eval_X=JUDGE[0], eval_y=JUDGE[1], eval_metric="auc", callbacks=callbacks)

    study = new_study(fw.ACE(interval=1))
    study.optimize(train, trials=12)
    model = ours_lightgbm.best_model(study, train)
    assert isinstance(model, lightgbm.LGBMClassifier)
    assert model.booster_.current_iteration() == study.best.step
    assert_is_best(study, model.predict_proba(JUDGE[0])[:, 1])


def test_xgboosts_estimators_take_it():
    job = XGBoost()

    def train(trial):
        model = xgboost.XGBClassifier(
            n_estimators=ROUNDS,
            n_jobs=1,
            eval_metric=["auc", "logloss"],
            early_stopping_rounds=8,
            callbacks=[job.callback(trial)],
            **trial.params,
        )
        return model.fit(*TRAIN, eval_set=[JUDGE], verbose=False)

    study = new_study()
    study.optimize(train, trials=12)
    model = ours_xgboost.best_model(study, train)
    assert isinstance(model, xgboost.XGBClassifier)
    assert model.get_booster().num_boosted_rounds() == study.best.step
    assert_is_best(study, model.predict_proba(JUDGE[0])[:, 1].astype(float))


def test_lightgbms_cross_validation_reports_the_mean(tmp_path):
    seen = []

    def size(boosters, rounds):
        seen.append(type(boosters))
        return float(sum(len(text) for text in boosters.model_to_string(num_iteration=rounds)))

    def train(trial):
        data = lightgbm.Dataset(X, Y, params={"verbosity": -1})
        report = ours_lightgbm.callback(trial, "auc", constraints={"size": size}, save_to=tmp_path)
        return lightgbm.cv(
            {**LightGBM.settings, **trial.params}, data, 8, nfold=3, callbacks=[report], return_cvbooster=True
        )["cvbooster"]

    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("size", 1e9)], seed=0)
    study.optimize(train, trials=3)
    assert set(seen) == {lightgbm.CVBooster}
    saved = ours_lightgbm.best_model(study, unwanted, saved_in=tmp_path)
    again = ours_lightgbm.best_model(study, train)
    assert saved.current_iteration() == [study.best.step] * 3
    assert [p.tolist() for p in saved.predict(X)] == [p.tolist() for p in again.predict(X)]


def test_xgboosts_cross_validation_reports_the_mean(tmp_path):
    study = fw.Study(SPACE, fw.Maximize("auc"), stopper=fw.Never(), seed=0)
    trial = study.ask()
    settings: ClassVar = {"nfold": 3, "seed": 0, "as_pandas": False}
    report = ours_xgboost.callback(trial, "auc")
    found = xgboost.cv(XGBoost.settings, XGBoost.data, 6, callbacks=[report], **settings)
    study.tell(trial)
    assert study.best.metrics["auc"] == max(found["test-auc-mean"])
    report = ours_xgboost.callback(study.ask(), "auc", save_to=tmp_path)
    with pytest.raises(fw.UsageError, match="one model per fold"):
        xgboost.cv({**XGBoost.settings, "max_depth": 4}, XGBoost.data, 20, callbacks=[report], **settings)


# The best model


def unwanted(trial):
    pytest.fail("trained again")


@BOTH
@pytest.mark.parametrize("interval", ["adaptive", "end", 1])
def test_the_best_model_predicts_what_was_recorded(task, interval, tmp_path):
    study, job = new_study(fw.ACE(interval=interval)), task(save_to=tmp_path / "models")
    study.optimize(job, trials=12)
    best, checks = study.best, len(job.calls)
    built = task.ours.best_model(study, job)
    loaded = task.ours.best_model(study, unwanted, saved_in=tmp_path / "models")
    assert (task.count(built), task.count(loaded)) == (best.step, best.step)
    assert_is_best(study, task.predict(built))
    assert_is_best(study, task.predict(loaded))
    assert len(job.calls) == checks  # building checks nothing
    names = [path.name for path in (tmp_path / "models").iterdir()]
    assert len({name.split("-")[0] for name in names}) == len(names)  # one file a trial
    assert all(name.endswith((".txt", ".ubj")) for name in names)


@BOTH
@pytest.mark.parametrize("interval", ["end", 1])
def test_darts_best_model_is_of_the_state_that_was_checked(task, interval, tmp_path):
    study, job = new_study(fw.ACE(interval=interval), limit=0.4), task(save_to=tmp_path, **task.dart)
    study.optimize(job, trials=4)
    if interval == "end":
        assert set(job.calls) == {ROUNDS}
    assert_is_best(study, task.predict(task.ours.best_model(study, job)))
    assert_is_best(study, task.predict(task.ours.best_model(study, unwanted, saved_in=tmp_path)))


def test_a_linear_booster_is_checked_as_it_is():
    study, job = new_study(fw.Never(interval="end"), limit=1.0), XGBoost(booster="gblinear", updater="coord_descent")
    job.settings = {name: value for name, value in job.settings.items() if name != "max_depth"}
    study.optimize(lambda trial: job.train({**job.settings, **job.more}, [job.callback(trial)]), trials=2)
    assert job.calls[0] == ROUNDS


@BOTH
def test_several_limits_save_only_what_meets_them_all(task, tmp_path):
    sizes = []

    def size(booster, rounds):
        sizes.append(rounds)
        return 0.0 if len(sizes) == 1 else 1.0

    limits = [fw.AtMost("eod", 1.0), fw.AtMost("size", 0.5)]
    study = fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.Never(interval="end"), seed=0)
    job = task()

    def train(trial):
        return job.train(
            {**job.settings, **trial.params},
            [job.callback(trial, constraints={"eod": job.eod, "size": size}, save_to=tmp_path)],
        )

    study.optimize(train, trials=6)
    assert len(sizes) > 1
    assert [path.name.split("-")[0] for path in tmp_path.iterdir()] == ["trial0"]
    assert_is_best(study, task.predict(task.ours.best_model(study, unwanted, saved_in=tmp_path)))


@BOTH
def test_a_file_that_is_broken_or_missing_is_made_up_for(task, tmp_path):
    study, job = new_study(limit=1.0), task(save_to=tmp_path)
    study.optimize(job, trials=2)
    trained = job.trained
    path = next(path for path in tmp_path.iterdir() if path.name.startswith(f"trial{study.best.number}-"))
    for size in (0, 700, path.stat().st_size - 60):
        path.write_bytes(path.read_bytes()[:size] if size else b"")
        with pytest.warns(UserWarning, match=r"cannot be read .*: the model is trained again"):
            assert_is_best(study, task.predict(task.ours.best_model(study, job, saved_in=tmp_path)))
        path.write_bytes(job_bytes(task, study, job))
    path.unlink()
    assert_is_best(study, task.predict(task.ours.best_model(study, job, saved_in=tmp_path)))
    assert job.trained > trained
    with pytest.raises(fw.UsageError, match="there is no such folder"):
        task.ours.best_model(study, job, saved_in=tmp_path / "elsewhere")
    assert not list(tmp_path.glob("*.part"))


def job_bytes(task, study, job):
    library = task.ours._LIGHTGBM if task is LightGBM else task.ours._XGBOOST
    return library.dump(task.ours.best_model(study, job), study.best.step)


@BOTH
def test_another_studys_files_are_not_taken_for_its_own(task, tmp_path):
    new_study(limit=1.0).optimize(task(save_to=tmp_path), trials=2)
    other = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 1.0)], seed=1)
    job = task()
    other.optimize(job, trials=2)
    trained = job.trained
    task.ours.best_model(other, job, saved_in=tmp_path)
    assert job.trained == trained + 1
    same_seed = new_study(limit=1.0)
    job = task(**task.stump)  # other models under the same seed
    same_seed.optimize(job, trials=2)
    task.ours.best_model(same_seed, job, saved_in=tmp_path)
    assert job.trained == 3


def test_nothing_found_is_said():
    with pytest.raises(fw.UsageError, match="there is no best model to build"):
        ours_lightgbm.best_model(new_study(), LightGBM(), saved_in="/nowhere")


# Sentences


@BOTH
@pytest.mark.parametrize(
    ("more", "sets", "said"),
    [
        ({"metric": "ndcg"}, ["judge"], "metric='ndcg': .* evaluates 'auc' on 'judge'; name one of these, or have"),
        ({}, ["judge", "other"], "evaluates 'judge', 'other': say which counts, valid='judge'"),
        ({"valid": "test"}, ["train", "judge"], "valid='test': .* evaluates 'train', 'judge'"),
        ({}, ["train"], "evaluates no data set beside the training set"),
        ({}, [], "evaluates no data set beside the training set"),
        ({"metric": 3}, ["judge"], "metric=3: the name of an evaluation metric of .* is expected"),
        ({"constraints": {"ood": max}}, ["judge"], "metric 'ood' was not declared"),
    ],
)
def test_what_cannot_be_reported_is_said(task, more, sets, said):
    job, trial = task(), new_study().ask()
    with pytest.raises(fw.UsageError, match=said):
        job.train(job.settings, [job.callback(trial, **more)], sets)


@BOTH
def test_the_validation_set_is_the_one_that_is_not_trained_on_or_the_one_named(task):
    job = task(rounds=3)
    for sets, valid in ((["train", "judge"], None), (["judge", "other"], "other"), (["train"], "train")):
        trial = new_study().ask()
        booster = job.train(job.settings, [job.callback(trial, valid=valid)], sets)
        assert trial.last_step == task.count(booster) == 3


@BOTH
def test_a_direction_that_contradicts_the_study_is_refused(task):
    lower = "binary_logloss" if task is LightGBM else "logloss"
    for metric, objective, way in (("auc", fw.Minimize("x"), "higher"), (lower, fw.Maximize("x"), "lower")):
        job, trial = task(), fw.Study(SPACE, objective, seed=0).ask()
        settings = {**job.settings, "metric" if task is LightGBM else "eval_metric": metric}
        with pytest.raises(fw.UsageError, match=f"{metric} of {task.__name__} is better {way}, but the study has M"):
            job.train(settings, [job.callback(trial, metric, constraints=None)])


@BOTH
def test_a_constraint_that_takes_other_arguments_is_refused_before_training(task):
    with pytest.raises(fw.UsageError, match="'eod' is measured by a function of two arguments, the booster and"):
        task().callback(new_study().ask(), constraints={"eod": lambda booster: 0.1})


@BOTH
def test_something_else_than_a_trial_is_refused(task):
    with pytest.raises(fw.UsageError, match="the trial that the function was called with is expected"):
        task.ours.callback(new_study(), "auc")


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_a_library_that_is_not_there_is_named(name):
    code = f"import sys; sys.modules[{name!r}] = None; import fairway.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'fairway[{name}]'" in done.stderr


def test_the_shared_part_loads_neither_library():
    code = "import sys, fairway.integrations.boosting; assert not {'lightgbm', 'xgboost'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@BOTH
def test_a_folder_that_cannot_be_written_to_is_said_before_training(task, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(fw.UsageError, match="models cannot be saved there"):
        new_study().optimize(task(save_to=tmp_path / "file"), trials=3)


@BOTH
def test_a_second_training_in_one_trial_is_said(task):
    job = task()
    with pytest.raises(fw.UsageError, match="has reported a training already: one training per trial"):
        new_study(stopper=fw.Never()).optimize(lambda trial: [job(trial), job(trial)], trials=3)


def test_a_total_that_xgboost_does_not_keep_to_is_said():
    job = XGBoost()
    train = lambda trial: job.train(XGBoost.settings, [job.callback(trial, total=3)])
    with pytest.raises(fw.UsageError, match="total=3, but XGBoost continues"):
        new_study(stopper=fw.Never()).optimize(train, trials=3)


def test_xgboosts_cross_validation_may_say_how_many_rounds_there_are():
    study = fw.Study(SPACE, fw.Maximize("auc"), seed=0)

    def train(trial):
        report = ours_xgboost.callback(trial, "auc", total=4)
        xgboost.cv(XGBoost.settings, XGBoost.data, 4, nfold=3, metrics="auc", callbacks=[report])

    study.optimize(train, trials=2)
    assert study.best.step <= 4
    assert study.trials[0].steps == 4
