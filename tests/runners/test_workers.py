"""Several workers on one study: threads, and processes that are started fresh, die, and are replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import fairway as fw
from fairway.engine.clock import WallClock
from fairway.engine.events import Reported, Told
from fairway.engine.verify import verify
from fairway.storage.memory import MemoryLog
from tests.conftest import within
from tests.trainings import slow_rise as train
from tests.trainings import wait_for

BACKENDS = ["process", "thread"]


def check(study, trials):
    assert [trial.number for trial in study.trials] == list(range(trials))
    assert study.counts["running"] == 0
    assert verify(study.log.read()).faults == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_workers_share_the_trials_of_a_run(make_study, tmp_path, backend):
    def together(trial):
        (tmp_path / f"{os.getpid()} {threading.get_ident()}").touch()
        wait_for(3, tmp_path)  # all are there, however long one takes to start
        train(trial)

    study = make_study()
    study.optimize(together, trials=30, workers=3, backend=backend)
    check(study, 30)
    assert study.ended == "30 trials were run"
    assert study.counts["failed"] == 0
    processes = {trial.notes["process"] for trial in study.trials}
    assert (len(processes), os.getpid() in processes) == ((3, False) if backend == "process" else (1, True))
    study.optimize(train, trials=5, workers=2, backend=backend)  # it goes on
    check(study, 35)


def test_what_one_process_finds_out_the_others_know(make_study):
    study = make_study(fw.ACE(interval=1))
    study.optimize(train, trials=40, workers=3)
    reports = [event for event in study.log.read() if isinstance(event, Reported)]
    by_worker = {}
    for event in reports:
        by_worker.setdefault(event.worker, []).append(event.seen)
    assert len(by_worker) == 3
    for seen in by_worker.values():
        assert seen == sorted(seen)
        assert seen[-1] > len(reports) / 2
    assert study.counts["stopped"] > 5


def test_a_new_process_starts_with_all_that_was_known(make_study):
    study = make_study(fw.ACE(interval=1))
    study.tell(study.ask(), auc=0.99, eod=0.1)
    study.optimize(train, trials=4, workers=2)
    assert study.costs.checks == 0  # nothing came near the best one, so nothing was worth checking
    check(study, 5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_fails_its_trial_and_no_other(make_study, backend):
    def fragile(trial):
        if trial.number == 3:
            raise ValueError("no such solver")
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    study.optimize(fragile, trials=8, workers=2, backend=backend)
    check(study, 8)
    assert [(trial.number, trial.reason) for trial in study.trials if trial.status == "failed"] == [
        (3, "ValueError: no such solver")
    ]


class OddError(Exception):
    """An exception that cannot be built again from its arguments."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_that_is_not_to_be_caught_ends_the_run(make_study, backend):
    def fragile(trial):
        if trial.number == 2:
            raise KeyError("missing")
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    with pytest.raises(KeyError, match="missing") as caught:
        study.optimize(fragile, trials=8, workers=2, backend=backend, catch=ValueError)
    assert study.ended == "KeyError: 'missing'"
    if backend == "process":
        assert "in fragile" in str(caught.value.__cause__)
    assert study.trials[2].status == "failed"
    assert study.counts["running"] == 0


def test_an_exception_that_cannot_travel_is_told_in_words(make_study):
    def fragile(trial):
        raise OddError("this", "that")

    study = make_study()
    with pytest.raises(
        fw.StudyFailed, match="3 trials failed and none succeeded; the last one: OddError: this and that"
    ):
        study.optimize(fragile, trials=8, workers=2)
    with pytest.raises(RuntimeError, match="OddError: this and that"):
        study.optimize(fragile, trials=8, workers=2, catch=ValueError)


def test_an_exit_of_the_function_ends_the_run(make_study):
    with pytest.raises(SystemExit, match="enough"):
        make_study().optimize(lambda trial: sys.exit("enough"), trials=8, workers=2)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, None])
