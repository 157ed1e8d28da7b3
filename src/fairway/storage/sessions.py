"""A connection to PostgreSQL that shows that its process is alive: the server knows when it ends.

It holds an advisory lock for each worker. No thread of the process is needed for that, so a long call in C that holds
Python's lock does not end it; the death of the process or of its machine does, in seconds.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from fairway.errors import StorageError
from fairway.storage.access import Access

_KEY = 0x66770000  # of our locks, to which the study's number is added
_KEEPALIVE = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}  # seconds, and times


class Session:
    """The connection of one process for one study's workers; what fails is tried again at the next heartbeat."""

    def __init__(self, access: Access, study: int) -> None:
        self._access, self._key = access, _KEY + study % 0x10000
        self._open: list[sa.Connection] = []  # at most one
        self._held: set[int] = set()
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._open, os.getpid())

    def hold(self, workers: Collection[int]) -> None:
        """Hold the locks of these workers and no others; a lock already held is never let go in between."""
        with self._lock:
            try:
                with self._access.talking("locked"):
                    self._change(set(workers))
            except StorageError:  # the server is gone, and the locks with it
                _close(self._open, os.getpid())

    def _change(self, wanted: set[int]) -> None:
        if not self._open:
            self._connect()
            self._held = set()
        connection = self._open[0]
        connection.exec_driver_sql("SELECT 1")  # is it alive?
        for worker in wanted - self._held:
            connection.exec_driver_sql("SELECT pg_try_advisory_lock(%s, %s)", (self._key, worker))
        for worker in self._held - wanted:
            connection.exec_driver_sql("SELECT pg_advisory_unlock(%s, %s)", (self._key, worker))
        self._held = wanted

    def holds(self, connection: sa.Connection) -> set[int]:
        """The workers of the study, in any process, whose connection is alive."""
        held = connection.exec_driver_sql(
            "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = %s "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (self._key,),
        )
        return set(held.scalars())

    def _connect(self) -> None:
        connection = self._access.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._open.append(connection)
        connection.detach()  # from the pool: it is not for anybody else
        for name, value in _KEEPALIVE.items():
            connection.exec_driver_sql(f"SET {name} = {value}")


def _close(connections: list[sa.Connection], process: int) -> None:
    """Close a connection; a forked child leaves it alone, since it is the parent's."""
    while connections and os.getpid() == process:
        with contextlib.suppress(SQLAlchemyError):
            connections.pop().close()
