"""The log of a study, from what its user passes as `storage`."""

from __future__ import annotations

from fairway.checks import instance, short
from fairway.engine.log import Log
from fairway.errors import UsageError
from fairway.storage.memory import MemoryLog


def open_log(storage: str | Log | None, name: str) -> Log:
    """The log at a database's address, one of the user's own, or a new one in memory."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"name={short(name)}: the name of a study is expected")
    if isinstance(storage, str):
        from fairway.storage.sql import Database  # noqa: PLC0415 - SQLAlchemy takes its time to load

        return Database(storage).log(name)
    log: Log = instance("storage", storage, Log, MemoryLog())
    return log