def test_a_process_that_dies_is_replaced_and_its_trial_is_tried_again(make_study, tmp_path, how):
    def dies_once(trial):
        flag = tmp_path / "died"
        if trial.number == 2 and not flag.exists():
            trial.report(auc=0.2, eod=0.1)
            time.sleep(0.3)
            flag.touch()
            os._exit(7) if how is None else os.kill(os.getpid(), how)
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    study.optimize(dies_once, trials=10, workers=2)
    check(study, 11)
    (lost,) = [trial for trial in study.trials if trial.status == "failed"]
    name = "it exited with code 7" if how is None else f"killed by {how.name}"
    assert (lost.reason, lost.steps) == (f"lost its worker ({name})", 1)
    assert [trial.params for trial in study.trials].count(lost.params) == 2
    assert study.counts["completed"] == 10


@pytest.mark.parametrize("retry", [0, 2])
def test_a_trial_that_always_kills_its_process_is_given_up(make_study, retry):
    def dies(trial):
        if trial.params["x"] == 0.125:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    study.enqueue({"x": 0.125})
    study.optimize(dies, trials=4, workers=2, retry=retry)
    check(study, 4 + retry)
    assert [trial.status for trial in study.trials if trial.params["x"] == 0.125] == ["failed"] * (retry + 1)


def test_processes_that_all_die_end_the_run_with_a_sentence(make_study):
    with pytest.raises(fw.StudyFailed, match=r"3 trials failed .* lost its worker \(killed by SIGKILL\)"):
        make_study().optimize(lambda trial: os.kill(os.getpid(), signal.SIGKILL), trials=9, workers=2)


def test_what_cannot_be_sent_to_a_process_is_said(make_study):
    study = make_study()
    with pytest.raises(fw.UsageError, match=r"cannot be sent to worker processes .* or use backend='thread'"):
        study.optimize(lambda trial: study.best, trials=2, workers=2)
    lock = threading.Lock()
    with pytest.raises(fw.UsageError, match="cannot be sent"):
        study.optimize(lambda trial: lock, trials=2, workers=2)
    for wrong, sentence in (
        ({"workers": 0}, "workers=0"),
        ({"backend": "fork"}, "backend='fork': 'process', 'thread' or 'ray' is expected"),
        ({"retry": -1}, "retry=-1"),
    ):
        with pytest.raises(fw.UsageError, match=sentence):
            study.optimize(train, trials=2, **wrong)


def test_a_function_whose_module_is_gone_is_said(make_study, tmp_path, monkeypatch):
    (tmp_path / "vanishing.py").write_text("def train(trial):\n    return {'auc': 0.5, 'eod': 0.1}\n")
    monkeypatch.syspath_prepend(tmp_path)
    import vanishing

    (tmp_path / "vanishing.py").unlink()
    for cached in (tmp_path / "__pycache__").glob("*"):
        cached.unlink()
    with pytest.raises(fw.UsageError, match="could not load the function: ModuleNotFoundError"):
        make_study().optimize(vanishing.train, trials=2, workers=2)


class Patient(WallClock):
    """The machine's clock, but it stands still until three files are in a folder, and is two seconds later then."""

    def __init__(self, folder):
        self._folder, self._stood = folder, WallClock.ns()

    def ns(self):
        return WallClock.ns() + 2_000_000_000 if len(list(self._folder.iterdir())) == 3 else self._stood


@pytest.mark.parametrize("backend", BACKENDS)
def test_timeouts_are_totals_over_all_workers(make_study, tmp_path, backend):
    def slow(trial):
        (tmp_path / str(trial.number)).touch()
        wait_for(3, tmp_path)  # however long a worker takes to start
        for _ in trial.steps(1000):
            time.sleep(0.01)
            trial.report(auc=0.5, eod=0.1)

    study = make_study(fw.Never())
    study.owner.clock = Patient(tmp_path)
    study.optimize(slow, timeout=1.0, workers=3, backend=backend)
    study.owner.clock = WallClock()
    assert study.ended == "the timeout of 1 s has passed"
    assert study.counts["stopped"] == len(study.trials) == 3
    assert {trial.reason for trial in study.trials} == {"the timeout of 1 s has passed"}
    study.optimize(slow, trials=2, trial_timeout=0.05, workers=2, backend=backend)
    assert {trial.reason for trial in study.trials[3:]} == {"longer than trial_timeout=0.05 s"}
    check(study, 5)


