"""Which workers live: real processes that hold Python's lock, are stopped, are killed, or are on another machine."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager

import pytest

import fairway as fw
from fairway.engine.events import Revived
from fairway.engine.verify import verify
from fairway.storage import schema
from fairway.storage.processes import began, machine
from fairway.storage.sql import Database
from tests import faults
from tests.conftest import SPACE, within


def open_study(url):
    limits = [fw.AtMost("eod", 0.25)]
    return fw.Study(SPACE, fw.Maximize("auc"), limits, sampler=fw.Random(), storage=url, name="credit", seed=0)


SILENT = """
import ctypes, sys, time
import fairway as fw
from fairway.storage import leases

leases.BEAT_SECONDS = {beat}
study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], sampler=fw.Random(),
                 storage={url!r}, name="credit", seed=0)
trial = study.ask()
trial.report(auc=0.5, eod=0.1)
study.owner.journal.flush()
print("asked", flush=True)
{act}
study.tell(trial, auc=0.9, eod=0.1)
print("told", flush=True)
"""
HOLD = "ctypes.PyDLL(None).usleep(int({seconds} * 1e6))  # Python's lock is held, and no thread of this process runs"


@contextmanager
def silent(url, act, beat=0.2):
    """Another process with a running trial, which does something before it tells."""
    code = textwrap.dedent(SILENT).format(url=url, act=act, beat=beat)
    pipe = subprocess.PIPE  # for its input too: it waits there, wherever the tests run
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout.readline() == "asked\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def short_lease(monkeypatch):
    monkeypatch.setattr("fairway.storage.leases.LEASE_SECONDS", 1.0)


def rows(url, statement="SELECT machine, process, beat FROM fairway_worker ORDER BY worker"):
    database = Database(url)
    with database.access.writing() as connection:
        result = connection.exec_driver_sql(statement)
        return result.all() if result.returns_rows else None


def vanish(monkeypatch):
    """Have every worker of another machine be silent for too long, without a connection."""
    monkeypatch.setattr("fairway.storage.leases.LEASE_SECONDS", -1.0)
    monkeypatch.setattr("fairway.storage.sessions.Session.holds", lambda self, connection: set())


def move_elsewhere(url, worker=0):
    """Have a worker be one of another machine."""
    rows(url, f"UPDATE fairway_worker SET machine = 'elsewhere' WHERE worker = {worker}")


def test_a_process_that_holds_pythons_lock_for_longer_than_its_lease_keeps_its_trial(url, short_lease):
    with within(60), silent(url, HOLD.format(seconds=3)) as process:
        study = open_study(url)
        time.sleep(2)  # twice the lease, in which it gave no sign of life
        study.tell(study.ask(), auc=0.5, eod=0.1)
        assert (study.counts["running"], study.counts["failed"]) == (1, 0)
        assert process.stdout.readline() == "told\n"
    study.owner.journal.catch_up()
    assert study.counts["completed"] == 2
    assert study.best.metrics["auc"] == 0.9
    assert verify(study.log.read()).faults == []


def test_a_process_that_is_stopped_keeps_its_trial(url, short_lease):
    with within(60), silent(url, "sys.stdin.readline()", beat=100.0) as process:  # not stopped within a write
        process.send_signal(signal.SIGSTOP)
        study = open_study(url)
        time.sleep(2)
        study.ask()
        assert (study.counts["running"], study.counts["failed"]) == (2, 0)


@pytest.mark.parametrize("reaped", [True, False])
def test_a_process_that_is_killed_loses_its_trial_at_once(url, reaped):
    with within(60), silent(url, "time.sleep(60)") as process:
        study = open_study(url)
        process.kill()
        if reaped:
            process.wait()
        else:  # a zombie keeps its number
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        study.ask()
        assert (study.trials[0].status, study.trials[0].reason) == ("failed", "lost its worker")


def test_a_process_of_the_same_number_that_began_later_is_another(url):
    study, other = open_study(url), open_study(url)
    study.ask()
    rows(url, f"UPDATE fairway_worker SET machine = '{machine()} since 1' WHERE worker = 0")
    other.ask()
    assert other.counts["failed"] == 1


def test_a_row_of_an_earlier_version_says_no_start_and_goes_by_the_lease(url, monkeypatch):
    study, other = open_study(url), open_study(url)
    study.ask()
    rows(url, f"UPDATE fairway_worker SET machine = '{machine()}' WHERE worker = 0")
    other.ask()
    assert other.counts["failed"] == 0
    monkeypatch.setattr("fairway.storage.leases.LEASE_SECONDS", -1.0)
    other.ask()
    assert other.counts["failed"] == 1


def test_a_worker_of_another_machine_goes_by_its_lease_and_may_come_back(url, monkeypatch):
    study, other = open_study(url), open_study(url)
    trial = study.ask()
    move_elsewhere(url)
    other.tell(other.ask(), auc=0.5, eod=0.1)
    assert other.counts["running"] == 1
    vanish(monkeypatch)
    other.optimize(pytest.fail, total=1, progress=False)  # looks who is lost, and has trials enough
    assert other.trials[0].reason == "lost its worker"
    study.tell(trial, auc=0.9, eod=0.1)
    other.owner.journal.catch_up()
    assert sum(isinstance(event, Revived) for event in other.log.read()) == 1
    assert (other.trials[0].status, other.best.number, other.counts["failed"]) == ("completed", 0, 0)
    assert other.ask().params != trial.params  # nothing waits any more
    assert verify(other.log.read()).faults == []


def test_a_study_that_nobody_holds_any_more_leaves_its_trials_though_its_process_lives(url):
    study, other = open_study(url), open_study(url)
    study.ask()
    del study
    gc.collect()
    with within(30):
        while other.log.leases.lost([0]) != {0}:
            time.sleep(0.02)
    other.ask()
    assert other.counts["failed"] == 1


def test_a_forked_child_does_not_say_that_its_parent_left(url):
    study, other = open_study(url), open_study(url)
    study.ask()
    child = os.fork()
    if child == 0:
        del study
        gc.collect()
        time.sleep(0.5)
        os._exit(0)
    os.waitpid(child, 0)
    assert other.log.leases.lost([0]) == set()


def test_a_child_of_this_machine_is_told_by_its_start():
    assert began(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as one:
        start = began(one.pid)
        assert start
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert began(one.pid) is None
    assert began(one.pid) is None


class TestAnotherMachine:
    """Its processes are not seen from here, but their connections to PostgreSQL are."""

    @pytest.fixture
    def url(self, server):
        return faults.make_database(server)

    def test_a_process_that_holds_pythons_lock_for_longer_than_its_lease_keeps_its_trial(self, url, short_lease):
        with within(60), silent(url, HOLD.format(seconds=3)) as process:
            study = open_study(url)
            move_elsewhere(url)
            time.sleep(2)
            study.ask()
            assert study.counts["failed"] == 0
            assert process.stdout.readline() == "told\n"

    def test_a_process_that_is_killed_loses_its_trial_after_the_lease(self, url, short_lease):
        with within(60), silent(url, "time.sleep(60)") as process:
            study = open_study(url)
            move_elsewhere(url)
            process.kill()
            while study.log.leases.lost([0]) != {0}:
                time.sleep(0.05)

    def test_a_connection_that_breaks_is_made_again(self, url, monkeypatch):
        monkeypatch.setattr("fairway.storage.leases.BEAT_SECONDS", 0.05)
        study, other = open_study(url), open_study(url)
        move_elsewhere(url)
        others = "FROM pg_stat_activity WHERE pid != pg_backend_pid() AND datname = current_database()"
        rows(url, f"SELECT pg_terminate_backend(pid) {others}")
        monkeypatch.setattr("fairway.storage.leases.LEASE_SECONDS", -1.0)  # only the connection counts
        with within(60):
            while other.log.leases.lost([0]) != set():
                time.sleep(0.05)
        del study

    def test_a_worker_that_leaves_gives_its_lock_back_and_others_keep_theirs(self, url):
        study, other = open_study(url), open_study(url)
        further = study.owner.enlist().worker
        rows(url, "UPDATE fairway_worker SET machine = 'elsewhere', beat = 0")
        assert other.log.leases.lost([0, further]) == set()
        study.owner.dismiss(further)
        assert other.log.leases.lost([0, further]) == {further}


def meanwhile(study, row, call):
    """Something that is called while another connection has written a row, and not yet committed it; what it raised."""
    raised = []

    def work():
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says what it should be
            raised.append(error)

    with study.log.leases._access.engine.begin() as other:
        other.execute(row)
        thread = threading.Thread(target=work)
        thread.start()
        with within(30):
            while not other.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar():
                time.sleep(0.02)
    thread.join(30)
    return raised


def test_a_sign_of_life_whose_first_try_commits_at_this_moment_is_no_error(server):
    study = open_study(faults.make_database(server))
    first = schema.worker.insert().values(study=1, worker=7, machine="", process=1, beat=0.0)
    assert meanwhile(study, first, lambda: study.log.leases.attend(7)) == []
    assert study.log.leases.lost([7]) == set()


def test_of_two_owners_that_keep_a_snapshot_at_once_the_second_leaves_it(server):
    study = open_study(faults.make_database(server))
    study.log.keep({"old": b""})
    theirs = schema.snapshot.insert().values(study=1, part="head", digest="", body=b"")
    (error,) = meanwhile(study, theirs, lambda: study.log.keep({"head": b"mine"}))
    assert isinstance(error, fw.StorageError)
    assert str(error).endswith("another process keeps a snapshot at this moment")


COLLECTED = """
import gc, sys
import fairway as fw

def search():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=sys.argv[1], name="a", seed=0)
    study.optimize(lambda trial: {"loss": trial.params["x"]}, trials=5, progress=False)

search()
gc.collect()  # the study says farewell while the interpreter ends
"""


def test_a_file_is_whole_by_itself_once_its_process_has_ended(tmp_path):
    for run in range(6):
        path = tmp_path / f"{run}.db"
        subprocess.run([sys.executable, "-c", COLLECTED, f"sqlite:///{path}"], check=True, timeout=60)
        (tmp_path / "copy.db").write_bytes(path.read_bytes())  # without the log beside it, if there is one
        assert len(fw.load_study(f"sqlite:///{tmp_path}/copy.db", "a").trials) == 5


def test_the_end_of_a_process_waits_for_work_that_is_under_way():
    script = """
    import threading, time
    from fairway.engine.awaited import Awaited

    work, begun = Awaited(), threading.Event()

    def act():
        with work:
            begun.set()
            time.sleep(0.3)
            print("done", flush=True)

    threading.Thread(target=act, daemon=True).start()
    begun.wait()
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60, capture_output=True, text=True
    )
    assert ended.stdout == "done\n"
