"""Reads what is left of a damaged study: `fairway verify` lists the damage, and `fairway repair` keeps the rest.

Opening a study raises at the first damage; an inspection reads every row, and says what is wrong with each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from fairway.engine.events import Event, claim
from fairway.errors import UsageError
from fairway.parameters import shortened
from fairway.storage import schema
from fairway.storage.access import ADVICE, Access, Damaged
from fairway.storage.chain import Row, links, study_checksum, valid_checksums
from fairway.storage.sql import Database

_T = TypeVar("_T")
Tracked = Callable[[Sequence[_T], str], Iterable[_T]]
"""Passes a sequence on, and may show how far its reader has come."""


class Found(NamedTuple):
    """A place in the log: its event if that is intact, and what is wrong with it."""

    position: int
    event: Event | None
    damage: str | None
    claim: str | None = None  # as its row says, whatever became of the event


@dataclass
class Inspection:
    """A study as it lies in its database."""

    name: str
    checksums: bool  # whether its events have them; in older schemas they do not
    found: list[Found]  # every position, from the first to the last that is there
    around: list[str] = field(default_factory=list)  # damage outside the events: of the file, of the study's row
    cut: str | None = None  # what is missing at the end

    @property
    def damage(self) -> list[str]:
        """Everything that is wrong, a sentence each."""
        return [*self.around, *(text for text in (*(one.damage for one in self.found), self.cut) if text is not None)]


def inspect(url: str, name: str, tracked: Tracked[Any] = lambda items, _: items) -> Inspection:
    """Look at every row of a study, whatever state it is in; a `UsageError` if it is not there."""
    access, around = Access(url, reading=True), list[str]()
    try:
        version = Database(url, reading=True).version
    except Damaged as error:
        around.append(str(error).removesuffix(ADVICE))
        with access.talking("read"):
            version = schema.shape([each["name"] for each in sa.inspect(access.engine).get_columns(schema.event.name)])
    try:
        access.check_file()
    except Damaged as error:
        around.append(str(error).removesuffix(ADVICE))
    with access.snapshot() as connection:  # others may be writing
        study, length = _study(connection, access.shown, name, version, around)
        rows = _rows(connection, study, version, around)
    end = 2 * len(rows) + 10  # a position beyond is damaged, or hardly anything is left
    numbered = {row.position: row for row in rows if type(row.position) is int and 0 <= row.position < end}
    odd = [row for row in rows if numbered.get(row.position) is not row]
    around += [f"{row} is at no place of the log" for row in odd]
    found = list(_found(study, numbered, tracked, chained=version >= schema.CHECKSUMS))
    cut = None
    if isinstance(length, int) and length > len(found):
        cut = f"events from {len(found)} on are missing: the study's row says that its log has {length}"
    elif length != len(found):
        around.append(f"the study's row says that its log has {str(length)[:40]} events; {len(found)} are there")
    return Inspection(name, version >= schema.CHECKSUMS, found, around, cut)


def _study(connection: sa.Connection, url: str, name: str, version: int, around: list[str]) -> tuple[int, Any]:
    """The number and the length of a study; if its row is damaged or gone, it is found if only one can be meant."""
    study, event = schema.study.c, schema.event.c
    own = study.checksum if version >= schema.CHECKSUMS else sa.null()
    rows = connection.execute(sa.select(study.id, study.name, study.created, study.length, own)).all()
    damaged = [row for row in rows if version >= schema.CHECKSUMS and row[4] != study_checksum(row[1], row[2])]
    named = [row for row in rows if row[1] == name]
    for row in named or (damaged if len(damaged) == 1 else []):
        if row in damaged:
            around.append(f"the row of the study {str(row[1])[:80]!r} does not match its checksum")
        return row[0], row[3]
    orphans = sa.select(event.study).where(event.study.not_in(sa.select(study.id))).distinct().limit(2)
    lost = connection.execute(orphans).scalars().all()
    if len(lost) == 1:
        around.append(f"the row of the study is gone; its events may be those of study number {lost[0]!r}")
        return lost[0], None
    known = shortened([row[1] for row in rows]) or "none"
    raise UsageError(f"{url} has no study {name!r}; it has {known}")


def _rows(connection: sa.Connection, study: int, version: int, around: list[str]) -> list[Row]:
    """The rows of a study, as many as can be read: past a damaged page, from the other end."""
    if connection.dialect.name != "sqlite":
        query = sa.select(*schema.columns(version)).where(schema.event.c.study == study)
        return [Row(*row) for row in connection.execute(query)]
    names = ", ".join(str(column) for column in schema.columns(version))
    rows = f"SELECT {names}, rowid FROM fairway_event NOT INDEXED WHERE study = ? ORDER BY rowid"  # noqa: S608 - columns
    found: dict[Any, Row] = {}
    for way in ("ASC", "DESC"):  # without the indices, which may be damaged too
        try:
            for *columns, place in connection.exec_driver_sql(f"{rows} {way}", (study,)):
                found[place] = Row(*columns)
            break
        except DBAPIError as error:
            around.append(f"the events could not be read to their end: {error.orig}")
    return list(found.values())


def _found(study: int, rows: dict[int, Row], tracked: Tracked[int], *, chained: bool) -> Iterator[Found]:
    """Every position up to the last row's."""
    damages = _damages(study, rows) if chained else {}
    for position in tracked(range(max(rows, default=-1) + 1), "reading events"):
        row = rows.get(position)
        if row is None:
            yield Found(position, None, f"event {position} is missing")
            continue
        before, after = rows.get(position - 1), rows.get(position + 1)
        damage = damages.get(position)
        event = _event(row, trusted=chained and damage is None)
        if event is None:
            why = f"{row} is no event of a fairway log" + (f": {damage}" if damage else "")
            yield Found(position, None, why, row.claim)
        elif damage and not _is_intact(study, row, event, before, after):
            yield Found(position, None, f"{row} is damaged: {damage}", row.claim)
        else:
            yield Found(position, event, f"{row}: {damage}, but its content is intact" if damage else None)


def _damages(study: int, rows: dict[int, Row]) -> dict[int, str | None]:
    """What the checksums say about each row; after a gap the chain starts again."""
    found: dict[int, str | None] = {}
    run: list[Row] = []
    for position in sorted(rows):
        run.append(rows[position])
        if position + 1 not in rows:
            first = run[0].position
            found |= {row.position: damage for row, damage in links(study, run, None if first else "")}
            run = []
    return found


def _event(row: Row, *, trusted: bool) -> Event | None:
    try:
        return row.event(trusted=trusted)
    except UsageError:
        return None


def _is_intact(study: int, row: Row, event: Event, before: Row | None, after: Row | None) -> bool:
    """Whether only the columns beside the body are damaged, which repeat what the body or the neighbouring rows say."""
    told = row._replace(kind=type(event).__name__, claim=claim(event), trial=getattr(event, "number", None))
    sums = {row.checksum, None if after is None else after.previous}
    previous = {row.previous, "" if before is None else before.checksum}
    return any(sums.intersection(valid_checksums(study, told._replace(previous=each))) for each in previous)
