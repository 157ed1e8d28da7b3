from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest
from hypothesis import given

import fairway as fw
from fairway.engine.clock import VirtualClock
from fairway.engine.events import Asked, Enqueued, Judged, Told
from fairway.storage.memory import MemoryLog
from fairway.terminators.terminator import Terminator, Verdict
from tests.conftest import SPACE, judged
from tests.engine.logs import LIMITS, acts_up_to, fingerprint, live, reopen, stoppers
from tests.trainings import parabola


@given(stoppers, acts_up_to(40), acts_up_to(20))
def test_a_replayed_study_decides_as_the_live_one_goes_on_to(stopper, before, after):
    one = live(stopper, before)
    copy = MemoryLog()
    copy.append(list(one.log.read()))
    other = reopen(one, copy)
    for study in (one, other):
        study.owner.clock = VirtualClock()
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
    lost = [Told(0, "failed", "lost its worker", 0.0, 99, 0), Enqueued(trial.params, 1)]
    study.log.append([*lost, Asked(1, trial.params, 0.0, 99, queued=True)])
    with pytest.raises(fw.UsageError, match=r"trial 0 was ended by another worker \(lost its worker\)"):
        study.tell(trial)
    assert (trial.status, study.trials[0].status) == ("failed", "failed")
    study.tell(study.ask(), auc=0.6, eod=0.1)
    assert study.best.number == 2


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
    """A log whose disk is full now and then, or cannot be read."""

    def __init__(self):
        super().__init__()
        self.full = self.unreadable = False

    def read(self, since=0, most=None):
        if self.unreadable:
            self.unreadable = False
            raise OSError(5, "Input/output error")
        return super().read(since, most)

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
            study.owner.journal.drain(trial.driver.batch)
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
        assert study.counts == {"running": 0, "completed": 3, "stopped": 0, "failed": 0}  # its end was kept
        study.optimize(evaluate, trials=2)
        assert study.counts["completed"] == 5


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


def test_a_stop_that_another_owner_was_told_ends_this_run_too():
    log, ends = MemoryLog(), fw.RegretBound(1e-12, start=200)
    one, other, different = judged(ends, storage=log), judged(ends, storage=log), judged(fw.Target(9.0), storage=log)

    def said_to(owner, trials):
        return lambda trial: (
            owner.journal.append(Judged(owner.referee.worker, trial.number, True, "enough", 0.0, 1.0, at=0.0)) and 1.0
            if trial.number == trials
            else 2.0 + trial.params["x"]
        )

    one.optimize(said_to(different.owner, 5), trials=10)
    assert len(one.trials) == 10
    one.optimize(said_to(other.owner, 15), trials=30)
    assert (one.ended, len(one.trials)) == ("enough", 16)


def test_another_terminator_is_heard_though_the_one_before_was_overruled():
    log = MemoryLog()
    judged(fw.Target(5.0), storage=log).optimize(parabola, trials=100)
    study = judged(fw.Target(4.0), storage=log)
    study.optimize(parabola, trials=30)
    assert len(study.trials) == 2
    study.optimize(parabola, trials=30)
    assert len(study.trials) == 32


@pytest.mark.parametrize("said", [None, True, (True, "enough"), Verdict("no", "no")])
def test_a_terminator_that_says_something_else_is_named(said):
    class Odd(Terminator):
        def check(self, history):
            del history
            return said

    with pytest.raises(fw.UsageError, match=r"Odd\(\) said .*: a Verdict\(stop, reason, ...\) is expected"):
        judged(Odd()).optimize(parabola, trials=3)


def test_a_resumed_study_is_judged_as_if_it_had_never_been_interrupted():
    whole, log = judged(fw.Plateau(10)), MemoryLog()
    whole.optimize(parabola, trials=1000)
    for _ in range(3):
        judged(fw.Plateau(10), storage=log).optimize(parabola, trials=4)
    resumed = judged(fw.Plateau(10), storage=log)
    resumed.optimize(parabola, trials=1000)
    assert [repr(said) for said in resumed.verdicts] == [repr(said) for said in whole.verdicts]
    assert resumed.ended == whole.ended