class Failing(MemoryLog):
    """A log that cannot be written from the third tell on, for a while."""

    def __init__(self):
        super().__init__()
        self.tells = 0

    def append(self, events):
        self.tells += any(isinstance(event, Told) for event in events)
        if 3 <= self.tells < 6:
            raise OSError("the disk is full")
        return super().append(events)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_log_that_cannot_be_written_ends_the_run(make_study, backend):
    study = make_study(storage=Failing())
    with pytest.raises(fw.StorageError, match="the disk is full"):
        study.optimize(train, trials=50, workers=1 if backend is None else 2, backend=backend)
    assert study.counts["completed"] + study.counts["stopped"] == 2
    study.log.tells = 10
    study.optimize(train, trials=3)
    assert study.counts["completed"] + study.counts["stopped"] > 5  # the ends that could not be written too
    assert verify(study.log.read()).faults == []


def test_an_end_that_comes_while_a_trial_is_asked_for_cuts_it(make_study):
    @dataclass(frozen=True)
    class Slow(fw.Sampler):
        def propose(self, history, rng):
            if len(history.pending) or len(history):
                failed.wait(20)
            return rng.random(1)

    failed = threading.Event()

    def function(trial):
        if trial.number == 0:
            failed.set()
            raise KeyError("fatal")
        for _ in trial.steps(10_000):
            time.sleep(0.001)
            trial.report(auc=0.5, eod=0.1)

    study = make_study(fw.Never(), sampler=Slow())
    with pytest.raises(KeyError):
        study.optimize(function, trials=2, workers=2, backend="thread", catch=ValueError)
    assert all(trial.steps < 5000 for trial in study.trials)


def test_a_dead_process_is_missed_though_a_child_of_its_own_lives(make_study):
    def leaves_a_child(trial):
        if trial.number == 1:
            if os.fork() == 0:
                time.sleep(120)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    began = time.monotonic()
    study.optimize(leaves_a_child, trials=4, workers=2)
    assert time.monotonic() - began < 100
    check(study, 5)


def test_a_child_that_the_function_forks_does_not_become_a_worker(make_study, tmp_path):
    def forks(trial):
        if trial.number == 0:
            child = os.fork()
            (tmp_path / "child").write_text(str(child or os.getpid()))
        return {"auc": 0.5, "eod": 0.1}  # in both

    study = make_study()
    with within(60):
        study.optimize(forks, trials=4, workers=1, backend="process")
        check(study, 4)
        assert study.counts["completed"] == 4
        while is_alive(int((tmp_path / "child").read_text())):
            time.sleep(0.02)


