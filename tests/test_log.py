"""The log is all there is: replaying it gives back the study, and every ruling can be made again from it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.events import Reported, Told, from_json, to_json
from fairway.feasibility import violation
from fairway.referee import Referee
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE

LIMITS = (fw.AtMost("eod", 0.25), fw.AtMost("ms", 10.0))
STOPPERS = [
    fw.ACE(),
    fw.ACE(interval=1, skip=False),
    fw.ACE(interval="end"),
    fw.ACE(tolerance="hard"),
    fw.ASHA(),
    fw.ASHA(strata=True),
    fw.Median(min_trials=1),
    fw.HalfAt(step=2, after=1),
    fw.Never(),
]
unit = st.integers(0, 8).map(lambda k: k / 8)
metric = st.one_of(unit, st.just(math.nan))
act = st.tuples(st.integers(0, 3), unit, metric, metric, st.booleans(), st.sampled_from(["report", "tell", "fail"]))


def live(stopper, acts, log=None, seed=0):
    """Several trials at once, interleaved: reports with lazy and given constraints, checkpoints, tells and failures."""
    study = fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, seed=seed, storage=log)
    slots = {}
    for slot, auc, eod, ms, lazy, what in acts:
        trial = slots.get(slot)
        if trial is None or trial.status != "running":
            trial = slots[slot] = study.ask()
            trial._begin(6)
        if trial.stopped or trial._last == 6 or what == "tell" and trial._last:
            study.tell(trial)
        elif what == "fail":
            study.tell(trial, failed="broken")
        elif lazy:
            trial.report(auc=auc, eod=lambda _, v=eod: v, ms=lambda _, v=ms: v, checkpoint=trial._last + 1)
        else:
            trial.report(auc=auc, eod=eod)
    return study


def fingerprint(study):
    """Everything that a study knows."""
    history = study.history
    columns = [
        getattr(history, name).tolist() for name in ("number", "x", "loss", "values", "violation", "partial", "step")
    ]
    referee = study._referee
    tallies = (referee.incumbent, referee.bar, referee.train_ns, referee.train_rows, referee.check_ns, referee.checks)
    rest = (referee.violated, referee.saved, referee.check_rounds, study._ledger.running.keys())
    return repr(
        (columns, study.best, study.best_ignoring_limits, study.trials, study.costs, study.counts, tallies, rest)
    )


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60))
def test_replay_equals_live(stopper, acts):
    study = live(stopper, acts)
    study._flush()
    replayed = fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, seed=0, storage=study.log)
    assert fingerprint(replayed) == fingerprint(study)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=40), st.lists(act, max_size=20))
def test_a_replayed_study_decides_as_the_live_one_goes_on_to(stopper, before, after):
    one = live(stopper, before)
    one._flush()
    copy = MemoryLog()
    copy.append(list(one.log.read()))
    other = fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, seed=0, storage=copy)
    for _, auc, eod, ms, _, _ in after:
        decisions = []
        for study in (one, other):
            trial = study.ask()
            study._clock = fw.clock.VirtualClock()
            decisions.append(trial.report(auc=auc, eod=eod, ms=ms))
            study.tell(trial)
        assert decisions[0] == decisions[1]


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60))
def test_events_survive_json(stopper, acts):
    study = live(stopper, acts)
    study._flush()
    log = MemoryLog()
    for event in study.log.read():
        text = json.dumps(to_json(event), allow_nan=False)
        log.append([from_json(json.loads(text))])
        assert to_json(log.read()[-1]) == to_json(event)
    replayed = fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, seed=0, storage=log)
    assert fingerprint(replayed) == fingerprint(study)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60))
def test_every_ruling_can_be_made_again_from_the_log(stopper, acts):
    study = live(stopper, acts)
    study._flush()
    rulings = []
    for event in study.log.read():
        if isinstance(event, Reported):
            rulings.append((event.begun, "begin", event, None))
            rulings += [(act, "row", event, i) for i, act in enumerate(event.acts.tolist())]
        elif isinstance(event, Told):
            rulings.append((event.act, "finish", event, None))
    referee, begun = Referee(study.problem, stopper), set()
    for _, kind, event, i in sorted(rulings, key=lambda ruling: ruling[0]):
        if kind == "begin":
            if event.number not in begun:
                begun.add(event.number)
                assert referee.begin(event.total)[0] == event.interval
        elif kind == "finish":
            referee.state.finish(event.number, completed=event.status == "completed")
        else:
            prices = event.check_ns[i].tolist()
            values = [v if price >= 0 else None for v, price in zip(event.values[i].tolist(), prices, strict=True)]
            amount = violation(study.problem.constraints, values)
            loss = -float(event.objective[i])
            verdict, _ = referee.rule(
                event.number, int(event.step[i]), loss, amount, values, prices, int(event.train_ns[i])
            )
            ended_here = event.stopped is not None and i == len(event.step) - 1
            assert (verdict is not None and event.step.max() != event.total) == ended_here
            if ended_here:
                assert event.stopped == referee.sentence(float(event.objective[i]), values, verdict)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60), st.randoms())
def test_referees_agree_in_whatever_order_trials_reach_them(stopper, acts, random):
    study = live(stopper, acts)
    study._flush()
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
        states.append(
            (referee.incumbent, referee.bar, referee.train_ns, referee.check_ns, referee.saved, referee.cost_ratio())
        )
        probe = [
            referee.rule(999, step, -0.5, amount, (0.1, 1.0), (1, 1), 1)
            for step in (1, 2, 3)
            for amount in (None, 0.0, 0.3)
        ]
        states[-1] += (repr(probe),)
    assert states[0] == states[1]


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=80))
def test_the_best_feasible_value_never_gets_worse_and_is_never_infeasible(stopper, acts):
    study, last = live(stopper, []), -math.inf
    for k in range(0, len(acts), 5):
        study = live(stopper, acts[:k])
        if study.best is not None:
            metrics = study.best.metrics
            assert metrics["eod"] <= 0.25
            assert metrics["ms"] <= 10.0
            assert metrics["auc"] >= last
            last = metrics["auc"]


def test_a_damaged_log_is_refused_with_a_sentence(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.1)
    broken = MemoryLog()
    broken.append(list(study.log.read())[:1] * 2)
    with pytest.raises(fw.FairwayError, match="the log asks for trial 0 where 1 is due"):
        make_study(storage=broken)
    with pytest.raises(fw.UsageError, match="no event of a fairway log"):
        from_json({"event": "Exploded"})


def test_an_append_that_comes_too_late_is_refused(make_study):
    log = make_study().log
    assert log.append([], at=0) == 0
    study = make_study(storage=log)
    study.ask()
    assert log.append([study.log.read()[0]], at=0) is None
    assert len(log.read()) == 1


def test_two_studies_on_one_log_share_numbers_and_findings():
    log = MemoryLog()
    one, other = (fw.Study(SPACE, fw.Maximize("auc"), LIMITS[:1], seed=0, storage=log) for _ in range(2))
    first, second = one.ask(), other.ask()
    assert (first.number, second.number) == (0, 1)
    one.tell(first, auc=0.8, eod=0.1)
    assert other.ask().number == 2
    assert other.best.metrics == {"auc": 0.8, "eod": 0.1}
    assert np.array_equal(other.history.number, [0])
