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
from fairway.engine.clock import VirtualClock
from fairway.engine.events import SAVED, Reported, Told, from_json, to_json
from fairway.engine.identity import Identity
from fairway.engine.referee import Referee
from fairway.engine.verify import verify
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush, run_curves

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


def fingerprint(study):
    """Everything that a study knows."""
    history = study.history
    columns = [
        getattr(history, name).tolist() for name in ("number", "x", "loss", "values", "violation", "partial", "step")
    ]
    referee = study._owner.referee
    tallies = (referee.incumbent, referee.bar, referee.train_ns, referee.train_rows, referee.check_ns, referee.checks)
    rest = (referee.violated, referee.saved, referee.check_rounds, study._owner.ledger.running.keys())
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
        study._owner.clock = VirtualClock()
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
    log = list(live(stopper, acts, owners).log.read())
    result = verify(log)
    assert result.faults == []
    reports = [event for event in log if isinstance(event, Reported)]
    begun = len({(event.worker, event.number) for event in reports})
    rows = sum(len(event.step) + len(event.payments) for event in reports)
    assert result.rulings == begun + rows + sum(isinstance(event, Told) for event in log)


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
                end = part.stop == len(event.step)
                log.append([replace(event, **rows, verdict=event.verdict if end else None, over=event.over and end)])
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


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"verdict": None}, "trial 8, step 1: went on; ruled again: eod 0.9 > 0.25, worst 25% of 8 at step 1"),
        ({"verdict": "because"}, "trial 8, step 1: because; ruled again"),
        ({"interval": 4}, "trial 8 has interval 4 of 4 steps, which should be 1 of 4"),
        ({"objective": np.array([0.1])}, "constraints were paid for, and need not have been"),
        ({"payments": np.zeros((0, 3), np.int64)}, "constraints were paid for without a decision"),
        (
            {"check_ns": np.array([[SAVED]]), "payments": np.zeros((0, 3), np.int64)},
            "constraints were not paid for, and should have been",
        ),
    ],
)
def test_a_log_that_was_tampered_with_is_found_out(make_study, change, fault):
    study = make_study(fw.ACE(interval=1))
    run_curves(study, [[(0.5, {"eod": 0.1})] + [(0.5, {"eod": 0.3})] * 3] + [[(0.9, {"eod": 0.3})] * 4] * 7)
    run_curves(study, [[(0.9, {"eod": 0.9})] * 4, [(0.9, {"eod": 0.9})] * 4])
    log = list(study.log.read())
    assert verify(log).faults == []
    place = next(i for i, event in enumerate(log) if isinstance(event, Reported) and event.verdict)
    log[place] = replace(log[place], **change)
    assert any(fault in found for found in verify(log).faults)


def test_a_stopper_of_the_users_own_cannot_be_verified(make_study):
    class Mine(fw.ACE):
        pass

    study = make_study(Mine())
    with pytest.raises(fw.StorageError, match=r"a stopper of its own, .*\.Mine"):
        verify(study.log.read())


def test_an_identity_comes_back_from_json():
    space = {
        "c": fw.Choice(["a", None, 1]),
        "x": fw.Float(0.1, 1, log=True, when={"c": ["a", 1]}),
        "k": fw.Int(0, 8, step=2),
    }
    for stopper in STOPPERS:
        problem = fw.Problem(fw.Minimize("loss"), LIMITS)
        identity = Identity(fw.Space(space), problem, 7, fw.Random(), stopper, None)
        again = Identity.from_json(json.loads(json.dumps(identity.to_json())))
        assert again.to_json() == identity.to_json()
        assert (again.problem, again.stopper, again.sampler) == (problem, stopper, fw.Random())
    with pytest.raises(fw.StorageError, match="does not say what study it is of"):
        Identity.from_json({"space": {"x": {"kind": "Float", "low": 1, "high": 0}}})


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


class Crowded(MemoryLog):
    """A log into which another owner writes just before every other append."""

    def __init__(self):
        super().__init__()
        self.other = None
        self.calls = 0

    def append(self, events):
        other, self.other = self.other, None  # not while the other one writes
        self.calls += other is not None
        if other is not None and self.calls % 2:
            trial = other.ask()
            trial.report(auc=0.5, eod=0.1)
            other.tell(trial)
        self.other = other
        return super().append(events)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=30))
def test_what_others_write_at_the_same_moment_is_neither_lost_nor_doubled(stopper, acts):
    log = Crowded()
    study, other = (fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, seed=0, storage=log) for _ in range(2))
    log.other, told = other, 0
    for _, auc, eod, ms, lazy, _ in acts:
        trial = study.ask()
        for _ in trial.steps(3):
            trial.report({"auc": auc, "eod": (lambda v=eod: v) if lazy else eod, "ms": ms})
        study.tell(trial)
        told += 1
    log.other = None
    for each in (study, other):
        flush(each)
    reports = [event for event in log.read() if isinstance(event, Reported)]
    rows = [(event.worker, act) for event in reports for act in event.acts.tolist()]
    assert len(rows) == len(set(rows))
    assert verify(log.read()).faults == []
    assert sum(study.counts.values()) == len(study.trials) >= told
    assert fingerprint(study) == fingerprint(other)


def test_two_studies_on_one_log_share_numbers_and_findings():
    log = MemoryLog()
    one, other = (fw.Study(SPACE, fw.Maximize("auc"), LIMITS[:1], seed=0, storage=log) for _ in range(2))
    first, second = one.ask(), other.ask()
    assert (first.number, second.number) == (0, 1)
    one.tell(first, auc=0.8, eod=0.1)
    assert other.ask().number == 2
    assert other.best.metrics == {"auc": 0.8, "eod": 0.1}
    assert np.array_equal(other.history.number, [0])
