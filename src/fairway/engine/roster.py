"""The workers of a study that this process is responsible for: their leases, and the news that each has not seen."""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fairway.engine.events import Event, Reported, Told, is_news, last_act
from fairway.engine.log import Leases
from fairway.errors import StorageError
from fairway.problem import Problem

_MOST_NEWS = 65536  # bytes at a time: any idle connection takes this much without waiting


_MOST_UNHEARD = 256  # events of its own that a worker keeps before it hears that they are in the log


class Rejudged(NamedTuple):
    """What the owner's referee knows by new limits; a further worker adds those of its own acts it does not cover."""

    problem: Problem
    known: Mapping[str, Any]
    written: Mapping[int, int]  # by worker, the last act that it covers


class _Unseen(NamedTuple):
    """An event that some further worker has not seen."""

    position: int  # of the log, after the event
    event: bytes


class Roster:
    """The owner itself, and the further workers that it writes for. Changes are made under the journal's lock."""

    def __init__(self, leases: Leases | None) -> None:
        self._leases = leases
        self._news: dict[int, deque[_Unseen]] = {}  # by further worker
        self._unheard: dict[int, int] = {}  # by further worker: events of its own that were written since its last news
        self.written: dict[int, int] = {}  # by further worker: its last act that is in the log

    @property
    def further(self) -> Collection[int]:
        """The further workers, by number."""
        return self._news.keys()

    def attend(self, worker: int) -> None:
        """Show others that a worker of this process is alive."""
        if self._leases is not None:
            self._leases.attend(worker)

    def add(self, worker: int) -> None:
        """Keep news for a further worker from now on."""
        self._news[worker] = deque()
        self._unheard[worker], self.written[worker] = 0, 0

    def remove(self, worker: int) -> None:
        """Keep no more news for a further worker, and show others that it is gone."""
        for kept in (self._news, self._unheard, self.written):
            kept.pop(worker, None)
        if self._leases is not None:
            with contextlib.suppress(StorageError):  # it has no trial that anybody could miss
                self._leases.leave(worker)

    def lost(self, workers: Collection[int]) -> set[int]:
        """Those of these workers that are dead, or have been silent for too long."""
        return self._leases.lost(workers) if self._leases is not None and workers else set()

    def renew(self) -> None:
        """Show others that the workers of this process are still alive."""
        if self._leases is not None:
            self._leases.renew()

    def publish(self, position: int, event: Event) -> None:
        """Keep an event for every further worker that has not seen it."""
        if not self._news:
            return
        hear = [events for worker, events in self._news.items() if is_news(event, worker)]
        if hear:
            unseen = _Unseen(position, pickle.dumps(event))  # once for all of them
            for events in hear:
                events.append(unseen)
        if isinstance(event, Reported | Told) and event.worker in self._news:
            self._unheard[event.worker] += 1
            self.written[event.worker] = last_act(event)

    def start_again(self, position: int, rejudged: Rejudged) -> None:
        """Replace the news of every further worker with what is known under new limits."""
        if self._news:
            unseen = _Unseen(position, pickle.dumps(rejudged))
            for events in self._news.values():
                events.clear()
                events.append(unseen)

    def has_news(self, worker: int) -> bool:
        """Whether others wrote events that a further worker has not seen, or it has kept many of its own."""
        return bool(self._news.get(worker)) or self._unheard.get(worker, 0) > _MOST_UNHEARD

    def news(self, worker: int, position: int) -> tuple[list[bytes], int, int]:
        """The events that a further worker has not seen, the log position that they reach, and its last act in the log.

        The events are pickled, and no more than its connection takes at a time. `position` is the one up to which
        everything has been published.
        """
        unseen, events, size, reached = self._news[worker], [], 0, position
        while unseen and size < _MOST_NEWS:
            reached, event = unseen.popleft()
            events.append(event)
            size += len(event)
        self._unheard[worker] = 0
        return events, reached if unseen else position, self.written[worker]
