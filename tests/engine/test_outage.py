"""A log that goes away for a while, or answers too late: nothing is lost, nothing is written twice."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.events import Reported
from fairway.engine.verify import verify
from fairway.errors import Unreachable
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush, within
from tests.engine.logs import LIMITS, acts_up_to, fingerprint, stoppers


class Away(MemoryLog):
    """A log that can be taken away; `missed` is set when somebody misses it."""

    def __init__(self):
        super().__init__()
        self.gone, self.missed = False, threading.Event()

    def append(self, events):
        self.refuse()
        return super().append(events)

    def read(self, since=0, most=None):
        self.refuse()
        return super().read(since, most)

    def refuse(self):
        if self.gone:
            self.missed.set()
            raise Unreachable("no route to the log")


class Faulty(MemoryLog):
    """A log whose appends fail as planned: not at all, before they are written, or after, with the answer lost."""

    def __init__(self):
        super().__init__()
        self.plan, self.other = [], None

    def append(self, events):
        what = self.plan.pop() if self.plan else "written"
        if what == "refused":
            raise Unreachable("no route to the log")
        if what == "crowded" and self.other is not None:
            other, self.other, plan, self.plan = self.other, None, self.plan, []
            other.tell(other.ask(), auc=0.5, eod=0.1, ms=1.0)
            self.other, self.plan = other, plan
        length = super().append(events)
        if what == "unanswered":
            raise Unreachable("the connection broke")
        return length


def rows(log):
    reports = [event for event in log.read() if isinstance(event, Reported)]
    return [(event.worker, act) for event in reports for act in event.acts.tolist()]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("fairway.engine.outage._SHORTEST", 0.0)
    monkeypatch.setattr("fairway.engine.outage._LONGEST", 0.001)


@given(
    stoppers, acts_up_to(20), st.lists(st.sampled_from(["written", "refused", "unanswered", "crowded"]), max_size=60)
)
def test_whatever_fails_and_whichever_answer_is_lost_the_log_holds_everything_once(stopper, acts, plan):
    log = Faulty()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairway.engine.outage._SHORTEST", 0.0)
        patch.setattr("fairway.engine.outage._LONGEST", 0.0)
        made = {"stopper": stopper, "seed": 0, "storage": log}
        study, other = (fw.Study(SPACE, fw.Maximize("auc"), LIMITS, **made) for _ in range(2))
        log.plan, log.other, told = list(plan), other, []
        beside = study.ask()  # it reports while others are told
        for _, auc, eod, ms, lazy, _ in acts:
            trial = study.ask()
            for _ in trial.steps(3):
                trial.report({"auc": auc, "eod": (lambda v=eod: v) if lazy else eod, "ms": ms})
                study.owner.journal.drain(trial.driver.batch)
            if not beside.stopped:
                beside.report(auc=auc, eod=eod, ms=ms)
            study.tell(trial)
            told.append(trial.number)
        study.tell(beside, auc=0.1, eod=0.1, ms=1.0) if not beside.stopped else study.tell(beside)
    log.plan, log.other = [], None
    for each in (study, other):
        flush(each)
    assert len(rows(log)) == len(set(rows(log)))
    assert verify(log.read()).faults == []
    ended = {trial.number for trial in study.trials if trial.status in ("completed", "stopped")}
    assert {*told, beside.number} <= ended
    assert study.counts["running"] == study.counts["failed"] == 0
    assert fingerprint(study) == fingerprint(other)


def test_training_continues_while_a_tell_waits(make_study, quick):
    study = make_study(fw.ACE(interval=1), storage=Away())
    trials = study.ask(2)
    trials[0].report(auc=0.5, eod=0.1)
    study.log.gone = True
    with within(60):
        telling = threading.Thread(target=study.tell, args=(trials[0],))
        telling.start()
        assert study.log.missed.wait(30)
        for step in range(1000):  # the lock is free
            assert not trials[1].report(auc=0.1 + step / 10_000, eod=0.1).stop
        study.owner.journal.drain(trials[1].driver.batch)
        assert telling.is_alive()
        assert study.counts["running"] == 2
        study.log.gone = False
        telling.join()
        study.tell(trials[1])
    assert study.counts["completed"] == 2
    assert len(rows(study.log)) == len(set(rows(study.log))) == 1001
    assert verify(study.log.read()).faults == []
    assert fingerprint(make_study(fw.ACE(interval=1), storage=study.log)) == fingerprint(study)


def test_whoever_comes_while_another_waits_waits_for_his_turn(make_study, quick):
    study = make_study(storage=Away())
    trials = study.ask(3)
    study.log.gone = True
    with within(60):
        tells = [
            threading.Thread(target=study.tell, args=(trial,), kwargs={"auc": 0.5, "eod": 0.1}) for trial in trials
        ]
        asks = [threading.Thread(target=study.ask) for _ in range(2)]
        for thread in (*tells, *asks):
            thread.start()
        assert study.log.missed.wait(30)
        study.log.gone = False
        for thread in (*tells, *asks):
            thread.join()
    assert study.counts == {"running": 2, "completed": 3, "stopped": 0, "failed": 0}
    assert verify(study.log.read()).faults == []


def test_what_could_not_be_told_is_kept_and_written_with_the_next_ask(make_study):
    study = make_study(storage=Away(), patience=0)
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    trial.note(fold=3)
    study.log.gone = True
    sentence = "no route to the log; what was told before is safe, .* in memory: .* another one with study.save_as"
    with pytest.raises(fw.StorageError, match=sentence):
        study.tell(trial, auc=0.75, eod=0.125)
    with pytest.raises(fw.StorageError, match=sentence):
        study.tell(trial, auc=0.75, eod=0.125)  # it is not reported a second time
    study.log.gone = False
    study.ask()
    assert (study.trials[0].status, study.trials[0].metrics) == ("completed", {"auc": 0.75, "eod": 0.125})
    assert study.trials[0].notes == {"fold": 3}
    assert trial.status == "completed"
    assert len(rows(study.log)) == 2
    assert verify(study.log.read()).faults == []


def test_a_trial_that_is_paused_while_the_log_is_away_is_continued_all_the_same(make_study, tmp_path):
    study = make_study(storage=Away(), patience=0.3, checkpoints=fw.Keep(folder=tmp_path / "kept"))
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    study.log.gone = True
    trial.save(lambda path: path.write_text("half"))
    with pytest.raises(fw.StorageError):
        study.owner.close(trial, "failed", "interrupted", paused=True)
    study.log.gone = False
    again = study.ask()
    assert (again.params, again.resume.read_text()) == (trial.params, "half")
    assert verify(study.log.read()).faults == []


def test_a_tell_that_was_written_though_it_failed_is_the_trials_own_end(make_study):
    study = make_study(storage=Faulty(), patience=0)
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    study.log.plan = ["unanswered"]
    with pytest.raises(fw.StorageError):
        study.tell(trial)
    study.tell(trial)
    assert study.counts["completed"] == 1
    assert len(rows(study.log)) == 1
    assert verify(study.log.read()).faults == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_ends_when_its_patience_does_and_keeps_everything(make_study, workers):
    study = make_study(fw.Never(), storage=Away(), patience=0.2)

    def train(trial):
        for step in trial.steps(3):
            trial.report(auc=trial.params["x"] + step, eod=0.1)

    study.optimize(train, trials=3)
    threading.Thread(target=lambda: (time.sleep(0.1), setattr(study.log, "gone", True))).start()
    with within(120), pytest.raises(fw.StorageError, match=r"tried for \d+ s \(patience=0.2\); what was told"):
        study.optimize(train, trials=100_000, workers=workers)
    known = study.counts["completed"] + len([end for end in study.owner.ends.values() if end.status == "completed"])
    study.log.gone = False
    study.optimize(train, trials=1)
    assert study.counts["completed"] == known + 1
    assert study.counts["running"] == 0
    assert verify(study.log.read()).faults == []


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("backend", [None, "thread"])
def test_ctrl_c_ends_the_wait_for_a_log(make_study, backend):
    study = make_study(storage=Away(), patience=600)

    def press():
        study.log.missed.wait()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def train(trial):
        study.log.gone = True
        return {"auc": 0.5, "eod": 0.1}

    pressing = threading.Thread(target=press)
    pressing.start()
    with within(60), pytest.raises((fw.StorageError, KeyboardInterrupt)) as caught:
        study.optimize(train, trials=2, workers=1 if backend is None else 2, backend=backend)
    assert "still ran" not in str(caught.value)
    pressing.join()
    assert study.owner.ends
    study.log.gone = False
    study.ask()
    assert study.counts["completed"] >= 1


@pytest.mark.parametrize("patience", [-1, "60", True, float("nan")])
def test_a_patience_that_is_no_number_of_seconds_is_refused(make_study, patience):
    with pytest.raises(fw.UsageError, match=r"patience=.*: a number of at least 0 is expected"):
        make_study(patience=patience)
