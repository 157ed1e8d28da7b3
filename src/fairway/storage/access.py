"""A connection to a SQL database, SQLite or PostgreSQL: how it is opened, read, written, and what its errors become."""

from __future__ import annotations

import math
import os
import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError,  # noqa: A004 - of the pool
)
from sqlalchemy.pool import NullPool

from fairway.checks import short
from fairway.engine.interrupts import uninterrupted
from fairway.errors import FairwayError, MissingDependency, StorageError, Unreachable, UsageError
from fairway.logs import logger
from fairway.storage.files import KEPT, Presence, path_of
from fairway.storage.statements import Cursors, T

BUSY_MS = 15_000
"""How long a writer waits for SQLite's lock before it gives up; a heartbeat that waits this long keeps its lease."""

THROUGH_SECONDS = 0.05
"""The least time between commits that are written through to the disk, to survive a loss of power; commits in between
are written through with the next one. A disk takes longer for that than SQLite for the rest of a commit."""

_WRITE = ("BEGIN IMMEDIATE",), ()  # what SQLite is told before a transaction and after it
_WRITE_THROUGH = ("PRAGMA synchronous=FULL", "BEGIN IMMEDIATE"), ("PRAGMA synchronous=NORMAL",)
_TIMEOUTS = {"connect_timeout": 5, "tcp_user_timeout": 10_000}  # a server that does not answer: seconds, milliseconds
_FROM_DRIVERS = (SQLAlchemyError, OSError, OverflowError, ValueError)  # some refuse values by Python's own errors
_EXPECTED = "sqlite:///file.db or postgresql://user@host/database is expected"


ADVICE = "; `fairway verify` lists what is, `fairway repair` keeps the rest"
"""What to do about damage."""


class Damaged(StorageError):  # noqa: N818 - named after what happened
    """What was read is not what was written."""


def public(url: str) -> str:
    """A URL that is safe to show: without passwords, wherever the driver accepts them.

    >>> public("postgresql://me:secret@host/db?sslpassword=secret")
    'postgresql://me:***@host/db'
    >>> public("postgresql://me:secret@host:port/db")
    'postgresql://me:***@host:port/db'
    """
    try:
        return sa.make_url(url).difference_update_query(["password", "sslpassword"]).render_as_string()
    except (ArgumentError, ValueError):
        return re.sub(r"(://[^:@/]*:)[^@]*@", r"\1***@", url)


