"""Logs in a SQL database, SQLite or PostgreSQL.

Appends are serialised by the study's row, which holds the length of its log: it is locked before a position is taken,
so no event becomes visible before those ahead of it. A claim, which only one event may have, is a unique column.
Listing studies and trials reads the small events and never the reports. Whatever is read is checked (`chain`): each row
by its checksum, consecutive rows as a chain, and the whole by the length of the log.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import IntegrityError, OperationalError

from fairway.engine.event_json import to_text
from fairway.engine.events import Ended, Event, Reported, Told, claim
from fairway.errors import StorageError, UsageError
from fairway.parameters import shortened
from fairway.storage import chain, schema, snapshots
from fairway.storage.access import BUSY_MS, Access
from fairway.storage.chain import Row
from fairway.storage.leases import SqlLeases
from fairway.storage.statements import Statement
from fairway.storage.transcript import Transcript

__all__ = ["Database", "SqlLog", "Stored"]

_AT_ONCE = 500  # trials in one query


class _Refused(Exception):  # noqa: N818 - nobody outside sees it
    """An append was refused: another event has its claim or its position."""


class Stored(NamedTuple):
    """A study as a database lists it."""

    name: str
    created: float
    events: int


class Database:
    """The studies at one URL.

    With `reading`, the database must exist, nothing is ever written to it, and an older schema is read as it is.
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
        """Create or migrate the tables, unless only reading; returns the version of their schema."""
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
        if said not in ({shape}, set()) or not said and self._has_studies():  # the version is written after the tables
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
        """The log of a study; created if it is not there, unless `create` is False."""
        found = self._find(name)
        if found is None:
            if not create:
                known = shortened([each.name for each in self.studies()]) or "none"
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
        self.studies()  # raises if one is damaged: that could be the one that is meant
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
        """Make sure that each study's length fits its last event, and that no study that is gone has events left."""
        study, event = schema.study.c, schema.event.c
        last = sa.select(sa.func.max(event.position)).where(event.study == study.id).scalar_subquery()
        with self.access.reading() as connection:
            for name, length, place in connection.execute(sa.select(study.name, study.length, last)):
                known = place is None or isinstance(place, int)
                if not known or length != (0 if place is None else place + 1):
                    raise self.access.damaged(
                        f"the length of the study {name!r} is {length!r}; its last event is number {place!r}"
                    )
            self._refuse_orphans(connection)

    def _refuse_orphans(self, connection: sa.Connection) -> None:
        event, known = schema.event.c, sa.select(schema.study.c.id)
        there = sa.select(sa.func.min(event.study).label("study")).cte("there", recursive=True)
        after = sa.select(sa.func.min(event.study)).where(event.study > there.c.study).scalar_subquery()
        there = there.union_all(sa.select(after).where(there.c.study.is_not(None)))  # from one study to the next
        those = sa.select(there.c.study).where(there.c.study.is_not(None), there.c.study.not_in(known)).limit(1)
        if connection.execute(those).first() is not None:
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
    """One study's events; `study` is its number in the database. With `keep`, it has a `Transcript`."""

    def __init__(
        self, access: Access, study: int, name: str, *, version: int = schema.VERSION, keep: bool = True
    ) -> None:
        self.study = study
        self.leases = SqlLeases(access, study)
        self.transcript = Transcript() if keep else None
        self._access, self._name = access, name
        self.file = access.file  # checkpoints are kept beside it
        self._chained = version >= schema.CHECKSUMS
        self._tip = 0, ""  # a position, and the checksum of the event before it
        event, length, dialect = schema.event.c, schema.study.c.length, access.engine.dialect
        more = schema.study.update().values(length=length + sa.bindparam("more"))
        self._lengthen = Statement(more.where(schema.study.c.id == study).returning(length), dialect)
        insert = access.insert(schema.event).on_conflict_do_nothing()
        self._insert = Statement(insert, dialect, ["study", *Row._fields])
        there = schema.columns(version)
        since = event.position >= sa.bindparam("since")
        both = schema.study.outerjoin(schema.event, (event.study == schema.study.c.id) & since)
        all_since = sa.select(length, *there).select_from(both).where(schema.study.c.id == study)
        all_since = all_since.order_by(event.position)
        self._since = Statement(all_since, dialect)
        self._first_since = Statement(all_since.limit(sa.bindparam("most")), dialect)
        those = sa.select(*there).where(event.study == study).order_by(event.position)
        place, marked = (
            f" {study} " + sa.cast(event.position, sa.Text),
            sa.func.substr(event.checksum, chain.DIGITS + 1),
        )
        of_trial = sa.case((event.kind == chain.REPORTED, " " + sa.cast(event.trial, sa.Text)), else_="")
        right = (marked == place + of_trial) | (marked == of_trial)  # or as in older logs
        odd = ~sa.func.coalesce(right, sa.false()) if self._chained else sa.false()  # its checksum tells
        self._small = those.where(since, (event.kind != chain.REPORTED) | odd, event.position < sa.bindparam("length"))
        self._odd = those.where(since, odd).limit(1)
        self._searched: int | None = None  # from there on no event is missing, misplaced, or of a wrong kind or trial
        self._reports = those.where(event.kind == chain.REPORTED)
        self._has_trials = version >= schema.TRIALS
        from_there = sa.select(sa.func.count()).where(event.study == study, since).scalar_subquery()
        last = sa.select(sa.func.max(event.position)).where(event.study == study).scalar_subquery()
        self._length = sa.select(length, from_there, last).where(schema.study.c.id == study)

    def append(self, events: Sequence[Event]) -> int | None:
        kinds = {type(event) for event in events}
        bodies = [to_text(event) for event in events]
        claims = [claim(event) for event in events]

        def insert(cursor: DBAPICursor) -> tuple[int, str]:
            """Add the events; return the length of the log, and the checksum of its last event."""
            found = self._lengthen.run(cursor, {"more": len(events)}).fetchall()
            if not found:
                raise StorageError("the study was deleted while it ran; what it told is gone with it")
            length = found[0][0]
            first = length - len(events)
            contents = [
                (first + i, type(event).__name__, claims[i], getattr(event, "number", None), bodies[i])
                for i, event in enumerate(events)
            ]
            tip = self._before(cursor, first)
            if not contents:
                return length, tip
            rows = chain.sealed(self.study, contents, tip)
            if self._insert.run_for(cursor, [(self.study, *row) for row in rows]) < len(rows):
                raise _Refused  # which rolls back
            return length, rows[-1].checksum or ""

        try:
            self._tip = self._access.add(insert, durable=Told in kinds, at_once=Ended in kinds)
        except _Refused:
            self._check_refusal([one for one in claims if one is not None])
            return None
        length = self._tip[0]
        if self.transcript is not None:
            self.transcript.note(self, length - len(events), bodies)
        return int(length)

    def _before(self, cursor: DBAPICursor, position: int) -> str:
        """The checksum of the event before a position."""
        tip = self._tip  # another thread may read on
        if tip[0] == position or not position:
            return tip[1] if position else ""
        found = self._found(cursor, position - 1, 1)
        checksum = Row(*found[0][1:]).checksum if found else None
        if not isinstance(checksum, str):
            raise self._damaged(f"event {position - 1} has no checksum, or is missing")
        return checksum

    def _check_refusal(self, claims: Sequence[str]) -> None:
        """Make sure that an append was refused because a claim is taken, not because its position is."""
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
        """All rows from a position on, as many as the length of the log says."""
        found = self._access.find(lambda cursor: self._found(cursor, since, most))
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

    def _found(self, cursor: DBAPICursor, since: int, most: int | None) -> Sequence[Any]:
        """The length of the log beside each row from a position on; beside an empty row if there is none."""
        if most is None:
            return self._since.run(cursor, {"since": since}).fetchall()
        return self._first_since.run(cursor, {"since": since, "most": most}).fetchall()

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        with self._access.reading() as connection:
            length = self._whole_since(connection, since)
            rows = connection.execute(self._small, {"since": since, "length": length}).all()
        return [self._event(Row(*row)) for row in rows], length

    def _whole_since(self, connection: sa.Connection, since: int) -> int:
        """The length of the log; raises if an event from a position on is missing."""
        length, count, last = connection.execute(self._length, {"since": since}).one_or_none() or (None, 0, 0)
        if length is None:
            raise StorageError("the study was deleted")
        right = isinstance(length, int) and last == (length - 1 if length else None)
        if not right or count != max(length - since, 0):
            raise self._damaged(f"its length is {length!r}, the last event is number {last!r}, or one is missing")
        return int(length)

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        wanted, found = sorted(numbers), list[Row]()
        with self._access.reading() as connection:
            if wanted:
                self._search(connection, wanted[0])
            if not self._has_trials:
                found += [Row(*row) for row in connection.execute(self._reports)]
                wanted = []
            for i in range(0, len(wanted), _AT_ONCE):
                some = self._reports.where(schema.event.c.trial.in_(wanted[i : i + _AT_ONCE]))
                found += [Row(*row) for row in connection.execute(some)]
        events = [self._event(row) for row in found]
        return [event for event in events if isinstance(event, Reported) and event.number in numbers]

    def _search(self, connection: sa.Connection, number: int) -> None:
        """Make sure once that the reports since a trial began are all found by their kind and trial."""
        event = schema.event.c
        began = sa.select(event.position).where(event.study == self.study, event.claim == f"asked {number}")
        since = connection.execute(began).scalar() or 0
        if self._searched is not None and since >= self._searched:
            return  # `summary` has checked whatever came after that
        self._whole_since(connection, since)
        for row in connection.execute(self._odd, {"since": since}).all():  # which says what is wrong
            self._event(Row(*row))
        self._searched = since

    def forget_if_empty(self) -> None:
        """Remove the study if nobody has written to it."""
        with self._access.writing() as connection:
            row = schema.study.c
            connection.execute(schema.study.delete().where(row.id == self.study, row.length == 0))

    # What follows from the first events

    def mark(self, position: int) -> str | None:
        """The checksum of the event before a position, by its row as it is now; it depends on all events before."""
        if not self._chained:
            return None
        found = self._access.find(lambda cursor: self._found(cursor, position - 1, 1))
        return None if not found or found[0][1] is None else chain.checksum(self.study, Row(*found[0][1:]))

    def keep(self, parts: Mapping[str, bytes]) -> None:
        snapshots.keep(self._access, self.study, parts)

    def kept(self, names: Collection[str] | None = None) -> Mapping[str, bytes]:
        return snapshots.kept(self._access, self.study, names)

    def _events(self, rows: Iterable[Row], before: str | None) -> list[Event]:
        """The events of rows that follow each other."""
        self._check(rows, before)
        return [self._decoded(row) for row in rows]

    def _check(self, rows: Iterable[Row], before: str | None) -> None:
        """Raise if rows do not follow each other, and the row with the checksum `before`, if that is known."""
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