def test_a_child_that_reports_hangs_nobody(make_study):
    def forks(trial):
        for step in trial.steps(30):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # ends a child that hangs
                try:
                    trial.report(auc=0.9, eod=lambda: 0.1)
                except fw.UsageError:
                    os._exit(7)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            trial.report(auc=step / 100, eod=lambda: 0.1)

    study = make_study(fw.Never(interval=1))
    with within(120):
        study.optimize(forks, trials=4, workers=2, check_timeout=30.0)
    check(study, 4)
    assert study.counts["completed"] == 4
    assert study.best.metrics["auc"] == 0.3


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("ending", "said", "code"),
    [("pass", "", 0), ("sys.exit(3)", "", 3), ("raise ValueError('in the child')", "ValueError: in the child", 1)],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_child_that_the_function_forks_in_this_process_ends_with_it(workers, ending, said, code):
    script = f"""
import os, sys
import fairway as fw
study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Minimize("loss"), seed=0)
def train(trial):
    if trial.number == 0:
        child = os.fork()
        if child == 0:
            {ending}
        else:
            print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 0.5
study.optimize(train, trials=3, workers={workers}, backend="thread")
print("done", study.counts["completed"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == (f"child {code}\ndone 3\n", 0)
    assert said in done.stderr


def test_a_signal_without_a_name_is_told_by_its_number(make_study):
    def dies(trial):
        if trial.number == 1:
            os.kill(os.getpid(), 40)
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    study.optimize(dies, trials=3, workers=2)
    assert study.trials[1].reason == "lost its worker (killed by signal 40)"


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_an_exception_without_words_fails_its_trial(make_study, backend):
    def fragile(trial):
        if trial.number == 1:
            raise UnspeakableError
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    study.optimize(fragile, trials=4, workers=1 if backend is None else 2, backend=backend)
    assert study.trials[1].reason == "UnspeakableError"


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_caught_does_not_depend_on_how_an_exception_travels(make_study, tmp_path, backend):
    (tmp_path / "only_there.py").write_text("class ThereError(Exception):\n    pass\n")

    def fragile(trial):
        if trial.number == 1:
            raise OddError("this", "that")
        if trial.number == 2:
            sys.path.insert(0, str(tmp_path))
            import only_there

            raise only_there.ThereError("bad")
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    study.optimize(fragile, trials=5, workers=2, backend=backend)
    assert [study.trials[k].reason for k in (1, 2)] == ["OddError: this and that", "ThereError: bad"]
    with pytest.raises(RuntimeError if backend == "process" else OddError):
        make_study().optimize(fragile, trials=2, workers=2, backend=backend, catch=ValueError)


def test_a_trial_that_another_owner_gave_up_is_one_failure_and_its_reports_stay(make_study):
    study = make_study(fw.ACE(interval=1))
    other = make_study(fw.ACE(interval=1), storage=study.log)

    def given_up(trial):
        for _ in trial.steps(4):
            trial.report(auc=0.5, eod=lambda: 0.1)
        if trial.number == 0:
            other.owner.journal.catch_up()
            other.owner.give_up(0, "lost its worker", retry=1)
            other.tell(other.ask(), auc=0.5, eod=0.1)  # it is run again

    study.optimize(given_up, trials=3)
    assert [trial.status for trial in study.trials] == ["failed", *["completed"] * 3]
    assert verify(study.log.read()).faults == []


def test_no_trial_begins_after_the_timeout(make_study):
    study = make_study()
    study.optimize(train, timeout=0.001, workers=2)
    assert (len(study.trials), study.ended) == (0, "the timeout of 0.001 s has passed")


UNGUARDED = """
import os, sys
import fairway as fw

offset = 0.1

class Model:
    def fit(self, x):
        return x + offset

def train(trial):
    return {"auc": Model().fit(trial.params["x"]), "eod": 0.1}

study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
study.optimize(train, trials=6, workers=2, progress=False)
print(study.counts["completed"], study.best.metrics["auc"] > offset)
"""


@pytest.mark.parametrize("way", ["file", "stdin", "-c"])
def test_a_script_needs_no_guard(tmp_path, way):
    script = tmp_path / "tune.py"
    script.write_text(UNGUARDED)
    command = {"file": [str(script)], "stdin": ["-"], "-c": ["-c", UNGUARDED]}[way]
    text = UNGUARDED if way == "stdin" else None
    done = subprocess.run(
        [sys.executable, *command], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("6 True\n", "")


INTERRUPTED = """
import signal, sys, time
import fairway as fw

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background without it

url, backend, stubborn = sys.argv[1:]
study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url, seed=0,
                 stopper=fw.Never())

