"""A study that opens from a snapshot knows what one knows that replays the whole log."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import fairway as fw
from fairway import printing
from fairway.cli import main
from fairway.engine import snapshot, states
from fairway.engine.course import Course
from fairway.engine.ledger import Ledger
from fairway.engine.referee import Referee
from fairway.history import History
from fairway.report import content
from fairway.report.view import View
from fairway.storage.sql import Database

SPACE = {"x": fw.Float(0.0, 1.0), "kind": fw.Choice(["a", "b"]), "y": fw.Int(1, 9, when={"kind": "b"})}
STOPPERS = [fw.Pilot(), fw.ACE(), fw.ASHA(2), fw.Median(min_trials=2), fw.HalfAt(2, after=3), fw.Never()]


def made(url: str, stopper: fw.Stopper | None = None, **more: object) -> fw.Study:
    limits = [fw.AtMost("eod", 0.5)]
    return fw.Study(
        SPACE, fw.Maximize("auc"), limits, sampler=fw.Random(), stopper=stopper, storage=url, seed=0, **more
    )


def run(study: fw.Study, trials: int) -> None:
    def train(trial: fw.Trial) -> None:
        for step in trial.steps(8):
            auc = trial.params["x"] * (1 - 0.5**step)
            trial.report(auc=auc, eod=lambda step=step: trial.params["x"] / (1 + step / 8))
        if trial.number % 9 == 4:
            raise ValueError("unlucky")

    study.optimize(train, trials=trials)


def keep(study: fw.Study) -> None:
    owner = study.owner
    with owner.lock:
        owner.journal.flush()
        assert snapshot.keep(study.log, owner.journal.position, owner.ledger, owner.referee)


def replayed(study: fw.Study) -> tuple[Ledger, Referee]:
    ledger, referee = Ledger(study.space, study.problem, study.seed), Referee(study.problem, study.stopper, worker=-1)
    for event in study.log.read():
        ledger.replay(event)
        if type(event).__name__ in ("Reported", "Told"):
            referee.replay(event)
    return ledger, referee


def assert_same(found: Ledger, whole: Ledger) -> None:
    for name in ("counts", "last_stop", "last_failure", "best", "best_ignoring_limits", "train_saved_ns", "ended"):
        assert getattr(found, name) == getattr(whole, name), name
    for name in ("workers", "verdicts", "terminators", "later", "queue", "opened", "certifications"):
        assert getattr(found, name) == getattr(whole, name), name
    for one, other in zip(found.courses, whole.courses, strict=True):
        for name in Course.__slots__:
            np.testing.assert_equal(getattr(one, name), getattr(other, name), name)
    mine, theirs = found.history(), whole.history()
    for field in fields(History):
        if field.name not in ("space", "problem", "means", "derived"):
            np.testing.assert_array_equal(getattr(mine, field.name), getattr(theirs, field.name), field.name)


@pytest.mark.parametrize("stopper", STOPPERS, ids=lambda one: type(one).__name__)
def test_a_study_from_a_snapshot_and_the_tail_equals_one_from_the_whole_log(
    tmp_path: Path, stopper: fw.Stopper
) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = made(url, stopper, terminator=fw.Plateau(5))
    study.enqueue({"x": 0.5, "kind": "a"})
    run(study, 20)
    study.enqueue({"x": 0.25, "kind": "b", "y": 3})
    waiting = study.ask(2)
    waiting[1].report(auc=0.5, eod=lambda: 0.1)
    study.note(3, test=0.5)
    keep(study)
    fresh = Referee(study.problem, stopper, worker=-1)
    assert snapshot.restore(study.log, study.space, study.problem, 0, fresh)[1] == len(study.log.read())
    study.tell(waiting[0], auc=0.4, eod=0.3)
    run(study, 3)
    study.owner.journal.flush()
    again = made(url, stopper, terminator=fw.Plateau(5))
    whole, referee = replayed(again)
    assert_same(again.owner.ledger, whole)
    one, other = again.owner.referee, referee
    assert (one.incumbent, one.train_ns, one.checks, one.saved) == (
        other.incumbent,
        other.train_ns,
        other.checks,
        other.saved,
    )
    for number in range(40, 60):  # asked the same, both rule the same
        for step in (1, 2, 4):
            assert one.state.judge(number, step, -number / 60, 0.0) == other.state.judge(
                number, step, -number / 60, 0.0
            )
    view = View(again.log)
    assert view.trials == again.trials
    assert view.counts == again.counts


LAST = "(SELECT max(position) FROM fairway_event)"


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE fairway_snapshot SET body = zeroblob(9) WHERE part = 'columns'",
        "UPDATE fairway_snapshot SET body = CAST('{}' AS BLOB) WHERE part = 'head'",
        "DELETE FROM fairway_snapshot WHERE part = 'trials 0'",
        "UPDATE fairway_snapshot SET body = CAST(replace(body, '12', '11') AS BLOB) WHERE part = 'head'",
        "DROP TABLE fairway_snapshot",
    ],
)
def test_a_damaged_snapshot_is_not_used(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "study.db"
    study = made(f"sqlite:///{path}")
    run(study, 12)
    keep(study)
    assert snapshot.restore(study.log, study.space, study.problem)[1] > 0
    with sqlite3.connect(path) as connection:
        connection.execute(harm)
    connection.close()
    referee = Referee(study.problem, study.stopper)
    assert snapshot.restore(study.log, study.space, study.problem, 0, referee)[1] == 0
    view = View(study.log)
    assert view.trials == study.trials
    assert np.array_equal(view.ledger.history().x, study.history.x, equal_nan=True)


def watched(study: fw.Study, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parts of the snapshot that are read from now on."""
    read, kept = list[str](), study.log.kept

    def noted(names: Collection[str] | None = None) -> Mapping[str, bytes]:
        found = kept(names)
        read.extend(found)
        return found

    monkeypatch.setattr(study.log, "kept", noted)
    return read


