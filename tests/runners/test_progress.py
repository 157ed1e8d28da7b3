from __future__ import annotations

import io
import logging
import os
import pty
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import fairway as fw
from fairway.evidence import Mean
from fairway.runners import progress
from fairway.runners.progress import describe, paced
from tests.conftest import flush, run_curves

SCRIPT = """
import fairway as fw
study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
study.optimize(lambda trial: {"auc": trial.params["x"], "eod": 0.1}, trials=20)
"""


def test_progress_tells_trials_stops_and_why_the_best_and_the_checks(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    assert describe(study.owner, 0, 5, 0.0) == [
        "0/5 trials in 0 s, seed 0",
        "nothing feasible yet; checks 0 paid, 0 saved",
    ]
    run_curves(study, [[(0.7, {"eod": 0.1})], [(0.6, {"eod": 0.9}), (0.9, {"eod": 0.5}), (0.9, {"eod": 0.5})]])
    study.ask()
    assert describe(study.owner, 2, None, 12.3) == [
        "2 trials in 12 s, 1 running, 1 completed, 1 stopped, seed 0",
        "best auc 0.7, eod 0.1; checks 2 paid, 1 saved",
        "last stop: trial 1: eod 0.5 > 0.25, violated at step 2 under hard tolerance",
    ]
    study.tell(study.ask(), failed="out of memory")
    shown = describe(study.owner, 1, 3, 1.0, before=2)
    assert shown[0] == "1/3 trial in 1 s, 2 earlier, 1 running, 1 completed, 1 stopped, 1 failed, seed 0"
    assert shown[-1] == "last failure: trial 3: out of memory"
    hour = describe(study.owner, 1, None, 1.0, before=2, left=3600.4)
    assert hour[0].startswith("1 trial in 1 s, 60 min left, 2 earlier, ")


def test_progress_shows_errors(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.7, eod=fw.Measured(0.0712, error=0.012))
    assert describe(study.owner, 1, 1, 0.0)[1].startswith("best auc 0.7, eod 0.071 ± 0.012; ")


def test_progress_shows_each_of_several_running_trials(make_study):
    study = make_study(fw.Never())
    trials = [study.ask() for _ in range(18)]
    for _ in trials[0].steps(5):
        trials[0].report(auc=0.7, eod=0.1)
    for _ in range(3):
        trials[1].report(auc=0.6, eod=lambda: 0.1)
    flush(study)
    shown = describe(study.owner, 0, None, 0.0)[2:]
    assert shown[:3] == ["  trial 0: step 5/5, auc 0.7, eod 0.1", "  trial 1: step 3, auc 0.6", "  trial 2: begins"]
    assert shown[-1] == "  and 2 more"


def evaluate(trial):
    return {"auc": 0.5, "eod": 0.1}


def test_plain_lines_where_it_is_no_terminal_and_silence_if_asked_for(make_study, capsys):
    study = make_study()
    study.optimize(evaluate, trials=3, progress=False)
    assert capsys.readouterr() == ("", "")
    study.optimize(evaluate, trials=3)
    (line,) = capsys.readouterr().err.splitlines()
    said = r"3/3 trials in \d+ s, 3 earlier, 6 completed, seed 0 \| best auc 0.5, eod 0.1; checks 0 paid"
    assert re.match(said, line)


@pytest.mark.parametrize("given", [None, "no"])
def test_progress_is_wanted_or_not(make_study, given):
    with pytest.raises(fw.UsageError, match="True or False is expected"):
        make_study().optimize(evaluate, trials=1, progress=given)


def awaited(capsys, text):
    """What is printed until a text comes."""
    printed, patience = "", time.monotonic() + 20
    while text not in printed:
        assert time.monotonic() < patience
        time.sleep(0.01)
        printed += capsys.readouterr().err
    return printed


def test_a_plain_line_comes_at_a_new_best_and_otherwise_every_ten_seconds(make_study, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.01)
    printed = []

    def train(trial):
        for step in trial.steps(3):
            if step == 3:
                monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.05)
            trial.report(auc=0.5, eod=0.3 if step == 1 else 0.1)
            printed.append("" if step == 1 else awaited(capsys, "0/1 trials"))

    make_study(fw.Never()).optimize(train, trials=1)
    at_best, later = printed[1:]
    (line,) = at_best.splitlines()
    assert re.fullmatch(
        r"0/1 trials in \d+ s, 1 running, seed 0 \| best auc 0.5, eod 0.1; checks 0 paid, 0 saved", line
    )
    assert "0/1 trials" in later


