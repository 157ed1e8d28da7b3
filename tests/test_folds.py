from __future__ import annotations

import math

import numpy as np
import pytest

import fairway as fw
from fairway.engine.verify import verify

LINE = {"x": fw.Float(0.0, 1.0)}


def test_the_noise_of_ten_equal_folds_is_that_of_the_literature():
    values = np.random.default_rng(0).normal(size=10)
    assert fw.Folds(values).noise == pytest.approx(math.sqrt(0.1 + 1 / 9) * values.std())
    assert fw.Folds(values, test_size=20, train_size=100).noise == pytest.approx(math.sqrt(0.3) * values.std())


def test_one_fold_shows_no_noise():
    assert float(fw.Folds([0.3])) == 0.3
    assert math.isnan(fw.Folds([0.3]).noise)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: fw.Folds([]), "at least one fold"),
        (lambda: fw.Folds(0.5), "one per fold"),
        (lambda: fw.Folds(["a"]), "one per fold"),
        (lambda: fw.Folds("123"), "one per fold"),
        (lambda: fw.Folds([10**400]), "one per fold"),
        (lambda: fw.Folds([1.0], test_size=-3, train_size=1), "test_size=-3"),
        (lambda: fw.Folds([1.0, 2.0], test_size=10), "both test_size and train_size"),
        (lambda: fw.Folds([1.0, 2.0], test_size=0, train_size=9), "test_size=0"),
    ],
)
def test_bad_folds_are_refused(make, why):
    with pytest.raises(fw.UsageError, match=why):
        make()


def test_folds_are_reported_like_numbers():
    study = fw.Study(LINE, fw.Minimize("error"), [fw.AtMost("eod", 0.5)], stopper=fw.Never(), seed=0)
    trial = study.ask()
    for k in trial.steps(3):  # a fold a step
        trial.report(error=fw.Folds([0.3, 0.2, 0.1][:k]), eod=fw.Folds([0.1] * k))
    study.tell(trial)
    assert study.best.metrics == {"error": pytest.approx(0.2), "eod": pytest.approx(0.1)}
    assert (study.history.folds[0], study.history.noise[0]) == (3, pytest.approx(fw.Folds([0.3, 0.2, 0.1]).noise))
    study.optimize(lambda trial: {"error": fw.Folds([trial.params["x"]] * 4), "eod": 0.1}, trials=1)
    assert (study.history.folds[1], study.history.noise[1]) == (4, 0.0)


def test_a_function_may_return_folds():
    study = fw.Study(LINE, fw.Minimize("error"), seed=0)
    study.optimize(lambda trial: fw.Folds([0.1, 0.2]), trials=1)
    study.optimize(lambda trial: 0.3, trials=1)
    assert study.history.folds.tolist() == [2, 1]
    assert np.isnan(study.history.noise).tolist() == [False, True]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.filterwarnings("error")
def test_a_fold_that_is_no_number_fails_its_trial(value):
    study = fw.Study(LINE, fw.Minimize("error"), seed=0)
    study.tell(study.ask(), error=fw.Folds([0.1, value]))
    assert study.trials[0].reason == f"error is {value} at step 1"


def test_the_noise_of_a_report_that_was_refused_does_not_stick():
    study = fw.Study(LINE, fw.Minimize("error"), seed=0)
    trial = study.ask()
    with pytest.raises(fw.UsageError, match="was not declared"):
        trial.report(error=fw.Folds([1.0, 2.0]), oops=1.0)
    study.tell(trial, error=0.5)
    assert np.isnan(study.history.noise[0])


def test_the_noise_of_a_checkpoint_that_is_checked_at_the_end_is_kept(url):
    study = fw.Study(
        LINE, fw.Minimize("error"), [fw.AtMost("eod", 0.5)], stopper=fw.Never(interval="end"), storage=url, seed=0
    )
    trial = study.ask()
    for k in trial.steps(3):
        trial.report(error=fw.Folds([0.1 * k, 0.2 * k]), eod=lambda step: 0.1, checkpoint=k)
    study.tell(trial)
    assert study.best.step == 1
    assert study.history.noise[0] == pytest.approx(fw.Folds([0.1, 0.2]).noise)
    again = fw.Study(LINE, fw.Minimize("error"), [fw.AtMost("eod", 0.5)], storage=url)
    assert (again.history.folds[0], again.history.noise[0]) == (2, study.history.noise[0])


