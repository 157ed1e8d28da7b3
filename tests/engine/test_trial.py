from __future__ import annotations

import math
import threading

import pytest

import fairway as fw
from fairway.engine.events import Reported
from fairway.engine.referee import Referee
from fairway.engine.verify import verify
from tests.conftest import run_curves
from tests.engine.logs import reported

TWO = (fw.AtMost("eod", 0.25), fw.AtMost("ms", 10.0))


def test_a_trial_measures_training_and_each_constraint_apart(timed):
    study, clock = timed(fw.ACE(interval=1, skip=False), constraints=TWO)

    def check(ns, value):
        clock.now += ns
        return value

    trial = study.ask()
    for _ in trial.steps(2):
        clock.now += 1000
        trial.report(auc=0.5, eod=lambda: check(30, 0.1), ms=lambda: check(7, 5.0))
    study.tell(trial)
    (event,) = reported(study)
    assert event.train_ns.tolist() == [1000, 1000]
    assert event.check_ns.tolist() == [[30, 7], [30, 7]]
    assert study.costs.training_seconds == 2e-6
    assert study.costs.check_seconds == pytest.approx(74e-9)
    assert study.owner.referee.cost_ratio() == pytest.approx(37 / 1000)


def test_adaptive_checks_at_the_end_until_a_price_is_known_then_by_theorem_1(timed):
    study, clock = timed(fw.ACE(truncation=0.5))

    def run(total, price):
        trial = study.ask()
        for _ in trial.steps(total):
            clock.now += 1000

            def eod():
                clock.now += price
                return 0.1

            decision = trial.report(auc=0.5, eod=eod)
        study.tell(trial)
        return decision.interval

    assert run(40, price=20_000) == 40  # nothing known: one check, at the end
    assert study.costs.checks == 1
    assert run(21, price=20_000) == 21  # r = 20, p = 0.5: the end up to T = 21
    assert run(22, price=20_000) == 1


def test_without_a_total_every_step_may_be_checked(make_study):
    study = make_study(fw.ACE())
    trial = study.ask()
    for step in trial.steps():
        assert trial.report(auc=step / 10, eod=lambda: 0.1).interval == 1
        if step == 3:
            break
    study.tell(trial)
    assert study.costs.checks == 3


def test_a_fixed_interval_checks_its_multiples_and_the_last_step(make_study):
    study = make_study(fw.ACE(interval=3))
    run_curves(study, [[(k / 10, {"eod": 0.1}) for k in range(8)]])
    (event,) = reported(study)
    assert event.step[event.check_ns[:, 0] > 0].tolist() == [3, 6, 8]
    assert study.costs.saved_checks == 5


def test_the_skip_rule_pays_only_for_what_could_be_the_best(make_study):
    study = make_study(fw.Never())
    run_curves(study, [[(0.5, {"eod": 0.1})], [(0.4, {"eod": 0.1}), (0.5, {"eod": 0.2}), (0.6, {"eod": 0.4})]])
    _, second = reported(study)
    assert (second.check_ns[:, 0] > 0).tolist() == [False, True, True]  # as good as the best counts


