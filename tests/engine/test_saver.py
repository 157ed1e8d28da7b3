"""What `trial.save` refuses, what it makes of a disk that fails, and what it never touches."""

from __future__ import annotations

import logging
import pathlib

import numpy as np
import pytest

import fairway as fw
from fairway.engine.events import Saved


@pytest.fixture
def study(tmp_path):
    keep = fw.Keep(tmp_path / "kept", best=1)
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), checkpoints=keep, sampler=fw.Random(), seed=0)


def refused(study, what, sentence, **how):
    with pytest.raises(fw.UsageError, match=sentence) as raised:
        study.ask().save(what, **how)
    assert "\n" not in str(raised.value)


def test_what_is_no_checkpoint_is_refused_in_a_sentence(study, tmp_path):
    refused(study, 7, r"save\(7\): the path of a file or folder is expected, or a function")
    refused(study, str(tmp_path / "no.pt"), "there is no such file or folder; write it first")
    refused(study, "", "there is no such file or folder")
    refused(study, tmp_path, "that folder holds the folder of all checkpoints")
    refused(study, lambda path: None, "the function that trial.save called wrote nothing to the path that it got$")
    refused(study, lambda path: np.save(path, [1.0]), "wrote nothing to the path that it got: pass suffix='.npy'")
    refused(study, print, "an ending such as '.npy' is expected", suffix="npy")
    refused(study, print, "an ending such as '.npy' is expected", suffix="./../x")
    refused(study, print, "step=0", step=0)
    assert not list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize(
    ("keep", "sentence"),
    [
        (fw.Keep, "that is a file; a folder is expected"),
        (lambda file: fw.Keep(7), r"Keep\(7\): the path of a folder is expected"),
        (lambda file: fw.Keep(""), "the path of a folder is expected"),
        (lambda file: fw.Keep(best=0), "best=0"),
        (
            lambda file: fw.Study({"x": fw.Int(0, 1)}, fw.Minimize("loss"), checkpoints=3),
            r"checkpoints=3: fw.Keep\(\.\.\.\) is expected",
        ),
    ],
)
def test_a_wrong_keep_is_refused_in_a_sentence(tmp_path, keep, sentence):
    (tmp_path / "file").touch()
    with pytest.raises(fw.UsageError, match=sentence):
        keep(str(tmp_path / "file"))


def test_a_function_that_raises_fails_its_trial_and_leaves_nothing(study, tmp_path):
    def broken(path):
        path.write_text("half")
        raise ValueError("cannot be pickled")

    def train(trial):
        trial.save(broken if trial.number else lambda path: path.write_text("whole"))
        return trial.params["x"]

    study.optimize(train, trials=3)
    reason = study.trials[1].reason
    assert reason == "ValueError: cannot be pickled, raised by the function that trial.save of trial 1 called"
    assert [path.read_text() for path in (tmp_path / "kept").iterdir()] == ["whole"]


def test_a_full_disk_is_told_once_and_ends_nothing(study, caplog):
    def full(path):
        with pathlib.Path("/dev/full").open("w") as file:
            file.write("a model")

    saved = []

    def train(trial):
        for _ in trial.steps(3):
            trial.report(loss=trial.params["x"])
            saved.append(trial.save(full))

    with caplog.at_level(logging.WARNING, "fairway"):
        study.optimize(train, trials=4)
    assert (study.counts["completed"], set(saved)) == (4, {None})
    told = [record.message for record in caplog.records if "checkpoint" in record.message]
    assert len(told) == 1
    assert "No space left on device" in told[0]
    assert study.best.checkpoint is None
    with pytest.raises(fw.UsageError, match=r"the best is trial . at step 1, which has no checkpoint"):
        study.load_best(str)


def test_a_folder_that_cannot_be_made_is_told_once_by_worker_processes_too(tmp_path, caplog):
    (tmp_path / "file").touch()
    keep = fw.Keep(tmp_path / "file" / "kept")
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), checkpoints=keep, seed=0)

    def train(trial):
        trial.save(lambda path: path.write_text("a model"))
        return trial.params["x"]

    with caplog.at_level(logging.WARNING, "fairway"):
        study.optimize(train, trials=6, workers=2)
    assert study.counts["completed"] == 6
    assert len([record for record in caplog.records if "could not be saved in" in record.message]) == 1


