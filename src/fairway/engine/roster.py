"""The workers of a study that this process answers for: their leases, and the news that each has not seen."""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from fairway.engine.events import Event, Reported, Told
from fairway.engine.log import Leases
from fairway.errors import StorageError

_MOST_NEWS = 65536  # bytes at a time: what any connection that is free takes without waiting


class _Unseen(NamedTuple):
    """An event that some further worker has not seen."""

    position: int  # of the log, once it is replayed
    event: bytes


class Roster:
    """The owner itself, and the further workers that it writes for. Changes are made under the journal's lock."""

    def __init__(self, leases: Leases | None) -> None:
        self._leases = leases
        self._news: dict[int, deque[_Unseen]] = {}  # by further worker

    @property
    def further(self) -> Collection[int]:
        """The further workers, by number."""
        return self._news.keys()

    def attend(self, worker: int) -> None:
        """Show others that a worker of this process lives."""
        if self._leases is not None:
            self._leases.attend(worker)

    def add(self, worker: int) -> None:
        """Keep news for a further worker from now on."""
        self._news[worker] = deque()

    def remove(self, worker: int) -> None:
        """Keep no more news for a further worker, and show others that it is gone."""
        self._news.pop(worker, None)
        if self._leases is not None:
            with contextlib.suppress(StorageError):  # it has no trial that anybody could miss
                self._leases.leave(worker)

    def lost(self, workers: Collection[int]) -> set[int]:
        """Those of others' workers that live no more, or have not been heard of for too long."""
        return self._leases.lost(workers) if self._leases is not None and workers else set()

    def renew(self) -> None:
        """Show others that the workers of this process still live."""
        if self._leases is not None:
            self._leases.renew()

    def publish(self, position: int, event: Event) -> None:
        """Keep an event for every further worker that has not seen it."""
        if not self._news or not isinstance(event, Reported | Told):
            return
        unseen = _Unseen(position, pickle.dumps(event))  # once for all of them
        for worker, events in self._news.items():
            if worker != event.worker:
                events.append(unseen)

    def has_news(self, worker: int) -> bool:
        """Whether others wrote what a further worker has not seen."""
        return bool(self._news.get(worker))

    def news(self, worker: int, position: int) -> tuple[list[bytes], int]:
        """What a further worker has not seen, pickled, as much as it can take; and the log position it reaches.

        `position` is the one up to which everything has been published.
        """
        unseen, events, size, reached = self._news[worker], [], 0, position
        while unseen and size < _MOST_NEWS:
            reached, event = unseen.popleft()
            events.append(event)
            size += len(event)
        return events, reached if unseen else position
