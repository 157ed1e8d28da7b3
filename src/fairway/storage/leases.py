"""Which workers of a stored study live: each shows a sign of life every few seconds, in a table of its own.

A worker whose process was killed on this machine is known to be lost at once, before its lease runs out.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Collection
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from fairway.storage import schema
from fairway.storage.access import Access

BEAT_SECONDS = 3.0
"""How often a worker shows that it lives."""

LEASE_SECONDS = 30.0
"""A worker that was not heard of for so long has lost its trials."""


class SqlLeases:
    """The leases of one study's workers."""

    def __init__(self, access: Access, study: int) -> None:
        self._access, self._study = access, study
        self._attended: list[int] = []  # workers of this process
        self._renewed = time.monotonic()

    def attend(self, worker: int) -> None:
        mine = {"study": self._study, "worker": worker, "machine": machine(), "process": os.getpid()}
        with self._access.writing() as connection:
            connection.execute(schema.worker.insert().values(**mine, beat=self._access.now))
        self._attended.append(worker)

    def leave(self, worker: int) -> None:
        self._attended.remove(worker)
        with self._access.writing() as connection:
            connection.execute(schema.worker.delete().where(self._of([worker])))

    def renew(self) -> None:
        """Renew the leases of this process's workers, every few seconds."""
        if not self._attended or time.monotonic() - self._renewed <= BEAT_SECONDS:
            return
        self._renewed = time.monotonic()
        with self._access.writing() as connection:
            connection.execute(schema.worker.update().where(self._of(self._attended)).values(beat=self._access.now))

    def lost(self, workers: Collection[int]) -> set[int]:
        """Those that left, whose process is gone, if it was on this machine, or whose last sign of life is too old."""
        columns = schema.worker.c
        age = self._access.now - columns.beat
        query = sa.select(columns.worker, columns.machine, columns.process, age).where(self._of(workers))
        with self._access.reading() as connection:
            alive = {
                worker
                for worker, where, process, age in connection.execute(query)
                if age <= LEASE_SECONDS and (where != machine() or is_running(process))
            }
        return set(workers) - alive

    def _of(self, workers: Collection[int]) -> sa.ColumnElement[bool]:
        return (schema.worker.c.study == self._study) & schema.worker.c.worker.in_(workers)


@cache
def machine() -> str:
    """This machine, boot and process namespace: where process numbers mean the same."""
    parts = [socket.gethostname(), f"{uuid.getnode():x}"]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:  # not Linux
        pass
    return " ".join(parts)


def is_running(process: int) -> bool:
    """Whether there is such a process here.

    >>> is_running(os.getpid())
    True
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and somebody else's
        return True
    return True
