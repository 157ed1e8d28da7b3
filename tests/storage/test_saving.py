"""A study written into another database from memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

import fairway as fw
from fairway.engine.event_json import to_json
from fairway.engine.verify import verify
from fairway.storage import transcript
from fairway.storage.memory import MemoryLog
from fairway.storage.sql import Database
from fairway.storage.transcript import Transcript
from tests.conftest import SPACE, run_curves
from tests.engine.logs import fingerprint
from tests.storage.test_sql import wait_until

CURVES = [[(0.1 * k, {"eod": 0.05 * k}) for k in range(1, 5)]] * 6


def open_study(storage, name="credit", **more):
    limits = [fw.AtMost("eod", 0.25)]
    return fw.Study(SPACE, fw.Maximize("auc"), limits, storage=storage, name=name, seed=0, **more)


def events(study):
    return [to_json(event) for event in study.log.read()]


@pytest.fixture
def elsewhere(tmp_path):
    return f"sqlite:///{tmp_path / 'elsewhere.db'}"


def test_a_saved_study_is_the_same_log_under_any_name(url, elsewhere):
    study = open_study(url)
    run_curves(study, CURVES)
    study.save_as(elsewhere)
    study.save_as(elsewhere, "again")
    for name in ("credit", "again"):
        log = Database(elsewhere).log(name, create=False)
        assert [to_json(event) for event in log.read()] == events(study)
    saved = open_study(elsewhere)
    assert fingerprint(saved) == fingerprint(study)
    assert saved.ask().params == study.ask().params


def test_a_study_in_memory_can_be_saved_to_a_server(url):
    study = open_study(MemoryLog())
    run_curves(study, CURVES)
    study.save_as(url)
    assert fingerprint(open_study(url)) == fingerprint(study)


def test_a_study_that_was_resumed_is_saved_whole_though_its_file_is_gone(tmp_path, elsewhere, monkeypatch):
    monkeypatch.setattr(transcript, "_CHUNK", 1000)  # several of them
    file = tmp_path / "study.db"
    run_curves(open_study(f"sqlite:///{file}"), CURVES)
    study, other = open_study(f"sqlite:///{file}"), open_study(f"sqlite:///{file}")
    run_curves(other, CURVES)
    run_curves(study, CURVES)
    before, running = events(study), study.ask()
    file.unlink()
    running.report(auc=0.9, eod=0.1)
    with pytest.raises(fw.StorageError, match=r"study.db was deleted while the study ran; .* study.save_as"):
        study.tell(running)
    study.save_as(elsewhere)
    study.save_as(f"sqlite:///{file}")  # the same place again
    for place in (elsewhere, f"sqlite:///{file}"):
        saved = open_study(place)
        assert events(saved)[: len(before)] == before
        assert (saved.trials[-1].status, saved.trials[-1].metrics) == ("completed", {"auc": 0.9, "eod": 0.1})
        assert verify(saved.log.read()).faults == []
    with pytest.raises(fw.StorageError, match=r"study.db was replaced by another file while the study ran"):
        study.ask()


def test_a_study_that_was_opened_from_its_snapshot_is_saved_whole(tmp_path, elsewhere, monkeypatch):
    monkeypatch.setattr("fairway.engine.owner._LONG", 10)
    monkeypatch.setattr(transcript, "_AT_ONCE", 7)
    file = tmp_path / "study.db"
    first = open_study(f"sqlite:///{file}")
    run_curves(first, CURVES * 3)
    first.owner.end("enough")  # with a snapshot
    study, before = open_study(f"sqlite:///{file}"), events(first)
    run_curves(study, CURVES[:1])
    assert study.owner._snapshot_at > 10
    wait_until(lambda: len(study.log.transcript) == study.owner.journal.position)
    file.unlink()
    study.save_as(elsewhere)
    assert events(open_study(elsewhere))[: len(before)] == before
    assert fingerprint(open_study(elsewhere)) == fingerprint(study)


def test_a_study_is_not_saved_over_another(url, elsewhere):
    study = open_study(url)
    for place in (url, elsewhere):
        if place == elsewhere:
            study.save_as(place)
        with pytest.raises(fw.UsageError, match="has a study 'credit' already; give another name= or url"):
            study.save_as(place)
    with pytest.raises(fw.UsageError, match="name=''"):
        study.save_as(elsewhere, "")
    assert len(events(study)) == 1


def test_a_file_that_shrinks_in_good_order_is_not_taken_for_a_truncated_one(tmp_path):
    file = tmp_path / "study.db"
    study = open_study(f"sqlite:///{file}")
    run_curves(open_study(f"sqlite:///{file}", "large"), CURVES * 8)

    def checkpoint(*statements):
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            for statement in (*statements, "PRAGMA wal_checkpoint(TRUNCATE)"):
                connection.execute(statement)
        return file.stat().st_size

    large = checkpoint()
    run_curves(study, CURVES[:1])
    Database(f"sqlite:///{file}").delete("large")
    assert checkpoint("VACUUM") < large
    run_curves(study, CURVES[:1])
    assert study.counts["running"] == 0


def test_a_transcript_is_small_and_gives_back_what_it_was_given():
    kept, given = Transcript(), [f'{{"event":"Asked","number":{i},"params":{{"x":{i / 7}}}}}' for i in range(20_000)]
    for i in range(0, len(given), 100):
        kept.add(i, given[i : i + 100])
    assert list(kept) == given
    assert sum(map(len, kept._packed)) < sum(map(len, given)) / 3
