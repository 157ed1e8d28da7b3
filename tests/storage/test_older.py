"""Logs that the first version wrote, kept as it wrote them: they open, resume and verify."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fairway as fw
from fairway.engine.verify import verify
from fairway.report.view import View
from fairway.storage.sql import Database

OLDER = Path(__file__).parent / "older"


@pytest.fixture
def older(tmp_path):
    """A database of the first version, as a URL."""

    def copy(name):
        shutil.copy(OLDER / f"{name}.db", tmp_path)
        return f"sqlite:///{tmp_path / name}.db"

    return copy


def train(trial):
    rate, depth = trial.params["rate"], trial.params["depth"]
    for step in trial.steps(20):
        auc = 0.9 - 0.4 / (1 + rate * step * depth) - 0.002 * depth
        trial.report(
            auc=auc, eod=lambda step=step: 0.05 + 0.02 * depth * step / 20 + 0.1 * rate, ms=lambda: depth * 1.5
        )


def test_a_study_of_two_worker_processes_resumes_where_it_was(older):
    study = fw.Study(
        {"rate": fw.Float(0.01, 1.0, log=True), "depth": fw.Int(1, 12)},
        fw.Maximize("auc"),
        [fw.AtMost("eod", 0.2), fw.AtMost("ms", 12.0)],
        storage=older("workers"),
        name="pilot",
    )
    assert study.seed == 7
    assert study.counts == {"running": 2, "completed": 13, "stopped": 10, "failed": 1}
    assert study.best.metrics["auc"] == pytest.approx(0.8798, abs=5e-5)
    assert study.last_failure == "trial 5: ValueError: no such solver"
    study.optimize(train, trials=6)
    assert study.trials[26].params == {"rate": 0.1, "depth": 3}  # what was waiting in the queue
    lost = [study.trials[number] for number in (24, 25)]
    assert [(record.status, record.reason) for record in lost] == [("failed", "lost its worker")] * 2
    assert verify(study.log.read()).faults == []


def cross_validate(trial):
    values = []
    for step in trial.steps(4):
        values.append((trial.params["x"] - 0.3) ** 2 + 0.01 * step + (0.05 if trial.params["kind"] == "b" else 0.0))
        gap = {"gap": lambda: trial.params["x"]} if len(values) == 4 else {}
        trial.report({"loss": fw.Folds(values, of=4), **gap})


def test_a_study_with_folds_one_by_one_and_a_terminator_resumes_where_it_was(older):
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0), "kind": fw.Choice(["a", "b"])},
        fw.Minimize("loss"),
        [fw.AtMost("gap", 0.6)],
        stopper=fw.ACE(),
        terminator=fw.Plateau(12),
        storage=older("folds"),
        name="folds",
    )
    before = study.history.loss.copy()
    assert study.counts == {"running": 0, "completed": 16, "stopped": 4, "failed": 0}
    study.optimize(cross_validate, trials=5)
    assert len(study.history) > len(before)
    assert verify(study.log.read()).faults == []


@pytest.mark.parametrize(
    ("file", "name", "rulings"), [("workers", "pilot", 552), ("folds", "folds", 135), ("folds", "paced", 207)]
)
def test_every_decision_is_made_again_as_it_was_made_then(older, file, name, rulings):
    database = Database(older(file), reading=True)
    checked = verify(database.log(name, create=False).read())
    assert (checked.rulings, checked.faults) == (rulings, [])


def test_an_older_study_is_shown(older):
    view = View.read(older("workers"), "pilot")
    assert view.ledger.counts == {"completed": 13, "stopped": 10, "failed": 1}
    assert view.best.metrics["auc"] == pytest.approx(0.8798, abs=5e-5)
    assert view.ledger.last_stop.startswith("trial ")