def train(trial):
    if trial.number < 4:
        return {"auc": 0.5, "eod": 0.1}
    for step in trial.steps(10_000):
        trial.report(auc=0.5, eod=0.1)
        if step == 3:
            sys.stdout.write("running\\n")  # at once: print writes the end of the line apart
            sys.stdout.flush()
        end = time.monotonic() + (0.02 if stubborn == "no" else 60)
        while time.monotonic() < end:
            try:
                time.sleep(0.01)
            except KeyboardInterrupt:
                if stubborn == "no":
                    open(url.removeprefix("sqlite:///") + ".cleaned", "w").close()
                    raise

if stubborn == "yes":
    print("running", flush=True)
try:
    study.optimize(train, trials=100, workers=2, backend=backend)
except KeyboardInterrupt:
    print(study.ended, dict(study.counts), flush=True)
"""


STORM = """
import os, random, signal, sys, threading, time
import fairway as fw

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background without it

def train(trial):
    for _ in trial.steps(3):
        trial.report(auc=trial.params["x"])

for k in range(40):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), storage=f"sqlite:///{sys.argv[1]}/{k}.db", seed=0)
    timer = threading.Timer(0.02 + random.random() * 0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        study.optimize(train, timeout=60, workers=1 + k % 2, backend=("thread" if k % 2 else None), progress=False)
        raise AssertionError("Ctrl-C was not raised")
    except KeyboardInterrupt:
        pass
    assert study.ended == "interrupted", study.ended
    assert study.counts["running"] == 0, study.counts
    timer.join()
"""


@contextmanager
def interrupted(*arguments):
    """The script above in a process group of its own, which does not outlive a test that fails."""
    command = [sys.executable, "-c", INTERRUPTED, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as run:
        try:
            yield run
        finally:
            run.kill()


def test_ctrl_c_at_any_moment_leaves_no_lock_and_no_running_trial(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STORM, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_ends_a_run_cleanly(tmp_path, backend):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with interrupted(url, backend, "no") as run:
        assert [run.stdout.readline() for _ in range(2)] == ["running\n"] * 2
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all
        out, _ = run.communicate(timeout=60)
    assert (run.returncode, out.splitlines()[0].split(" ", 1)[0]) == (0, "interrupted")
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url)
    check(study, 6)
    assert {(trial.status, trial.reason) for trial in study.trials[4:]} == {("failed", "interrupted")}
    assert study.counts["completed"] == 4
    assert Path(tmp_path / "study.db.cleaned").exists() == (backend == "process")  # its function could clean up


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_ctrl_c_ends_it_at_once(tmp_path, backend):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with interrupted(url, backend, "yes") as run:
        assert run.stdout.readline() == "running\n"
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url)
        patience = time.monotonic() + 30
        while study.counts["running"] < 2 or len(study.trials) < 6:
            study.owner.journal.catch_up()
            assert time.monotonic() < patience
            time.sleep(0.05)
        began = time.monotonic()
        for _ in range(2):
            os.killpg(run.pid, signal.SIGINT)
            time.sleep(0.5)
        run.communicate(timeout=60)
        assert time.monotonic() - began < 30  # not the minute that a step takes
    study.owner.journal.catch_up()
    check(study, 6)
    assert {trial.reason for trial in study.trials[4:]} == {"interrupted"}


@pytest.mark.parametrize("lingering", [False, True])
def test_processes_end_with_their_owner_whatever_threads_they_have(lingering):
    script = f"""
import os, threading, time
import fairway as fw
study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Maximize("auc"), seed=0)
def train(trial):
    os.write(1, f"{{os.getpid()}}\\n".encode())  # a whole line, whoever else writes
    if {lingering}:
        threading.Thread(target=time.sleep, args=(60,)).start()
    time.sleep(60)
study.optimize(train, trials=2, workers=2)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        try:
            processes = [int(run.stdout.readline()) for _ in range(2)]
        finally:
            run.kill()
    patience = time.monotonic() + 20
    while any(Path(f"/proc/{process}/cmdline").exists() for process in processes):
        assert time.monotonic() < patience
        time.sleep(0.05)
