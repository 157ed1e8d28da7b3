"""Logs in a SQL database, SQLite or PostgreSQL.

Appends are serialised by the study's row, which holds the length of its log: it is locked before a position is taken,
so no event becomes visible before those ahead of it. What only one event may have is a unique column. Listing studies
and trials reads the small events and never the reports.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from fairway.engine.events import Event, Reported, Told, claim, from_json, to_json
from fairway.errors import StorageError, UsageError
from fairway.storage import schema
from fairway.storage.access import BUSY_MS, Access, public
from fairway.storage.leases import SqlLeases

__all__ = ["Database", "SqlLog", "Stored", "public"]

_AT_ONCE = 500  # trials in one query


class Stored(NamedTuple):
    """A study as a database lists it."""

    name: str
    created: float
    events: int


class Database:
    """The studies at one URL; with `reading`, it must be there already, and nothing is ever written to its studies."""

    def __init__(self, url: str, *, reading: bool = False) -> None:
        self.url = url
        self.access = Access(url, reading=reading)
        self._reading = reading
        with self.access.talking("opened"):
            self._open_in_turn()
        if reading:
            self.access.only_read()

    def _open_in_turn(self) -> None:
        """Open it when no other process is creating it: SQLite does not wait for that by itself."""
        patience = time.monotonic() + BUSY_MS / 1000
        while True:
            try:
                return self._open()
            except OperationalError as error:
                in_turn = "locked" in str(error) or "already exists" in str(error)
                if not self.access.is_sqlite or not in_turn or time.monotonic() > patience:
                    raise
                time.sleep(0.05)

    def _open(self) -> None:
        """Create the tables, or make sure that they are of this version."""
        engine, shown = self.access.engine, self.access.shown
        if self._reading and not sa.inspect(engine).has_table(schema.schema.name):
            raise UsageError(f"{shown}: there are no fairway studies in this database")
        if not self.access.is_sqlite or not sa.inspect(engine).has_table(schema.schema.name):
            schema.tables.create_all(engine)
        with engine.begin() as connection:
            version = connection.execute(sa.select(schema.schema.c.version)).scalar()
            if version is None:
                connection.execute(schema.schema.insert().values(version=schema.VERSION))
            elif version > schema.VERSION:
                raise StorageError(
                    f"{shown} was written by a newer fairway (schema {version}, this one knows {schema.VERSION}); "
                    "update fairway"
                )
            else:
                for older in range(version, schema.VERSION):
                    for statement in schema.MIGRATIONS[older](engine.dialect.name):
                        connection.exec_driver_sql(statement)
                    connection.execute(schema.schema.update().values(version=older + 1))

    def log(self, name: str, *, create: bool = True) -> SqlLog:
        """The log of a study; made if it is not there, unless `create` is False."""
        study = schema.study
        with self.access.reading() as connection:
            found = connection.execute(sa.select(study.c.id).where(study.c.name == name)).scalar()
        if found is None:
            if not create:
                known = ", ".join(repr(each.name) for each in self.studies()[:8]) or "none"
                raise UsageError(f"{self.access.shown} has no study {name!r}; it has {known}")
            try:
                with self.access.writing() as connection:
                    row = study.insert().values(name=name, created=time.time(), length=0).returning(study.c.id)
                    found = connection.execute(row).scalar_one()
            except IntegrityError:  # somebody else was as quick
                return self.log(name)
        return SqlLog(self.access, found)

    def studies(self) -> list[Stored]:
        """All studies, by name."""
        study = schema.study
        columns = sa.select(study.c.name, study.c.created, study.c.length).order_by(study.c.name)
        with self.access.reading() as connection:
            return [Stored(*row) for row in connection.execute(columns)]

    def delete(self, name: str) -> None:
        """Remove a study and its log."""
        study = self.log(name, create=False).study
        with self.access.writing() as connection:
            connection.execute(schema.event.delete().where(schema.event.c.study == study))
            connection.execute(schema.worker.delete().where(schema.worker.c.study == study))
            connection.execute(schema.study.delete().where(schema.study.c.id == study))


class SqlLog:
    """One study's events; `study` is its number in the database."""

    def __init__(self, access: Access, study: int) -> None:
        self.study = study
        self.leases = SqlLeases(access, study)
        self._access = access
        self._lengthen = (
            schema.study.update()
            .where(schema.study.c.id == study)
            .values(length=schema.study.c.length + sa.bindparam("more"))
            .returning(schema.study.c.length)
        )
        event = schema.event.c
        bodies = sa.select(event.body).where(event.study == study).order_by(event.position)
        self._since = bodies.where(event.position >= sa.bindparam("since"))
        self._small = self._since.where(event.kind != Reported.__name__, event.position < sa.bindparam("length"))
        self._reports = bodies.where(
            event.kind == Reported.__name__, event.trial.in_(sa.bindparam("trials", expanding=True))
        )
        self._length = sa.select(schema.study.c.length).where(schema.study.c.id == study)

    def append(self, events: Sequence[Event]) -> int | None:
        durable = any(isinstance(event, Told) for event in events)
        rows: list[dict[str, Any]] = [
            {
                "study": self.study,
                "kind": type(event).__name__,
                "claim": claim(event),
                "trial": getattr(event, "number", None),
                "body": json.dumps(to_json(event), allow_nan=False, separators=(",", ":")),
            }
            for event in events
        ]
        try:
            with self._access.writing(durable=durable) as connection:
                length = connection.execute(self._lengthen, {"more": len(rows)}).scalar()
                if length is None:
                    raise StorageError("the study was deleted while it ran; what it told is gone with it")
                for i, row in enumerate(rows):
                    row["position"] = length - len(rows) + i
                if rows:
                    connection.execute(schema.event.insert(), rows)
        except IntegrityError:
            return None
        return int(length)

    def read(self, since: int = 0, most: int | None = None) -> Sequence[Event]:
        return self._read(self._since if most is None else self._since.limit(most), since=since)

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        with self._access.reading() as connection:
            length = connection.execute(self._length).scalar()
        if length is None:
            raise StorageError("the study was deleted")
        return self._read(self._small, since=since, length=length), length

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        wanted, found = sorted(numbers), list[Event]()
        for i in range(0, len(wanted), _AT_ONCE):
            found += self._read(self._reports, trials=wanted[i : i + _AT_ONCE])
        return [event for event in found if isinstance(event, Reported)]

    # What follows from the first events

    def mark(self, position: int) -> str | None:
        """The hash of the event before a position, as it is stored."""
        event = schema.event.c
        query = sa.select(event.body).where(event.study == self.study, event.position == position - 1)
        with self._access.reading() as connection:
            body = connection.execute(query).scalar()
        return None if body is None else hashlib.sha256(body.encode()).hexdigest()

    def keep(self, parts: Mapping[str, bytes]) -> None:
        """Keep these parts and no others; only those that changed are written."""
        table = schema.snapshot
        table.create(self._access.engine, checkfirst=True)  # an older database has none
        digests = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
        with self._access.writing() as connection:
            there = sa.select(table.c.part, table.c.digest).where(table.c.study == self.study)
            known = {str(name): str(digest) for name, digest in connection.execute(there)}
            stale = [name for name, digest in known.items() if digests.get(name) != digest]
            for i in range(0, len(stale), _AT_ONCE):
                these = table.c.part.in_(stale[i : i + _AT_ONCE])
                connection.execute(table.delete().where(table.c.study == self.study, these))
            rows = [
                {"study": self.study, "part": name, "digest": digest, "body": parts[name]}
                for name, digest in digests.items()
                if known.get(name) != digest
            ]
            connection.execute(table.insert(), rows)

    def kept(self) -> Mapping[str, bytes]:
        """The parts that were kept last."""
        if not sa.inspect(self._access.engine).has_table(schema.snapshot.name):
            return {}
        table = schema.snapshot.c
        with self._access.reading() as connection:
            query = sa.select(table.part, table.body).where(table.study == self.study)
            return {name: bytes(body) for name, body in connection.execute(query)}

    def _read(self, query: sa.Select[Any], **values: Any) -> Sequence[Event]:
        with self._access.reading() as connection:
            return [from_json(json.loads(body)) for body in connection.execute(query, values).scalars()]