def test_a_glance_reads_the_head_of_a_snapshot_and_the_trials_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairway.engine.courses.BLOCK", 8)
    study = made(f"sqlite:///{tmp_path}/study.db", fw.Never())
    study.optimize(lambda trial: {"auc": -abs(trial.number - 10), "eod": 0.1}, trials=40)
    keep(study)
    keep(study)  # with nothing to write
    read = watched(study, monkeypatch)
    study.tell(study.ask(), auc=-0.5, eod=0.9)  # comes after the snapshot
    view = View(study.log)
    assert read == ["head", "ledger"]
    printing.study_lines(view, 10)
    content.study(view)
    assert sorted(read) == [
        "head",
        "ledger",
        "trials 1",
        "trials 3",
        "trials 4",
    ]  # those of the best one and of the last ones
    assert view.trials == study.trials
    assert np.array_equal(view.ledger.history().x, study.history.x, equal_nan=True)
    assert np.array_equal(view.still().ledger.history().loss, study.history.loss, equal_nan=True)


def test_a_reader_stays_at_its_snapshot_while_the_study_runs_on_and_keeps_others(tmp_path: Path) -> None:
    study = made(f"sqlite:///{tmp_path}/study.db")
    run(study, 12)
    keep(study)
    view, trials, x = View(study.log), study.trials, study.history.x.copy()
    again = View(study.log)
    run(study, 12)
    keep(study)
    assert view.trials == trials
    assert np.array_equal(view.ledger.history().x, x, equal_nan=True)
    assert again.update()
    assert again.trials == study.trials
    assert np.array_equal(again.ledger.history().x, study.history.x, equal_nan=True)


def test_a_reader_of_a_study_that_was_deleted_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = made(url, name="study")
    run(study, 12)
    keep(study)
    view = View(study.log)
    Database(url).delete("study")
    with pytest.raises(fw.StorageError, match="was deleted"):
        len(view.trials)


