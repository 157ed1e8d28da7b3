"""Tracks which workers of a stored study are alive: each writes a heartbeat every few seconds, in a table of its own.

On the same machine the process itself decides: while it exists its workers are alive, even if it is suspended or holds
Python's lock, and when it is gone they are lost at once. A worker on another machine is alive while its connection to
the database is (`Session`), or while its last heartbeat is recent.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import time
import weakref
from collections.abc import Collection

import sqlalchemy as sa

from fairway.engine.awaited import Awaited
from fairway.errors import FairwayError
from fairway.storage import schema
from fairway.storage.access import Access
from fairway.storage.processes import began, machine
from fairway.storage.sessions import Session

BEAT_SECONDS = 3.0
"""The time between the heartbeats of a worker."""

LEASE_SECONDS = 30.0
"""A worker on another machine loses its trials after this long without a heartbeat."""

_SINCE = " since "  # between the machine and the start of the process, in the column `machine`


class SqlLeases:
    """The leases of one study's workers."""

    def __init__(self, access: Access, study: int) -> None:
        self._access, self._study = access, study
        self._attended: list[int] = []  # workers of this process
        self._session = None if access.is_sqlite else Session(access, study)  # SQLite is for one machine
        self._renewed = time.monotonic()
        end = weakref.finalize(self, _farewell, access, study, self._attended, os.getpid())
        end.atexit = False  # a process that is gone has no living workers

    def attend(self, worker: int) -> None:
        process = os.getpid()
        where = machine() + _SINCE + (began(process) or "")
        mine = {"machine": where, "process": process, "beat": self._access.now}
        insert = self._access.insert(schema.worker).values(study=self._study, worker=worker, **mine)
        with self._access.writing() as connection:  # over the row of an attempt that seemed to fail
            connection.execute(insert.on_conflict_do_update(index_elements=["study", "worker"], set_=mine))
        self._attended.append(worker)
        self._hold()

    def leave(self, worker: int) -> None:
        self._attended.remove(worker)
        self._hold()
        _leave(self._access, self._study, [worker])

    def renew(self) -> None:
        """Renew the leases of this process's workers, every few seconds."""
        if not self._attended or time.monotonic() - self._renewed <= BEAT_SECONDS:
            return
        self._renewed = time.monotonic()
        with self._access.writing() as connection:
            beat = schema.worker.update().where(_of(self._study, self._attended))
            connection.execute(beat.values(beat=self._access.now))
        self._hold()

    def _hold(self) -> None:
        if self._session is not None:
            self._session.hold(self._attended)

    def lost(self, workers: Collection[int]) -> set[int]:
        """The workers that left, whose process on this machine is gone, or whose last heartbeat is too old."""
        columns = schema.worker.c
        age = self._access.now - self._access.since(columns.beat)
        query = sa.select(columns.worker, columns.machine, columns.process, age).where(_of(self._study, workers))
        with self._access.reading() as connection:
            rows = connection.execute(query).all()
            connected = set() if self._session is None else self._session.holds(connection)
        alive = {worker for worker, *row in rows if _lives(*row, connected=worker in connected)}
        return set(workers) - alive


def _lives(where: str, process: int, age: float, *, connected: bool) -> bool:
    """Whether a worker is alive, given its machine, its process and the seconds since its last heartbeat."""
    if not (isinstance(where, str) and isinstance(process, int) and isinstance(age, float)):  # a damaged row
        return connected
    place, _, start = where.partition(_SINCE)
    if place != machine():
        return connected or abs(age) <= LEASE_SECONDS  # negative if the clock was set back since
    found = began(process)
    if found and start:
        return found == start
    return found is not None and abs(age) <= LEASE_SECONDS  # it may be another process of the same number


def _of(study: int, workers: Collection[int]) -> sa.ColumnElement[bool]:
    return (schema.worker.c.study == study) & schema.worker.c.worker.in_(workers)


def _leave(access: Access, study: int, workers: Collection[int]) -> None:
    with access.writing() as connection:
        connection.execute(schema.worker.delete().where(_of(study, workers)))


def _farewell(access: Access, study: int, workers: list[int], process: int) -> None:
    """Remove leases that nobody uses any more, in a thread, since this may be called at any moment."""
    if not workers or os.getpid() != process:  # in a child they are the parent's
        return
    work = Awaited()
    work.begin()

    def leave() -> None:
        nonlocal access
        with contextlib.suppress(FairwayError):  # the database may be gone
            _leave(access, study, workers)
        del access  # which closes its connections, unless another study uses them
        work.end()
        work.dismiss()

    try:
        _thread.start_new_thread(leave, ())  # not `threading`, whose locks may be held at this moment
    except RuntimeError:  # the interpreter ends
        work.dismiss()