class TestSeveralConstraints:
    def test_the_rest_are_not_called_once_one_is_violated(self, make_study):
        study, called = make_study(fw.Never(skip=False), constraints=TWO), []
        trial = study.ask()
        trial.report(auc=0.5, eod=lambda: called.append("eod") or 0.4, ms=lambda: called.append("ms") or 5.0)
        study.tell(trial)
        assert called == ["eod"]
        assert study.trials[0].metrics == {"auc": 0.5, "eod": 0.4, "ms": None}
        assert study.trials[0].feasible is False

    def test_with_an_adaptive_interval_the_likeliest_to_break_per_second_is_called_first(self, timed):
        study, clock = timed(fw.Never(skip=False, interval="adaptive"), constraints=TWO)
        called = []

        def check(name, ns, value):
            called.append(name)
            clock.now += ns
            return value

        trial = study.ask()
        for _ in range(3):
            trial.report(auc=0.5, eod=lambda: check("eod", 1000, 0.1), ms=lambda: check("ms", 10, 5.0))
        assert called == ["eod", "ms", "ms", "eod", "ms", "eod"]

    def test_a_given_value_that_is_violated_saves_the_calls(self, make_study):
        study = make_study(fw.Never(), constraints=TWO)
        study.tell(study.ask(), auc=0.1, ms=1.0, eod=lambda: 0.1)
        study.tell(study.ask(), auc=0.5, ms=50.0, eod=lambda: pytest.fail("called"))
        assert study.trials[1].feasible is False

    @pytest.mark.parametrize(
        ("stopper", "paid"),
        [(fw.Never(interval="end"), [10]), (fw.Never(interval=5), [5, 10]), (fw.Never(skip=False), list(range(1, 11)))],
    )
    @pytest.mark.parametrize("given", [{"ms": 1.0}, {}])
    def test_given_and_missing_ones_leave_interval_and_skip_to_the_lazy_ones(self, make_study, stopper, paid, given):
        study, called = make_study(stopper, constraints=TWO), []
        trial = study.ask()
        for step in trial.steps(10):
            trial.report({"auc": step / 10, "eod": lambda step=step: called.append(step) or 0.1, **given})
        study.tell(trial)
        assert called == paid

    def test_a_worse_objective_pays_for_no_lazy_one_beside_a_given_one(self, make_study):
        study = make_study(fw.Never(), constraints=TWO)
        study.tell(study.ask(), auc=0.9, eod=0.1, ms=1.0)
        study.tell(study.ask(), auc=0.5, eod=lambda: pytest.fail("called"), ms=1.0)
        assert study.trials[1].metrics == {"auc": 0.5, "eod": None, "ms": 1.0}

    @pytest.mark.parametrize("interval", ["adaptive", "end"])
    def test_a_given_limit_that_breaks_in_the_end_does_not_hide_what_was_feasible_before(self, timed, interval):
        study, clock = timed(fw.ACE(interval=interval), constraints=TWO)
        for _ in range(3):
            trial = study.ask()
            for step in trial.steps(20):  # from step 11 on, ms is beyond its limit
                clock.now += 1000
                trial.report(auc=step / 20, ms=float(step), eod=lambda _: 0.1, checkpoint=step)
            study.tell(trial)
        assert study.best.step == 10

    def test_the_first_price_is_learned_even_where_a_given_limit_is_broken(self, timed):
        study, clock = timed(fw.ACE(), constraints=TWO)
        intervals = []
        for _ in range(2):
            trial = study.ask()
            for step in trial.steps(20):
                clock.now += 1000
                decision = trial.report(auc=step / 20, ms=float(step), eod=lambda: 0.1)
            intervals.append(decision.interval)
            study.tell(trial)
        assert intervals == [20, 1]
        assert study.best.step == 10

    def test_a_late_check_is_not_made_where_a_given_value_is_violated(self, make_study):
        study = make_study(fw.Never(interval="end"), constraints=TWO)
        study.tell(study.ask(), auc=0.1, ms=1.0, eod=lambda: 0.1)  # so that the price is known
        trial = study.ask()
        for step in trial.steps(5):
            trial.report(auc=0.5, ms=50.0, eod=lambda: pytest.fail("called"))
            if step == 2:
                break
        study.tell(trial)
        assert [len(event.step) for event in reported(study)] == [1, 2]

    def test_some_hold_and_some_missing_is_unknown(self, make_study):
        study = make_study(fw.Never(), constraints=TWO)
        study.tell(study.ask(), auc=0.5, ms=5.0)
        assert study.trials[0].feasible is None
        assert study.best is None


def test_a_nan_constraint_is_infinitely_violated(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.9, eod=lambda: math.nan)
    assert study.best is None
    assert study.trials[0].feasible is False
    assert study.history.violation.tolist() == [math.inf]


def test_metrics_may_be_numpy_numbers_or_come_in_a_mapping(make_study):
    import numpy as np

    study = make_study(constraints=[fw.AtMost("equalized odds", 0.25)])
    study.tell(study.ask(), {"auc": np.float32(0.5), "equalized odds": np.float64(0.25)})
    assert study.best.metrics == {"auc": 0.5, "equalized odds": 0.25}


