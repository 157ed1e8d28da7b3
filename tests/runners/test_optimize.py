from __future__ import annotations

import json
import logging
import math

import pytest

import fairway as fw
from fairway.engine.clock import VirtualClock
from tests.conftest import SPACE


def evaluate(trial):
    x = trial.params["x"]
    return {"auc": x, "eod": x / 2}


class TestOptimize:
    def test_a_function_that_returns_its_metrics(self, make_study):
        study = make_study()
        study.optimize(evaluate, trials=30)
        assert len(study.trials) == 30
        assert 0.25 < study.best.metrics["auc"] <= 0.5
        assert study.ended == "30 trials were run"

    def test_a_function_that_returns_one_number(self):
        study = fw.Study(SPACE, fw.Minimize("loss"), seed=0)
        study.optimize(lambda trial: (trial.params["x"] - 0.3) ** 2, trials=30)
        assert abs(study.best.params["x"] - 0.3) < 0.1

    def test_a_loop_that_reports_and_ends_by_itself(self, make_study):
        study, steps = make_study(fw.ACE(interval=1, tolerance="hard")), []

        def train(trial):
            for step in trial.steps(10):
                steps.append((trial.number, step))
                trial.report(auc=step / 10, eod=lambda step=step: step / 10)

        study.optimize(train, trials=2)
        assert steps == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
        assert study.best.metrics == {"auc": 0.2, "eod": 0.2}
        assert study.counts == {"running": 0, "completed": 0, "stopped": 2, "failed": 0}

    def test_an_exception_fails_its_trial_and_the_study_goes_on(self, make_study, caplog):
        study = make_study()

        def sometimes(trial):
            if trial.number % 2:
                raise RuntimeError("no luck")
            return evaluate(trial)

        with caplog.at_level(logging.WARNING, "fairway"):
            study.optimize(sometimes, trials=10)
        assert study.counts["failed"] == 5
        assert study.trials[1].reason == "RuntimeError: no luck"
        assert "trial 1 failed: RuntimeError: no luck" in caplog.text

    def test_a_constraint_that_raises_fails_its_trial_with_its_name(self, make_study):
        study = make_study()

        def train(trial):
            trial.report(auc=0.5 + trial.number / 10, eod=(lambda: 1 / 0) if trial.number else (lambda: 0.1))

        study.optimize(train, trials=3)
        assert study.counts["failed"] == 2
        assert (
            study.trials[2].reason
            == "ZeroDivisionError: division by zero, raised by constraint 'eod' of trial 2 at step 1"
        )
        assert study.trials[2].metrics == {"auc": 0.7, "eod": None}

    @pytest.mark.parametrize("backend", ["thread", "process"])
    def test_a_failed_trial_says_which_line_of_the_users_code_raised(self, make_study, backend):
        study = make_study()

        def sometimes(trial):
            return evaluate(trial) if trial.number != 1 else json.loads("{no json")

        study.optimize(sometimes, trials=3, backend=backend)
        line = sometimes.__code__.co_firstlineno + 1
        source = 'return evaluate(trial) if trial.number != 1 else json.loads("{no json")'
        assert study.trials[1].traceback == f"{__file__}, line {line}, in sometimes: {source}"
        assert [trial.traceback for trial in (study.trials[0], study.trials[2])] == ["", ""]

    def test_raise_on_failure_ends_the_run_with_the_users_exception(self, make_study):
        study = make_study()

        def third_fails(trial):
            if trial.number == 2:
                raise RuntimeError("no luck")
            return evaluate(trial)

        with pytest.raises(RuntimeError, match="no luck"):
            study.optimize(third_fails, trials=10, raise_on_failure=True)
        assert [trial.status for trial in study.trials] == ["completed", "completed", "failed"]
        assert study.ended == study.trials[2].reason == "RuntimeError: no luck"
        study.optimize(evaluate, trials=1, raise_on_failure=True)
        assert study.trials[3].status == "completed"

    def test_raise_on_failure_names_a_failure_without_an_exception(self, make_study):
        study = make_study()
        study.optimize(evaluate, trials=1)
        with pytest.raises(fw.StudyFailed, match="trial 1 failed: auc is nan at step 1"):
            study.optimize(lambda trial: {"auc": float("nan"), "eod": 0.1}, trials=9, raise_on_failure=True)
        assert len(study.trials) == 2

    def test_a_function_that_never_works_is_given_up_on(self, make_study):
        study = make_study()
        with pytest.raises(
            fw.StudyFailed, match="3 trials failed and none succeeded; the last one: KeyError: 'depth'"
        ) as caught:
            study.optimize(lambda trial: trial.params["depth"], trials=100)
        assert isinstance(caught.value.__cause__, KeyError)
        assert len(study.trials) == 3

    def test_a_function_that_worked_before_is_not_given_up_on(self, make_study):
        study = make_study()
        study.optimize(evaluate, trials=2)
        study.optimize(lambda trial: 1 / 0, trials=5)
        assert study.counts["failed"] == 5

    def test_a_function_that_no_longer_works_is_given_up_on_later(self, make_study):
        study = make_study()
        study.optimize(evaluate, trials=2)
        with pytest.raises(fw.StudyFailed, match="10 trials failed in this run and none succeeded; the last one: Zero"):
            study.optimize(lambda trial: 1 / 0, trials=100)
        assert study.counts["failed"] == 10

    def test_a_mistake_fails_its_trial_only_once_a_trial_of_the_same_run_has_succeeded(self, make_study):
        study = make_study()
        study.optimize(evaluate, trials=2)
        with pytest.raises(fw.UsageError, match="'auc' is missing"):
            study.optimize(lambda trial: {"acc": 1.0}, trials=9)
        assert study.counts["failed"] == 1
        study.optimize(lambda trial: evaluate(trial) if trial.number < 5 else {"acc": 1.0}, trials=4)
        assert study.counts["failed"] == 3

    def test_a_function_that_only_measures_nan_is_given_up_on(self, make_study):
        with pytest.raises(fw.StudyFailed, match="the last one: auc is nan at step 1"):
            make_study().optimize(lambda trial: {"auc": float("nan"), "eod": 0.1}, trials=10)

    def test_plain_evaluations_are_never_stopped(self, make_study):
        study = make_study()
        study.optimize(evaluate, trials=50)
        assert study.counts["completed"] == 50
        assert not study.history.partial.any()

    def test_lazy_constraints_of_plain_evaluations_are_paid_whatever_the_interval(self, make_study):
        for interval in (1, 5, "end", "adaptive"):
            study = make_study(fw.ACE(interval=interval))
            study.optimize(lambda trial: {"auc": trial.params["x"], "eod": lambda: 0.1}, trials=5)
            assert study.best.metrics["auc"] == max(trial.params["x"] for trial in study.trials)

    def test_what_is_not_to_be_caught_is_raised_with_the_trial_told(self, make_study):
        study = make_study()
        with pytest.raises(ZeroDivisionError):
            study.optimize(lambda trial: 1 / 0, trials=5, catch=KeyError)
        assert study.trials[0].status == "failed"

    def test_a_mistake_in_the_call_is_raised_at_once(self, make_study):
        study = make_study()
        with pytest.raises(fw.UsageError, match="metric 'acc' was not declared"):
            study.optimize(lambda trial: {"auc": 0.5, "acc": 1.0}, trials=5)
        assert [trial.status for trial in study.trials] == ["failed"]
        study.optimize(evaluate, trials=2)
        assert len(study.trials) == 3

    @pytest.mark.parametrize(
        ("result", "sentence"),
        [
            (None, "reported nothing and returned nothing: return {'auc': ..., 'eod': ...} or report"),
            (0.5, "a dict with auc, eod is expected"),
            ([0.5, 0.1], "a dict with auc, eod is expected"),
            ({"eod": 0.1}, "the objective 'auc' is missing"),
        ],
    )
    def test_a_bad_return_value_gets_one_clear_sentence(self, make_study, result, sentence):
        with pytest.raises(fw.UsageError, match=sentence):
            make_study().optimize(lambda trial: result, trials=1)

    def test_a_loop_that_reports_returns_nothing(self, make_study):
        def train(trial):
            trial.report(auc=0.5, eod=0.1)
            return {"auc": 0.5}

        with pytest.raises(fw.UsageError, match="a loop that reports returns nothing, or its model"):
            make_study().optimize(train, trials=1)

    @pytest.mark.parametrize(
        "more",
        [
            {},
            {"trials": 0},
            {"trials": 1.5},
            {"timeout": -1},
            {"timeout": True},
            {"trials": 1, "trial_timeout": 0},
            {"trials": 1, "catch": [KeyError]},
        ],
    )
    def test_a_run_needs_an_end_that_makes_sense(self, make_study, more):
        with pytest.raises(fw.UsageError):
            make_study().optimize(evaluate, **more)

    def test_the_timeout_ends_the_run_and_a_second_call_goes_on(self, make_study):
        study = make_study()
        study.owner.clock = clock = VirtualClock()

        def train(trial):
            for _ in trial.steps():
                clock.now += 10_000_000
                trial.report(auc=0.5, eod=0.1)

        study.optimize(train, timeout=0.05)
        assert [trial.steps for trial in study.trials] == [6]
        assert study.ended == "the timeout of 0.05 s has passed"
        assert study.trials[-1].reason == "the timeout of 0.05 s has passed"
        study.optimize(evaluate, trials=1)
        assert study.ended == "1 trial was run"

    def test_a_trial_timeout_ends_a_trial_at_its_next_report(self, make_study):
        study = make_study(fw.ACE(interval="end"))
        study.owner.clock = clock = VirtualClock()

        def train(trial):
            for _ in trial.steps(100):
                clock.now += 2_000_000
                trial.report(auc=0.5, eod=lambda: 0.1)

        study.optimize(train, trials=2, trial_timeout=0.01)
        assert [trial.steps for trial in study.trials] == [6, 6]
        assert study.trials[0].feasible is True  # what ran out of time is still checked at its end
        assert study.last_stop == ""  # the stopper did not do it
        assert {trial.reason for trial in study.trials} == {"longer than trial_timeout=0.01 s"}
        assert study.counts["stopped"] == 2

    def test_endless_limits_are_no_limits(self, make_study):
        study = make_study()
        study.optimize(evaluate, trials=2, timeout=math.inf, trial_timeout=math.inf)
        assert study.counts["completed"] == 2

    def test_ctrl_c_inside_the_sampler_ends_the_run_too(self):
        class Interrupted(fw.Sampler):
            def propose(self, history, rng):
                raise KeyboardInterrupt

        study = fw.Study(SPACE, fw.Maximize("auc"), sampler=Interrupted(), seed=0)
        with pytest.raises(KeyboardInterrupt):
            study.optimize(evaluate, trials=3)
        assert study.ended == "interrupted"

    def test_an_error_that_ends_the_run_is_written_down(self, make_study):
        study = make_study()
        with pytest.raises(fw.UsageError):
            study.optimize(lambda trial: None, trials=3)
        assert study.ended.startswith("UsageError: trial 0 reported nothing")

    @pytest.mark.parametrize("backend", [None, "thread"])
    def test_ctrl_c_is_raised_when_all_is_written_down_and_says_what_was_found(self, make_study, backend):
        study = make_study()

        def interrupted(trial):
            if trial.number == 2:
                raise KeyboardInterrupt
            return evaluate(trial)

        with pytest.raises(KeyboardInterrupt) as raised:
            study.optimize(interrupted, trials=10, backend=backend)
        kept = "fairway: the study keeps 3 trials, and the best is trial 1: auc 0.04543, eod 0.02272"
        assert raised.value.__notes__ == [f"{kept}; study.optimize continues"]
        assert study.ended == "interrupted"
        assert [trial.status for trial in study.trials] == ["completed", "completed", "failed"]
        assert study.trials[2].reason == "interrupted"
        assert study.counts["running"] == 0


def test_a_trial_that_fails_by_its_objective_is_told_like_one_that_raises(caplog):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), seed=0)
    study.optimize(lambda trial: math.nan if trial.number == 1 else 0.5, trials=3)
    assert caplog.messages.count("trial 1 failed: auc is nan at step 1") == 1
