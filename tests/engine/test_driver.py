"""The door for everything that runs trials without being the user."""

from __future__ import annotations

import pytest

import fairway as fw
from fairway.engine.clock import VirtualClock
from fairway.engine.driver import Driver
from fairway.engine.referee import Referee


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