def test_notes_are_kept_with_the_trial(make_study):
    study = make_study()
    trial = study.ask()
    trial.note(path="models/7", rounds=[1, 2])
    study.tell(trial, auc=0.5, eod=0.1)
    assert study.trials[0].notes == {"path": "models/7", "rounds": [1, 2]}
    with pytest.raises(fw.UsageError, match="came; text, finite numbers"):
        study.ask().note(model=object())


def test_a_report_a_second_after_the_last_flush_sends_all_since_to_the_log(timed):
    study, clock = timed()
    trial, sizes = study.ask(), []
    for _ in trial.steps(7):
        clock.now += 400_000_000
        trial.report(auc=0.5, eod=0.1)
        sizes.append([len(event.step) for event in study.log.read() if isinstance(event, Reported)])
    assert sizes == [[], [], [3], [3], [3], [3, 3], [3, 3]]


class TestBadInput:
    """Each gets one clear sentence, and nothing reported before is lost."""

    @pytest.fixture
    def trial(self, make_study):
        self.study = make_study(fw.ACE(interval=1))
        trial = self.study.ask()
        trial.steps(5)
        trial.report(auc=0.5, eod=0.1)
        return trial

    def check_nothing_is_lost(self, trial):
        if trial.status == "running":
            self.study.tell(trial)
        assert self.study.trials[0].metrics == {"auc": 0.5, "eod": 0.1}
        assert self.study.best.metrics["auc"] == 0.5

    @pytest.mark.parametrize(
        ("metrics", "more", "sentence"),
        [
            ({"auc": 0.6, "loss": 0.1}, {}, "metric 'loss' was not declared: this study has auc, eod"),
            ({"eod": 0.6}, {}, "the objective 'auc' is missing"),
            ({"auc": "high"}, {}, "metric 'auc' is 'high': a number is expected"),
            ({"auc": 0.6, "eod": None}, {}, "metric 'eod' is None: a number is expected"),
            ({"auc": 0.6, "eod": lambda: "low"}, {}, "metric 'eod' is 'low': a number is expected"),
            ({"auc": 0.6}, {"step": 1}, "step 1 was reported already"),
            ({"auc": 0.6}, {"step": 0}, "step 0 is too low"),
            ({"auc": 0.6}, {"step": 9}, "step 9 is past the last one, 5"),
            ({"auc": 0.6}, {"step": 2.5}, "step=2.5: a whole number"),
            ({"auc": 10**400}, {}, "a number is expected"),
            ({"auc": "0.6"}, {}, "metric 'auc' is '0.6': a number is expected"),
            ({"auc": 0.6}, {"step": 2**63}, "is past the last one"),
            (0.6, {}, "they are given by name, as in auc=0.8"),
        ],
    )
    def test_a_bad_report(self, trial, metrics, more, sentence):
        with pytest.raises(fw.UsageError, match=sentence):
            trial.report(metrics, **more)
        self.check_nothing_is_lost(trial)

    def test_a_metric_given_twice(self, trial):
        with pytest.raises(fw.UsageError, match="'auc' came twice"):
            trial.report({"auc": 0.6}, auc=0.7)
        self.check_nothing_is_lost(trial)

    def test_a_report_after_the_end(self, trial):
        self.study.tell(trial)
        with pytest.raises(fw.UsageError, match=r"trial 0 was told already \(completed\)"):
            trial.report(auc=0.6)
        self.check_nothing_is_lost(trial)

    def test_a_report_after_the_stop(self, make_study):
        study = make_study(fw.ACE(interval=1, tolerance="hard"))
        trial = study.ask()
        trial.report(auc=0.5, eod=0.9)
        with pytest.raises(fw.UsageError, match=r"trial 0 is over at step 1 \(eod 0.9 > 0.25"):
            trial.report(auc=0.6, eod=0.1)
        study.tell(trial)
        assert study.trials[0].metrics == {"auc": 0.5, "eod": 0.9}

    def test_a_constraint_that_takes_an_argument_and_gets_none(self, trial):
        with pytest.raises(TypeError) as caught:
            trial.report(auc=0.6, eod=lambda model: model.eod)
        assert caught.value.__notes__[0].endswith(
            "called without arguments: report(..., checkpoint=model) has it called with the model"
        )

    def test_a_constraint_that_raises(self, trial):
        with pytest.raises(ZeroDivisionError) as caught:
            trial.report(auc=0.6, eod=lambda: 1 / 0)
        assert caught.value.__notes__ == ["raised by constraint 'eod' of trial 0 at step 2"]
        trial.report(auc=0.55, eod=lambda: 0.2)  # a user who catches it may go on
        self.study.tell(trial)
        assert self.study.best.step == 3

    def test_a_constraint_that_reports_or_tells(self, trial):
        for act in (lambda: trial.report(auc=0.9), lambda: self.study.tell(trial)):
            with pytest.raises(fw.UsageError, match="it does not report or tell"):
                trial.report(auc=0.5, eod=act)
        self.check_nothing_is_lost(trial)

    def test_a_refused_first_report_leaves_steps_to_be_called(self, make_study):
        trial = make_study().ask()
        with pytest.raises(fw.UsageError, match="not declared"):
            trial.report(auc=0.5, ouc=0.5)
        assert list(trial.steps(2)) == [1, 2]

    def test_tell_takes_metrics_by_name_and_once(self, trial):
        with pytest.raises(fw.UsageError, match="they are given by name"):
            self.study.tell(trial, 0.5)
        with pytest.raises(fw.UsageError, match="'auc' came twice"):
            self.study.tell(trial, {"auc": 0.5}, auc=0.7)
        self.check_nothing_is_lost(trial)

    def test_steps_called_twice_or_with_nonsense(self, make_study):
        trial = make_study().ask()
        for total, sentence in ((0, "at least 1"), (2.5, "a whole number")):
            with pytest.raises(fw.UsageError, match=sentence):
                trial.steps(total)
        trial.steps(3)
        with pytest.raises(fw.UsageError, match="called once"):
            trial.steps(3)


