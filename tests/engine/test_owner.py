from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from hypothesis import given

import fairway as fw
from fairway.engine.clock import VirtualClock
from fairway.engine.events import Reported, Told
from fairway.engine.verify import verify
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush
from tests.engine.logs import LIMITS, acts_up_to, fingerprint, live, reopen, stoppers


@given(stoppers, acts_up_to(40), acts_up_to(20))
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


@given(stoppers, acts_up_to(60))
def test_owners_of_one_log_come_to_know_the_same(stopper, acts):
    study = live(stopper, acts, owners=2)
    assert fingerprint(reopen(study, study.log)) == fingerprint(study)


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


@given(stoppers, acts_up_to(30))
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


def evaluate(trial):
    x = trial.params["x"]
    return {"auc": x, "eod": x / 2}


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
