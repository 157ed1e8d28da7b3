"""A connection to a SQL database, SQLite or PostgreSQL: how it is opened, read, written, and what its errors become."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from fairway.engine.interrupts import uninterrupted
from fairway.errors import FairwayError, MissingDependency, StorageError, UsageError

BUSY_MS = 15_000
"""How long a writer waits for SQLite's lock before it gives up; a beat that waits so long still keeps the lease."""

_EXPECTED = "sqlite:///file.db or postgresql://user@host/database is expected"


def public(url: str) -> str:
    """A URL as it may be shown: without its password, wherever the driver would take one from.

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
    """One database, for everything that reads or writes it."""

    def __init__(self, url: str, *, reading: bool) -> None:
        self.url = url
        self.shown = public(url)
        try:
            url.encode()  # half a character is no part of an address
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
                raise UsageError(
                    f"storage={self.shown!r}: a file is expected; leave storage out to keep a study in memory"
                )
            self.engine = sa.create_engine(parsed, pool_pre_ping=not self.is_sqlite)
        except (ArgumentError, NoSuchModuleError) as error:
            raise UsageError(f"storage={self.shown!r}: {_EXPECTED}") from error
        except ImportError as error:
            raise MissingDependency("PostgreSQL needs psycopg: pip install 'psycopg[binary]'") from error
        weakref.finalize(self, self.engine.dispose)  # connections are closed with the last study that uses them
        if self.is_sqlite:
            if reading and not Path(str(parsed.database)).is_file():
                raise UsageError(f"{self.shown}: there is no such file")
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)

    def only_read(self) -> None:
        """Never write from now on."""
        self.engine.dispose()  # connections that could write
        sa.event.listen(self.engine, "connect", _read_sqlite if self.is_sqlite else _read_postgres)

    @property
    def now(self) -> sa.ColumnElement[float]:
        """Seconds, by the database's clock: workers on other machines may have others."""
        if self.is_sqlite:
            return sa.literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Float)
        return sa.literal_column("EXTRACT(EPOCH FROM clock_timestamp())::float8", sa.Float)

    @contextmanager
    def talking(self, done: str) -> Iterator[None]:
        """Turn what a driver raises into one sentence; Ctrl-C waits, so that no lock outlives its connection."""
        try:
            with uninterrupted():
                yield
        except (FairwayError, IntegrityError):
            raise
        except (SQLAlchemyError, OSError, ValueError) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
            why = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
            safe = "; what was told before is safe" if done == "written" else ""
            raise StorageError(f"{self.shown} could not be {done}: {why}{safe}") from error

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection to read from."""
        with self.talking("read"), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sa.Connection]:
        """A transaction that survives a kill, and the loss of power too if it must be durable."""
        with self.talking("written"), self.engine.connect() as connection:
            if self.is_sqlite:
                connection.info["synchronous"] = "FULL" if durable else "NORMAL"
            with connection.begin():
                yield connection


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