def test_lines_go_to_the_log_and_are_not_printed_twice(make_study, capsys):
    logger, study = logging.getLogger("fairway"), make_study()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("log: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        study.optimize(evaluate, trials=2)
        study.certify(lambda model: Mean([0] * 200), models=lambda best: "model")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    lines = capsys.readouterr().err.splitlines()
    assert re.match(r"log: 2/2 trials in \d+ s, 2 completed, seed 0 \| best auc 0.5", lines[0])
    assert lines[1:] == ["log: ended: 2 trials were run", "log: testing trial 0, step 1: candidate 1 of 1"]


@pytest.mark.parametrize("error", [OSError("No space left on device"), ValueError("I/O operation on closed file")])
def test_progress_that_cannot_be_written_ends_nothing(make_study, monkeypatch, error):
    class Full(io.StringIO):
        def write(self, text):
            raise error

    monkeypatch.setattr(sys, "stderr", Full())
    study = make_study()
    study.optimize(evaluate, trials=2)
    assert study.ended == "2 trials were run"


def test_a_notebook_has_one_cell_that_changes(make_study, monkeypatch, capsys):
    shown = []

    class Handle:
        def update(self, data, *, raw):
            shown.append(data)

    def display(data, *, raw, display_id):
        assert raw
        assert display_id
        shown.append(data)
        return Handle()

    shell = SimpleNamespace(kernel=object())  # as ipykernel's has; a terminal's has none
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.01)
    study = make_study(stopper=fw.Never())

    def train(trial):
        for _ in trial.steps(2):
            before, patience = len(shown), time.monotonic() + 20
            while len(shown) <= before:
                assert time.monotonic() < patience
                time.sleep(0.01)
            trial.report(auc=0.5, eod=0.3)

    study.optimize(train, trials=1)
    assert capsys.readouterr() == ("", "")
    assert shown[0]["text/plain"].startswith("0/1 trials in 0 s, seed 0\nnothing feasible yet")
    assert shown[-1]["text/plain"].startswith("1/1 trial in ")
    assert shown[-1]["text/html"] == f"<pre>{shown[-1]['text/plain']}</pre>"


def test_a_live_line_in_a_terminal():
    owner, terminal = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm"}
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            read = os.read(owner, 4096)
        except OSError:  # the other side is closed
            break
        if not read:
            break
        shown += read
    assert run.wait() == 0
    assert b"20/20 trials in" in shown
    assert b"best auc 0." in shown


def test_a_trial_that_an_earlier_run_lost_is_not_counted_as_done(tmp_path, capfd):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    script = f"""
import os, signal
import fairway as fw
study = fw.Study({{"x": fw.Float(0.0, 1.0)}}, fw.Minimize("loss"), seed=0, storage={url!r})
study.optimize(lambda trial: os.kill(os.getpid(), signal.SIGKILL) if trial.number == 2 else 0.5, trials=5)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    capfd.readouterr()
    study = fw.load_study(url, "study")
    study.optimize(lambda trial: 0.5, trials=5)
    assert study.counts["failed"] == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("5/5 trials in ")
    assert "2 earlier, 7 completed, 1 failed, 1 of these tried again, seed" in last


def test_lines_that_come_fast_are_told_every_ten_seconds(monkeypatch):
    now, told = 100.0, []
    monkeypatch.setattr("fairway.runners.progress.time.monotonic", lambda: now)
    tell = paced(told.append)
    for now, line in [(100.0, "first"), (101.0, "soon"), (109.9, "still"), (110.0, "second"), (300.0, "third")]:  # noqa: B007
        tell(line)
    assert told == ["first", "second", "third"]
