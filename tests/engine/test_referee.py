from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.events import Reported, Told
from fairway.engine.measurement import Observation
from fairway.engine.referee import Referee
from tests.conftest import run_curves
from tests.engine.logs import acts_up_to, live, stoppers


@given(stoppers, acts_up_to(60), st.randoms())
def test_referees_agree_in_whatever_order_trials_reach_them(stopper, acts, random):
    study = live(stopper, acts)
    by_trial = {}
    for event in study.log.read():
        if isinstance(event, Reported):
            by_trial.setdefault(event.number, []).append(event)
    states = []
    for _ in range(2):
        numbers = list(by_trial)
        random.shuffle(numbers)
        referee = Referee(study.problem, stopper)
        for number in numbers:
            for event in by_trial[number]:
                referee.replay(event)
        known = (
            referee.incumbent,
            referee.bar,
            referee.train_ns,
            referee.check_ns,
            referee.saved,
            referee.cost_ratio(),
        )
        probes = [(step, amount) for step in (1, 2, 3) for amount in (None, 0.0, 0.3)]
        verdicts = [
            referee.rule(999, Observation(step, 0.5, -0.5, (0.1, 1.0), (1, 1), amount, 1, False))
            for step, amount in probes
        ]
        states.append(repr((known, verdicts)))
    assert states[0] == states[1]


@given(stoppers, acts_up_to(80))
def test_the_best_feasible_value_never_gets_worse_and_is_never_infeasible(stopper, acts):
    last = [-math.inf]

    def check(study):
        if study.best is not None:
            metrics = study.best.metrics
            assert metrics["eod"] <= 0.25
            assert metrics["ms"] <= 10.0
            assert metrics["auc"] >= last[0]
            last[0] = metrics["auc"]

    live(stopper, acts, after=check)


def test_a_referee_that_travelled_rules_as_the_one_at_home(make_study):
    study = make_study(fw.ACE(interval=1))
    run_curves(study, [[(0.5 + k / 100, {"eod": 0.1})] * 3 for k in range(12)])
    home = study.owner.referee
    replica = home.replica(worker=7, seen=3)
    sent = pickle.loads(pickle.dumps(replica))
    assert (sent.worker, sent.acts, sent.seen) == (7, 0, 3)
    for step, loss, violation in ((1, -0.1, 0.0), (2, -0.1, 0.5), (3, -0.9, 0.0)):
        rulings = [
            referee.rule(99, Observation(step, -loss, loss, (0.1 + violation,), (5,), violation, 10, False))
            for referee in (home, replica, sent)
        ]
        assert rulings[0] == rulings[1] == rulings[2]
    assert home.incumbent == replica.incumbent == sent.incumbent
    assert (replica.acts, sent.acts) == (3, 3)


def referee(stopper, *limits):
    return Referee(fw.Problem(fw.Minimize("loss"), limits or [fw.AtMost("eod", 0.25)]), stopper)


def test_no_price_is_known_before_something_was_paid_for():
    new = referee(fw.Never())
    assert new.cost_ratio() is None
    new.rule(0, Observation(1, 0.5, 0.5, new.unmeasured, new.all_saved, None, 1000, last=False))
    assert new.cost_ratio() is None
    new.rule(0, Observation(2, 0.4, 0.4, (0.1,), (500,), 0.0, 1000, last=False))
    assert new.cost_ratio() == 0.5
    assert (new.saved, new.checks, new.violated) == ([1], [1], [0])


def test_what_others_ruled_on_is_learned_and_is_no_act(make_study):
    study = make_study()
    run_curves(study, [[(0.5, {"eod": 0.1})] * 3, [(0.7, {"eod": 0.2})]])
    other = Referee(study.problem, study.stopper, worker=1)
    for event in study.log.read():
        if isinstance(event, Reported | Told):
            other.replay(event)
    assert other.acts == 0
    assert other.incumbent == study.owner.referee.incumbent
    assert other.check_ns == study.owner.referee.check_ns


@pytest.mark.parametrize(
    ("stopper", "total", "pace"),
    [
        (fw.Never(interval="end"), 9, (9, 9, True)),
        (fw.Never(interval="end"), None, (None, None, True)),
        (fw.Never(interval=4), 9, (9, 4, False)),
        (fw.ACE(), None, (None, 1, False)),
        (fw.ACE(), 9, (9, 9, True)),
        (fw.ASHA(max_steps=5, interval=2), 9, (5, 2, False)),
        (fw.ASHA(max_steps=5, interval=2), None, (5, 2, False)),
    ],
)
def test_the_pace_of_a_trial_is_what_its_stopper_asks_for(stopper, total, pace):
    assert tuple(referee(stopper).begin(total)) == pace


@pytest.mark.parametrize(
    ("costs", "order"),
    [((None, None), "eod ms"), ((5.0, None), "ms eod"), ((None, 0.1), "ms eod"), ((5.0, 7.0), "eod ms")],
)
def test_with_a_fixed_interval_checks_go_by_declared_costs_and_the_declared_order(make_study, costs, order):
    limits = [fw.AtMost("eod", 0.25, cost=costs[0]), fw.AtMost("ms", 2.0, cost=costs[1])]
    study = make_study(fw.ACE(interval=1), limits)
    called = []
    trial = study.ask()
    trial.report(auc=0.5, eod=lambda: called.append("eod") or 0.1, ms=lambda: called.append("ms") or 1.0)
    assert " ".join(called) == order


def test_with_a_fixed_interval_the_limit_that_was_broken_more_often_is_checked_first(make_study):
    study = make_study(fw.Never(interval=1), [fw.AtMost("eod", 0.25), fw.AtMost("ms", 2.0)])
    called = []
    for _ in range(3):
        trial = study.ask()
        trial.report(auc=0.5, eod=lambda: called.append("eod") or 0.1, ms=lambda: called.append("ms") or 9.0)
        study.tell(trial)
    assert called == ["eod", "ms", "ms", "ms"]


def test_without_limits_there_is_nothing_to_wait_with():
    free = Referee(fw.Problem(fw.Minimize("loss")), fw.ACE(interval="end"))
    assert tuple(free.begin(9)) == (9, 1, False)


def test_of_equal_losses_the_earlier_trial_then_the_earlier_step_is_the_best():
    fair = referee(fw.Never())
    assert fair.rule(3, Observation(2, 0.5, 0.5, (0.1,), (1,), 0.0, 1, last=False)) == (None, True)
    assert fair.rule(4, Observation(1, 0.5, 0.5, (0.1,), (1,), 0.0, 1, last=False)) == (None, False)
    assert fair.rule(3, Observation(1, 0.5, 0.5, (0.1,), (1,), 0.0, 1, last=False)) == (None, True)
    assert fair.rule(2, Observation(9, 0.5, 0.5, (0.1,), (1,), 0.0, 1, last=False)) == (None, True)
    assert fair.incumbent[:3] == (0.5, 2, 9)


def test_a_reason_names_what_is_broken_or_else_the_objective():
    both = referee(fw.Never(), fw.AtMost("eod", 0.25), fw.AtLeast("recall", 0.5))

    def seen(*values):
        return Observation(1, 0.7, 0.7, values, (0, 0), None, 1, last=False)

    assert both.reason(seen(0.3, 0.4), "why") == "eod 0.3 > 0.25 and recall 0.4 < 0.5, why"
    assert both.reason(seen(0.2, None), "why") == "loss 0.7, why"
