"""A log as one process knows it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given

import fairway as fw
from fairway.engine.clock import VirtualClock, WallClock
from fairway.engine.events import Reported
from fairway.engine.verify import verify
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush
from tests.engine.logs import LIMITS, acts_up_to, fingerprint, stoppers


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


class Late(WallClock):
    """The machine's clock, a second from now."""

    ns = staticmethod(lambda: time.perf_counter_ns() + 1_000_000_000)


def test_the_pulse_sends_what_has_waited_and_learns_what_others_wrote(make_study):
    log = MemoryLog()
    study, other = make_study(storage=log), make_study(storage=log)
    study.ask().report(auc=0.5, eod=0.1)
    study.owner.journal.pulse()
    assert not any(isinstance(event, Reported) for event in log.read())  # it has not waited long
    study.owner.clock = Late()
    study.owner.journal.pulse()
    assert sum(isinstance(event, Reported) for event in log.read()) == 1
    other.tell(other.ask(), auc=0.9, eod=0.1)
    assert study.owner.ledger.counts["completed"] == 0
    study.owner.journal.pulse()
    assert study.owner.ledger.counts["completed"] == 1


def test_in_virtual_time_nothing_waits_and_an_idle_owner_has_no_pulse(make_study):
    study = make_study()
    study.owner.journal.pulse()
    study.owner.clock = VirtualClock()
    study.ask().report(auc=0.5, eod=0.1)
    study.owner.clock.now += 10**10
    study.owner.journal.pulse()
    assert not any(isinstance(event, Reported) for event in study.log.read())


def test_rows_are_written_with_what_had_been_seen_when_they_were_ruled_on(make_study):
    log = MemoryLog()
    study, other = make_study(storage=log), make_study(storage=log)
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    other.tell(other.ask(), auc=0.9, eod=0.1)
    seen = study.owner.referee.seen
    study.owner.journal.catch_up()  # drains the batch before it learns of the other trial
    (mine,) = [event for event in log.read() if isinstance(event, Reported) and event.number == trial.number]
    assert mine.seen == seen < study.owner.referee.seen
    assert verify(log.read()).faults == []


def test_a_tell_is_one_append_and_reads_only_what_others_wrote(make_study):
    class Counted(MemoryLog):
        reads = appends = 0

        def read(self, since=0, most=None):
            self.reads += 1
            return super().read(since, most)

        def append(self, events):
            self.appends += 1
            return super().append(events)

    log = Counted()
    study, other = make_study(storage=log), make_study(storage=log)
    other.ask()
    trial = study.ask()
    log.reads = log.appends = 0
    study.tell(trial, auc=0.5, eod=0.1)
    assert (log.reads, log.appends) == (0, 1)
    late, between = study.ask(), other.ask()
    log.reads = log.appends = 0
    study.tell(late, auc=0.6, eod=0.1)
    assert (log.reads, log.appends) == (1, 1)
    assert between.number in study.owner.ledger.running
    assert verify(log.read()).faults == []


def test_what_a_log_raises_becomes_one_sentence(make_study):
    class Unreadable(MemoryLog):
        def read(self, since=0, most=None):
            raise OSError(5, "Input/output error")

    with pytest.raises(fw.StorageError, match=r"the log could not be read \(.*Input/output error\)"):
        make_study(storage=Unreadable())
