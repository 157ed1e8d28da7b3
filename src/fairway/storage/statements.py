"""Statements that every ask and tell sends, compiled once and given to the driver's own cursor.

SQLAlchemy takes ten times as long to send such a statement as SQLite to run it. The exceptions are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

T = TypeVar("T")


class Statement:
    """A statement for one kind of database; its parameters are given by name.

    >>> table = sa.table("study", sa.column("id"), sa.column("length"))
    >>> sqlite = sa.create_engine("sqlite://").dialect
    >>> statement = Statement(sa.select(table.c.length).where(table.c.id == sa.bindparam("which")), sqlite)
    >>> statement.values({"which": 3})
    (3,)
    """

    def __init__(self, what: sa.sql.ClauseElement, dialect: sa.Dialect, columns: Sequence[str] | None = None) -> None:
        compiled: Any = what.compile(dialect=dialect, column_keys=columns)
        self._text = str(compiled)
        self._fixed: dict[str, Any] = dict(compiled.params)
        self._places: Sequence[str] | None = compiled.positiontup  # None where values are given by name
        self._columns = columns

    def values(self, given: Mapping[str, Any]) -> Any:
        """Values by name, as the driver wants them."""
        if self._places is None:
            return {**self._fixed, **given}
        return tuple([given[name] if name in given else self._fixed[name] for name in self._places])

    def run(self, cursor: DBAPICursor, given: Mapping[str, Any]) -> DBAPICursor:
        """Execute the statement; the cursor has its result."""
        cursor.execute(self._text, self.values(given))
        return cursor

    def run_for(self, cursor: DBAPICursor, rows: Sequence[Sequence[Any]]) -> int:
        """Execute the statement for each row of values, in the order of its columns; returns how many rows changed."""
        assert self._columns is not None
        as_they_are = self._places == self._columns
        cursor.executemany(
            self._text,
            rows if as_they_are else [self.values(dict(zip(self._columns, row, strict=True))) for row in rows],
        )
        return cursor.rowcount


class Cursors:
    """Runs functions in transactions. With `keep`, connections bypass the pool, which takes as long as a statement."""

    def __init__(self, engine: sa.Engine, *, keep: bool) -> None:
        self._engine, self._keep = engine, keep
        self._free: list[PoolProxiedConnection] = []  # connections that nobody uses now

    def run(self, act: Callable[[DBAPICursor], T], begin: Sequence[str] = (), after: Sequence[str] = ()) -> T:
        """Call `act` with a cursor, in a transaction that begins with the statements `begin`; return what it returns.

        If it raises, the transaction is rolled back. The statements `after` follow the commit, if the connection is
        kept.
        """
        dialect, pooled, cursor = self._engine.dialect, None, None
        try:
            try:
                pooled = self._free.pop()
            except IndexError:
                pooled = self._engine.raw_connection()
            connection: Any = pooled.dbapi_connection  # what stands for it in the pool takes long to pass a call on
            cursor = connection.cursor()
            for text in begin:
                cursor.execute(text)
            result = act(cursor)
            connection.commit()
            if self._keep:
                for text in after:
                    cursor.execute(text)
                self._free.append(pooled)
                pooled = None
            return result
        except dialect.loaded_dbapi.Error as error:
            gone = pooled is not None and dialect.is_disconnect(error, pooled.dbapi_connection, cursor)
            if pooled is not None and gone:
                pooled.invalidate(error)
            raise DBAPIError.instance(
                None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=gone, dialect=dialect
            ) from error
        finally:
            if pooled is not None:
                self._give_back(pooled)

    def _give_back(self, pooled: PoolProxiedConnection) -> None:
        """Roll back what was not committed; a connection that cannot even do that is dropped silently."""
        try:
            if pooled.is_valid:
                pooled.rollback()
        except self._engine.dialect.loaded_dbapi.Error as error:
            pooled.invalidate(error)
        pooled.close()

    def close(self) -> None:
        """Give the connections back to the pool."""
        while self._free:
            self._free.pop().close()
