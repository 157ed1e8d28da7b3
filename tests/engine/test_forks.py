from __future__ import annotations

import os
import signal
import threading

import pytest

import fairway as fw


def child_says(act):
    """What a forked child says of an act, within a few seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # one that hangs says nothing
        try:
            said = str(act())
        except fw.UsageError as error:
            said = f"refused: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def held():
    """Hold a lock in a thread that no child has."""
    release = threading.Event()

    def hold(lock):
        taken = threading.Event()

        def keep():
            with lock:
                taken.set()
                release.wait()

        threading.Thread(target=keep, daemon=True).start()
        taken.wait()

    yield hold
    release.set()


REFUSED = "refused: trial 0 runs in the process that forked this one: report and tell it there"


def test_what_a_forked_child_reports_is_refused_and_its_loop_ends(make_study, held):
    study = make_study()
    trial = study.ask()
    steps = trial.steps(10)
    next(steps)
    held(study.owner.lock)
    assert child_says(lambda: trial.report(auc=0.5, eod=lambda: 0.1)) == REFUSED
    assert child_says(lambda: list(steps)) == "[]"
    assert "made in another process" in child_says(study.ask)


def test_a_trial_that_has_not_begun_does_not_begin_in_a_forked_child(make_study, held):
    study = make_study()
    trial = study.ask()
    held(study.owner.lock)
    assert child_says(lambda: list(trial.steps(10))) == "[]"


def test_a_fork_changes_nothing_in_the_parent(make_study):
    study = make_study()
    trial = study.ask()
    for step in trial.steps(3):
        child_says(lambda step=step: step)
        trial.report(auc=0.5, eod=0.1)
    study.tell(trial)
    assert (study.counts["completed"], study.trials[0].steps) == (1, 3)
    assert child_says(lambda: study.best.metrics["auc"]) == "0.5"


def test_a_child_opens_the_study_for_itself(tmp_path, make_study):
    url = f"sqlite:///{tmp_path}/study.db"
    study = make_study(storage=url)
    study.tell(study.ask(), auc=0.5, eod=0.1)

    def run_one():
        mine = make_study(storage=url)
        return mine.tell(mine.ask(), auc=0.9, eod=0.1)

    assert child_says(run_one) == "True"
    assert study.ask().number == 2