def test_a_checkpoint_that_cannot_be_deleted_is_told_once_and_ends_nothing(study, caplog, monkeypatch):
    def locked(path, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    def train(trial):
        trial.save(lambda path: path.write_text("a model"))
        return 1.0 - trial.params["x"]

    study.optimize(train, trials=1)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "fairway"):
        patched.setattr(pathlib.Path, "unlink", lambda path, missing_ok=False: path.exists() and locked(path))
        study.optimize(train, trials=4)
    told = [record.message for record in caplog.records if "could not be deleted" in record.message]
    assert (len(told), study.counts["completed"]) == (1, 5)
    study.optimize(train, trials=1)  # the disk is back, and so is the bound
    assert len(list(study.best.checkpoint.parent.iterdir())) == 1


def test_a_file_or_folder_of_the_users_is_copied_and_stays(study, tmp_path):
    (tmp_path / "last.pt").write_text("weights")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    trial = study.ask()
    trial.report(loss=0.5)
    file, folder = trial.save(tmp_path / "last.pt"), trial.save(str(tmp_path / "model"), step=2)
    assert (file.suffix, file.read_text(), (folder / "config.json").read_text()) == (".pt", "weights", "{}")
    trial.save(str(tmp_path / "model"), step=2)  # once more, over itself
    assert (folder / "config.json").exists()
    study.tell(trial)
    better = study.ask()
    better.report(loss=0.1)
    kept = better.save(tmp_path / "model")
    study.tell(better)
    assert [*kept.parent.iterdir()] == [kept] == [study.best.checkpoint]
    assert (tmp_path / "last.pt").exists()
    assert (tmp_path / "model").exists()


def test_nothing_is_deleted_that_fairway_did_not_save(study, tmp_path):
    outside, inside = tmp_path / "trial-0-step-1-0123abcd", tmp_path / "kept" / "final.pt"
    foreign = tmp_path / "kept" / "trial-0-step-1-0123abcd"  # of another study
    inside.parent.mkdir()
    for path in (outside, inside, foreign):
        path.write_text("precious")

    def train(trial):
        trial.save(lambda path: path.write_text("a model"))
        if trial.number == 2:
            raise ValueError("so that leftovers are looked for")
        return 1.0 - trial.params["x"]

    study.optimize(train, trials=1)
    for path in (outside, inside):  # a log made by hand
        study.owner.journal.append(Saved(0, 7 + len(path.name), str(path), 0.0))
    study.optimize(train, trials=9)
    assert [path.read_text() for path in (outside, inside, foreign)] == ["precious"] * 3
    assert len(list((tmp_path / "kept").iterdir())) == 3


def test_a_folder_that_was_moved_with_its_study_is_found(tmp_path):
    url = f"sqlite:///{tmp_path}/there/study.db"
    (tmp_path / "there").mkdir()
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=url, seed=0)
    trial = study.ask()
    trial.save(lambda path: path.write_text("a model"))
    study.tell(trial, loss=0.5)
    del study, trial
    (tmp_path / "there").rename(tmp_path / "here")
    moved = fw.load_study(f"sqlite:///{tmp_path}/here/study.db")
    assert moved.load_best(lambda path: path.read_text()) == "a model"


def test_what_is_built_again_saves_nothing(study, tmp_path):
    def train(trial):
        for _ in trial.steps(2):
            trial.report(loss=0.5)
            saved = trial.save(lambda path: path.write_text("a model"))
        return [saved, trial.resume]

    study.optimize(train, trials=1)
    before = sorted((tmp_path / "kept").iterdir())
    assert study.rebuild(train) == [None, None]
    assert sorted((tmp_path / "kept").iterdir()) == before


def test_a_trial_that_has_ended_saves_no_more(study):
    trial = study.ask()
    study.tell(trial, loss=0.5)
    with pytest.raises(fw.UsageError, match=r"trial 0 has ended \(completed\): save its checkpoints while it runs"):
        trial.save(print)
