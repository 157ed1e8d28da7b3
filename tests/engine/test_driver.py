"""The door for everything that runs trials without being the user."""

from __future__ import annotations

import math

import pytest

import fairway as fw
from fairway.engine.clock import VirtualClock
from fairway.engine.driver import Driver
from fairway.engine.events import ABSENT, SAVED
from fairway.engine.referee import Referee
from tests.conftest import run_curves
from tests.engine.logs import reported


@pytest.fixture
def driver():
    problem = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)])
    return Driver(0, Referee(problem, fw.Never(interval="end")), VirtualClock())


def report(driver, auc, eod=0.1, **more):
    return driver.settle(driver.measure({"auc": auc, "eod": lambda _: eod}, **more))


def test_a_driver_begins_measures_settles_and_finishes(driver):
    driver.begin(3)
    for step in (1, 2, 3):
        report(driver, step / 10, checkpoint=step)
    assert (driver.last_step, driver.total, driver.is_over) == (3, 3, True)
    assert driver.finish() == ("completed", "")


def test_training_and_checks_are_timed_apart():
    clock = VirtualClock()
    referee = Referee(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]), fw.Never())
    driver = Driver(0, referee, clock)
    driver.begin(None)
    clock.now = 100

    def eod():
        clock.now += 7
        return 0.1

    observation = driver.measure({"auc": 0.5, "eod": eod})
    driver.settle(observation)
    assert (observation.train_ns, observation.prices) == (100, [7])
    clock.now += 50
    driver.train_since()  # something else took that time
    clock.now += 3
    assert driver.measure({"auc": 0.5, "eod": 0.1}).train_ns == 3


def test_what_becomes_the_best_is_heard_of_also_when_training_has_ended(driver):
    heard = []
    driver.on_best = lambda step, objective: heard.append((step, objective))
    driver.begin(3)
    for step, auc in ((1, 0.3), (2, 0.9), (3, 0.5)):
        report(driver, auc, checkpoint=step)
    assert heard == []
    driver.finish()
    assert heard == [(2, 0.9)]


def test_a_trial_that_is_cut_is_not_checked_any_more(driver):
    driver.begin(3)
    report(driver, 0.5, checkpoint=1)
    driver.cut("the budget is spent")
    assert driver.look_back() is None
    assert driver.finish() == ("stopped", "the budget is spent")


def test_the_first_report_after_its_time_ends_a_trial_and_its_check_is_made(driver):
    driver.expire(-1.0, "out of time")
    driver.begin(9)
    assert tuple(report(driver, 0.5, checkpoint=1))[:2] == (True, "out of time")
    assert driver.look_back() is not None
    with pytest.raises(fw.UsageError, match=r"trial 0 is over at step 1 \(out of time\)"):
        driver.measure({"auc": 0.6})


def test_a_trial_without_a_report_has_failed_for_the_reason_it_was_cut(driver):
    driver.cut("interrupted")
    assert driver.finish() == ("failed", "interrupted")


def test_a_failure_is_the_reason_it_ended(driver):
    driver.begin(3)
    assert driver.measure({"auc": float("nan")}) is None
    assert driver.finish() == ("failed", "auc is nan at step 1")


def test_a_batch_that_waited_is_handed_over_at_the_next_report():
    clock, drained = VirtualClock(), []
    referee = Referee(fw.Problem(fw.Maximize("auc")), fw.Never())
    driver = Driver(0, referee, clock, drain=drained.append)
    driver.settle(driver.measure({"auc": 0.5}))
    assert drained == []
    clock.now += 1_000_000_001
    driver.settle(driver.measure({"auc": 0.6}))
    assert drained == [driver.batch]


