"""A log in memory: gone with its process."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.events import Event


class MemoryLog:
    """Events in a list."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def append(self, events: Sequence[Event], *, at: int | None = None) -> int | None:
        """Append all or nothing and return the new length; None if the length is not `at`."""
        if at is not None and at != len(self._events):
            return None
        self._events.extend(events)
        return len(self._events)

    def read(self, since: int = 0) -> Sequence[Event]:
        """The events from a position on."""
        return self._events[since:]
