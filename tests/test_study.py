from __future__ import annotations

import logging
import math
import subprocess
import sys
import threading

import numpy as np
import pytest

import fairway as fw
from fairway.engine.clock import VirtualClock
from fairway.errors import MissingDependency
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, run_curves


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
        study.optimize(lambda trial: {"acc": 1.0}, trials=1)  # a mistake that comes late fails its trial only
        assert study.counts["failed"] == 6

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
        study._owner.clock = clock = VirtualClock()

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
        study._owner.clock = clock = VirtualClock()

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
        study.optimize(evaluate, trials=3)
        assert study.ended == "interrupted"

    def test_an_error_that_ends_the_run_is_written_down(self, make_study):
        study = make_study()
        with pytest.raises(fw.UsageError):
            study.optimize(lambda trial: None, trials=3)
        assert study.ended.startswith("UsageError: trial 0 reported nothing")

    def test_ctrl_c_ends_the_run_and_keeps_what_was_told(self, make_study):
        study = make_study()

        def interrupted(trial):
            if trial.number == 2:
                raise KeyboardInterrupt
            return evaluate(trial)

        study.optimize(interrupted, trials=10)
        assert study.ended == "interrupted"
        assert [trial.status for trial in study.trials] == ["completed", "completed", "failed"]
        assert study.trials[2].reason == "interrupted"
        assert study.counts["running"] == 0


class TestAskAndTell:
    def test_ask_several(self, make_study):
        trials = make_study().ask(3)
        assert [trial.number for trial in trials] == [0, 1, 2]
        assert len({trial.params["x"] for trial in trials}) == 3
        assert len({trial.seed for trial in trials}) == 3

    def test_enqueued_configurations_run_first_and_in_order(self, make_study):
        study = make_study()
        study.enqueue({"x": 0.25})
        study.enqueue({"x": 0.75})
        assert [trial.params["x"] for trial in study.ask(2)] == [0.25, 0.75]
        assert study.ask().params["x"] not in (0.25, 0.75)
        with pytest.raises(fw.UsageError, match="parameter 'x': 2"):
            study.enqueue({"x": 2})

    def test_what_waits_in_the_queue_survives(self, make_study):
        study = make_study()
        study.enqueue({"x": 0.25})
        study.enqueue({"x": 0.75})
        study.ask()
        assert make_study(storage=study.log).ask().params["x"] == 0.75

    @pytest.mark.parametrize("n", [0, -1, 1.5, True])
    def test_ask_for_nonsense(self, make_study, n):
        with pytest.raises(fw.UsageError, match="a whole number of at least 1"):
            make_study().ask(n)

    def test_telling_twice_a_foreign_trial_or_nothing(self, make_study):
        study, other = make_study(), make_study()
        trial = study.ask()
        with pytest.raises(fw.UsageError, match="belongs to another study"):
            other.tell(trial, auc=0.5)
        with pytest.raises(fw.UsageError, match="trial 0 reported nothing"):
            study.tell(trial)
        with pytest.raises(fw.UsageError, match="not both"):
            study.tell(trial, auc=0.5, failed="why")
        study.tell(trial, auc=0.5, eod=0.1)
        with pytest.raises(fw.UsageError, match="told already"):
            study.tell(trial, auc=0.6)
        with pytest.raises(fw.UsageError, match="the Trial that ask"):
            study.tell(0, auc=0.6)
        assert study.best.metrics == {"auc": 0.5, "eod": 0.1}
        assert len(study.trials) == 1

    def test_the_same_seed_gives_the_same_study(self, make_study):
        def run():
            study = make_study(fw.ACE(interval=1))
            study.optimize(evaluate, trials=20)
            return [(trial.params, trial.metrics, trial.status) for trial in study.trials]

        assert run() == run()

    def test_a_fresh_seed_is_shown_and_repeats_the_study(self):
        study = fw.Study(SPACE, fw.Minimize("loss"))
        assert f"seed={study.seed}" in repr(study)
        again = fw.Study(SPACE, fw.Minimize("loss"), seed=study.seed)
        assert study.ask().params == again.ask().params

    @pytest.mark.parametrize(
        ("more", "sentence"),
        [
            ({"stopper": fw.ACE}, r"stopper=.*: a stopper is expected; did you mean ACE\(\)\?"),
            ({"sampler": "random"}, "a sampler is expected"),
            ({"storage": 3}, "a storage is expected"),
            ({"seed": -1}, "seed=-1"),
            ({"seed": 1.5}, "seed=1.5"),
        ],
    )
    def test_a_bad_study_gets_one_clear_sentence(self, more, sentence):
        with pytest.raises(fw.UsageError, match=sentence):
            fw.Study(SPACE, fw.Minimize("loss"), **more)


