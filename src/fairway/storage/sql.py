"""Logs in a SQL database, SQLite or PostgreSQL: one schema for both, plain columns and JSON, nothing that runs code.

Appends are serialised by the study's row, which holds the length of its log: it is locked before a position is taken,
so no event becomes visible before those ahead of it. What only one event may have is a unique column. Listing studies
and trials reads the small events and never the reports.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from fairway.engine.events import Event, Reported, Told, claim, from_json, to_json
from fairway.engine.interrupts import uninterrupted
from fairway.errors import FairwayError, MissingDependency, StorageError, UsageError
from fairway.storage import liveness

logger = logging.getLogger("fairway")

VERSION = 2
"""Of the schema; a database of a newer one is refused, one of an older one is migrated when it is opened."""

BEAT_SECONDS = 3.0
"""How often a worker shows that it lives."""

PULSE_SECONDS = 0.1
"""How often the owners of running trials learn what others wrote."""

LEASE_SECONDS = 30.0
"""A worker that was not heard of for so long has lost its trials."""

BUSY_MS = 15_000
"""How long a writer waits for SQLite's lock before it gives up; a beat that waits so long still keeps the lease."""

_AT_ONCE = 500  # trials in one query

_tables = sa.MetaData()
_schema = sa.Table("fairway_schema", _tables, sa.Column("version", sa.Integer, nullable=False))
_study = sa.Table(
    "fairway_study",
    _tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),  # of the log
)
_event = sa.Table(
    "fairway_event",
    _tables,
    sa.Column("study", sa.Integer, sa.ForeignKey(_study.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("claim", sa.Text),
    sa.Column("trial", sa.Integer),  # of which trial it tells, if of one
    sa.Column("body", sa.Text, nullable=False),
    sa.UniqueConstraint("study", "claim"),
    sa.Index("fairway_event_trial", "study", "trial"),
)
_worker = sa.Table(
    "fairway_worker",
    _tables,
    sa.Column("study", sa.Integer, sa.ForeignKey(_study.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("worker", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("process", sa.Integer, nullable=False),
    sa.Column("beat", sa.Float, nullable=False),  # the last sign of life, by the database's clock
)
_MIGRATIONS: dict[int, Callable[[str], Sequence[str]]] = {  # by the version they start from, for a kind of database
    1: lambda kind: (
        "ALTER TABLE fairway_event ADD COLUMN trial INTEGER",
        "UPDATE fairway_event SET trial = json_extract(body, '$.number')"
        if kind == "sqlite"
        else "UPDATE fairway_event SET trial = CAST(body::json->>'number' AS INTEGER)",
        "CREATE INDEX fairway_event_trial ON fairway_event (study, trial)",
    )
}
_EXPECTED = "sqlite:///file.db or postgresql://user@host/database is expected"


class Stored(NamedTuple):
    """A study as a database lists it."""

    name: str
    created: float
    events: int


def public(url: str) -> str:
    """A URL as it may be shown: without its password, wherever the driver would take one from.

    >>> public("postgresql://me:secret@host/db?sslpassword=secret")
    'postgresql://me:***@host/db'
    """
    try:
        return sa.make_url(url).difference_update_query(["password", "sslpassword"]).render_as_string()
    except ArgumentError:
        return url


class Database:
    """The studies at one URL; with `reading`, it must be there already, and nothing is ever written to its studies."""

    def __init__(self, url: str, *, reading: bool = False) -> None:
        self.url = url
        self._reading = reading
        try:
            parsed = sa.make_url(url)
            if parsed.drivername == "postgresql":
                parsed = parsed.set(drivername="postgresql+psycopg")
            if parsed.get_backend_name() not in ("sqlite", "postgresql"):
                raise UsageError(f"storage={self._shown!r}: {_EXPECTED}")
            self._sqlite = parsed.get_backend_name() == "sqlite"
            if self._sqlite and parsed.database in (None, "", ":memory:"):
                raise UsageError(
                    f"storage={self._shown!r}: a file is expected; leave storage out to keep a study in memory"
                )
            self._engine = sa.create_engine(parsed, pool_pre_ping=not self._sqlite)
        except (ArgumentError, NoSuchModuleError) as error:
            raise UsageError(f"storage={self._shown!r}: {_EXPECTED}") from error
        except ImportError as error:
            raise MissingDependency("PostgreSQL needs psycopg: pip install 'psycopg[binary]'") from error
        weakref.finalize(self, self._engine.dispose)  # connections are closed with the last study that uses them
        if self._sqlite:
            if reading and not Path(str(parsed.database)).is_file():
                raise UsageError(f"{self._shown}: there is no such file")
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        with self._talking("opened"):
            self._open_in_turn()
        if reading:
            self._engine.dispose()  # connections that could write
            sa.event.listen(self._engine, "connect", _read_sqlite if self._sqlite else _read_postgres)

    def _open_in_turn(self) -> None:
        """Open it when no other process is creating it: SQLite does not wait for that by itself."""
        patience = time.monotonic() + BUSY_MS / 1000
        while True:
            try:
                return self._open()
            except OperationalError as error:
                in_turn = "locked" in str(error) or "already exists" in str(error)
                if not self._sqlite or not in_turn or time.monotonic() > patience:
                    raise
                time.sleep(0.05)

    def _open(self) -> None:
        """Create the tables, or make sure that they are of this version."""
        if self._reading and not sa.inspect(self._engine).has_table(_schema.name):
            raise UsageError(f"{self._shown}: there are no fairway studies in this database")
        if not self._sqlite or not sa.inspect(self._engine).has_table(_schema.name):
            _tables.create_all(self._engine)
        with self._engine.begin() as connection:
            version = connection.execute(sa.select(_schema.c.version)).scalar()
            if version is None:
                connection.execute(_schema.insert().values(version=VERSION))
            elif version > VERSION:
                raise StorageError(
                    f"{self._shown} was written by a newer fairway (schema {version}, this one knows {VERSION}); "
                    "update fairway"
                )
            else:
                for older in range(version, VERSION):
                    for statement in _MIGRATIONS[older](self._engine.dialect.name):
                        connection.exec_driver_sql(statement)
                    connection.execute(_schema.update().values(version=older + 1))

    @property
    def _shown(self) -> str:
        return public(self.url)

    @contextmanager
    def _talking(self, done: str) -> Iterator[None]:
        """Turn what a driver raises into one sentence; Ctrl-C waits, lest a lock outlive its connection."""
        try:
            with uninterrupted():
                yield
        except FairwayError:
            raise
        except IntegrityError:
            raise
        except (SQLAlchemyError, OSError, ValueError) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
            why = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
            safe = "; what was told before is safe" if done == "written" else ""
            raise StorageError(f"{self._shown} could not be {done}: {why}{safe}") from error

    @contextmanager
    def _writing(self, *, durable: bool = False) -> Iterator[sa.Connection]:
        """A transaction that survives a kill, and the loss of power too if it must be durable."""
        with self._engine.connect() as connection:
            if self._sqlite:
                connection.info["synchronous"] = "FULL" if durable else "NORMAL"
            with connection.begin():
                yield connection

    def log(self, name: str, *, create: bool = True) -> SqlLog:
        """The log of a study; made if it is not there, unless `create` is False."""
        with self._talking("read"), self._engine.connect() as connection:
            found = connection.execute(sa.select(_study.c.id).where(_study.c.name == name)).scalar()
        if found is None:
            if not create:
                known = ", ".join(repr(study.name) for study in self.studies()[:8]) or "none"
                raise UsageError(f"{self._shown} has no study {name!r}; it has {known}")
            with self._talking("written"):
                try:
                    with self._writing() as connection:
                        row = _study.insert().values(name=name, created=time.time(), length=0).returning(_study.c.id)
                        found = connection.execute(row).scalar_one()
                except IntegrityError:  # somebody else was as quick
                    return self.log(name)
        return SqlLog(self, found)

    def studies(self) -> list[Stored]:
        """All studies, by name."""
        columns = sa.select(_study.c.name, _study.c.created, _study.c.length).order_by(_study.c.name)
        with self._talking("read"), self._engine.connect() as connection:
            return [Stored(*row) for row in connection.execute(columns)]

    def delete(self, name: str) -> None:
        """Remove a study and its log."""
        study = self.log(name, create=False)._study
        with self._talking("written"), self._engine.begin() as connection:
            connection.execute(_event.delete().where(_event.c.study == study))
            connection.execute(_worker.delete().where(_worker.c.study == study))
            connection.execute(_study.delete().where(_study.c.id == study))


class SqlLog:
    """One study's events."""

    def __init__(self, database: Database, study: int) -> None:
        self._database = database
        self._engine = database._engine
        self._study = study
        self._attended: list[int] = []
        self._beating = False
        self._pulses: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._lengthen = (
            _study.update()
            .where(_study.c.id == study)
            .values(length=_study.c.length + sa.bindparam("more"))
            .returning(_study.c.length)
        )
        bodies = sa.select(_event.c.body).where(_event.c.study == study).order_by(_event.c.position)
        self._since = bodies.where(_event.c.position >= sa.bindparam("since"))
        self._small = self._since.where(_event.c.kind != Reported.__name__, _event.c.position < sa.bindparam("length"))
        self._reports = bodies.where(
            _event.c.kind == Reported.__name__, _event.c.trial.in_(sa.bindparam("trials", expanding=True))
        )
        self._length = sa.select(_study.c.length).where(_study.c.id == study)

    def append(self, events: Sequence[Event]) -> int | None:
        """Append all or nothing and return the new length; None if a claim was taken."""
        durable = any(isinstance(event, Told) for event in events)
        rows: list[dict[str, Any]] = [
            {
                "study": self._study,
                "kind": type(event).__name__,
                "claim": claim(event),
                "trial": getattr(event, "number", None),
                "body": json.dumps(to_json(event), allow_nan=False, separators=(",", ":")),
            }
            for event in events
        ]
        with self._database._talking("written"):
            try:
                with self._database._writing(durable=durable) as connection:
                    length = connection.execute(self._lengthen, {"more": len(rows)}).scalar()
                    if length is None:
                        raise StorageError("the study was deleted while it ran; what it told is gone with it")
                    for i, row in enumerate(rows):
                        row["position"] = length - len(rows) + i
                    connection.execute(_event.insert(), rows)
            except IntegrityError:
                return None
            return int(length)

    def read(self, since: int = 0, most: int | None = None) -> Sequence[Event]:
        """The events from a position on, or the first few of them."""
        return self._read(self._since if most is None else self._since.limit(most), since=since)

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        """The events from a position on without the reports, and the position up to which these are all."""
        with self._database._talking("read"), self._engine.connect() as connection:
            length = connection.execute(self._length).scalar()
        if length is None:
            raise StorageError("the study was deleted")
        return self._read(self._small, since=since, length=length), length

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        """All reports of some trials, in their order."""
        wanted, found = sorted(numbers), list[Event]()
        for i in range(0, len(wanted), _AT_ONCE):
            found += self._read(self._reports, trials=wanted[i : i + _AT_ONCE])
        return [event for event in found if isinstance(event, Reported)]

    def attend(self, worker: int, pulse: Callable[[], None] | None = None) -> None:
        """Show that a worker lives, now and every few seconds from a thread of the log's."""
        mine = {"study": self._study, "worker": worker, "machine": liveness.machine(), "process": os.getpid()}
        with self._database._talking("written"), self._database._writing() as connection:
            connection.execute(_worker.insert().values(**mine, beat=self._now))
        if pulse is not None:
            self._pulses.append(weakref.WeakMethod(pulse))
        self._attended.append(worker)
        if not self._beating:
            self._beating = True
            stop = threading.Event()
            weakref.finalize(self, stop.set)
            threading.Thread(target=_beat, args=(weakref.ref(self), stop), name="fairway beat", daemon=True).start()

    def leave(self, worker: int) -> None:
        """Show no more that a worker lives."""
        self._attended.remove(worker)
        mine = (_worker.c.study == self._study) & (_worker.c.worker == worker)
        with self._database._talking("written"), self._database._writing() as connection:
            connection.execute(_worker.delete().where(mine))

    def _show_life(self) -> None:
        mine = (_worker.c.study == self._study) & _worker.c.worker.in_(self._attended)
        with self._database._talking("written"), self._database._writing() as connection:
            connection.execute(_worker.update().where(mine).values(beat=self._now))

    def lost(self, workers: Collection[int]) -> set[int]:
        """Those that left, whose process is gone, if it was on this machine, or whose last sign of life is too old."""
        columns = (_worker.c.worker, _worker.c.machine, _worker.c.process, self._now - _worker.c.beat)
        query = sa.select(*columns).where(_worker.c.study == self._study, _worker.c.worker.in_(workers))
        with self._database._talking("read"), self._engine.connect() as connection:
            alive = {
                worker
                for worker, machine, process, age in connection.execute(query)
                if age <= LEASE_SECONDS and (machine != liveness.machine() or liveness.is_running(process))
            }
        return set(workers) - alive

    @property
    def _now(self) -> sa.ColumnElement[float]:
        """Seconds, by the database's clock: workers on other machines may have others."""
        if self._database._sqlite:
            return sa.literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Float)
        return sa.literal_column("EXTRACT(EPOCH FROM clock_timestamp())::float8", sa.Float)

    def _read(self, query: sa.Select[Any], **values: Any) -> Sequence[Event]:
        with self._database._talking("read"), self._engine.connect() as connection:
            return [from_json(json.loads(body)) for body in connection.execute(query, values).scalars()]


def _beat(log: weakref.ref[SqlLog], stop: threading.Event) -> None:
    shown = time.monotonic()
    while not stop.wait(PULSE_SECONDS):
        alive = log()
        if alive is None:
            return
        pulses = [method() for method in alive._pulses]
        if time.monotonic() - shown > BEAT_SECONDS:
            pulses.insert(0, alive._show_life)
            shown = time.monotonic()
        for pulse in pulses:
            try:
                if pulse is not None:
                    pulse()
            except Exception as error:  # noqa: BLE001 - the next one may get through; if none does, the lease runs out
                logger.warning("%s", error)
        pulses.clear()
        alive = pulse = None


def _prepare_sqlite(connection: Any, record: Any) -> None:
    del record
    connection.isolation_level = None  # transactions begin where we say
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={BUSY_MS}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _read_sqlite(connection: Any, record: Any) -> None:
    del record
    connection.execute("PRAGMA query_only=ON")


def _read_postgres(connection: Any, record: Any) -> None:
    del record
    connection.read_only = True


def _begin_sqlite(connection: sa.Connection) -> None:
    wanted = connection.info.pop("synchronous", None)
    if wanted is not None and connection.info.get("is") != wanted:
        connection.exec_driver_sql(f"PRAGMA synchronous={wanted}")
        connection.info["is"] = wanted
    connection.exec_driver_sql("BEGIN IMMEDIATE" if wanted is not None else "BEGIN")
