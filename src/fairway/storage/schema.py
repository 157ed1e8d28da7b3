"""The tables of a database of studies: plain columns and JSON, nothing that runs code, one schema for both kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa

VERSION = 2
"""A database of a newer schema is refused; one of an older schema is migrated when it is opened."""

tables = sa.MetaData()
schema = sa.Table("fairway_schema", tables, sa.Column("version", sa.Integer, nullable=False))
study = sa.Table(
    "fairway_study",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("length", sa.Integer, nullable=False),  # of the log
)
event = sa.Table(
    "fairway_event",
    tables,
    sa.Column("study", sa.Integer, sa.ForeignKey(study.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("claim", sa.Text),
    sa.Column("trial", sa.Integer),  # the trial it is about, if it is about one
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
MIGRATIONS: dict[int, Callable[[str], Sequence[str]]] = {  # by the version they start from, for a kind of database
    1: lambda kind: (
        "ALTER TABLE fairway_event ADD COLUMN trial INTEGER",
        "UPDATE fairway_event SET trial = json_extract(body, '$.number')"
        if kind == "sqlite"
        else "UPDATE fairway_event SET trial = CAST(body::json->>'number' AS INTEGER)",
        "CREATE INDEX fairway_event_trial ON fairway_event (study, trial)",
    )
}
