"""Opens the log of a study, from what its user passes as `storage`, and reads the studies that it starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias, runtime_checkable

from fairway.checks import instance, short
from fairway.engine.carried import Source
from fairway.engine.log import Log
from fairway.errors import UsageError
from fairway.parameters import Value
from fairway.storage.memory import MemoryLog

_LISTED = 8  # names of studies in a sentence


@runtime_checkable
class Named(Protocol):
    """An open study that another one may start from."""

    name: str
    log: Log


Earlier: TypeAlias = Named | str
"""A study to start from: an open one, or its address and name, "sqlite:///old.db#credit"."""

StartFrom: TypeAlias = Sequence[Earlier | tuple[Earlier, Mapping[str, Value]]]
"""Studies to start from, each alone or with values for the parameters that it lacks."""


@contextmanager
def opened_log(storage: str | Log | None, name: str) -> Iterator[Log]:
    """The log at a database's address, one of the user's own, or a new one in memory.

    If the block raises a `UsageError`, a study in which nothing was written is removed from the database again.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"name={short(name)}: the name of a study is expected")
    if not isinstance(storage, str):
        log: Log = instance("storage", storage, Log, MemoryLog())
        yield log
        return
    from fairway.storage.sql import Database  # noqa: PLC0415 - SQLAlchemy takes its time to load

    stored = Database(storage).log(name)
    try:
        yield stored
    except UsageError:
        stored.forget_if_empty()
        raise


def only_study(url: str) -> str:
    """The name of the only study in a database; a `UsageError` lists them if there are several."""
    from fairway.storage.access import public  # noqa: PLC0415 - SQLAlchemy takes its time to load
    from fairway.storage.sql import Database  # noqa: PLC0415

    names = [stored.name for stored in Database(url, reading=True).studies()]
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(f"{public(url)} has no studies")
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    listed = ", ".join(map(short, names[:_LISTED]))
    raise UsageError(f"{public(url)} has {len(names):,} studies: say which one, of {listed}{more}")


def sources(start_from: StartFrom) -> Callable[[], list[Source]] | None:
    """A function that reads the studies to start from, to call when they are needed; None if there are none."""
    if isinstance(start_from, str) or not isinstance(start_from, Sequence):
        raise UsageError(f"start_from={short(start_from)}: a list of studies is expected, such as [study]")
    pairs = [each if isinstance(each, tuple) else (each, {}) for each in start_from]
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], Named | str) or not isinstance(pair[1], Mapping):  # noqa: PLR2004
            raise UsageError(
                f"start_from: {short(pair[0] if pair else pair)}: a study or an address such as sqlite:///old.db#name "
                "is expected, alone or as (study, {parameter that it lacks: value})"
            )
        if isinstance(pair[0], str) and not all(pair[0].rpartition("#")):
            raise UsageError(f"start_from: {short(pair[0])}: the study's name is missing: sqlite:///old.db#name")
    return (lambda: [_source(*pair) for pair in pairs]) if pairs else None


def _source(earlier: Earlier, lacked: Mapping[str, Value]) -> Source:
    if isinstance(earlier, Named):
        return Source(earlier.name, earlier.log.read(0), lacked)
    from fairway.storage.sql import Database  # noqa: PLC0415 - SQLAlchemy takes its time to load

    url, _, name = earlier.rpartition("#")
    return Source(name, Database(url, reading=True).log(name, create=False).read(0), lacked)
