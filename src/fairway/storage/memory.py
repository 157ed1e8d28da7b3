"""A log in memory: gone with its process."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from fairway.engine.events import Event, Reported, claim
from fairway.engine.log import Log


class MemoryLog(Log):
    """Events in a list."""

    leases = None  # who shares this memory lives and dies with it

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._claims: set[str] = set()
        self._lock = threading.Lock()

    def __getstate__(self) -> list[Event]:
        return list(self.read())

    def __setstate__(self, events: list[Event]) -> None:
        self.__init__()  # type: ignore[misc]
        self.append(events)

    def append(self, events: Sequence[Event]) -> int | None:
        claims = [taken for event in events if (taken := claim(event)) is not None]
        with self._lock:
            if len(set(claims)) < len(claims) or not self._claims.isdisjoint(claims):
                return None
            self._claims.update(claims)
            self._events.extend(events)
            return len(self._events)

    def read(self, since: int = 0, most: int | None = None) -> Sequence[Event]:
        with self._lock:
            return self._events[since : None if most is None else since + most]

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        events = self.read(since)
        return [event for event in events if not isinstance(event, Reported)], since + len(events)

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        return [event for event in self.read() if isinstance(event, Reported) and event.number in numbers]
