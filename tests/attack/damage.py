"""Databases of studies that are damaged at random, and what every command makes of them.

Each damaged file is opened, listed, shown, verified, exported, reported and repaired. Each of these must either answer
as it did before the damage, letter by letter (then the damage was harmless), or say one sentence: the study never
changes silently, nothing hangs, nothing ends in a traceback. A file without checksums (an older schema) may change
silently; the rest holds there too. `make faults` does this 2,500 times, CI some 120 times.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.cli import main
from fairway.constraints import demographic_parity_difference
from fairway.storage.schema import VERSION
from tests.conftest import within

SECONDS = 30.0  # that nothing takes
TABLES = (
    *("fairway_schema", "fairway_study", "fairway_worker", "fairway_snapshot"),
    *["fairway_event"] * 3,
)
NAME = "hiring"


def open_study(path, name=NAME):
    space = {"weight": fw.Float(0.0, 1.0), "kind": fw.Choice(["a", "b"])}
    limits = [fw.AtMost("parity", 0.1, confidence=0.9)]
    return fw.Study(
        space,
        fw.Maximize("accuracy"),
        limits,
        sampler=fw.Random(),
        stopper=fw.ACE(interval=1),  # whose decisions do not read the clock
        terminator=fw.Plateau(4),
        storage=f"sqlite:///{path}",
        name=name,
        seed=1,
    )


def make(path):
    """A database in which nobody works any more."""
    script = "import sys; from tests.attack.damage import run_studies; run_studies(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE fairway_worker SET machine = 'elsewhere since 1', beat = 1.5")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def run_studies(path):
    """Two studies with everything that a log can hold."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 1200)
    x = rng.normal(size=(1200, 2)) + np.outer(group, [0.0, 0.6])
    truth = x.sum(1) > 0.5

    def train(trial):
        def model(rows, weight=trial.params["weight"]):
            return (rows[:, 0] + weight * rows[:, 1] > 0.5).astype(int)

        if trial.number == 2:
            raise ValueError("no such solver")
        trial.note(size=trial.number)
        decided = model(x[:600])
        for step in trial.steps(3):
            accuracy = float((decided == truth[:600]).mean()) * step / 3
            gap = demographic_parity_difference(truth[:600], decided, sensitive_features=group[:600])
            trial.report(accuracy=accuracy, parity=lambda gap=gap: gap)
        return model

    study = open_study(path)
    study.enqueue({"weight": 0.5, "kind": "a"})
    study.optimize(train, trials=7)
    study.searched_by(x[:600])
    study.note(where="here")
    study.note(1, later=2.5)
    study.certify(fw.FreshRows(x[600:], truth[600:], groups=group[600:], parity=demographic_parity_difference), train)
    study.set_limit(parity=0.12)
    study.set_limit(fw.AtMost("size", 5.0))
    study.tell(study.ask(), accuracy=0.3, parity=fw.Measured(0.05, error=0.01), size=3.0)
    study.set_limit(size=4.0)
    study.enqueue({"weight": 0.25, "kind": "b"})
    study.ask().report(accuracy=0.2, parity=fw.Measured(0.05, error=0.01))
    study.owner._keep_snapshot(at_least=1)  # a snapshot, with some events after it
    trial = study.ask()
    trial.report(accuracy=0.25, parity=fw.Measured(0.05, error=0.01))
    study.owner.journal.flush()
    fw.load_study(f"sqlite:///{path}", NAME)  # another worker, who can say what study it is if its beginning is lost
    other = open_study(path, "other")
    other.tell(other.ask(), accuracy=0.5, parity=fw.Measured(0.05, error=0.01))


