"""The file of a database is looked at by several threads, while others write to it."""

from __future__ import annotations

import pathlib
import sqlite3
from contextlib import closing

import pytest

import fairway as fw
from fairway.errors import StorageError
from fairway.storage.files import Presence


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "study.db"
    with closing(sqlite3.connect(found)) as connection:
        connection.execute("CREATE TABLE row (text)")
    return found


def grow(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO row VALUES (?)", ("x" * 100_000,))


def test_a_file_that_grows_while_two_threads_look_at_it_is_not_cut_off(path, monkeypatch):
    presence, look = Presence(path, "study.db"), pathlib.Path.stat

    def stat_then_be_overtaken(self, **how):
        found = look(self, **how)
        monkeypatch.undo()
        grow(path)
        presence.check()  # another thread's
        return found

    monkeypatch.setattr(pathlib.Path, "stat", stat_then_be_overtaken)
    presence.check()


def test_a_file_that_shrinks_is_cut_off(path):
    presence = Presence(path, "study.db")
    grow(path)
    presence.check()
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(StorageError, match="was truncated while the study ran"):
        presence.check()


@pytest.mark.parametrize("there", [False, True])
def test_only_a_file_that_is_there_and_empty_is_warned_of(tmp_path, caplog, there):
    file = tmp_path / "study.db"
    if there:
        file.touch()
    fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=f"sqlite:///{file}", seed=0)
    assert ("study.db is empty: if it had studies in it, they are gone" in caplog.text) == there
