"""The log is all there is: replaying it gives back the study, and every ruling can be made again from it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.clock import VirtualClock
from fairway.events import ABSENT, SAVED, Reported, Told, from_json, to_json
from fairway.feasibility import violation
from fairway.referee import Referee
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush

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


def live(stopper, acts, owners=1, after=None):
    """Trials interleaved: reports with lazy and given constraints, tells and failures; maybe several owners."""
    log = MemoryLog()
    studies = [fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, seed=0, storage=log) for _ in range(owners)]
    slots = {}
    for slot, auc, eod, ms, lazy, what in acts:
        study, trial = studies[slot % owners], slots.get(slot)
        if trial is None or trial.status != "running":
            trial = slots[slot] = study.ask()
            trial.steps(6)
        if trial.stopped or trial._last == 6 or what == "tell" and trial._last:
            study.tell(trial)
        elif what == "fail":
            study.tell(trial, failed="broken")
        elif lazy:
            trial.report(auc=auc, eod=lambda _, v=eod: v, ms=lambda _, v=ms: v, checkpoint=trial._last + 1)
        else:
            trial.report(auc=auc, eod=eod)
        if after is not None:
            after(study)
    for study in studies:
        flush(study)
    for study in studies:
        flush(study)
    return studies[0]


def rulings_of(worker, log):
    """A worker's acts in their order, as (act, kind, event, row)."""
    acts, begun = [], set()
    for event in log:
        if isinstance(event, Reported) and event.worker == worker:
            if event.number not in begun:
                begun.add(event.number)
                acts.append((event.begun, "begin", event, None))
            acts += [(act, "rule", event, i) for i, act in enumerate(event.acts.tolist())]
        elif isinstance(event, Told) and event.worker == worker:
            acts.append((event.act, "finish", event, None))
    return sorted(acts, key=lambda act: act[0])


def rule_again(worker, log, problem, stopper):
    """Repeat every ruling of one worker from what the log says it had seen, and compare."""
    referee, folded, ended = Referee(problem, stopper), 0, {}
    for act, kind, event, i in rulings_of(worker, log):
        if kind == "finish":
            if event.status == "stopped":
                assert ended[event.number] == event.reason
            referee.finish(event.number, completed=event.status == "completed")
            referee.acts = act
            continue
        while folded < event.seen:
            if isinstance(log[folded], Reported | Told) and log[folded].worker != worker:
                referee.fold(log[folded])
            folded += 1
        if kind == "begin":
            assert referee.begin(event.total)[:2] == (event.total, event.interval)
            continue
        step, loss, prices = int(event.step[i]), -float(event.objective[i]), event.check_ns[i].tolist()
        offered = any(price > 0 or price == SAVED for price in prices)
        if event.interval == 1 and offered and 0 not in prices:
            assert any(price > 0 for price in prices) == referee.worth(event.number, step, loss)
        values = [v if price >= 0 else None for v, price in zip(event.values[i].tolist(), prices, strict=True)]
        amount = violation(problem.constraints, values)
        verdict, _ = referee.rule(event.number, step, loss, amount, values, prices, int(event.train_ns[i]))
        over = step == event.total or event.train_ns[i] == ABSENT
        ended_here = event.verdict is not None and i == len(event.step) - 1
        assert (verdict is not None and not over) == ended_here
        if ended_here:
            ended[event.number] = event.verdict
            assert event.verdict == referee.reason(float(event.objective[i]), values, verdict)


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
    assert fingerprint(reopen(study, study.log)) == fingerprint(study)


def reopen(study, log):
    return fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=study.stopper, seed=0, storage=log)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=40), st.lists(act, max_size=20))
