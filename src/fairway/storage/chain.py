"""Checksums that find damage: each event carries the checksum of its own row, and that of the event before it.

A row can be checked alone, since its checksum covers the columns of that row; a log is checked as a chain, since each
row also names the checksum of the row before. Checksums find accidents, not forgery: whoever changes a row on purpose
can compute them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from fairway.engine import soundness
from fairway.engine.event_json import from_json
from fairway.engine.events import Event, Reported
from fairway.errors import UsageError

REPORTED = Reported.__name__
DIGITS = 16
"""The hexadecimal digits of a checksum. Its row's study and position follow them, and for a report its trial, so that
SQL can tell if one of these is wrong; in older logs, only the trial follows."""


class Row(NamedTuple):
    """One event as a table holds it; after damage a column may hold anything."""

    position: int
    kind: str
    claim: str | None
    trial: int | None
    previous: str | None  # the checksum of the event before, "" for the first
    checksum: str | None
    body: str

    def __str__(self) -> str:
        of = "" if self.trial is None else f" of trial {str(self.trial)[:20]}"
        return f"event {str(self.position)[:20]} ({str(self.kind)[:20]}{of})"

    def event(self, *, trusted: bool = False) -> Event:
        """The event that the body holds; a `UsageError` if it holds none.

        Pass `trusted=True` if the checksum is right: whatever was written with a checksum is an event.
        """
        try:
            event = from_json(json.loads(self.body))
            if not trusted:
                soundness.check(event)
        except UsageError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{str(self.body)[:80]!r}: no event of a fairway log") from error
        return event


def checksum(study: int, row: Sequence[Any]) -> str:
    """The checksum that a `Row` of a study should carry; the checksum that the row has now does not matter."""
    position, kind, claim, trial, previous, _, body = row
    content = f"{study!r} {position!r} {kind!r} {claim!r} {trial!r} {previous} {body}"
    digest = blake2b(content.encode("utf-8", "surrogateescape"), digest_size=DIGITS // 2).hexdigest()
    return f"{digest} {study} {position}{f' {trial}' if kind == REPORTED else ''}"


def valid_checksums(study: int, row: Row) -> tuple[str, ...]:
    """The checksums that a row may carry: the one that it should, and that of older logs."""
    right = checksum(study, row)
    return right, f"{right[:DIGITS]}{f' {row.trial}' if row.kind == REPORTED else ''}"


def study_checksum(name: str, created: float) -> str:
    """The checksum of a study's row, over the columns that never change."""
    return blake2b(f"{name!r} {created!r}".encode("utf-8", "surrogateescape"), digest_size=DIGITS // 2).hexdigest()


class Link(NamedTuple):
    """One row of a log, and what is wrong with it, if anything is."""

    row: Row
    damage: str | None


def links(study: int, rows: Iterable[Row], before: str | None = "") -> Iterator[Link]:
    """Check rows that follow each other; `before` is the checksum of the event before them, None if not known."""
    known = {before}
    for row in rows:
        valid = valid_checksums(study, row)
        damage = None
        if row.checksum not in valid:
            damage = "it does not match its checksum" if row.checksum else "it has no checksum"
        elif None not in known and row.previous not in known:
            damage = "it does not follow the event before it"
        yield Link(row, damage)
        known = {row.checksum or "", *valid}  # if one is damaged, the next row must not be blamed


def sealed(study: int, contents: Iterable[Sequence[Any]], previous: str) -> list[Row]:
    """New rows with their checksums; `previous` is the checksum of the event before them.

    `contents` has the columns of each row but the checksums: position, kind, claim, trial and body.
    """
    rows = []
    for position, kind, claim, trial, body in contents:
        own = checksum(study, (position, kind, claim, trial, previous, None, body))
        rows.append(Row(position, kind, claim, trial, previous, own, body))
        previous = own
    return rows
