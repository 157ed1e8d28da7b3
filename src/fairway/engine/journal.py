"""A study's log as this process knows it: what is appended, what others wrote, and everything replayed from it.

The journal keeps the batches of the trials that run here, and drains them before the referee learns anything from
others. So one log position, `Reported.seen`, says what the worker knew when it ruled on all the rows of a batch.

One lock guards all of this: `journal.lock`, which is `referee.lock` and `owner.lock` too. It is held during writes, and
released while somebody waits for a database that is unreachable (`Outage`).

A failed write may have reached the log all the same, if the connection was lost before the answer came. So before it
writes or replays anything else, the journal reads on and forgets the rows that it finds in the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeAlias, TypeVar

from fairway.engine.batch import Batch, drained
from fairway.engine.clock import Clock, WallClock
from fairway.engine.durability import WAIT_NS, start_pulse
from fairway.engine.event_json import to_json
from fairway.engine.events import Asked, Event, LimitsChanged, Opened, Removed, Reported, Saved, Told, claim, is_news
from fairway.engine.ledger import Ledger
from fairway.engine.limits import last_change
from fairway.engine.log import Log
from fairway.engine.outage import Outage
from fairway.engine.referee import Referee
from fairway.engine.roster import Rejudged, Roster
from fairway.engine.soundness import fitting
from fairway.errors import FairwayError, StorageError, UsageError

_Claiming = TypeVar("_Claiming", Opened, Asked)
_Posted: TypeAlias = Reported | Saved | Removed
_PATIENCE_SECONDS = 1.0  # the pulse waits this long for the lock, then leaves it to the next pulse


class Journal:
    """The writer and reader of one log, with the ledger and the referee that replay it."""

    def __init__(self, log: Log, ledger: Ledger, referee: Referee, *, patience: float) -> None:
        self.log, self.ledger, self.referee = log, ledger, referee
        self.roster = Roster(log.leases)
        self.clock: Clock = WallClock()
        self.lock = referee.lock  # held while anything known here changes
        self.position = 0  # the log is replayed up to here
        self.outage = Outage(self.lock, patience)
        self._batches: dict[int, Batch] = {}  # of the trials that run in this process
        self._posted: list[_Posted] = []  # what waits for the log besides batches: mostly further workers' reports
        self._behind = False  # others wrote before our last append
        self._unsure = False  # an append failed, but may have been written
        self._process = os.getpid()
        if log.leases is not None:
            start_pulse(self)

    def join(self, config: Mapping[str, Any], *, founded: bool = False) -> int:
        """Join the study as a worker: take a number and a lease. The process that founded the study is number 0."""
        self.catch_up()
        worker = 0 if founded else self.claim(lambda: Opened(self.ledger.workers, config)).worker
        with self.turn():
            self.outage.insist(partial(self.roster.attend, worker))
        return worker

    def turn(self) -> AbstractContextManager[None]:
        """The lock, taken once nobody waits for the log: for code that reads, writes and reads again."""
        return self.outage

    # Trials that run in this process

    def open(self, batch: Batch) -> None:
        """Drain a batch from now on, whenever that is due."""
        with self.lock:
            self._batches[batch.number] = batch

    def close(self, number: int) -> None:
        """Forget the batch of a trial that has ended: its rows are in the log, or too late for it."""
        with self.lock:
            self._batches.pop(number, None)

    def drain(self, batch: Batch) -> None:
        """Write the rows of one batch; if the log is unreachable, they stay in the batch."""
        with self.lock:
            self.outage.attempt(partial(self._drain, [batch]))

    def flush(self) -> None:
        """Write the rows of all batches, and everything that was posted."""
        with self.turn():
            self.outage.insist(self._flush)

    def _flush(self) -> bool:
        """Write everything that waits; return whether there were rows in the batches."""
        return self._drain(self._batches.values(), with_posted=True)

    def _drain(self, batches: Iterable[Batch], *, with_posted: bool = False) -> bool:
        self._settle()
        posted = self._posted if with_posted else []
        with drained(batches, self.clock.ns()) as events:
            if events or posted:
                self._write([*events, *posted])
            self._posted = self._posted[len(posted) :]
            return bool(events)

    def post(self, *events: _Posted) -> None:
        """Write further workers' reports, saves or removals; if the log is unreachable, keep them for later."""
        with self.lock:
            self._posted += events
            self.outage.attempt(self._flush)

    def post_later(self, event: _Posted) -> None:
        """Write an event together with whatever is written next."""
        with self.lock:
            self._posted.append(event)

    @property
    def unwritten(self) -> list[_Posted]:
        """The reports, saves and removals of this process and its further workers that are not in the log yet."""
        with self.lock:
            rows = [batch.event() for batch in self._batches.values()]
            return [*self._posted, *(event for event in rows if event is not None)]

    # The log

    def append(self, *events: Event, meanwhile: Callable[[], object] | None = None) -> bool:
        """Write events and replay them; return False, with none written, if another worker was first to claim one.

        If the log is unreachable, this waits; `meanwhile` is called once before the lock is released.
        """
        tried = False

        def act() -> bool:
            nonlocal tried
            found = self._settle()
            if tried and to_json(events[0]) in map(to_json, found):
                return True
            if self._posted or any(map(self._is_foreign, events)):
                self._flush()
            tried = True
            return self._write(events)

        with self.turn():
            return self.outage.insist(act, meanwhile)

    def claim(self, make: Callable[[], _Claiming]) -> _Claiming:
        """Append the event that `make` returns; call `make` again as long as another worker is first to claim it."""
        refused = None
        while True:
            event = make()
            if claim(event) == refused:  # though everything that others wrote was replayed
                raise StorageError(f"the log refuses {refused!r}, which no event of it has: it is damaged")
            written = self.append(event)
            self.follow()
            if written:
                return event
            refused = claim(event)

    def _settle(self) -> Sequence[Event]:
        """After a failed write, forget the rows that reached the log; return the events that were not replayed yet."""
        if not self._unsure:
            return ()
        write(self.log, [])  # whoever is still writing, perhaps our lost connection, is done after this
        found = read(self.log, self.position)
        own = {_ruling(event): event for event in found if isinstance(event, Reported)}
        others = [event for event in found if isinstance(event, Saved | Removed)]
        self._posted = [
            event
            for event in self._posted
            if (event not in others if isinstance(event, Saved | Removed) else _ruling(event) not in own)
        ]
        for (worker, act), event in own.items():
            if worker == self.referee.worker and event.number in self._batches:
                self._batches[event.number].forget(act)
        self._unsure, self._behind = False, True
        return found

    def _write(self, events: Sequence[Event]) -> bool:
        if os.getpid() != self._process:
            raise UsageError("this study was made in another process; after a fork, open a Study of its own")
        self._unsure = True
        length = write(self.log, events)
        self._unsure = False
        self.outage.end()
        alone = length == self.position + len(events)  # nobody else wrote: no need to read it back
        if alone and last_change(events) is None:
            self._take(events)
        else:
            self._behind = True
        return length is not None

    def read(self, since: int, most: int | None = None) -> Sequence[Event]:
        """The events from a position on, at most `most` of them."""
        return read(self.log, since, most)

    def catch_up(self) -> None:
        """Replay what this process and others have written since the last replay."""
        with self.turn():
            self.outage.insist(self._catch_up)

    def _catch_up(self) -> None:
        self._settle()
        events = self.read(self.position)
        if any(map(self._is_foreign, events)) and self._drain(self._batches.values()):
            events = self.read(self.position)
        self._replay(events)
        self._behind = False

    def follow(self) -> None:
        """Write what had to wait, and replay what others wrote before the last append.

        If that append failed but reached the log, replay it too.
        """
        if self._posted:
            self.flush()
        if self._behind or self._unsure:
            self.catch_up()

    def look(self) -> None:
        """Replay what was written since, if the log can be reached now."""
        with self.lock:
            self.outage.attempt(self._catch_up)

    def keep_up(self) -> None:
        """Replay what others wrote before the last append, if the log can be reached now."""
        if self._behind:
            self.look()

    def pulse(self) -> None:
        """Renew leases; while trials run, write rows that have waited and read what others wrote.

        In virtual time it only renews leases.
        """
        self.outage.attempt(self.roster.renew)
        idle = not self._batches and not self.roster.further and not self._posted
        if idle or not isinstance(self.clock, WallClock) or not self.lock.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            now = self.clock.ns()
            waited = [batch for batch in self._batches.values() if now - batch.drained_ns > WAIT_NS]
            if self._posted or waited:
                self.outage.attempt(self._flush if self._posted else partial(self._drain, waited))
        finally:
            self.lock.release()
        if self.outage.attempt(partial(self.read, self.position, most=1)):
            self.look()

    def _replay(self, events: Sequence[Event]) -> None:
        last = last_change(events)
        if last is None:
            self._take(events)
        else:
            self._judge_again(events[: last + 1])
            self._take(events[last + 1 :], relearn=True)

    def _take(self, events: Sequence[Event], *, relearn: bool = False) -> None:
        """Replay events that change no limits.

        With `relearn`, the referee also learns this process's own acts, which it forgot when limits changed.
        """
        for event in events:
            with fitting(event):
                self.ledger.replay(event)
            self.position += 1
            if is_news(event, self.referee.worker):
                self.referee.replay(event)
                self.referee.seen = self.position
            elif relearn and isinstance(event, Reported | Told):  # an act from before the change was known
                self.referee.replay(event)
            self.roster.publish(self.position, event)

    def _judge_again(self, events: Sequence[Event]) -> None:
        """Replay events up to a change of limits, and judge the whole log up to there by the new limits.

        This process's own rulings are in the log by now: they are written before anything foreign is learned.
        """
        position = self.position + len(events)
        whole = self.read(0, position)
        self.ledger.extend(events, lambda: whole)
        problem = self.ledger.problem
        self.referee.judge_by(problem, self.referee.known_by(problem, whole))
        self.position = self.referee.seen = position
        for event in events:
            self.roster.publish(position, event)
        self.roster.start_again(position, Rejudged(problem, self.referee.known(), dict(self.roster.written)))

    def _is_foreign(self, event: Event) -> bool:
        """Whether the referee learns something from an event, so that its own rulings must be in the log first."""
        return is_news(event, self.referee.worker) or isinstance(event, LimitsChanged)


def _ruling(event: Reported) -> tuple[int, int]:
    """A key that no two events share: the worker and its last act."""
    return event.worker, int(event.acts[-1])


def read(log: Log, since: int, most: int | None = None) -> Sequence[Event]:
    """The events of a log from a position on; an exception that is not fairway's becomes a `StorageError`."""
    try:
        return log.read(since, most)
    except FairwayError:
        raise
    except Exception as error:
        raise StorageError(f"the log could not be read ({error})") from error


def write(log: Log, events: Sequence[Event]) -> int | None:
    """Append to a log, as `Log.append` does; an exception that is not fairway's becomes a `StorageError`."""
    try:
        return log.append(events)
    except FairwayError:
        raise
    except Exception as error:
        raise StorageError(f"the log could not be written ({error}); what was told before is safe") from error