def test_a_verdict_is_sent_with_the_row_that_it_is_about(make_study, monkeypatch):
    study = make_study(fw.ACE(interval=1))
    referee, reason = study.owner.referee, Referee.reason

    def reason_while_another_thread_sends(*arguments):
        sender = threading.Thread(target=study.owner.journal.flush)
        sender.start()
        sender.join(0.2)  # it waits for us
        return reason(referee, *arguments)

    monkeypatch.setattr(referee, "reason", reason_while_another_thread_sends)
    run_curves(study, [[(auc / 100, {"eod": 0.5})] * 3 for auc in range(12, 0, -1)])
    assert study.counts["stopped"] > 5
    assert study.last_stop
    assert verify(study.log.read()).faults == []


def test_a_stopped_trial_never_runs_another_step(make_study):
    study, steps = make_study(fw.ACE(interval=1, tolerance="hard")), []
    trial = study.ask()
    for step in trial.steps(10):
        steps.append(step)
        trial.report(auc=0.5, eod=0.9 if step == 4 else 0.1)
    assert steps == [1, 2, 3, 4]
    assert trial.stopped
    assert repr(trial) == f"Trial(number=0, params={trial.params}, status='running')"
    study.tell(trial)
    assert repr(trial).endswith("status='stopped')")


def test_a_loop_that_is_told_from_inside_ends(make_study):
    study, steps = make_study(), []
    trial = study.ask()
    for step in trial.steps(10):
        steps.append(step)
        study.tell(trial, auc=0.5, eod=0.1)
    assert steps == [1]


def test_a_trial_that_was_cut_before_its_first_report_failed(timed):
    study, clock = timed()

    def train(trial):
        clock.now += 10**9
        return {"auc": 0.5, "eod": 0.1}

    study.optimize(train, trials=1, trial_timeout=0.5)
    assert study.trials[0].status == "completed"  # what it returned is its last word: nothing was left to cut
    trial = study.ask()
    trial.driver.cut("the end of the simulation")
    study.tell(trial)
    assert (study.trials[1].status, study.trials[1].reason) == ("failed", "the end of the simulation")