@pytest.mark.parametrize("harm", ["UPDATE fairway_event SET body = body || ' '", "DELETE FROM fairway_event"])
def test_a_snapshot_does_not_hide_that_its_last_event_is_damaged(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "study.db"
    study = made(f"sqlite:///{path}")
    run(study, 12)
    keep(study)
    with sqlite3.connect(path) as connection:
        connection.execute(f"{harm} WHERE position = {LAST}")
    connection.close()
    assert snapshot.restore(study.log, study.space, study.problem)[1] == 0
    with pytest.raises(fw.StorageError, match="is damaged"):
        View(study.log)


def test_a_snapshot_that_cannot_be_read_leaves_an_empty_ledger_and_referee(tmp_path: Path) -> None:
    study = made(f"sqlite:///{tmp_path}/study.db", fw.ACE())
    run(study, 12)
    keep(study)
    parts = dict(study.log.kept())
    for part in ("ledger", "referee", "columns"):  # with the right digest: as from another version of fairway
        head = json.loads(parts["head"])
        head["digests"][part] = hashlib.sha256(b"{}").hexdigest()
        study.log.keep({**parts, part: b"{}", "head": json.dumps(head).encode()})
        referee = Referee(study.problem, fw.ACE(), worker=-1)
        ledger, position = snapshot.restore(study.log, study.space, study.problem, 0, referee)
        assert (len(ledger.courses), len(ledger.history()), position) == (0, 0, 0)
        assert (referee.incumbent, referee.train_rows, referee.seen) == (None, 0, 0)
    assert made(f"sqlite:///{tmp_path}/study.db", fw.ACE()).best == study.best


def test_another_stopper_replays_the_whole_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = made(url, fw.ACE())
    run(study, 12)
    keep(study)
    other = Referee(study.problem, fw.Median(), worker=-1)
    assert snapshot.restore(study.log, study.space, study.problem, 0, other)[1] == 0


def test_a_long_study_keeps_a_snapshot_when_its_run_ends_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    study = made(f"sqlite:///{path}", fw.Never())
    study.optimize(lambda trial: {"auc": trial.params["x"], "eod": 0.1}, trials=1010)
    with sqlite3.connect(path) as connection:
        parts = [part for (part,) in connection.execute("SELECT part FROM fairway_snapshot ORDER BY part")]
    connection.close()
    assert parts == ["columns", "head", "ledger", "referee", "trials 0", "trials 1", "trials 2", "trials 3"]
    assert made(f"sqlite:///{path}", fw.Never()).best == study.best


class OwnState(fw.StopperState):
    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        return None


def test_a_class_that_is_not_fairways_is_neither_written_nor_made() -> None:
    with pytest.raises(states.NotPlainError):
        states.to_json(OwnState())
    for strange in (["object", "subprocess", "Popen", ["dict", None]], ["class", "builtins", "eval"], ["call", "exit"]):
        with pytest.raises(states.NotPlainError):
            states.from_json(strange)


def test_verify_compares_the_snapshot_with_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = made(url)
    run(study, 12)
    running = study.ask()
    running.report(auc=0.5, eod=lambda: 0.1)
    keep(study)
    assert main(["verify", url, "study"]) == 0
    forged = study.owner.ledger.still()
    forged.counts["failed"] += 1
    forged.columns.remove(3)
    assert snapshot.keep(study.log, study.owner.journal.position, forged, study.owner.referee)
    assert main(["verify", url, "study"]) == 1
    said = capsys.readouterr().out
    assert "is not what the log says: what it says of the study differs" in said
    assert "a column that samplers see differs" in said


def test_what_a_snapshot_vouches_for_is_shown_without_reading_it_again_and_verify_still_finds_the_damage(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = made(url)
    run(study, 12)
    keep(study)
    before = View.read(url, "study").trials
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("DELETE FROM fairway_event WHERE position = 5")
    assert View.read(url, "study").trials == before
    assert main(["list", url]) == 0
    assert main(["verify", url, "study"]) == 1


def test_a_lost_report_of_a_running_trial_is_found_though_a_snapshot_vouches_for_the_others(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = made(url)
    run(study, 5)
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    keep(study)
    assert View.read(url, "study").counts["running"] == 1
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("DELETE FROM fairway_event WHERE trial = 5 AND kind = 'Reported'")
    with pytest.raises(fw.StorageError, match="is missing"):
        View.read(url, "study")
