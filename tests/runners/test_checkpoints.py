"""Checkpoints of real trainings: kept, deleted and continued, after SIGKILL too, wherever trials run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

import fairway as fw
from fairway.cli import main
from fairway.engine import snapshot
from fairway.engine.certification import candidates, level_of
from fairway.engine.events import Enqueued, Told
from fairway.engine.verify import verify
from fairway.evidence import Mean
from tests.conftest import within
from tests.savings import STEPS, make, trainer


def text(content: str):
    """What writes a text to a path."""
    return lambda path: path.write_text(content)


def ran(folder: Path) -> Counter:
    """How often each step of each configuration really ran."""
    return Counter((folder / "ran").read_text().splitlines())


def check(study: fw.Study) -> None:
    """Every ruling holds, every trial has one end, and the best's checkpoint is the best's, whole."""
    events = study.log.read()
    assert verify(events).faults == []
    assert sorted(event.number for event in events if isinstance(event, Told)) == list(range(len(study.trials)))
    best = study.best
    assert json.loads(best.checkpoint.read_text()) == list(range(1, best.step + 1))
    assert study.load_best(lambda path: json.loads(path.read_text()))[-1] == best.step


def test_only_the_best_candidates_and_their_like_are_left_after_a_search(tmp_path):
    study = make(tmp_path, storage=f"sqlite:///{tmp_path / 'study.db'}")
    study.optimize(trainer(tmp_path), trials=30)
    check(study)
    left = sorted((tmp_path / "kept").iterdir())
    assert sum(ran(tmp_path).values()) == 30 * STEPS
    assert len(left) <= 2 + 20
    assert sorted(save.path for save in study.owner.ledger.saves) == [str(path) for path in left]
    ranked = sorted((r for r in study.trials if r.feasible), key=lambda record: -record.metrics["auc"])
    assert all(record.checkpoint.exists() for record in ranked[:2])


def test_without_a_folder_they_are_beside_the_studys_file(tmp_path):
    url = f"sqlite:///{tmp_path / 'credit.db'}"
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=url, seed=0)

    def train(trial):
        trial.save(text("a model"))
        return trial.params["x"]

    study.optimize(train, trials=5)
    assert study.best.checkpoint.parent == tmp_path / "credit-checkpoints"
    assert len(list(study.best.checkpoint.parent.iterdir())) == 3
    assert fw.load_study(url).best.checkpoint == study.best.checkpoint


def test_show_says_where_the_best_checkpoint_is(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'credit.db'}"
    study = make(tmp_path, storage=url)
    study.optimize(trainer(tmp_path), trials=2)
    assert main(["show", url, "study"]) == 0
    assert f"checkpoint: {study.best.checkpoint}" in capsys.readouterr().out
    assert main(["show", url, "study", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["checkpoint"] == str(study.best.checkpoint)


@pytest.mark.parametrize("half", [False, True], ids=["between saves", "in the middle of a save"])
def test_a_killed_worker_process_costs_no_more_than_the_step_it_was_in(tmp_path, half):
    study = make(tmp_path, storage=f"sqlite:///{tmp_path / 'study.db'}")
    train = trainer(tmp_path, lambda trial, step: trial.number == 1 and step == 5, half=half)
    study.optimize(train, trials=3, workers=1, backend="process")
    check(study)
    lost, again = study.trials[1], study.trials[2]
    assert (lost.status, again.params, again.status) == ("failed", lost.params, "completed")
    assert again.steps == STEPS - 4  # it continued after step 4
    counted = ran(tmp_path)
    assert {run for run, times in counted.items() if times > 1} == {f"{lost.params['x']} 5"}
    assert not [path for path in (tmp_path / "kept").iterdir() if path.name.startswith(".part")]


def test_a_killed_ray_worker_costs_no_more_than_the_step_it_was_in(local_ray, tmp_path):
    study = make(tmp_path)
    train = trainer(tmp_path, lambda trial, step: trial.number == 1 and step == 4)
    study.optimize(train, trials=2, workers=1, backend="ray", resources={"CPU": 0.5})
    check(study)
    assert study.trials[2].params == study.trials[1].params
    assert study.trials[2].steps == STEPS - 3
    assert max(ran(tmp_path).values()) == 2


def test_a_killed_owner_loses_no_more_than_the_step_it_was_in(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    script = f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tests.savings import make, trainer
        folder = Path({str(tmp_path)!r})
        train = trainer(folder, lambda trial, step: trial.number == 2 and step == 6)
        make(folder, storage={url!r}).optimize(train, trials=5, progress=False)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert died.returncode == -signal.SIGKILL
    study = make(tmp_path, storage=url)
    study.optimize(trainer(tmp_path), trials=2)
    check(study)
    lost, again = study.trials[2], study.trials[3]
    assert (lost.reason, again.params, again.steps) == ("lost its worker", lost.params, STEPS - 5)
    assert {run for run, times in ran(tmp_path).items() if times > 1} == {f"{lost.params['x']} 6"}


@pytest.mark.parametrize("workers", ["here", "in a process"])
def test_an_interrupted_trial_continues_in_the_next_run(tmp_path, ctrl_c, workers):
    study, owner = make(tmp_path, seed=1), os.getpid()

    def interrupted(trial):
        for step in trial.steps(STEPS):
            trial.report(auc=trial.params["x"] * step, eod=1.0)
            trial.save(lambda path, step=step: path.write_text(json.dumps([*range(1, step + 1)])))
            if step == 3:
                os.kill(owner, signal.SIGINT)
                time.sleep(60)

    more = {} if workers == "here" else {"workers": 1, "backend": "process"}
    with pytest.raises(KeyboardInterrupt), within(60):
        study.optimize(interrupted, trials=3, **more)
    study.optimize(trainer(tmp_path), trials=3)
    check(study)
    before, after = study.trials[:2]
    assert [one.status for one in study.trials] == ["failed", "completed", "completed", "completed"]
    assert 0 not in {save.number for save in study.owner.ledger.saves}  # it runs no more
    assert after.params == before.params
    if workers == "here":
        assert (before.steps, after.steps) == (3, STEPS - 3)
    else:  # its last reports, or its last save too, may come after the trial was written down as interrupted
        assert STEPS - 3 <= after.steps <= STEPS - before.steps


def test_a_function_that_does_not_look_at_resume_starts_afresh(tmp_path):
    study = make(tmp_path)
    first = study.ask()
    for step in first.steps(STEPS):
        first.report(auc=0.5, eod=0.1)
        first.save(text("half"))
        if step == 4:
            break
    study.owner.close(first, "failed", "interrupted", paused=True)
    second = study.ask()
    assert second.params == first.params
    assert list(second.steps(STEPS)) == list(range(1, STEPS + 1))


def test_a_trial_that_continues_has_the_seed_and_the_steps_of_the_one_before(tmp_path):
    study = make(tmp_path)
    first = study.ask()
    for step in first.steps(STEPS):
        first.report(auc=0.5, eod=0.1)
        first.save(text(str(step)))
        if step == 4:
            break
    assert first.resume.read_text() == "4"  # its own last one
    study.owner.close(first, "failed", "interrupted", paused=True)
    second = study.ask()
    assert (second.seed, second.resume.read_text(), second.last_step) == (first.seed, "4", 4)
    with pytest.raises(fw.UsageError, match="step 4 was reported already"):
        second.report(auc=0.5, eod=0.1, step=4)
    assert list(second.steps(STEPS)) == [5, 6, 7, 8]
    assert study.owner.seed_of(1) == first.seed


def test_of_a_trial_that_died_after_its_last_step_the_step_before_is_continued(tmp_path):
    study = make(tmp_path)
    first = study.ask()
    for step in first.steps(STEPS):
        first.report(auc=0.5, eod=0.1)
        first.save(text(str(step)))
    study.owner.close(first, "failed", "interrupted", paused=True)
    second = study.ask()
    assert second.resume.read_text() == str(STEPS - 1)
    assert list(second.steps(STEPS)) == [STEPS]


def test_a_trial_that_gets_no_further_is_not_tried_for_ever(tmp_path):
    study = make(tmp_path)

    def stuck(trial):
        for _ in trial.steps(STEPS):  # it starts afresh each time
            trial.report(auc=0.5, eod=0.1)
            trial.save(lambda path: path.write_text("it"))
            if trial.last_step == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(fw.StudyFailed):
        study.optimize(stuck, trials=1, workers=1, backend="process")
    assert len(study.trials) == 2  # it was tried once more, and came no further
    assert [event.continues for event in study.log.read() if isinstance(event, Enqueued)] == [0]


def test_every_candidate_for_a_certificate_has_its_checkpoint(tmp_path):
    study = make(tmp_path)

    def train(trial):
        x = trial.params["x"]
        for step in trial.steps(4):
            trial.report(auc=x + step / 100, eod=lambda: fw.Measured(0.9 * x, 0.05))
            trial.save(text(f"{trial.number} {step}"))

    study.optimize(train, trials=25)
    events = study.log.read()
    found = candidates(study.problem, events, at_most=10, level=level_of(0.95, 1))
    assert len(found) > 2
    loaded = []

    def load(best):
        loaded.append(best.checkpoint.read_text())
        return loaded[-1]

    study.certify(lambda model: Mean([0] * 300), models=load)
    assert loaded == [f"{one.number} {one.step}" for one in found]


def test_a_snapshot_knows_what_was_saved(tmp_path):
    study = make(tmp_path, storage=f"sqlite:///{tmp_path / 'study.db'}")
    study.optimize(trainer(tmp_path), trials=4)
    owner = study.owner
    assert snapshot.keep(study.log, owner.journal.position, owner.ledger, owner.referee)
    found, position = snapshot.restore(study.log, study.space, study.problem)
    assert position == owner.journal.position
    assert list(found.saves) == list(owner.ledger.saves)
    assert snapshot.faults(study.log, study.log.read(), study.space, study.problem) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda study: study.set_limit(ms=None),
        lambda study: study.set_limit(mb=None),
        lambda study: study.set_limit(fw.AtMost("eod", 0.4)),
    ],
)
def test_checkpoints_are_kept_on_after_a_limit_was_dropped_or_added(tmp_path, change):
    limits, keep = [fw.AtMost("ms", 0.8), fw.AtMost("mb", 0.3)], fw.Keep(tmp_path / "kept", best=1)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), limits, checkpoints=keep, seed=0)

    def train(trial):
        x = trial.params["x"]
        metrics = dict.fromkeys(trial.driver.problem.reportable, x / 3)
        for step in trial.steps(3):
            trial.report(**{**metrics, "loss": 1 - x + 1 / step})
            trial.save(text(f"{trial.number} {step}"))

    study.optimize(train, trials=5)
    change(study)
    study.optimize(train, trials=5)
    assert study.counts["failed"] == 0
    assert study.load_best(lambda path: path.read_text()) == f"{study.best.number} {study.best.step}"
