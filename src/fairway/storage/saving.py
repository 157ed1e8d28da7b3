"""Writes a whole study into another database, from what a process knows of it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Sequence

from fairway.engine.event_json import from_json
from fairway.engine.events import Event
from fairway.engine.owner import Owner
from fairway.errors import StorageError, UsageError
from fairway.storage.sql import Database, SqlLog


def save(owner: Owner, url: str, name: str) -> None:
    """Write everything an owner knows in one transaction; a database is read again if its transcript is incomplete."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"name={name!r}: the name of a study is expected")
    journal = owner.journal
    with contextlib.suppress(StorageError):  # then what is in memory must do
        journal.look()
    with journal.lock:
        source, length = journal.log, journal.position
        kept = source.transcript if isinstance(source, SqlLog) else None
        if kept is not None and len(kept) >= length:
            known: Sequence[Event] = [from_json(json.loads(body)) for body in itertools.islice(kept, length)]
        else:
            known = source.read(0, length)
        events = [*known, *owner.unwritten]
    database = Database(url)
    target = database.log(name)
    if target.read(0, most=1) or target.append(events) is None:
        raise UsageError(f"{database.access.shown} has a study {name!r} already; give another name= or url")