def test_a_replayed_study_decides_as_the_live_one_goes_on_to(stopper, before, after):
    one = live(stopper, before)
    copy = MemoryLog()
    copy.append(list(one.log.read()))
    other = reopen(one, copy)
    for study in (one, other):
        study._clock = VirtualClock()
    for _, auc, eod, ms, _, _ in after:
        decisions = []
        for study in (one, other):
            trial = study.ask()
            decisions.append([trial.report(auc=auc, eod=eod, ms=ms)])
            if not trial.stopped:
                decisions[-1].append(trial.report(auc=auc / 2, eod=lambda v=eod: v, ms=ms))
            study.tell(trial)
        assert decisions[0] == decisions[1]


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60))
def test_events_survive_json(stopper, acts):
    study, log = live(stopper, acts), MemoryLog()
    for event in study.log.read():
        text = json.dumps(to_json(event), allow_nan=False)
        log.append([from_json(json.loads(text))])
        assert to_json(log.read()[-1]) == to_json(event)
    assert fingerprint(reopen(study, log)) == fingerprint(study)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60), st.integers(1, 3))
def test_every_ruling_of_every_owner_can_be_made_again_from_the_log(stopper, acts, owners):
    study = live(stopper, acts, owners)
    log = list(study.log.read())
    for worker in range(owners):
        rule_again(worker, log, study.problem, stopper)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60))
def test_owners_of_one_log_come_to_know_the_same(stopper, acts):
    study = live(stopper, acts, owners=2)
    assert fingerprint(reopen(study, study.log)) == fingerprint(study)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60), st.data())
def test_it_does_not_matter_where_batches_of_reports_end(stopper, acts, data):
    study, log = live(stopper, acts), MemoryLog()
    for event in study.log.read():
        if not isinstance(event, Reported):
            log.append([event])
            continue
        cut = data.draw(st.integers(0, len(event.step)))
        columns = ("acts", "step", "objective", "values", "train_ns", "check_ns")
        for part in (slice(0, cut), slice(cut, len(event.step))):
            if len(event.step[part]):
                rows = {name: getattr(event, name)[part] for name in columns}
                log.append([replace(event, **rows, verdict=event.verdict if part.stop == len(event.step) else None)])
    assert fingerprint(reopen(study, log)) == fingerprint(study)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=60), st.randoms())
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


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=80))
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


def test_a_damaged_log_is_refused_with_a_sentence(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.1)
    opened, asked, reported, told = study.log.read()
    for events, sentence in (
        ([opened, asked, asked], "the log asks for trial 0 where 1 is due"),
        ([opened, asked, told, told], "the log ends trial 0, which is not running"),
        ([opened, reported], "the log reports for trial 0, which was never asked for"),
    ):
        broken = MemoryLog()
        broken.append(events)
        with pytest.raises(fw.StorageError, match=sentence):
            make_study(storage=broken)
    for data in ({"event": "Exploded"}, {"event": []}, {"event": "Asked"}, {"event": "Reported"}, {}):
        with pytest.raises(fw.UsageError, match="no event of a fairway log"):
            from_json(data)


def test_what_only_one_may_have_is_refused_to_the_second_with_all_that_comes_with_it(make_study):
    log = MemoryLog()
    study = make_study(storage=log)
    study.tell(study.ask(), auc=0.5, eod=0.1)
    opened, asked, reported, told = log.read()
    for events in ([opened], [asked], [told], [reported, told]):
        assert log.append(events) is None
    assert len(log.read()) == 4
    assert log.append([reported]) == 5


def test_a_tell_that_comes_after_another_worker_ended_the_trial_is_refused(make_study):
    study = make_study()
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    study.log.append([Told(0, "failed", "lost its worker", 0.0, 99, 0)])
    with pytest.raises(fw.UsageError, match=r"trial 0 was ended by another worker \(lost its worker\)"):
        study.tell(trial)
    assert (trial.status, study.trials[0].status) == ("failed", "failed")
    study.tell(study.ask(), auc=0.6, eod=0.1)
    assert study.best.number == 1


def test_two_studies_on_one_log_share_numbers_and_findings():
    log = MemoryLog()
    one, other = (fw.Study(SPACE, fw.Maximize("auc"), LIMITS[:1], seed=0, storage=log) for _ in range(2))
    first, second = one.ask(), other.ask()
    assert (first.number, second.number) == (0, 1)
    one.tell(first, auc=0.8, eod=0.1)
    assert other.ask().number == 2
    assert other.best.metrics == {"auc": 0.8, "eod": 0.1}
    assert np.array_equal(other.history.number, [0])