def downgrade(path):
    """Make a database of the schema before checksums."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE fairway_event DROP COLUMN previous")
        connection.execute("ALTER TABLE fairway_event DROP COLUMN checksum")
        connection.execute("ALTER TABLE fairway_study DROP COLUMN checksum")
        connection.execute("UPDATE fairway_schema SET version = 2")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# Mutations: each is a function of a path, with words for it


class Mutation(NamedTuple):
    words: str
    apply: object

    def __repr__(self):
        return self.words


WHOLE = st.one_of(st.integers(-3, 40), st.sampled_from([2**31, 2**53, 2**63 - 1, -(2**63), 10**9]))
SCALARS = st.one_of(
    st.none(), WHOLE, st.floats(), st.text(max_size=8), st.binary(max_size=8), st.sampled_from(["", "x", "Told", "0"])
)
DEEP = ("[" * 990 + "]" * 990, '{"a":' * 500 + "1" + "}" * 500, "[" * 100_000)
HUGE = ("1" * 5000, "1e999", "-1e999", "1e308", str(2**64), "NaN", "Infinity", "9" * 400)
FORMS = ("null", "true", "[]", "{}", '""', '"x"', "0", "-1", "[[]]", '[null,"x",{}]', '{"kind":"Float"}')


@st.composite
def mutations(draw):
    return draw(st.one_of(cells(), cells(), bodies(), bodies(), rows(), versions(), tables(), files()))


@st.composite
def cells(draw):
    """Any value in any column of any table."""
    table, place, column = draw(st.sampled_from(TABLES)), draw(st.integers(0, 99)), draw(st.integers(0, 9))
    how = draw(st.sampled_from(["set", "set", "flip", "cut", "copy"]))
    value, other = draw(SCALARS), draw(st.integers(0, 99))

    def apply(path):
        with writing(path) as connection:
            found = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
            names = [each[0] for each in connection.execute(f"SELECT * FROM {table} LIMIT 0").description]
            if not found:
                return
            row, at = found[place % len(found)], column % len(names)
            new = row[at + 1]
            if how == "set":
                new = value
            elif how == "copy":
                new = found[other % len(found)][at + 1]
            elif isinstance(new, str) and new:
                data = bytearray(new.encode())
                if how == "flip":
                    data[other % len(data)] ^= 1 << (other % 8)
                else:
                    del data[other % len(data) :]
                connection.execute(
                    f"UPDATE {table} SET {names[at]} = CAST(? AS TEXT) WHERE rowid = ?", (bytes(data), row[0])
                )
                return
            elif isinstance(new, int | float):
                new = new + other
            connection.execute(f"UPDATE {table} SET {names[at]} = ? WHERE rowid = ?", (new, row[0]))

    return Mutation(f"{how} {table} row {place} column {column} ({value!r}, {other})", apply)


@st.composite
def bodies(draw):
    """JSON with missing keys, wrong types, deep nesting and huge numbers."""
    place, path_seed = draw(st.integers(0, 99)), draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
    how = draw(st.sampled_from(["drop", "form", "deep", "huge", "add"]))
    text = draw(st.sampled_from({"deep": DEEP, "huge": HUGE}.get(how, FORMS)))

    def apply(path):
        with writing(path) as connection:
            found = connection.execute("SELECT rowid, body FROM fairway_event").fetchall()
            row, body = found[place % len(found)]
            whole = holder = json.loads(body)
            for step in path_seed[:-1]:
                keys = [key for key, value in items(holder) if isinstance(value, dict | list) and value]
                if not keys:
                    break
                holder = holder[keys[step % len(keys)]]
            keys = [key for key, _ in items(holder)]
            key = keys[path_seed[-1] % len(keys)]
            if how == "drop":
                del holder[key]
            elif how == "add" and isinstance(holder, dict):
                holder["stray"] = "@mark@"
            else:
                holder[key] = "@mark@"
            new = json.dumps(whole, separators=(",", ":")).replace('"@mark@"', text)
            connection.execute("UPDATE fairway_event SET body = ? WHERE rowid = ?", (new, row))

    return Mutation(f"{how} {text[:20]} in the JSON of row {place} at {path_seed}", apply)


def items(holder):
    return list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))


@st.composite
def rows(draw):
    """Rows deleted, swapped, duplicated, moved and truncated."""
    how = draw(st.sampled_from(["delete", "swap", "swap bodies", "duplicate", "move", "truncate", "study", "empty"]))
    table = draw(st.sampled_from(TABLES)) if how in ("delete", "empty") else "fairway_event"
    one, other = draw(st.integers(0, 99)), draw(st.integers(0, 99))

    def apply(path):
        with writing(path) as connection:
            found = connection.execute(f"SELECT rowid FROM {table}").fetchall()
            (a,), (b,) = (found[i % len(found)] for i in (one, other)) if found else ((-1,), (-1,))
            event = "UPDATE fairway_event SET"
            if how == "delete":
                connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (a,))
            elif how == "empty":
                connection.execute(f"DELETE FROM {table}")
            elif how == "truncate":
                connection.execute("DELETE FROM fairway_event WHERE rowid >= ?", (a,))
            elif how == "duplicate":
                names = [each[0] for each in connection.execute("SELECT * FROM fairway_event LIMIT 0").description]
                new = ", ".join({"position": "position + 37", "claim": "NULL"}.get(name, name) for name in names)
                connection.execute(f"INSERT INTO fairway_event SELECT {new} FROM fairway_event WHERE rowid = ?", (a,))
            elif how == "move":
                connection.execute(f"{event} position = position + 1000 WHERE rowid = ?", (a,))
            elif how == "study":
                connection.execute(f"{event} study = 3 - study, position = position + 500 WHERE rowid = ?", (a,))
            elif how == "swap":
                swap(connection, a, b)
            else:
                bodies_ = [
                    connection.execute("SELECT body FROM fairway_event WHERE rowid = ?", (rowid,)).fetchone()[0]
                    for rowid in (a, b)
                ]
                for rowid, body in ((a, bodies_[1]), (b, bodies_[0])):
                    connection.execute(f"{event} body = ? WHERE rowid = ?", (body, rowid))

    return Mutation(f"{how} {table} rows {one} and {other}", apply)


def swap(connection, a, b):
    """Let two events, by their rowid, change places."""
    place = "SELECT study, position FROM fairway_event WHERE rowid = ?"
    at = [connection.execute(place, (rowid,)).fetchone() for rowid in (a, b)]
    move = "UPDATE fairway_event SET study = ?, position = ? WHERE rowid = ?"
    for rowid, (study, position) in ((a, (at[0][0], -1)), (b, at[0]), (a, at[1])):
        connection.execute(move, (study, position, rowid))


@st.composite
def versions(draw):
    """Wrong schema versions."""
    value = draw(st.one_of(st.sampled_from([0, 1, 2, 4, 99, -1, "x", "", None, 2.5, b"3", 2**62]), SCALARS))
    more = draw(st.booleans())

    def apply(path):
        with writing(path) as connection:
            if more:
                connection.execute("INSERT INTO fairway_schema VALUES (?)", (value,))
            else:
                connection.execute("UPDATE fairway_schema SET version = ?", (value,))

    return Mutation(f"schema version {value!r}{' as a second one' if more else ''}", apply)


@st.composite
def tables(draw):
    """Tables, indices and columns that are gone."""
    statement = draw(
        st.sampled_from(
            [
                *(f"DROP TABLE {table}" for table in sorted(set(TABLES))),
                "DROP INDEX fairway_event_trial",
                "ALTER TABLE fairway_event RENAME COLUMN body TO bodi",
                "ALTER TABLE fairway_event RENAME COLUMN checksum TO checksun",
                "ALTER TABLE fairway_study DROP COLUMN length",
                "ALTER TABLE fairway_study RENAME TO fairway_studi",
            ]
        )
    )

    def apply(path):
        with writing(path) as connection:
            connection.execute(statement)

    return Mutation(statement, apply)


@st.composite
def files(draw):
    """Bytes of the file itself: flipped, zeroed, cut off, repeated."""
    how = draw(st.sampled_from(["flip", "flip", "flip", "zero", "truncate", "repeat", "append"]))
    at = draw(st.floats(0.0, 1.0, exclude_max=True))
    size, bit = draw(st.sampled_from([1, 1, 1, 4, 64, 4096])), draw(st.integers(0, 7))

    def apply(path):
        data = bytearray(path.read_bytes())
        begin = int(at * len(data))
        if how == "flip":
            for i in range(begin, min(begin + size, len(data))):
                data[i] ^= 1 << bit
        elif how == "zero":
            data[begin : begin + size] = bytes(len(data[begin : begin + size]))
        elif how == "truncate":
            del data[begin:]
        elif how == "repeat":
            data[begin : begin + size] = data[: len(data[begin : begin + size])]
        else:
            data += bytes(range(256)) * (size // 256 + 1)
        path.write_bytes(bytes(data))

    return Mutation(f"{how} {size} bytes of the file at {at:.6f}, bit {bit}", apply)


@contextlib.contextmanager
def writing(path):
    """A connection that no constraint but those of columns holds back; what they refuse is left as it was."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("BEGIN")
        try:
            yield connection
            connection.execute("COMMIT")
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            connection.execute("ROLLBACK")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# What is made of them


