"""Damage is found where it is read, by the event that has it, and `fairway repair` keeps the rest."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

import fairway as fw
from fairway.cli import main
from fairway.engine.event_json import from_json
from fairway.engine.events import Asked, Carried, Ended, Enqueued, LimitsChanged, Noted, Opened, Reported, Told
from fairway.report.view import View
from fairway.storage import chain
from fairway.storage.inspection import inspect
from fairway.storage.sql import Database
from tests.conftest import run_curves, within
from tests.storage.test_sql import CURVES, open_study

OLDER = Path(__file__).parent / "older"


def change(url, statement):
    database = Database(url)
    with database.access.writing() as connection:
        connection.exec_driver_sql(statement)


def events_of(url, kind):
    """The positions of a kind of event, from a study that is not damaged yet."""
    log = Database(url, reading=True).log("credit", create=False)
    return [i for i, event in enumerate(log.read()) if isinstance(event, kind)]


@pytest.fixture
def filled(url):
    """A database with a study of six trials."""
    run_curves(open_study(url, fw.Never()), CURVES)
    return url


def test_every_event_follows_the_one_before(filled):
    database = Database(filled)
    with database.access.engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT position, kind, claim, trial, previous, checksum, body FROM fairway_event ORDER BY position"
        ).all()
    links = list(chain.links(1, [chain.Row(*row) for row in rows]))
    assert len(links) == 19
    assert {link.damage for link in links} == {None}
    assert [link.row.previous for link in links][1:] == [link.row.checksum for link in links][:-1]


def test_two_owners_append_to_one_chain(url):
    one, other = open_study(url), open_study(url)
    for study in (one, other, one, one, other):
        study.tell(study.ask(), auc=0.5, eod=0.1)
    assert inspect(url, "credit").damage == []


def test_a_study_that_is_being_written_is_not_taken_for_damaged(url):
    study, stop = open_study(url), threading.Event()

    def write():
        while not stop.is_set():
            study.log.append([Ended("again", 0.0)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        log = Database(url, reading=True).log("credit", create=False)
        for _ in range(15):
            assert inspect(url, "credit").damage == []
            log.summary()
            log.read()
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize(
    ("change_to", "said"),
    [
        ("body = replace(body, '0.4', '0.3')", "event 2 (Reported of trial 0)"),
        ("kind = 'Told'", "event 2 (Told of trial 0)"),
        ("trial = 5", "event 2 (Reported of trial 5)"),
        ("claim = 'asked 99'", "event 2 (Reported of trial 0)"),
        ("checksum = 'x'", "event 2 (Reported of trial 0)"),
        ("previous = 'x'", "event 2 (Reported of trial 0)"),
        ("body = 'x'", "event 2 (Reported of trial 0)"),
    ],
)
def test_a_damaged_event_is_named_by_who_opens_the_study_and_by_verify(filled, capsys, change_to, said):
    change(filled, f"UPDATE fairway_event SET {change_to} WHERE position = 2")
    with pytest.raises(fw.StorageError, match="is damaged") as caught:
        open_study(filled)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert main(["verify", filled, "credit"]) == 1
    out = capsys.readouterr().out
    assert said in out
    assert "1 fault; `fairway repair` copies what is intact" in out


def test_an_event_that_is_missing_is_named(filled, capsys):
    change(filled, "DELETE FROM fairway_event WHERE position = 5")
    for read in (lambda: open_study(filled), lambda: View.read(filled, "credit")):
        with pytest.raises(fw.StorageError, match="is missing"):
            read()
    assert main(["verify", filled, "credit", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["damage"] == ["event 5 is missing"]


def test_a_row_put_back_from_an_earlier_copy_breaks_the_chain(filled):
    """It matches its own checksum, and not what follows it."""
    change(filled, "UPDATE fairway_event SET claim = NULL WHERE position = 4")
    database = Database(filled)
    with database.access.writing() as connection:
        row = connection.exec_driver_sql(
            "SELECT position, kind, claim, trial, previous, checksum, body FROM fairway_event WHERE position = 4"
        ).one()
        right = chain.checksum(1, chain.Row(*row))
        connection.execute(sa.text("UPDATE fairway_event SET checksum = :right WHERE position = 4"), {"right": right})
    with pytest.raises(fw.StorageError, match=r"event 5 .* does not follow the event before it"):
        open_study(filled)


@pytest.mark.parametrize("length", [0, 3, 18, 20, 1000])
def test_a_wrong_length_gets_a_sentence_and_no_endless_loop(filled, length):
    change(filled, f"UPDATE fairway_study SET length = {length}")
    with within(30), pytest.raises(fw.StorageError, match=r"its length is|length of"):
        open_study(filled)


@pytest.mark.parametrize("length", [3, 18])
def test_a_length_that_shrinks_under_way_ends_the_study_with_a_sentence(filled, length):
    study = open_study(filled)
    change(filled, f"UPDATE fairway_study SET length = {length}")
    with within(30), pytest.raises(fw.StorageError, match="its length is"):
        study.ask()


def test_a_claim_that_no_event_has_ends_the_study_with_a_sentence(filled):
    study = open_study(filled)
    change(filled, "UPDATE fairway_event SET claim = 'asked 6' WHERE position = 2")
    with within(30), pytest.raises(fw.StorageError, match="the log refuses 'asked 6', which no event of it has"):
        study.ask()


def test_a_renamed_study_is_not_begun_anew(filled):
    change(filled, "UPDATE fairway_study SET name = 'credjt'")
    with pytest.raises(fw.StorageError, match="row of the study 'credjt' does not match its checksum"):
        open_study(filled)


def test_a_study_whose_row_is_lost_is_not_begun_anew(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    run_curves(open_study(url), CURVES)
    open_study(url, name="other")
    with closing(sqlite3.connect(tmp_path / "study.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM fairway_study WHERE name = 'credit'")
    with pytest.raises(fw.StorageError, match="events of a study that is gone"):
        open_study(url)


@pytest.mark.parametrize("version", [0, 1, 2, "'x'", "NULL", -1])
def test_a_wrong_schema_version_gets_a_sentence(tmp_path, version):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    run_curves(open_study(url), CURVES)
    with closing(sqlite3.connect(tmp_path / "study.db", isolation_level=None)) as connection:
        connection.execute("DROP TABLE fairway_schema")
        connection.execute("CREATE TABLE fairway_schema (version)")
        connection.execute(f"INSERT INTO fairway_schema VALUES ({version})")
    for read in (lambda: open_study(url), lambda: View.read(url, "credit")):
        with pytest.raises(
            fw.StorageError, match=r"it says that its schema is .*, and its tables are those of schema 3"
        ):
            read()


def test_an_older_study_gets_its_checksums_when_it_is_opened_to_be_resumed(tmp_path):
    url = f"sqlite:///{shutil.copy(OLDER / 'workers.db', tmp_path)}"
    assert not inspect(url, "pilot").checksums
    Database(url)
    found = inspect(url, "pilot")
    assert (found.checksums, found.damage) == (True, [])
    change(url, "UPDATE fairway_event SET body = body || ' ' WHERE study = 1 AND position = 20")
    (damage,) = inspect(url, "pilot").damage
    assert damage.startswith("event 20 (")


class TestRepair:
    def repaired(self, url, tmp_path, capsys):
        new = tmp_path / "new.db"
        code = main(["repair", url, "credit", "-o", f"sqlite:///{new}", "--json"])  # a path does as well
        answer = json.loads(capsys.readouterr().out)
        assert code == (1 if answer["left_out"] else 0)
        new = f"sqlite:///{new}"
        assert main(["verify", new, "credit"]) == 0
        return new, answer

    def test_an_intact_study_is_copied_whole(self, filled, tmp_path, capsys):
        new, answer = self.repaired(filled, tmp_path, capsys)
        assert (answer["kept"], answer["left_out"], answer["damage"]) == (19, [], [])
        assert open_study(new, fw.Never()).trials == open_study(filled, fw.Never()).trials

    def test_reports_that_are_lost_cost_only_themselves(self, filled, tmp_path, capsys):
        before = open_study(filled, fw.Never()).trials
        place = events_of(filled, Reported)[2]
        change(filled, f"UPDATE fairway_event SET body = 'x' WHERE position = {place}")
        new, answer = self.repaired(filled, tmp_path, capsys)
        (left,) = answer["left_out"]
        assert left.startswith(f"event {place} (Reported of trial 2) is no event of a fairway log")
        assert open_study(new, fw.Never()).trials == before  # the sums are in the ends of trials

    def test_a_trial_whose_beginning_is_lost_leaves_its_number(self, filled, tmp_path, capsys):
        before = open_study(filled, fw.Never()).trials
        change(filled, f"DELETE FROM fairway_event WHERE position = {events_of(filled, Asked)[3]}")
        new, answer = self.repaired(filled, tmp_path, capsys)
        assert len(answer["left_out"]) == 3  # its beginning, its reports, its end
        study = open_study(new, fw.Never())
        assert (study.trials[3].status, study.trials[3].params) == ("failed", {})
        assert [study.trials[i] for i in (0, 1, 2, 4, 5)] == [before[i] for i in (0, 1, 2, 4, 5)]
        run_curves(study, CURVES[:2])
        assert len(study.trials) == 8
        assert inspect(new, "credit").damage == []
        assert main(["show", new, "credit"]) == 0
        assert "repaired: 3 events left out" in capsys.readouterr().out
        for command in ("report", "export"):
            suffix = {"report": "html", "export": "csv"}[command]
            assert main([command, new, "credit", "-o", str(tmp_path / f"out.{suffix}")]) == 0

    def test_a_trial_whose_end_is_lost_is_tried_again(self, filled, tmp_path, capsys):
        params = open_study(filled, fw.Never()).trials[5].params
        change(filled, f"DELETE FROM fairway_event WHERE position = {events_of(filled, Told)[5]}")
        new, answer = self.repaired(filled, tmp_path, capsys)
        assert len(answer["left_out"]) == 1
        study = open_study(new, fw.Never())
        assert study.ask().params == params
        assert study.trials[5].reason == "lost its worker"

    def test_the_first_event_is_taken_from_another_worker(self, filled, tmp_path, capsys):
        open_study(filled, fw.Never())
        change(filled, "UPDATE fairway_event SET body = 'x' WHERE position = 0")
        new, answer = self.repaired(filled, tmp_path, capsys)
        assert answer["left_out"][0].endswith("worker 1 says what study it is")
        assert len(open_study(new, fw.Never()).trials) == 6

    def test_a_first_event_from_after_a_limit_was_added_costs_nothing_else(self, tmp_path, capsys):
        url = f"sqlite:///{tmp_path / 'study.db'}"
        study = open_study(url, fw.Never())
        study.tell(study.ask(), auc=0.5, eod=0.1)
        study.set_limit(fw.AtMost("ms", 20.0), eod=0.3)
        study.tell(study.ask(), auc=0.6, eod=0.2, ms=10.0)
        other = fw.load_study(url, "credit")
        other.tell(other.ask(), auc=0.7, eod=0.2, ms=10.0)
        change(url, "UPDATE fairway_event SET body = 'x' WHERE position = 0")
        new, answer = self.repaired(url, tmp_path, capsys)
        (left,) = answer["left_out"]
        assert left.endswith("worker 1 says what study it is")
        again = fw.load_study(new, "credit")
        assert (again.trials, again.problem.constraints) == (other.trials, other.problem.constraints)

    def test_the_next_change_of_the_limits_stands_for_a_lost_one(self, tmp_path, capsys):
        url = f"sqlite:///{tmp_path / 'study.db'}"
        study = open_study(url, fw.Never())
        study.tell(study.ask(), auc=0.5, eod=0.1)
        study.set_limit(fw.AtMost("ms", 20.0))
        study.tell(study.ask(), auc=0.6, eod=0.2, ms=10.0)
        study.set_limit(fw.AtMost("mb", 5.0))
        study.tell(study.ask(), auc=0.7, eod=0.2, ms=10.0, mb=4.0)
        study.set_limit(eod=0.3)
        study.tell(study.ask(), auc=0.8, eod=0.2, ms=10.0, mb=4.0)
        places = events_of(url, LimitsChanged)
        change(url, f"UPDATE fairway_event SET body = 'x' WHERE position IN ({places[0]}, {places[1]})")
        new, answer = self.repaired(url, tmp_path, capsys)
        assert [said.partition(" (")[0] for said in answer["left_out"]] == [f"event {place}" for place in places[:2]]
        assert all(said.endswith("; the next change of the limits stands for it") for said in answer["left_out"])
        again = fw.load_study(new, "credit")
        assert (again.trials, again.problem.constraints) == (study.trials, study.problem.constraints)
        assert main(["show", new, "credit"]) == 0
        shown = capsys.readouterr().out
        assert shown.count("limits changed") == 1
        assert "repaired: 2 events left out" in shown

    def test_without_any_opening_nothing_can_be_kept(self, filled, tmp_path, capsys):
        places = ", ".join(map(str, events_of(filled, Opened)))
        change(filled, f"DELETE FROM fairway_event WHERE position IN ({places})")
        assert main(["repair", filled, "credit", "-o", str(tmp_path / "new.db")]) == 2
        assert "no intact event says what study 'credit' is" in capsys.readouterr().err
        assert not (tmp_path / "new.db").exists()

    @pytest.mark.parametrize("column", ["kind", "claim", "previous", "checksum"])
    def test_an_event_is_kept_if_only_what_lies_beside_it_is_damaged(self, filled, tmp_path, capsys, column):
        change(filled, f"UPDATE fairway_event SET {column} = 'x' WHERE position = 4")
        new, answer = self.repaired(filled, tmp_path, capsys)
        assert (answer["kept"], answer["left_out"]) == (19, [])
        assert len(open_study(new, fw.Never()).trials) == 6

    def test_a_page_of_zeros_costs_the_events_on_it(self, tmp_path, capsys):
        path = tmp_path / "study.db"
        url = f"sqlite:///{path}"
        run_curves(open_study(url, fw.Never()), CURVES * 8)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            leaves = connection.execute(
                "SELECT pageno FROM dbstat WHERE name = 'fairway_event' AND pagetype = 'leaf' ORDER BY pageno"
            ).fetchall()
        data, (page,) = bytearray(path.read_bytes()), leaves[len(leaves) // 2]
        data[(page - 1) * 4096 : page * 4096] = bytes(4096)
        broken = tmp_path / "broken.db"
        broken.write_bytes(bytes(data))
        assert main(["show", f"sqlite:///{broken}", "credit"]) == 2
        new, answer = self.repaired(f"sqlite:///{broken}", tmp_path, capsys)
        assert 10 < answer["kept"] < 145
        assert answer["left_out"]
        assert len(open_study(new, fw.Never()).trials) > 30

    @pytest.mark.parametrize(("lost", "costs_all"), [(Opened, True), (Enqueued, True), (Asked, True), (Told, False)])
    def test_a_study_goes_on_without_what_is_lost_of_those_it_started_from(self, tmp_path, capsys, lost, costs_all):
        space, parts = {"x": fw.Float(0.0, 1.0)}, {"sampler": fw.Random(), "stopper": fw.Never()}
        earlier = [fw.Study(space, fw.Minimize("loss"), **parts, seed=seed, name="old") for seed in (1, 2)]
        for study in earlier:
            study.enqueue({"x": 0.5})
            for trial in (study.ask(), study.ask()):
                trial.report(loss=trial.params["x"])
                study.tell(trial)
        url = f"sqlite:///{tmp_path / 'study.db'}"
        fw.Study(space, fw.Minimize("loss"), **parts, storage=url, name="credit", seed=0, start_from=earlier)
        copies = [event for event in Database(url).log("credit").read() if isinstance(event, Carried)]
        place = next(i for i, event in enumerate(copies, 1) if isinstance(from_json(event.copy), lost))
        change(url, f"DELETE FROM fairway_event WHERE position = {place}")
        new, answer = self.repaired(url, tmp_path, capsys)
        assert len(answer["left_out"]) == (len(copies) // 2 if costs_all else 1)
        study = fw.load_study(new, "credit")
        study.tell(study.ask(), loss=0.5)
        assert len(study.history.earlier) == (1 if costs_all else 2)
        assert len(study.history.earlier[-1]) == 2  # nothing of the other study is lost

    def test_it_overwrites_nothing(self, filled, tmp_path, capsys):
        (tmp_path / "new.db").write_text("a file of yours")
        assert main(["repair", filled, "credit", "-o", str(tmp_path / "new.db")]) == 2
        assert "is there already; name a new file" in capsys.readouterr().err
        assert (tmp_path / "new.db").read_text() == "a file of yours"


def test_a_worker_number_that_a_damaged_lease_holds_is_taken_all_the_same(filled):
    change(filled, "UPDATE fairway_worker SET worker = 1, process = 2147483647")
    study = open_study(filled)
    assert study.ask().number == 6


def test_appending_asks_for_nothing_more_than_before(tmp_path):
    """The checksum of the event before is known from the last append; only after another writer it is looked up."""
    study = open_study(f"sqlite:///{tmp_path / 'study.db'}")
    statements = []
    trace = lambda connection, *_: connection.set_trace_callback(statements.append)
    sa.event.listen(study.log._access.engine, "checkout", trace)
    study.log._access._cursors.close()  # so that the next one is checked out
    study.log.append([Noted(None, {"one": 1}, 0.0)])
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]


def test_older_checksums_which_do_not_say_their_position_are_read_as_they_are(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with monkeypatch.context() as before:
        before.setattr(chain, "checksum", lambda study, row, today=chain.checksum: _older(today(study, row)))
        before.setattr(chain, "valid_checksums", lambda study, row: (chain.checksum(study, row),))
        study = open_study(url)
        study.optimize(lambda trial: [trial.report(auc=0.1 * step, eod=0.1) for step in trial.steps(2)], trials=3)
    again = open_study(url)
    again.optimize(lambda trial: [trial.report(auc=0.1 * step, eod=0.1) for step in trial.steps(2)], trials=2)
    assert again.counts["completed"] == 5
    assert [curve.step.tolist() for curve in View.of(again).curves([1, 4]).values()] == [[1, 2], [1, 2]]
    assert main(["verify", url]) == 0


def _older(checksum):
    digest, _, _, *trial = checksum.split()
    return " ".join([digest, *trial])
