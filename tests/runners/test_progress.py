from __future__ import annotations

import os
import pty
import subprocess
import sys

import fairway as fw
from fairway.runners.progress import describe
from tests.conftest import flush, run_curves

SCRIPT = """
import fairway as fw
study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
study.optimize(lambda trial: {"auc": trial.params["x"], "eod": 0.1}, trials=20)
"""


def test_progress_tells_trials_stops_and_why_the_best_and_the_checks(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    assert describe(study.owner, 5, 0.0) == [
        "0/5 trials in 0 s, seed 0",
        "nothing feasible yet; checks 0 paid, 0 saved",
    ]
    run_curves(study, [[(0.7, {"eod": 0.1})], [(0.6, {"eod": 0.9}), (0.9, {"eod": 0.5}), (0.9, {"eod": 0.5})]])
    study.ask()
    assert describe(study.owner, None, 12.3) == [
        "2 trials in 12 s, 1 running, 1 completed, 1 stopped, seed 0",
        "best auc 0.7, eod 0.1; checks 2 paid, 1 saved",
        "last stop: trial 1: eod 0.5 > 0.25, violated at step 2 under hard tolerance",
    ]
    study.tell(study.ask(), failed="out of memory")
    shown = describe(study.owner, 3, 1.0, before=2)
    assert shown[0] == "1/3 trial in 1 s, 2 earlier, 1 running, 1 completed, 1 stopped, 1 failed, seed 0"
    assert shown[-1] == "last failure: trial 3: out of memory"


def test_progress_shows_errors(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.7, eod=fw.Measured(0.0712, error=0.012))
    assert describe(study.owner, 1, 0.0)[1].startswith("best auc 0.7, eod 0.071 ± 0.012; ")


def test_progress_shows_each_of_several_running_trials(make_study):
    study = make_study(fw.Never())
    trials = [study.ask() for _ in range(18)]
    for _ in trials[0].steps(5):
        trials[0].report(auc=0.7, eod=0.1)
    for _ in range(3):
        trials[1].report(auc=0.6, eod=lambda: 0.1)
    flush(study)
    shown = describe(study.owner, None, 0.0)[2:]
    assert shown[:3] == ["  trial 0: step 5/5, auc 0.7, eod 0.1", "  trial 1: step 3, auc 0.6", "  trial 2: begins"]
    assert shown[-1] == "  and 2 more"


def test_plain_lines_where_it_is_no_terminal_and_silence_unless_asked_for(make_study, capsys):
    study = make_study()
    study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=3)
    study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=3, progress=False)
    assert capsys.readouterr() == ("", "")
    study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=3, progress=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("3/3 trials in 0 s, 6 earlier, 9 completed, seed 0 | best auc 0.5, eod 0.1; checks 0 paid")


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