class Answer(NamedTuple):
    code: int
    out: str
    err: str


COMMANDS = {
    "list": ("list",),
    "show": ("show", NAME, "--json"),
    "verify": ("verify", NAME),
    "export": ("export", NAME, "-o", "trials.json"),
    "report": ("report", NAME, "-o", "report.html"),
}


def call(folder, path, command):
    """What a command answers; the files that it writes are part of the answer."""
    arguments = [str(folder / word) if "." in word else word for word in command]
    out, err = io.StringIO(), io.StringIO()
    with within(SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([arguments[0], f"sqlite:///{path}", *arguments[1:]])
    said = out.getvalue()
    for word in arguments:
        written = Path(word)
        if "." in word and written.suffix != ".db" and written.is_file():
            said += re.sub(r"on [-:\d ]+ UTC", "", written.read_text())
            written.unlink()
    return Answer(code, said.replace(str(path), "FILE").replace(str(folder), "FOLDER"), err.getvalue())


def opened(path):
    """What a study that is resumed knows."""
    with within(SECONDS):
        study = fw.load_study(f"sqlite:///{path}", NAME)
        known = [study.trials, study.best, study.counts, study.seed, study.costs, study.notes, study.verdicts]
        return repr([*known, list(study.owner.ledger.queue)])


def answers(folder, path, commands=tuple(COMMANDS)):
    """What everything answers, by what was called; only sentences are caught."""
    found = {name: call(folder, path, COMMANDS[name]) for name in commands}
    copy = folder / "resumed.db"
    shutil.copy(path, copy)
    try:
        found["open"] = Answer(0, opened(copy), "")
    except fw.FairwayError as error:
        found["open"] = Answer(2, "", f"fairway: {error}\n")
    remove(copy)
    return found


def judge(before, folder, path, *, checksums=True):
    """Check every answer about a damaged file; a word for what came of it."""
    after = answers(folder, path)
    changed = []
    for name, answer in after.items():
        if answer == before[name]:
            continue
        changed.append(name)
        if name == "verify" and answer.code == 1:
            assert answer.out.strip(), "verify found a fault, and did not say which"
        elif name == "list" and answer.code == 1:
            assert re.search(r"cannot be read: [^\n]{10,}", answer.out), f"list does not say why:\n{answer.out}"
        elif answer.code == 2:
            assert re.fullmatch(r"fairway: [^\n]{10,}\n", answer.err), f"{name} says {answer.err!r}"
        elif checksums:
            raise AssertionError(f"{name} answers differently, and says nothing:\n{difference(before[name], answer)}")
    if checksums and set(changed) - {"list"}:
        noticed = after["verify"] != before["verify"]
        assert noticed, f"verify finds nothing, but {changed} do: {after[changed[0]].err}"
    repaired = check_repair(before, folder, path, checksums=checksums)
    return f"{'harmless' if not changed else 'found'}, {repaired}"


def check_repair(before, folder, path, *, checksums):
    new = folder / "new.db"
    answer = call(folder, path, ("repair", NAME, "-o", "new.db"))
    try:
        if answer.code == 2:
            assert re.fullmatch(r"fairway: [^\n]{10,}\n", answer.err), f"repair says {answer.err!r}"
            assert not new.exists(), "repair failed, and left a file"
            return "not repaired"
        again = answers(folder, new, ("list", "show", "verify", "export"))
        assert (again["verify"].code, again["open"].code) == (0, 0) or not checksums, f"repaired: {again['verify']}"
        assert {again[name].code for name in ("list", "show", "export")} == {0} or not checksums
        if answer.code == 0 and checksums:
            for name in ("show", "export", "open"):
                assert again[name] == before[name], f"repaired, and {name} answers differently"
            return "wholly repaired"
        return "partly repaired"
    finally:
        remove(new)


def difference(one, other):
    at = next((i for i, (a, b) in enumerate(zip(one.out, other.out, strict=False)) if a != b), 0)
    return f"{one.code} {one.out[max(at - 80, 0) : at + 80]!r}\n{other.code} {other.out[max(at - 80, 0) : at + 80]!r}"


def remove(path):
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        each.unlink(missing_ok=True)


def attack(base, before, folder, mutation, *, checksums=True):
    """Damage a copy of a database and judge what comes of it."""
    path = folder / "study.db"
    shutil.copy(base, path)
    try:
        mutation.apply(path)
        return judge(before, folder, path, checksums=checksums)
    finally:
        remove(path)


assert VERSION == 3, "add a way back from the new schema"


def prepare(folder, *, checksums=True):
    """A database to be damaged, and what everything answers before."""
    base, path = folder / "base.db", folder / "study.db"
    make(base)
    if not checksums:
        downgrade(base)
    shutil.copy(base, path)
    before = answers(folder, path)
    remove(path)
    return base, before


def run_many(runs, *, checksums):
    """Damage a database many times; how many ways it failed."""
    counts, faults = Counter(), []

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, before = prepare(folder, checksums=checksums)

        @settings(max_examples=runs, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(mutations())
        def run(mutation):
            try:
                counts[attack(base, before, folder, mutation, checksums=checksums)] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
                faults.append(f"{mutation}: {error!r}")

        run()
    sys.stdout.write(f"{sum(counts.values())} damaged databases {'with' if checksums else 'without'} checksums\n")
    sys.stdout.writelines(f"{count:5d} {kind}\n" for kind, count in sorted(counts.items()))
    sys.stdout.writelines(f"FAILED: {fault}\n" for fault in faults)
    return len(faults)


def main_many():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    given_runs = parser.parse_args().runs
    failed = run_many(given_runs, checksums=True) + run_many(given_runs // 4, checksums=False)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main_many()