class Access:
    """One database, for everything that reads or writes it; with `reading`, nothing is ever written to it."""

    def __init__(self, url: str, *, reading: bool) -> None:
        if not isinstance(url, str) or "://" not in url:
            file = f"; for a file it is {f'sqlite:///{url}'!r}" if isinstance(url, str | PurePath) and str(url) else ""
            raise UsageError(f"storage={short(url)}: {_EXPECTED}{file}")
        self.url = url
        self.shown = public(url)
        try:
            url.encode()  # a lone surrogate cannot be in an address
            parsed = sa.make_url(url)
        except (ArgumentError, ValueError) as error:
            raise UsageError(f"storage={self.shown!r}: {_EXPECTED}") from error
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        try:
            if parsed.get_backend_name() not in ("sqlite", "postgresql"):
                raise UsageError(f"storage={self.shown!r}: {_EXPECTED}")
            self.is_sqlite = parsed.get_backend_name() == "sqlite"
            if self.is_sqlite and parsed.database in (None, "", ":memory:"):
                raise UsageError(f"storage={self.shown!r}: {_no_file(parsed)}")
            timeouts = {} if self.is_sqlite else {k: v for k, v in _TIMEOUTS.items() if k not in parsed.query}
            how: dict[str, Any] = {"pool_pre_ping": not self.is_sqlite, "connect_args": timeouts}
            if self.is_sqlite and reading and not _may_write(str(parsed.database)):
                how = {"creator": partial(_connect_to_read, str(parsed.database)), "poolclass": NullPool}
            self.engine = sa.create_engine(parsed, **how)
        except (ArgumentError, NoSuchModuleError) as error:
            raise UsageError(f"storage={self.shown!r}: {_EXPECTED}") from error
        except ImportError as error:
            raise MissingDependency("PostgreSQL needs psycopg: pip install 'psycopg[binary]'") from error
        self._cursors = Cursors(self.engine, keep=self.is_sqlite and not reading)
        weakref.finalize(self, _close, self._cursors, self.engine)  # with the last study that uses them
        self.file = path_of(parsed)
        self._presence: Presence | None = None  # once it is opened
        self._through = -math.inf  # when a commit was last written through to the disk
        if self.file is not None:
            if reading and not self.file.is_file():
                raise UsageError(f"{self.shown}: there is no such file")
            if not self.file.parent.exists():
                raise UsageError(f"{self.shown}: there is no folder {str(self.file.parent)!r}; make it first")
            if not reading and self.file.is_file() and not self.file.stat().st_size:
                logger.warning("%s is empty: if it had studies in it, they are gone; a new one begins", self.shown)
            sa.event.listen(self.engine, "connect", _read_sqlite if reading else _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        elif reading:
            sa.event.listen(self.engine, "connect", _read_postgres)

    def check_file(self) -> None:
        """Have SQLite check its whole file, including the indices, which reading alone would trust."""
        if self.is_sqlite:
            with self.reading() as connection:
                found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            if found != "ok":
                raise self.damaged(f"SQLite says: {str(found).splitlines()[-1]}")

    def damaged(self, what: str) -> Damaged:
        """The error that says what is damaged, and what to do."""
        return Damaged(f"{self.shown} is damaged: {what}{ADVICE}")

    def stay(self) -> None:
        """Refuse any other file of the same name from now on."""
        self._presence = None if self.file is None else Presence(self.file, self.shown)

    def insert(self, table: sa.Table) -> Any:
        """An insert statement that supports ON CONFLICT, for which each kind of database has its own syntax."""
        return import_module(f"sqlalchemy.dialects.{self.engine.dialect.name}").insert(table)  # loads only this dialect

    @property
    def now(self) -> sa.ColumnElement[float]:
        """The time in seconds by the database's clock, since the clocks of the workers' machines may differ."""
        if self.is_sqlite:
            return sa.literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Float)
        return sa.literal_column("EXTRACT(EPOCH FROM clock_timestamp())::float8", sa.Float)

    def since(self, moment: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
        """A moment, or when the server started if that was later: before that, no worker could send a heartbeat."""
        if self.is_sqlite:
            return moment
        start = sa.literal_column("EXTRACT(EPOCH FROM pg_postmaster_start_time())::float8", sa.Float)
        return sa.func.greatest(moment, start)

    def talking(self, done: str) -> AbstractContextManager[None]:
        """Turn a driver's errors into one-sentence errors; Ctrl-C waits, so that no lock outlives its connection."""
        return _Talking(self._worded, done)

    def _worded(self, error: Exception, done: str) -> StorageError:
        """The sentence that says what could not be `done`, and why; raises if the file was deleted or replaced."""
        self._look()
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        why = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
        if self._presence is not None and why.startswith("no such table"):
            return StorageError(f"{self.shown} was emptied while the study ran; {KEPT}")
        if _may_pass(error):
            return Unreachable(f"{self.shown} could not be {done}: {why}")
        safe = "; what was told before is safe" if done == "written" else ""
        return StorageError(f"{self.shown} could not be {done}: {why}{safe}")

    def _look(self) -> None:
        """Refuse a file that was deleted or replaced since it was opened."""
        if self._presence is not None:
            self._presence.check()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection to read from."""
        self._look()
        with self.talking("read"), self.engine.connect() as connection:
            yield connection

    def find(self, act: Callable[[DBAPICursor], T]) -> T:
        """Call `act` with a cursor for one `Statement` that reads; return what it returns."""
        self._look()
        with self.talking("read"):
            return self._cursors.run(act)

    def add(self, act: Callable[[DBAPICursor], T], *, durable: bool, at_once: bool = False) -> T:
        """Call `act` with a cursor for `Statement`s that write, in a transaction that survives a kill.

        A `durable` one also survives a loss of power once it, or a later one, is written through to the disk;
        `at_once` does that now.
        """
        now = time.monotonic()
        through = at_once or (durable and now >= self._through + THROUGH_SECONDS)
        begin, after = (_WRITE_THROUGH if through else _WRITE) if self.is_sqlite else ((), ())
        with self.talking("written"):
            result = self._cursors.run(act, begin, after)
        if through:
            self._through = now
        self._look()  # what went into a deleted file is not written
        return result

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """A connection that reads one state of the database while others write; with SQLite, every connection does."""
        with self.reading() as connection:
            how = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
            yield connection.execution_options(**how)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that survives a kill."""
        self._look()
        with self.talking("written"), self.engine.connect() as connection:
            connection.info["writes"] = True
            with connection.begin():
                yield connection
        self._look()  # what went into a deleted file is not written


class _Talking(uninterrupted):
    """A block in which a driver's errors become one-sentence errors, and Ctrl-C waits."""

    __slots__ = ("_done", "_worded")

    def __init__(self, in_a_sentence: Callable[[Exception, str], StorageError], done: str) -> None:
        self._worded, self._done = in_a_sentence, done

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        super().__exit__(kind, error, traceback)
        if isinstance(error, _FROM_DRIVERS) and not isinstance(error, (FairwayError, IntegrityError)):
            raise self._worded(error, self._done) from error


def _no_file(url: sa.URL) -> str:
    """What to write instead of a URL of SQLite that names no file."""
    if url.host:
        return f"a file comes after three slashes, sqlite:///{url.host}"
    return "a file is expected; leave storage out to keep a study in memory"


def _close(cursors: Cursors, engine: sa.Engine) -> None:
    cursors.close()
    engine.dispose()


def _may_pass(error: Exception) -> bool:
    """Whether an error says that the database is unreachable, busy or full, which may pass."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return isinstance(error, OperationalError | InterfaceError | TimeoutError | OSError)


def _prepare_sqlite(connection: Any, record: Any) -> None:
    del record
    _set(connection, "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON")


def _read_sqlite(connection: Any, record: Any) -> None:
    del record
    _set(connection, "query_only=ON")


def _set(connection: sqlite3.Connection, *pragmas: str) -> None:
    connection.isolation_level = None  # transactions begin where we say
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")  # damaged text is text too
    for pragma in (f"busy_timeout={BUSY_MS}", *pragmas):
        connection.execute(f"PRAGMA {pragma}").close()


def _may_write(path: str) -> bool:
    return os.access(path, os.W_OK) and os.access(Path(path).absolute().parent, os.W_OK)


def _connect_to_read(path: str) -> sqlite3.Connection:
    """A connection to a file that this process may only read, or in a folder that it may not write to.

    SQLite keeps a write-ahead log beside the file, and to read the log it needs a third file, which it cannot create
    there. If there is no such log, nobody is writing, and the file can be opened as immutable. Each connection decides
    anew, since a writer may have come or gone.
    """
    uri = Path(path).absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").close()
    except sqlite3.OperationalError:
        connection.close()
        log = Path(f"{path}-wal")
        if log.is_file() and log.stat().st_size:
            raise StorageError(
                f"{path}: what was written last is in {log.name}, which cannot be read in a folder that is read-only; "
                "copy both files to a folder of your own, and open the copy"
            ) from None
        return sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    return connection


def _read_postgres(connection: Any, record: Any) -> None:
    del record
    connection.read_only = True


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.info.pop("writes", False) else "BEGIN")
