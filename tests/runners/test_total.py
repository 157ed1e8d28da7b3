"""`optimize(total=...)`: a script that is simply run again ends with as many trials as if it had never been killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import fairway as fw
from fairway.cli import main
from fairway.engine import snapshot

SCRIPT = """
import os, signal, sys
import fairway as fw

def train(trial):
    if str(trial.number) == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return trial.params["x"]

study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=sys.argv[1], seed=0)
study.optimize(train, total=10, progress=False)
"""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


def new_study(url=None, name="study"):
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=url, name=name, seed=0)


def train(trial):
    return trial.params["x"]


def test_a_script_that_is_run_again_after_a_kill_ends_with_as_many_trials(url):
    for killed in ("9", "never"):  # the last trial of all: only whoever runs it again finds it lost
        subprocess.run([sys.executable, "-c", SCRIPT, url, killed], check=killed == "never")
    study = fw.load_study(url)
    study.optimize(pytest.fail, total=10)
    assert study.counts == {"running": 0, "completed": 10, "stopped": 0, "failed": 1}
    assert study.trials[9].reason == "lost its worker"
    assert study.ended == "the study has 10 trials"


def test_a_study_that_has_its_trials_begins_none(url):
    study = new_study(url)
    study.optimize(train, trials=4)
    study.optimize(pytest.fail, total=3)
    study.optimize(pytest.fail, total=4, workers=2, backend="process")
    assert len(study.trials) == 4
    assert study.ended == "the study has 4 trials"


def test_trials_and_a_total_end_a_run_whichever_comes_first():
    study = new_study()
    study.optimize(train, trials=3, total=5)
    assert (len(study.trials), study.ended) == (3, "3 trials were run")
    study.optimize(train, trials=3, total=5)
    assert (len(study.trials), study.ended) == (5, "the study has 5 trials")


def test_processes_that_share_a_study_make_no_trial_too_many(url):
    studies = [new_study(url) for _ in range(3)]
    threads = [threading.Thread(target=study.optimize, args=(train,), kwargs={"total": 20}) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fw.load_study(url).counts == {"running": 0, "completed": 20, "stopped": 0, "failed": 0}


def test_the_last_trial_is_tried_again_if_its_worker_dies():
    def dies_once(trial):
        import os  # in the worker, to which the function is sent

        if trial.number == 3:
            os._exit(1)
        return trial.params["x"]

    study = new_study()
    study.optimize(dies_once, total=4, workers=2)
    assert study.counts == {"running": 0, "completed": 4, "stopped": 0, "failed": 1}


def test_a_trial_that_continues_an_interrupted_one_counts_with_it(tmp_path):
    def interrupted(trial):
        trial.save(lambda path: path.write_text("half"))
        trial.report(loss=0.5)
        if trial.number == 1:
            raise KeyboardInterrupt

    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), checkpoints=fw.Keep(tmp_path), seed=0)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(interrupted, total=3)
    study.optimize(interrupted, total=3)
    assert study.counts == {"running": 0, "completed": 3, "stopped": 0, "failed": 1}


def test_a_snapshot_remembers_which_trials_were_tried_again(url):
    study = new_study(url)
    study.owner.give_up(study.ask().number, "lost its worker", retry=1)
    study.optimize(train, total=3)
    owner = study.owner
    assert snapshot.keep(study.log, owner.journal.position, owner.ledger, owner.referee)
    restored, position = snapshot.restore(study.log, study.space, study.problem)
    assert position == owner.journal.position
    assert (len(restored.courses), restored.ended_trials, restored.has_room(3)) == (4, 3, False)


def test_the_command_line_takes_a_total(tmp_path, url, capsys):
    script = tmp_path / "search.py"
    script.write_text(
        f"import fairway as fw\n"
        f"study = fw.Study({{'x': fw.Float(0.0, 1.0)}}, fw.Minimize('loss'), storage={url!r}, seed=0)\n"
        f"def train(trial): return trial.params['x']\n"
    )
    for _ in range(2):
        assert main(["run", str(script), "--total", "4"]) == 0
    assert "ended: the study has 4 trials" in capsys.readouterr().out
    assert len(fw.load_study(url).trials) == 4


@pytest.mark.parametrize("total", [0, -1, 2.5, True, "30"])
def test_a_total_that_is_no_number_of_trials_is_refused_in_one_sentence(total):
    with pytest.raises(fw.UsageError, match=r"total=.*: a whole number of at least 1 is expected"):
        new_study().optimize(train, total=total)


def test_a_trial_that_is_tried_again_goes_before_configurations_that_wait(tmp_path):
    study = new_study()
    for x in (0.1, 0.2, 0.3):
        study.enqueue({"x": x})

    def dies_once(trial):
        if trial.params["x"] == 0.1 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os._exit(9)
        return trial.params["x"]

    study.optimize(dies_once, total=2, backend="process", progress=False)
    assert [(trial.params["x"], trial.status) for trial in study.trials] == [
        (0.1, "failed"),
        (0.1, "completed"),
        (0.2, "completed"),
    ]
    assert [waiting.params for waiting in study.owner.ledger.queue] == [{"x": 0.3}]


def test_a_study_that_has_more_trials_than_asked_for_trains_nothing_and_says_how_many_it_has():
    study = new_study()
    study.optimize(train, trials=5, progress=False)
    lost = study.ask()
    study.owner.give_up(lost.number, "lost its worker", retry=1)
    study.optimize(pytest.fail, total=3, progress=False)
    assert study.ended == "the study has 5 trials"
    study.optimize(train, total=6, progress=False)
    assert (study.ended, study.counts["completed"]) == ("the study has 6 trials", 6)
