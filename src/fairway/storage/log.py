"""The contract of a log: append-only, read from any position, one order of events that all readers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from fairway.events import Event


@runtime_checkable
class Log(Protocol):
    """One study's events."""

    def append(self, events: Sequence[Event], *, at: int | None = None) -> int | None:
        """Append all or nothing and return the new length; None, with nothing appended, if the length is not `at`.

        With `at` an owner takes something that only one may have, such as the next trial number: on None it reads what
        others wrote meanwhile and tries again.
        """

    def read(self, since: int = 0) -> Sequence[Event]:
        """The events from a position on."""