class TestOnceAtTheEnd:
    def test_the_last_state_is_checked_where_no_checkpoint_is_handed_over(self, make_study):
        study = make_study(fw.ACE(interval="end"))
        decisions = run_curves(study, [[(0.5, {"eod": 0.1}), (0.9, {"eod": 0.4}), (0.7, {"eod": 0.2})]])[0]
        assert study.best.step == 3
        assert [decision.best for decision in decisions] == [False, False, True]

    def test_the_best_checkpoint_is_checked_where_it_was_handed_over(self, make_study):
        study, called = make_study(fw.ACE(interval="end")), []
        trial = study.ask()
        for step, auc in zip(trial.steps(3), (0.5, 0.9, 0.7), strict=True):
            decision = trial.report(auc=auc, eod=lambda model: called.append(model) or 0.2, checkpoint=f"model {step}")
        study.tell(trial)
        assert called == ["model 2"]
        assert not decision.best  # it is not the state at hand that is best
        assert (study.costs.checks, study.costs.saved_checks) == (1, 2)
        assert (study.best.step, study.best.metrics) == (2, {"auc": 0.9, "eod": 0.2})
        assert study.trials[0].steps == 3

    def test_a_loop_that_ends_by_itself_is_checked_all_the_same(self, make_study):
        study = make_study(fw.ACE(interval="end"))
        trial = study.ask()
        for step in trial.steps(100):
            trial.report(auc=step / 10, eod=lambda: 0.2)
            if step == 4:
                break
        assert study.tell(trial)  # that made it the best: the time to save the model
        assert (study.best.step, study.costs.checks) == (4, 1)
        assert study.trials[0].feasible is True
        assert not study.tell(study.ask(), auc=0.1, eod=0.1)

    def test_a_loop_that_breaks_between_the_multiples_of_its_interval_is_checked_too(self, make_study):
        study = make_study(fw.ACE(interval=5))
        trial = study.ask()
        for step in trial.steps(100):
            trial.report(auc=step / 10, eod=lambda: 0.2)
            if step == 7:
                break
        study.tell(trial)
        assert (study.best.step, study.costs.checks, study.costs.saved_checks) == (7, 2, 5)

    def test_a_late_check_that_fails_does_not_stop_what_is_over(self, make_study):
        study = make_study(fw.ACE(interval="end", tolerance="hard"))
        trial = study.ask()
        for step in trial.steps(10):
            trial.report(auc=0.5, eod=lambda: 0.9)
            if step == 3:
                break
        study.tell(trial)
        assert (trial.status, trial.stopped) == ("completed", False)
        assert all(event.stop_reason is None for event in reported(study))
        assert study.trials[0].feasible is False

    def test_a_state_that_is_gone_is_not_checked(self, make_study):
        study = make_study(fw.Never(interval="end"))
        trial = study.ask()
        for step in trial.steps(4):  # only the first report offers the constraint
            trial.report(
                {"auc": step / 10, **({"eod": lambda: pytest.fail("checked another state")} if step == 1 else {})}
            )
        study.tell(trial)
        trial = study.ask()
        for step in trial.steps(15):  # training goes on after the last report
            if step % 10 == 0:
                trial.report(auc=0.5, eod=lambda: pytest.fail("checked another state"))
        study.tell(trial)
        assert [trial.feasible for trial in study.trials] == [None, None]

    def test_a_stopped_trial_is_not_checked(self, make_study):
        study = make_study(fw.ACE(truncation=0.5, interval="end"))
        run_curves(study, [[(0.9, {"eod": 0.1})] * 2] * 4)
        paid = study.costs.checks
        run_curves(study, [[(0.1, {"eod": 0.1})] * 2])
        assert study.trials[-1].status == "stopped"
        assert study.costs.checks == paid
        assert study.trials[-1].feasible is None

    def test_what_cannot_be_the_best_is_not_checked(self, make_study):
        study = make_study(fw.Never(interval="end"))
        run_curves(study, [[(0.9, {"eod": 0.1})], [(0.8, {"eod": 0.1})]])
        assert study.costs.checks == 1


