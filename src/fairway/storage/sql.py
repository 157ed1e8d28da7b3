"""Logs in a SQL database, SQLite or PostgreSQL.

Appends are serialised by the study's row, which holds the length of its log: it is locked before a position is taken,
so no event becomes visible before those ahead of it. What only one event may have is a unique column. Listing studies
and trials reads the small events and never the reports. Whatever is read is checked (`chain`): each row by its
checksum, what follows another as a chain, and all of it by the length of the log.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from fairway.engine.events import Event, Reported, Told, claim, to_json
from fairway.errors import StorageError, UsageError
from fairway.storage import chain, schema
from fairway.storage.access import BUSY_MS, Access, public
from fairway.storage.chain import Row
from fairway.storage.leases import SqlLeases
from fairway.storage.transcript import Transcript

__all__ = ["Database", "SqlLog", "Stored", "public"]

_AT_ONCE = 500  # trials in one query


class Stored(NamedTuple):
    """A study as a database lists it."""

    name: str
    created: float
    events: int


class Database:
    """The studies at one URL.

    With `reading`, it must be there already, nothing is ever written to it, and an older schema is read as it is.
    """

    def __init__(self, url: str, *, reading: bool = False) -> None:
        self.url = url
        self.access = Access(url, reading=reading)
        self._reading = reading
        with self.access.talking("opened"):
            self.version = self._open_in_turn()
        self.access.stay()

    def _open_in_turn(self) -> int:
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

    def _open(self) -> int:
        """Create the tables, or make sure that they are of this version; when only reading, which one they are of."""
        engine = self.access.engine
        if self._reading and not sa.inspect(engine).has_table(schema.schema.name):
            raise UsageError(f"{self.access.shown}: there are no fairway studies in this database")
        if not self._reading and not (self.access.is_sqlite and sa.inspect(engine).has_table(schema.schema.name)):
            schema.tables.create_all(engine)
        if not self._reading and not self._said() and not self._has_studies():
            with self.access.writing() as connection:
                connection.execute(schema.schema.insert().values(version=schema.VERSION))
        version = self._version()
        if self._reading or version == schema.VERSION:
            return version
        with self.access.writing() as connection:
            found = connection.execute(sa.select(schema.schema.c.version).with_for_update()).scalar_one()
            for older in range(found, schema.VERSION):  # none if another process was quicker
                schema.MIGRATIONS[older](connection)
            connection.execute(schema.schema.update().values(version=schema.VERSION))
        return schema.VERSION

    def _version(self) -> int:
        """The version of the schema, by its number and by its tables."""
        needed = schema.tables.tables.keys() - {schema.snapshot.name}  # which is made when it is first needed
        missing = sorted(needed - set(sa.inspect(self.access.engine).get_table_names()))
        if missing:
            raise self.access.damaged(f"it has no table {missing[0]}")
        columns = sa.inspect(self.access.engine).get_columns(schema.event.name)
        said, shape = self._said(), schema.shape([column["name"] for column in columns])
        if said != {shape}:
            said = self._said()  # another process may have migrated it meanwhile
        newer = [version for version in said if isinstance(version, int) and version > schema.VERSION]
        if newer:
            raise StorageError(
                f"{self.access.shown} was written by a newer fairway (schema {newer[0]}, this one knows "
                f"{schema.VERSION}); update fairway"
            )
        if said not in ({shape}, set()) or not said and self._has_studies():  # it is made a moment before it is said
            shown = ", ".join(sorted(repr(version)[:20] for version in said)) or "none"
            raise self.access.damaged(f"it says that its schema is {shown}, and its tables are those of schema {shape}")
        return shape

    def _said(self) -> set[Any]:
        with self.access.reading() as connection:
            return set(connection.execute(sa.select(schema.schema.c.version)).scalars())

    def _has_studies(self) -> bool:
        with self.access.reading() as connection:
            return connection.execute(sa.select(schema.study.c.id)).first() is not None

    def log(self, name: str, *, create: bool = True) -> SqlLog:
        """The log of a study; made if it is not there, unless `create` is False."""
        found = self._find(name)
        if found is None:
            if not create:
                known = ", ".join(repr(each.name) for each in self.studies()[:8]) or "none"
                raise UsageError(f"{self.access.shown} has no study {name!r}; it has {known}")
            found = self._create(name)
        return SqlLog(self.access, found, name, version=self.version, keep=not self._reading)

    def _find(self, name: str) -> int | None:
        """The number of a study."""
        for row, stored in self._rows(schema.study.c.name == name):
            if not isinstance(stored.events, int):
                raise self.access.damaged(f"the length of the study {name!r} is {stored.events!r}")
            return row
        return None

    def _create(self, name: str) -> int:
        self.studies()  # of which none is damaged, so that none can be the one that is meant
        study, created = schema.study, time.time()
        sums = {"checksum": chain.study_checksum(name, created)}
        try:
            with self.access.writing() as connection:
                self._refuse_orphans(connection)
                row = study.insert().values(name=name, created=created, length=0, **sums).returning(study.c.id)
                return int(connection.execute(row).scalar_one())
        except IntegrityError:
            found = self._find(name)  # somebody else was as quick
            if found is None:
                raise self.access.damaged(f"it refuses the name {name!r}, which no study has") from None
            return found

    def check(self) -> None:
        """Make sure that the lengths of all studies are right, and that no events are left of one that is gone."""
        study, event = schema.study.c, schema.event.c
        both = schema.study.outerjoin(schema.event, event.study == study.id)
        counts = sa.select(study.name, study.length, sa.func.count(event.position)).select_from(both)
        with self.access.reading() as connection:
            for name, length, count in connection.execute(counts.group_by(study.id, study.name, study.length)):
                if length != count:
                    raise self.access.damaged(
                        f"the length of the study {name!r} is {length!r}; {count} events are there"
                    )
            self._refuse_orphans(connection)

    def _refuse_orphans(self, connection: sa.Connection) -> None:
        event, known = schema.event.c, sa.select(schema.study.c.id)
        if connection.execute(sa.select(event.study).where(event.study.not_in(known)).limit(1)).first() is not None:
            raise self.access.damaged("it has events of a study that is gone")

    def studies(self) -> list[Stored]:
        """All studies, by name."""
        return [stored for _, stored in self._rows()]

    def _rows(self, *which: sa.ColumnElement[bool]) -> list[tuple[int, Stored]]:
        """Studies with their numbers, by name; each row is checked."""
        study = schema.study.c
        own = study.checksum if self.version >= schema.CHECKSUMS else sa.null()
        columns = sa.select(study.id, study.name, study.created, study.length, own).where(*which).order_by(study.name)
        with self.access.reading() as connection:
            rows = connection.execute(columns).all()
        for _, name, created, _, checksum in rows:
            if self.version >= schema.CHECKSUMS and checksum != chain.study_checksum(name, created):
                raise self.access.damaged(f"the row of the study {str(name)[:80]!r} does not match its checksum")
        return [(number, Stored(name, created, length)) for number, name, created, length, _ in rows]

    def delete(self, name: str) -> None:
        """Remove a study and its log."""
        study = self.log(name, create=False).study
        with self.access.writing() as connection:
            connection.execute(schema.event.delete().where(schema.event.c.study == study))
            connection.execute(schema.worker.delete().where(schema.worker.c.study == study))
            connection.execute(schema.study.delete().where(schema.study.c.id == study))


class SqlLog:
    """One study's events; `study` is its number in the database. With `keep`, what is read or written is remembered."""

    def __init__(
        self, access: Access, study: int, name: str, *, version: int = schema.VERSION, keep: bool = True
    ) -> None:
        self.study = study
        self.leases = SqlLeases(access, study)
        self.transcript = Transcript() if keep else None
        self._access, self._name = access, name
        self._chained = version >= schema.CHECKSUMS
        self._tip = 0, ""  # a position, and the checksum of the event before it
        self._lengthen = (
            schema.study.update()
            .where(schema.study.c.id == study)
            .values(length=schema.study.c.length + sa.bindparam("more"))
            .returning(schema.study.c.length)
        )
        event, length = schema.event.c, schema.study.c.length
        there = schema.columns(version)
        since = event.position >= sa.bindparam("since")
        both = schema.study.outerjoin(schema.event, (event.study == schema.study.c.id) & since)
        self._since = (
            sa.select(length, *there).select_from(both).where(schema.study.c.id == study).order_by(event.position)
        )
        those = sa.select(*there).where(event.study == study).order_by(event.position)
        marks = sa.case((event.kind == chain.REPORTED, sa.literal(" ") + sa.cast(event.trial, sa.Text)), else_="")
        differs = sa.func.coalesce(sa.func.substr(event.checksum, chain.DIGITS + 1) != marks, sa.true())
        odd = differs if self._chained else sa.false()  # of a wrong kind or trial, as its checksum tells
        self._small = those.where(since, (event.kind != chain.REPORTED) | odd, event.position < sa.bindparam("length"))
        self._odd = those.where(event.position < sa.bindparam("since"), odd).limit(1)
        self._is_whole = False  # whether all events are known to be there, with the right kind and trial
        self._reports = those.where(event.kind == chain.REPORTED)
        self._has_trials = version >= schema.TRIALS
        from_there = sa.select(sa.func.count()).where(event.study == study, since).scalar_subquery()
        last = sa.select(sa.func.max(event.position)).where(event.study == study).scalar_subquery()
        self._length = sa.select(length, from_there, last).where(schema.study.c.id == study)

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
                first = length - len(rows)
                for i, row in enumerate(rows):
                    row["position"] = first + i
                tip = chain.sealed(self.study, rows, self._before(connection, first))
                if rows:
                    connection.execute(schema.event.insert(), rows)
        except IntegrityError:
            self._check_refusal([row["claim"] for row in rows if row["claim"] is not None])
            return None
        self._tip = length, tip
        if self.transcript is not None:
            self.transcript.note(self, length - len(rows), [row["body"] for row in rows])
        return int(length)

    def _before(self, connection: sa.Connection, position: int) -> str:
        """The checksum of the event before a position."""
        tip = self._tip  # another thread may read on
        if tip[0] == position:
            return tip[1]
        event = schema.event.c
        those = sa.select(event.checksum).where(event.study == self.study, event.position == position - 1)
        found = connection.execute(those).scalar() if position else ""
        if not isinstance(found, str):
            raise self._damaged(f"event {position - 1} has no checksum, or is missing")
        return found

    def _check_refusal(self, claims: Sequence[str]) -> None:
        """Make sure that an append was refused because a claim is taken, and not for the place where it would go."""
        event = schema.event.c
        taken = sa.select(event.position).where(event.study == self.study, event.claim.in_(claims)).limit(1)
        with self._access.reading() as connection:
            if len(set(claims)) == len(claims) and connection.execute(taken).first() is None:
                raise self._damaged("its length is less than the number of its events")

    def read(self, since: int = 0, most: int | None = None) -> Sequence[Event]:
        rows, tip = self._rows(since, most), self._tip
        events = self._events(rows, tip[1] if tip[0] == since else None)
        if rows and self._chained:
            self._tip = since + len(rows), rows[-1].checksum or ""
        if self.transcript is not None:
            self.transcript.note(self, since, [row.body for row in rows])
        return events

    def bodies(self, since: int, most: int) -> Sequence[str]:
        """Some events from a position on as JSON, checked and not decoded."""
        rows = self._rows(since, most)
        self._check(rows, None)
        return [row.body for row in rows]

    def _rows(self, since: int, most: int | None) -> list[Row]:
        """Rows from a position on: all that the length of the log says are there."""
        with self._access.reading() as connection:
            found = connection.execute(self._since.limit(most), {"since": since}).all()
        length = found[0][0] if found else since
        rows = [Row(*row) for _, *row in found if row[0] is not None]
        if not isinstance(length, int):
            raise self._damaged(f"its length is {length!r}")
        for due, row in enumerate(rows, since):
            if row.position != due:
                raise self._damaged(f"event {due} is missing")
        expected = max(length - since, 0)
        if found and len(rows) != (expected if most is None else min(most, expected)):
            raise self._damaged(f"its length is {length}, and the last event is number {since + len(rows) - 1}")
        return rows

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        first = since if self._is_whole else 0
        with self._access.reading() as connection:
            length, count, last = connection.execute(self._length, {"since": first}).one_or_none() or (None, 0, 0)
            if length is None:
                raise StorageError("the study was deleted")
            right = isinstance(length, int) and last == (length - 1 if length else None)
            if not right or count != max(length - first, 0):
                raise self._damaged(f"its length is {length!r}, the last event is number {last!r}, or one is missing")
            before = [] if first == since else connection.execute(self._odd, {"since": since}).all()
            rows = connection.execute(self._small, {"since": since, "length": length}).all()
        for row in before:  # which says what is wrong
            self._event(Row(*row))
        self._is_whole = True
        return [self._event(Row(*row)) for row in rows], length

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        wanted, found = sorted(numbers), list[Row]()
        with self._access.reading() as connection:
            if not self._has_trials:
                found += [Row(*row) for row in connection.execute(self._reports)]
                wanted = []
            for i in range(0, len(wanted), _AT_ONCE):
                some = self._reports.where(schema.event.c.trial.in_(wanted[i : i + _AT_ONCE]))
                found += [Row(*row) for row in connection.execute(some)]
        events = [self._event(row) for row in found]
        return [event for event in events if isinstance(event, Reported) and event.number in numbers]

    # What follows from the first events

    def mark(self, position: int) -> str | None:
        """The checksum of the event before a position as it reads now, which follows from all before it."""
        if not self._chained:
            return None
        with self._access.reading() as connection:
            found = connection.execute(self._since.limit(1), {"since": position - 1}).first()
        return None if found is None or found[1] is None else chain.checksum(self.study, Row(*found[1:]))

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
            rows = connection.execute(sa.select(table.part, table.digest, table.body).where(table.study == self.study))
            found = {name: (digest, body) for name, digest, body in rows if isinstance(body, bytes)}
        if any(hashlib.sha256(body).hexdigest() != digest for digest, body in found.values()):
            return {}  # damaged; the log has it all
        return {name: body for name, (_, body) in found.items()}

    def _events(self, rows: Iterable[Row], before: str | None) -> list[Event]:
        """The events of rows that follow each other."""
        self._check(rows, before)
        return [self._decoded(row) for row in rows]

    def _check(self, rows: Iterable[Row], before: str | None) -> None:
        """Refuse rows that do not follow each other, after one with that checksum if it is known."""
        if self._chained:
            for row, damage in chain.links(self.study, rows, before):
                if damage:
                    raise self._damaged(f"{row} cannot be trusted: {damage}")

    def _event(self, row: Row) -> Event:
        return self._events([row], None)[0]

    def _decoded(self, row: Row) -> Event:
        try:
            return row.event(trusted=self._chained)
        except UsageError as error:
            raise self._damaged(f"{row} is no event of a fairway log") from error

    def _damaged(self, what: str) -> StorageError:
        return self._access.damaged(f"in the study {self._name[:80]!r}, {what}")