class Unreliable(MemoryLog):
    """A log whose disk is full now and then."""

    def __init__(self):
        super().__init__()
        self.full = False

    def append(self, events):
        if self.full:
            self.full = False
            raise OSError(28, "No space left on device")
        return super().append(events)


class TestAFullDisk:
    @pytest.mark.parametrize("reported", [False, True])
    def test_a_tell_that_could_not_be_written_may_be_tried_again(self, make_study, reported):
        study = make_study(storage=Unreliable())
        trial = study.ask()
        trial.report(auc=0.5, eod=0.1)
        if reported:
            trial._flush()
        study.log.full = True
        with pytest.raises(fw.StorageError, match=r"could not be written \(.*No space left on device\)"):
            study.tell(trial)
        assert trial.status == "running"
        study.tell(trial)
        assert study.trials[0].metrics == {"auc": 0.5, "eod": 0.1}
        assert make_study(storage=study.log).best == study.best

    def test_a_run_ends_with_the_error_and_goes_on_later(self, make_study):
        study = make_study(storage=Unreliable())

        def fill(trial):
            study.log.full = trial.number == 2
            return evaluate(trial)

        with pytest.raises(fw.StorageError):
            study.optimize(fill, trials=10)
        assert study.counts == {"running": 0, "completed": 2, "stopped": 0, "failed": 1}
        study.optimize(evaluate, trials=2)
        assert study.counts["completed"] == 4


class TestOpening:
    @pytest.mark.parametrize(
        ("other", "sentence"),
        [
            ({"space": {"y": fw.Float(0, 1)}}, "has another space: x 'Float' there, missing here"),
            ({"objective": fw.Minimize("auc")}, "has another objective: kind 'Maximize' there, 'Minimize' here"),
            ({"constraints": ()}, r"has another constraints: \['eod'\] there, \[\] here"),
            (
                {"constraints": fw.AtMost("eod", 0.3)},
                "constraints: threshold 0.25 there, 0.3 here; give this one another name",
            ),
            ({"seed": 5}, "has seed 3; leave seed out"),
        ],
    )
    def test_a_log_of_another_study_is_refused(self, other, sentence):
        parts = {"space": SPACE, "objective": fw.Maximize("auc"), "constraints": [fw.AtMost("eod", 0.25)], "seed": 3}
        log = fw.Study(**parts).log
        with pytest.raises(fw.UsageError, match=sentence):
            fw.Study(**{**parts, **other}, storage=log)
        assert fw.Study(**{**parts, "seed": None}, storage=log, stopper=fw.Never()).seed == 3