def test_a_nan_or_infinite_objective_fails_the_trial_and_the_study_goes_on(make_study):
    for broken in (math.nan, math.inf, -math.inf):
        study = make_study()
        trial, steps = study.ask(), 0
        for _ in trial.steps(5):
            steps += 1
            decision = trial.report(auc=broken, eod=0.1)
        study.tell(trial)
        assert steps == 1
        assert decision.stop
        assert decision.reason == f"auc is {broken} at step 1"
        assert (study.trials[0].status, study.trials[0].reason) == ("failed", decision.reason)
        study.tell(study.ask(), auc=0.5, eod=0.1)
        assert study.best.number == 1


def test_the_time_of_a_callable_objective_is_training(timed):
    study, clock = timed()

    def auc():
        clock.now += 500
        return 0.5

    study.tell(study.ask(), auc=auc, eod=0.1)
    assert study.costs.training_seconds == 500e-9


@pytest.mark.parametrize(
    ("metrics", "step", "sentence"),
    [
        ({"eod": 0.1}, None, "trial 0: the objective 'auc' is missing from the report, which has 'eod'"),
        ({"auc": 0.6, "loss": 0.1}, None, "metric 'loss' was not declared"),
        ({"auc": 0.6}, 0, "step 0 is too low"),
        ({"auc": 0.6}, 2, "step 2 was reported already"),
        ({"auc": 0.6}, 1, "step 1 comes after step 2"),
        ({"auc": 0.6}, 6, "step 6 is past the last one, 5"),
    ],
)
def test_a_report_that_is_refused_leaves_the_trial_as_it_was(make_study, metrics, step, sentence):
    study = make_study()
    trial = study.ask()
    trial.steps(5)
    trial.report(auc=0.5, eod=0.1, step=2)
    with pytest.raises(fw.UsageError, match=sentence):
        trial.report(metrics, step=step)
    study.tell(trial)
    assert (study.trials[0].steps, study.best.step) == (1, 2)


def test_a_constraint_that_raises_is_named_and_what_was_measured_is_kept(make_study):
    study = make_study()
    trial = study.ask()
    with pytest.raises(ZeroDivisionError) as caught:
        trial.report(auc=0.6, eod=lambda model: 1 / 0, checkpoint="model")
    where = "raised by constraint 'eod' of trial 0 at step 1, called with the checkpoint"
    assert caught.value.__notes__ == [where]
    study.tell(trial)
    assert study.trials[0].metrics == {"auc": 0.6, "eod": None}


def test_no_report_is_taken_inside_a_check_nor_after_the_end(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    trial = study.ask()
    with pytest.raises(fw.UsageError, match="it does not report or tell"):
        trial.report(auc=0.5, eod=lambda: trial.report(auc=0.9))
    trial.report(auc=0.5, eod=0.9)
    with pytest.raises(fw.UsageError, match=r"trial 0 is over at step 2 \(eod 0\.9 > 0\.25"):
        trial.report(auc=0.6, eod=0.1)
    study.tell(trial)
    with pytest.raises(fw.UsageError, match=r"trial 0 was told already \(stopped\)"):
        trial.report(auc=0.6)


def test_checks_are_called_until_one_is_violated_and_timed():
    clock, called = VirtualClock(), []
    problem = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25), fw.AtLeast("gain", 0.1)])
    driver = Driver(0, Referee(problem, fw.Never()), clock)

    def measured(name, value):
        def measure():
            clock.now += 10
            called.append(name)
            return value

        return measure

    observation = driver.measure({"auc": 0.5, "eod": measured("eod", 0.4), "gain": measured("gain", 0.5)})
    assert called == ["eod"]
    assert (observation.values, observation.prices) == ([0.4, None], [10, SAVED])


def test_a_check_that_raises_is_neither_paid_nor_saved():
    def fail():
        raise ZeroDivisionError

    driver = Driver(0, Referee(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]), fw.Never()), VirtualClock())
    with pytest.raises(ZeroDivisionError) as caught:
        driver.measure({"auc": 0.5, "eod": fail})
    assert caught.value.__notes__ == ["raised by constraint 'eod' of trial 0 at step 1"]
    assert driver.batch.event().check_ns.tolist() == [[ABSENT]]
