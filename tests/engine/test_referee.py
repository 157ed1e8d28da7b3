from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fairway.engine.events import Reported
from fairway.engine.referee import Referee
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
                referee.fold(event)
        known = (
            referee.incumbent,
            referee.bar,
            referee.train_ns,
            referee.check_ns,
            referee.saved,
            referee.cost_ratio(),
        )
        probes = [(step, amount) for step in (1, 2, 3) for amount in (None, 0.0, 0.3)]
        verdicts = [referee.rule(999, step, -0.5, amount, (0.1, 1.0), (1, 1), 1) for step, amount in probes]
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