def test_threads_may_share_a_study(make_study):
    study = make_study(fw.ACE(interval=1))

    def work():
        for _ in range(50):
            trial = study.ask()
            for step in trial.steps(5):
                trial.report(auc=trial.params["x"] * step, eod=lambda: 0.1)
            study.tell(trial)

    threads = [threading.Thread(target=work) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert [trial.number for trial in study.trials] == list(range(200))
    assert study.counts["running"] == study.counts["failed"] == 0
    assert make_study(fw.ACE(interval=1), storage=study.log).trials == study.trials


def test_what_a_user_does_with_a_result_does_not_reach_the_log(make_study):
    study = make_study()
    trial, kept = study.ask(), [1]
    trial.note(kept=kept)
    study.tell(trial, auc=0.5, eod=0.1)
    study.best.params.clear()
    study.trials[0].params.clear()
    study.trials[0].notes.clear()
    trial.params.clear()
    kept.append(2)
    with pytest.raises(fw.UsageError, match="takes no more notes"):
        trial.note(late=True)
    assert study.best.params == study.trials[0].params != {}
    assert study.trials[0].notes == {"kept": [1]}


class TestWherePeersFail:
    """Failures of existing tools, measured, that fairway must not repeat."""

    @pytest.mark.parametrize(
        "stopper", [fw.ACE(), fw.ACE(interval=1), fw.ACE(interval=1, skip=False), fw.ASHA(strata=True)]
    )
    def test_after_20_infeasible_trials_with_a_good_objective_the_first_feasible_one_is_not_stopped(
        self, make_study, stopper
    ):
        study = make_study(stopper)
        study._owner.clock = VirtualClock()
        run_curves(study, [[(0.9, {"eod": 0.5})] * 20] * 20)
        run_curves(study, [[(0.6, {"eod": 0.1})] * 20])
        assert study.trials[-1].status == "completed"
        assert study.best.number == 20

    def test_a_trial_stopped_before_its_constraint_was_paid_is_not_counted_as_feasible(self, make_study):
        study = make_study(fw.ACE(truncation=0.5, interval="end"))
        run_curves(study, [[(0.5, {"eod": 0.1})] * 3] * 4 + [[(0.1, {"eod": 0.1})] * 3])
        assert study.trials[-1].status == "stopped"
        assert study.trials[-1].feasible is None
        assert study.history.feasible.tolist()[-1] is False
        assert study.history.unknown.tolist()[-1] is True

    def test_a_constraint_value_of_exactly_0_is_a_value(self, make_study):
        study = make_study(constraints=[fw.AtLeast("recall", 0.5)], stopper=fw.Never())
        study.tell(study.ask(), auc=0.9, recall=0)
        assert study.best is None
        assert study.trials[0].feasible is False
        study = make_study()
        study.tell(study.ask(), auc=0.9, eod=0)
        assert study.best.metrics["eod"] == 0.0

    def test_best_is_never_infeasible(self, make_study):
        study = make_study()
        study.tell(study.ask(), auc=0.9, eod=0.9)
        assert study.best is None
        assert study.best_ignoring_limits.metrics == {"auc": 0.9, "eod": 0.9}
        study.tell(study.ask(), auc=0.2, eod=0.2)
        assert study.best.metrics["auc"] == 0.2


def test_costs_say_what_was_spent_and_saved(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    run_curves(study, [[(0.5, {"eod": 0.1})] * 4, [(0.4, {"eod": 0.1})] * 3 + [(0.6, {"eod": 0.9})] * 7])
    costs = study.costs
    assert (costs.checks, costs.saved_checks) == (5, 3)
    assert costs.saved_training_seconds > 0
    assert costs.training_seconds > 0


def test_to_frame_has_a_row_a_trial(make_study):
    study = make_study(fw.Never())
    assert study.to_frame().empty
    study.optimize(evaluate, trials=3)
    frame = study.to_frame()
    assert frame.index.tolist() == [0, 1, 2]
    assert frame["param.x"].tolist() == frame["metric.auc"].tolist()
    assert set(frame["status"]) == {"completed"}


def test_to_frame_without_pandas_says_how_to_install_it(make_study, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependency, match="pip install pandas"):
        make_study().to_frame()


def test_every_public_name_is_there_and_documented_with_an_example():
    assert len(set(fw.__all__) - {"__version__"}) <= 40
    assert set(fw._HOME) | {"__version__"} == set(fw.__all__) == set(dir(fw))
    for name in set(fw.__all__) - {"__version__"}:
        assert ">>> " in (getattr(fw, name).__doc__ or ""), name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = fw.Nothing


def test_importing_fairway_imports_no_optional_or_heavy_part():
    code = "import sys, fairway, fairway.study; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for heavy in ("pandas", "lightgbm", "scipy", "rich", "matplotlib", "optuna", "sklearn"):
        assert heavy not in loaded


def test_numbers_of_other_kinds_are_stored_and_what_is_known_of_the_best_value_may_change(tmp_path):
    url, space = f"sqlite:///{tmp_path / 'study.db'}", {"x": fw.Float(0.0, 1.0)}
    limits = [fw.AtMost("eod", np.float32(0.25), scale=np.int64(2))]
    fw.Study(space, fw.Maximize("auc", best=np.int64(1)), limits, storage=url, seed=0)
    again = fw.Study(space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25, scale=2.0)], storage=url)
    assert again.seed == 0
