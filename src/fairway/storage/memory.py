"""A log in memory: gone with its process."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.events import Event, Reported, Told


class MemoryLog:
    """Events in a list."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._workers = 0

    def join(self) -> int:
        """A number for one more worker that writes here."""
        written = (event.worker + 1 for event in self._events if isinstance(event, Reported | Told))
        self._workers = max(self._workers, *written, 0) + 1
        return self._workers - 1

    def append(self, events: Sequence[Event], *, at: int | None = None) -> int | None:
        """Append all or nothing and return the new length; None if the length is not `at`."""
        if at is not None and at != len(self._events):
            return None
        self._events.extend(events)
        return len(self._events)

    def read(self, since: int = 0) -> Sequence[Event]:
        """The events from a position on."""
        return self._events[since:]
