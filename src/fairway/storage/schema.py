"""The tables of a database of studies: plain columns and JSON, nothing that runs code, one schema for both kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import sqlalchemy as sa

from fairway.errors import UsageError
from fairway.storage import chain

VERSION = 3
"""A database of a newer schema is refused; one of an older schema is migrated when it is opened to be written to."""

tables = sa.MetaData()
schema = sa.Table("fairway_schema", tables, sa.Column("version", sa.Integer, nullable=False))
study = sa.Table(
    "fairway_study",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),  # of the log
    sa.Column("checksum", sa.Text),  # of the name and the creation
)
event = sa.Table(
    "fairway_event",
    tables,
    sa.Column("study", sa.Integer, sa.ForeignKey(study.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("claim", sa.Text),
    sa.Column("trial", sa.Integer),  # the trial it is about, if it is about one
    sa.Column("previous", sa.Text),  # the checksum of the event before; see chain.py
    sa.Column("checksum", sa.Text),
    sa.Column("body", sa.Text, nullable=False),
    sa.UniqueConstraint("study", "claim"),
    sa.Index("fairway_event_trial", "study", "trial"),
)
worker = sa.Table(
    "fairway_worker",
    tables,
    sa.Column("study", sa.Integer, sa.ForeignKey(study.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("worker", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("machine", sa.Text, nullable=False),
    sa.Column("process", sa.Integer, nullable=False),
    sa.Column("beat", sa.Float, nullable=False),  # the last sign of life, by the database's clock
)
snapshot = sa.Table(  # derived from the log, and made when it is first needed: see `fairway.engine.snapshot`
    "fairway_snapshot",
    tables,
    sa.Column("study", sa.Integer, sa.ForeignKey(study.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("part", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
TRIALS, CHECKSUMS = 2, 3
"""The versions that brought the column `trial`, and the checksums."""

_ADDED = {"trial": TRIALS, "previous": CHECKSUMS, "checksum": CHECKSUMS}
_AT_ONCE = 1000  # rows in one statement


def shape(columns: Collection[str]) -> int:
    """The schema version of a table of events with these columns."""
    return next((version - 1 for column, version in _ADDED.items() if column not in columns), VERSION)


def columns(version: int) -> list[sa.ColumnElement[Any]]:
    """The columns of an event, in the order of `chain.Row`; NULL for those that a version does not have."""
    return [event.c[name] if _ADDED.get(name, 1) <= version else sa.null().label(name) for name in chain.Row._fields]


def _number_trials(connection: sa.Connection) -> None:
    """Add to each event the number of the trial that it is about."""
    numbers = {"sqlite": "json_extract(body, '$.number')"}
    number = numbers.get(connection.dialect.name, "CAST(body::json->>'number' AS INTEGER)")
    connection.exec_driver_sql("ALTER TABLE fairway_event ADD COLUMN trial INTEGER")
    connection.exec_driver_sql(f"UPDATE fairway_event SET trial = {number}")  # noqa: S608 - one of the two above
    connection.exec_driver_sql("CREATE INDEX fairway_event_trial ON fairway_event (study, trial)")


def _add_checksums(connection: sa.Connection) -> None:
    """Add checksums to everything there: later damage is found, earlier damage is not.

    A row that is not an event gets none, and so counts as damaged.
    """
    for table, column in (("study", "checksum"), ("event", "previous"), ("event", "checksum")):
        connection.exec_driver_sql(f"ALTER TABLE fairway_{table} ADD COLUMN {column} TEXT")
    for number, name, created in connection.execute(sa.select(study.c.id, study.c.name, study.c.created)).all():
        own = {"checksum": chain.study_checksum(name, created)}
        connection.execute(study.update().where(study.c.id == number).values(own))
        _chain_events(connection, number)


def _chain_events(connection: sa.Connection, number: int) -> None:
    there = event.c.position, event.c.kind, event.c.claim, event.c.trial, event.c.body
    those = sa.select(*there).where(event.c.study == number).order_by(event.c.position).limit(_AT_ONCE)
    to = event.update().where(event.c.study == number, event.c.position == sa.bindparam("at"))
    to = to.values(previous=sa.bindparam("previous"), checksum=sa.bindparam("checksum"))
    rows, previous = connection.execute(those).all(), ""
    while rows:
        sealed = chain.sealed(number, rows, previous)
        sums = [
            {"at": row.position, "previous": row.previous, "checksum": row.checksum if _is_event(row) else None}
            for row in sealed
        ]
        connection.execute(to, sums)
        last, previous = sealed[-1].position, sealed[-1].checksum or ""
        rows = connection.execute(those.where(event.c.position > last)).all()


def _is_event(row: chain.Row) -> bool:
    try:
        row.event()
    except UsageError:
        return False
    return True


MIGRATIONS: dict[int, Callable[[sa.Connection], None]] = {1: _number_trials, 2: _add_checksums}
"""The migrations, by the version that they start from."""
