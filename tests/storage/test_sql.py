"""Logs in SQLite and in a real PostgreSQL, started by the tests."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
import sqlalchemy as sa

import fairway as fw
from fairway.engine.events import Asked, Ended, Reported
from fairway.engine.verify import verify
from fairway.storage.access import THROUGH_SECONDS
from fairway.storage.schema import VERSION
from fairway.storage.sql import Database
from tests import faults
from tests.conftest import SPACE, run_curves
from tests.faults import numbers, start
from tests.storage.test_leases import vanish

CURVES = [[(auc / 10, {"eod": eod / 10}) for auc, eod in zip((1, 5, 9, 3), (0, 2, 4, 1), strict=True)]] * 6


def open_study(url, stopper=None, name="credit", seed=0, **more):
    limits = [fw.AtMost("eod", 0.25)]
    return fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=stopper, storage=url, name=name, seed=seed, **more)


def test_a_study_goes_on_where_it_was(url):
    study = open_study(url, fw.ACE(interval=1))
    run_curves(study, CURVES)
    study.enqueue({"x": 0.125})
    again = open_study(url, fw.ACE(interval=1), seed=None)
    assert (again.seed, again.best, again.trials, again.costs) == (0, study.best, study.trials, study.costs)
    assert again.ask().params == {"x": 0.125}
    assert study.ask().number == 7


def test_the_log_of_a_database_is_that_of_memory(url):
    stored, in_memory = open_study(url, fw.Never()), open_study(None, fw.Never())
    for study in (stored, in_memory):
        run_curves(study, CURVES)
    kinds = [[type(event).__name__ for event in study.log.read()] for study in (stored, in_memory)]
    assert kinds[0] == kinds[1]
    assert [trial.metrics for trial in stored.trials] == [trial.metrics for trial in in_memory.trials]


def test_several_studies_live_in_one_database(url):
    run_curves(open_study(url, name="b"), CURVES[:2])
    run_curves(open_study(url, name="a"), CURVES[:1])
    database = Database(url)
    assert [study.name for study in database.studies()] == ["a", "b"]
    database.delete("b")
    assert [study.name for study in database.studies()] == ["a"]
    with pytest.raises(fw.UsageError, match="has no study 'b'; it has 'a'"):
        database.log("b", create=False)
    assert len(open_study(url, name="a").trials) == 1


def test_a_summary_leaves_the_reports_out(url):
    study = open_study(url)
    run_curves(study, CURVES)
    kinds = [type(event).__name__ for event in study.log.summary()[0]]
    assert kinds == ["Opened"] + ["Asked", "Told"] * 6


def test_claims_are_taken_once_and_all_or_nothing_is_written(url):
    study = open_study(url)
    study.ask()
    length = len(study.log.read())
    asked = Asked(0, {"x": 0.5}, 0.0, 9)
    assert study.log.append([Asked(1, {"x": 0.5}, 0.0, 9), asked]) is None
    assert len(study.log.read()) == length
    assert study.log.append([Asked(1, {"x": 0.5}, 0.0, 9)]) == length + 1


def test_a_claim_that_is_taken_is_refused_without_a_word_in_the_log(url, caplog):
    study = open_study(url)
    study.ask()
    others = [Asked(number, {"x": 0.5}, 0.0, 9) for number in range(1, 3000)]
    assert study.log.append([Asked(0, {"x": 0.5}, 0.0, 9), *others]) is None
    assert not caplog.records


def test_a_study_deleted_under_way_says_so(url):
    study = open_study(url)
    Database(url).delete("credit")
    with pytest.raises(fw.StorageError, match="deleted while it ran"):
        study.ask()


def test_many_processes_share_one_study_without_a_gap_a_duplicate_or_a_loss(url):
    open_study(url)
    workers = [start(url, trials=20) for _ in range(4)]
    told = []
    for worker in workers:
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err
        told += numbers(out)
    assert sorted(told) == list(range(80))
    study = open_study(url)
    assert study.counts["running"] == study.counts["failed"] == 0
    assert verify(study.log.read()).faults == []
    database = Database(url)
    with database.access.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT position FROM fairway_event ORDER BY position").scalars().all()
    assert rows == list(range(len(study.log.read())))


def test_a_worker_that_is_not_heard_of_loses_its_trials_and_its_late_tell_is_refused(url, monkeypatch):
    silent, other = open_study(url), open_study(url)
    trial = silent.ask()
    other.tell(other.ask(), auc=0.5, eod=0.1)
    assert other.counts["running"] == 1  # it lives, so it keeps its trial
    monkeypatch.setattr("fairway.storage.leases.machine", lambda: "elsewhere")
    vanish(monkeypatch)
    assert other.ask().params == trial.params
    assert (other.trials[0].status, other.trials[0].reason) == ("failed", "lost its worker")
    with pytest.raises(fw.UsageError, match=r"trial 0 was ended by another worker \(lost its worker\)"):
        silent.tell(trial, auc=0.9, eod=0.1)
    assert trial.status == "failed"


def test_a_worker_shows_that_it_lives(url, monkeypatch):
    monkeypatch.setattr("fairway.storage.leases.BEAT_SECONDS", 0.01)
    study, database = open_study(url), Database(url)

    def beat():
        with database.access.engine.connect() as connection:
            return connection.exec_driver_sql("SELECT beat FROM fairway_worker").scalar()

    first = beat()
    wait_until(lambda: beat() > first)
    assert study.log.leases.lost([0]) == set()


def test_a_tell_is_written_through_to_the_disk_but_not_the_next_in_the_same_moment(tmp_path, monkeypatch):
    study = open_study(f"sqlite:///{tmp_path / 'study.db'}")
    written = []
    now = time.monotonic() + 100.0
    monkeypatch.setattr("fairway.storage.access.time.monotonic", lambda: now)

    def watch(connection, *_):
        mode = {1: "NORMAL", 2: "FULL"}

        def note(statement):
            if statement.startswith("INSERT INTO fairway_event"):
                connection.set_trace_callback(None)
                written.append(mode[connection.execute("PRAGMA synchronous").fetchone()[0]])
                connection.set_trace_callback(note)

        connection.set_trace_callback(note)

    sa.event.listen(study.log._access.engine, "checkout", watch)
    study.log._access._cursors.close()  # so that the next one is checked out
    trial = study.ask()
    trial.report(auc=0.5, eod=0.1)
    study.owner.journal.drain(trial.driver.batch)
    study.tell(trial)
    assert written == ["NORMAL", "NORMAL", "FULL"]  # asked, reported, told
    other, third = study.ask(), study.ask()
    written.clear()
    now += 0.9 * THROUGH_SECONDS
    study.tell(other, auc=0.5, eod=0.1)
    assert {*written} == {"NORMAL"}
    now += 0.2 * THROUGH_SECONDS
    study.tell(third, auc=0.5, eod=0.1)
    assert written[-1] == "FULL"
    study.owner.end("enough")  # whatever was told a moment ago
    assert written[-1] == "FULL"
    with study.log._access.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_a_write_that_fails_is_undone_before_anybody_uses_its_connection_again(url):
    access = Database(url).access

    def fail(cursor):
        cursor.execute("INSERT INTO fairway_study (name, created, length) VALUES ('half', 0, 0)")
        raise ZeroDivisionError

    def count(cursor):
        cursor.execute("SELECT count(*) FROM fairway_study")
        return cursor.fetchall()

    for _ in range(2):  # also with a connection that was kept
        access.find(lambda cursor: cursor.execute("SELECT 1"))
        with pytest.raises(ZeroDivisionError):
            access.add(fail, durable=False)
        assert access.find(count) == [(0,)]


def test_a_database_of_an_older_schema_is_migrated_when_it_is_opened(url, monkeypatch):
    run_curves(open_study(url), CURVES)
    database = Database(url)
    with database.access.writing() as connection:  # as the first version made it
        for statement in (
            "DROP INDEX fairway_event_trial",
            "ALTER TABLE fairway_event DROP COLUMN trial",
            "ALTER TABLE fairway_event DROP COLUMN previous",
            "ALTER TABLE fairway_event DROP COLUMN checksum",
            "ALTER TABLE fairway_study DROP COLUMN checksum",
            "UPDATE fairway_schema SET version = 1",
        ):
            connection.exec_driver_sql(statement)
    for _ in range(2):  # once is enough
        database = Database(url)
        with database.access.engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT version FROM fairway_schema").scalar() == VERSION
    study = open_study(url)
    assert len(study.trials) == 6
    assert [event.step.tolist() for event in study.log.reports([2])] == [
        event.step.tolist() for event in study.log.read() if isinstance(event, Reported) and event.number == 2
    ]
    assert study.log.reports([2])


def test_who_only_reads_cannot_write_and_makes_nothing(url, tmp_path):
    run_curves(open_study(url), CURVES)
    database = Database(url, reading=True)
    log = database.log("credit", create=False)
    assert len(log.read()) > 6
    with pytest.raises(fw.StorageError, match=r"read-?only"):
        log.append([Ended("mischief", 0.0)])
    with pytest.raises(fw.StorageError, match=r"read-?only"):
        database.delete("credit")
    with pytest.raises(fw.UsageError, match="there is no such file"):
        Database(f"sqlite:///{tmp_path}/none.db", reading=True)
    assert not (tmp_path / "none.db").exists()
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE somebody (elses INTEGER)")
    with pytest.raises(fw.UsageError, match="no fairway studies"):
        Database(f"sqlite:///{tmp_path}/other.db", reading=True)


def test_a_summary_can_be_followed_from_where_it_was_left(url):
    study = open_study(url)
    run_curves(study, CURVES)
    early, position = study.log.summary()
    assert position == len(study.log.read())
    study.tell(study.ask(), auc=0.5, eod=0.1)
    late, end = study.log.summary(position)
    assert [type(event).__name__ for event in late] == ["Asked", "Told"]
    assert [*early, *late] == study.log.summary()[0]
    assert end > position


def wait_until(condition, seconds=20):
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.02)


def test_a_report_reaches_the_log_though_no_other_follows(url):
    study = open_study(url)
    study.ask().report(auc=0.5, eod=0.1)
    wait_until(lambda: any(isinstance(event, Reported) for event in study.log.read()))


def test_what_others_report_is_known_while_a_trial_runs(url):
    one, other = open_study(url, fw.ACE(interval=1)), open_study(url, fw.ACE(interval=1))
    trial = one.ask()
    other.tell(other.ask(), auc=0.9, eod=0.1)
    wait_until(lambda: one.best is not None)
    called = []
    trial.report(auc=0.8, eod=lambda: called.append(1))
    assert not called  # it is not as good as the best feasible one of the other
    one.tell(trial)
    assert verify(one.log.read()).faults == []


def test_a_lost_configuration_of_the_queue_is_tried_again_once(url, monkeypatch):
    vanish(monkeypatch)
    studies = [open_study(url) for _ in range(3)]
    monkeypatch.setattr("fairway.storage.leases.machine", lambda: "elsewhere")
    studies[0].enqueue({"x": 0.125})
    assert [study.ask().params["x"] for study in studies[:2]] == [0.125] * 2
    assert studies[2].ask().params["x"] != 0.125
    assert studies[2].counts["failed"] == 2


class TestABrokenDatabase:
    """Each gets one clear sentence."""

    def check(self, url, sentence, error=fw.StorageError):
        with pytest.raises(error, match=sentence) as caught:
            open_study(url)
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_no_database(self, tmp_path):
        path = tmp_path / "study.db"
        path.write_bytes(b"this is a text, not a database, and long enough to tell" * 10)
        self.check(f"sqlite:///{path}", "file is not a database")

    def test_a_truncated_database(self, tmp_path):
        path = tmp_path / "study.db"
        run_curves(open_study(f"sqlite:///{path}"), CURVES)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
        for log in tmp_path.glob("study.db-*"):
            log.unlink()
        self.check(f"sqlite:///{path}", "malformed|not a database|disk I/O error")

    def test_a_newer_schema(self, url):
        open_study(url)
        database = Database(url)
        with database.access.writing() as connection:
            connection.exec_driver_sql("UPDATE fairway_schema SET version = 99")
        self.check(url, "written by a newer fairway .schema 99, this one knows 3.; update fairway")

    def test_a_directory_that_is_not_there(self, tmp_path):
        self.check(f"sqlite:///{tmp_path}/missing/study.db", "there is no folder '.*missing'", fw.UsageError)

    def test_a_server_that_is_not_there(self, tmp_path):
        self.check(f"postgresql://nobody@/nothing?host={tmp_path}", "could not be opened")

    @pytest.mark.parametrize("url", ["credit.db", "mysql://host/db", "", "sqlite"])
    def test_no_url_at_all(self, url):
        self.check(url, "sqlite:///file.db or postgresql://user@host/database is expected", fw.UsageError)

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
    def test_a_database_in_memory_is_no_home(self, url):
        self.check(url, "a file is expected; leave storage out", fw.UsageError)

    def test_two_slashes_are_one_too_few(self):
        self.check("sqlite://credit.db", "a file comes after three slashes, sqlite:///credit.db", fw.UsageError)

    def test_a_password_is_not_shown(self, tmp_path):
        for url in (f"postgresql://me:secret@/nothing?host={tmp_path}", "mysql://me:secret@host/db"):
            with pytest.raises(fw.FairwayError) as caught:
                open_study(url)
            assert "secret" not in str(caught.value)
        with pytest.raises(fw.StorageError) as caught:
            open_study(f"postgresql://me@/nothing?host={tmp_path}&password=secret")
        assert "secret" not in str(caught.value)

    def test_a_name_that_is_none(self, tmp_path):
        with pytest.raises(fw.UsageError, match="the name of a study"):
            open_study(f"sqlite:///{tmp_path}/s.db", name="")

    def test_a_locked_database(self, tmp_path, monkeypatch):
        monkeypatch.setattr("fairway.storage.access.BUSY_MS", 50)
        monkeypatch.setattr("fairway.storage.sql.BUSY_MS", 50)
        url = f"sqlite:///{tmp_path / 'study.db'}"
        study = open_study(url, patience=0)
        with closing(sqlite3.connect(tmp_path / "study.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(fw.StorageError, match="database is locked"):
                study.ask()
        assert study.ask().number == 0


def test_a_dropped_connection_loses_nothing(server):
    url = faults.make_database(server)
    study = open_study(url)
    study.tell(study.ask(), auc=0.5, eod=0.1)
    trial = study.ask()
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    study.tell(trial, auc=0.6, eod=0.1)  # the connection is checked before it is used
    assert [record.status for record in study.trials] == ["completed"] * 2
    engine.dispose()


def test_names_are_data(url):
    name = "'; DROP TABLE fairway_event; --\x1b[31m<script>"
    run_curves(open_study(url, name=name), CURVES[:1])
    assert [study.name for study in Database(url).studies()] == [name]
    assert len(open_study(url, name=name).trials) == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"start_from": [fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("other"))]}, "another objective"),
        ({"seed": -1}, "seed=-1"),
        ({"checkpoints": 3}, "checkpoints=3"),
    ],
)
def test_a_study_that_is_refused_leaves_nothing_behind(url, wrong, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), storage=url, name="new", **wrong)
    assert [stored.name for stored in Database(url).studies()] == []
    study = open_study(url)
    with pytest.raises(fw.UsageError, match="another"):
        fw.Study({"y": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), storage=url, name=study.name)
    assert [stored.name for stored in Database(url).studies()] == [study.name]