def test_a_dear_rule_is_asked_less_often_as_trials_grow():
    study = judged(fw.RegretBound(1e-12, start=100))
    study.optimize(parabola, trials=160)
    asked = [finished for finished, _ in study.verdicts]
    assert asked[:101] == [*range(1, 101), 102]
    assert asked[-3:] == [153, 156, 159]
    joined = judged(fw.any_of(fw.RegretBound(1e-12, start=100), fw.Plateau(1000)))
    joined.optimize(parabola, trials=160)
    assert len(joined.verdicts) == 160
    asked = [finished for finished, verdict in joined.verdicts if "regret bound" in verdict.reason]
    assert asked[-3:] == [153, 156, 159]


def test_a_forked_study_is_refused(make_study):
    study = make_study()
    study.ask()
    child = os.fork()
    if child == 0:
        try:
            study.ask()
        except fw.UsageError as error:
            os._exit(0 if "made in another process" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_study_opened_without_a_seed_takes_that_of_its_log():
    log = fw.Study(SPACE, fw.Maximize("auc"), seed=3).log
    assert fw.Study(SPACE, fw.Maximize("auc"), storage=log).seed == 3
    with pytest.raises(fw.UsageError, match="has seed 3; leave seed out, or give that one"):
        fw.Study(SPACE, fw.Maximize("auc"), storage=log, seed=4)


def test_a_log_that_cannot_be_read_gets_a_sentence(make_study):
    study = make_study(storage=Unreliable())
    study.log.unreadable = True
    with pytest.raises(fw.StorageError, match=r"the log could not be read \(.*Input/output error"):
        study.ask()
    assert study.ask().number == 0


class Forsaken(MemoryLog):
    """A log whose workers are gone when the test says so."""

    def __init__(self):
        super().__init__()
        self.gone = set()

    @property
    def leases(self):
        return self

    def attend(self, worker):
        """They are gone when the test says so, not when their lease is over."""

    leave = attend

    def renew(self):
        """Nothing to do."""

    def lost(self, workers):
        return self.gone & set(workers)


def test_a_configuration_that_is_lost_with_its_worker_is_tried_once_more_and_not_again(make_study):
    log = Forsaken()
    first, second, third = (make_study(storage=log) for _ in range(3))
    lost = first.ask()
    log.gone = {0}
    again = second.ask()
    assert (again.number, again.params) == (1, lost.params)
    assert (second.trials[0].status, second.trials[0].reason) == ("failed", "lost its worker")
    log.gone = {0, 1}
    assert third.ask().params != lost.params
    assert [trial.status for trial in third.trials] == ["failed", "failed", "running"]
    with pytest.raises(fw.UsageError, match="trial 0 was ended by another worker"):
        first.tell(lost, auc=0.5, eod=0.1)


class Raced(MemoryLog):
    """A log that somebody else opens between our first look at it and our first write."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def append(self, events):
        other, self.other = self.other, None
        if other is not None:
            other(self)
        return super().append(events)


def test_who_opens_a_study_second_takes_the_seed_of_the_first():
    log = Raced(lambda log: fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=77, storage=log))
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=log)
    assert study.seed == 77
    assert study.owner.referee.worker == 1


def test_who_opens_another_study_second_is_refused():
    log = Raced(lambda log: fw.Study(SPACE, fw.Minimize("loss"), seed=0, storage=log))
    with pytest.raises(fw.UsageError, match="the study in this storage has another objective"):
        fw.Study(SPACE, fw.Maximize("auc"), seed=0, storage=log)
    log = Raced(lambda log: fw.Study(SPACE, fw.Minimize("loss"), seed=1, storage=log))
    with pytest.raises(fw.UsageError, match="the study in this storage has seed 1"):
        fw.Study(SPACE, fw.Minimize("loss"), seed=0, storage=log)