def cross_validated(trial):
    """Ten folds, one a step; a configuration is as good as its x, and its first fold flatters the odd ones."""
    values = []
    for fold in trial.steps(10):
        values.append(trial.params["x"] - (0.5 if fold == 1 and trial.number % 2 else 0.0))
        trial.report(error=fw.Folds(values, of=10), eod=lambda: trial.params["x"] / 2)


def test_some_folds_of_many_may_stop_a_trial_and_are_never_the_best(url):
    study = fw.Study(LINE, fw.Minimize("error"), [fw.AtMost("eod", 0.4)], storage=url, seed=0, sampler=fw.Random())
    study.optimize(cross_validated, trials=40)
    assert study.counts["stopped"] > 5
    assert study.best.step == 10
    assert study.best_ignoring_limits.step == 10
    for record in study.trials:
        assert record.step == record.steps  # the most folds stand for it
        assert record.feasible is None or record.step == 10 or record.metrics["eod"] > 0.4
    history = study.history
    assert not (history.feasible & (history.folds < 10)).any()
    assert verify(study.log.read(0)).faults == []
    again = fw.Study(LINE, fw.Minimize("error"), [fw.AtMost("eod", 0.4)], storage=url, sampler=fw.Random())
    assert (again.best, again.trials) == (study.best, study.trials)


def test_without_limits_too_only_all_folds_count():
    study = fw.Study(LINE, fw.Minimize("error"), seed=0, stopper=fw.Never())
    trial = study.ask()
    decisions = [trial.report(error=fw.Folds([0.1] * k, of=3)) for k in (1, 2)]
    assert [decision.best for decision in decisions] == [False, False]
    assert study.best is None
    assert trial.report(error=fw.Folds([0.1, 0.1, 0.9], of=3)).best
    study.tell(trial)
    assert study.best.metrics["error"] == pytest.approx(1.1 / 3)


def test_more_folds_than_there_are_is_said():
    with pytest.raises(fw.UsageError, match="of=2: a whole number of at least 3 is expected"):
        fw.Folds([0.1, 0.2, 0.3], of=2)


def test_a_mean_of_easy_folds_does_not_look_better_to_samplers_than_all_folds():
    study = fw.Study(LINE, fw.Minimize("error"), seed=0, stopper=fw.HalfAt(1, after=2), sampler=fw.Random())

    def train(trial):
        values = []
        for fold in trial.steps(5):
            values.append(trial.params["x"] + (0.0 if fold == 1 else 2.0))  # the first fold is easy
            trial.report(error=fw.Folds(values, of=5))

    study.optimize(train, trials=20)
    history = study.history
    assert history.partial.sum() > 3
    after = history.number > 2
    np.testing.assert_allclose(history.loss[after], history.x[after, 0] + 1.6)  # as if all had been run
    stopped = next(record for record in study.trials if record.status == "stopped")
    assert stopped.metrics["error"] == pytest.approx(stopped.params["x"])  # people see what was measured


def test_a_check_at_the_end_is_of_all_folds_not_of_the_most_flattering():
    limits = [fw.AtMost("eod", 0.5)]
    study = fw.Study(LINE, fw.Minimize("error"), limits, stopper=fw.Never(interval="end"), seed=0)
    trial = study.ask()
    for k in trial.steps(4):
        trial.report(error=fw.Folds([0.1, 0.2, 0.2, 0.2][:k], of=4), eod=lambda k: 0.1, checkpoint=k)
    study.tell(trial)
    assert study.best.step == 4


def test_a_limit_of_some_folds_is_not_known_yet():
    study = fw.Study(LINE, fw.Minimize("error"), [fw.AtMost("eod", 0.5)], seed=0)
    with pytest.raises(fw.UsageError, match="report a constraint when all its folds are there"):
        study.ask().report(error=0.5, eod=fw.Folds([0.1], of=5))


def test_what_finished_before_any_had_all_folds_is_moved_once_one_has():
    study = fw.Study(LINE, fw.Minimize("error"), seed=0, stopper=fw.Never(), sampler=fw.Random())
    for folds in (1, 1, 5, 2):
        trial = study.ask()
        values = [trial.params["x"] + (0.0 if k == 0 else 2.0) for k in range(folds)]
        for k in range(1, folds + 1):
            trial.report(error=fw.Folds(values[:k], of=5))
        trial.driver.cut("" if folds == 5 else "out of time")
        study.tell(trial)
    history = study.history
    np.testing.assert_allclose(history.loss, history.x[:, 0] + 1.6)
    np.testing.assert_allclose(history.first(2).loss, history.x[:2, 0])  # as it was then
