"""A study's log as this process knows it: what is appended, what others wrote, and everything replayed from it.

The journal keeps the batches of the trials that run here, and drains them before the referee learns anything from
others: so one log position, `Reported.seen`, says for all rows of a batch what their worker knew when it ruled on them.

One lock guards all of this: `journal.lock`, which is `referee.lock` and `owner.lock` too. It is held across writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from fairway.engine.batch import Batch, drained
from fairway.engine.clock import Clock, WallClock
from fairway.engine.durability import WAIT_NS, start_pulse
from fairway.engine.events import Asked, Event, Opened, Reported, Told, claim
from fairway.engine.ledger import Ledger
from fairway.engine.log import Log
from fairway.engine.referee import Referee
from fairway.engine.roster import Roster
from fairway.engine.soundness import fitting
from fairway.errors import FairwayError, StorageError, UsageError

_Claiming = TypeVar("_Claiming", Opened, Asked)
_PATIENCE_SECONDS = 1.0  # the pulse waits this long for the lock; it comes again


class Journal:
    """The writer and reader of one log, with the ledger and the referee that replay it."""

    def __init__(self, log: Log, ledger: Ledger, referee: Referee) -> None:
        self.log, self.ledger, self.referee = log, ledger, referee
        self.roster = Roster(log.leases)
        self.clock: Clock = WallClock()
        self.lock = referee.lock  # held while anything known here changes
        self.position = 0  # of the log, replayed so far
        self._batches: dict[int, Batch] = {}  # of the trials that run in this process
        self._behind = False  # others wrote before our last append
        self._process = os.getpid()
        if log.leases is not None:
            start_pulse(self)

    def join(self, config: Mapping[str, Any], *, founded: bool = False) -> int:
        """Take a number as a worker of the study and show others that it lives; who founded the study is number 0."""
        self.catch_up()
        worker = 0 if founded else self.claim(lambda: Opened(self.ledger.workers, config)).worker
        self.roster.attend(worker)
        return worker

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
        """Write what one batch holds."""
        self._drain([batch])

    def flush(self) -> bool:
        """Write what all batches hold; whether there was anything."""
        return self._drain(self._batches.values())

    def _drain(self, batches: Iterable[Batch]) -> bool:
        with self.lock, drained(batches, self.clock.ns()) as events:
            if events:
                self._write(events)
            return bool(events)

    # The log

    def append(self, *events: Event) -> bool:
        """Write events and replay them; False, with none of them written, if another worker was first to claim one."""
        with self.lock:
            if any(self._is_foreign(event) for event in events):
                self.flush()
            return self._write(events)

    def claim(self, make: Callable[[], _Claiming]) -> _Claiming:
        """Append what `make` makes of what is known, and again as long as another worker is the first to claim it."""
        refused = None
        while True:
            event = make()
            if claim(event) == refused:  # though all that others wrote is known
                raise StorageError(f"the log refuses {refused!r}, which no event of it has: it is damaged")
            written = self.append(event)
            self.follow()
            if written:
                return event
            refused = claim(event)

    def _write(self, events: Sequence[Event]) -> bool:
        if os.getpid() != self._process:
            raise UsageError("this study was made in another process; after a fork, open a Study of its own")
        length = write(self.log, events)
        if length == self.position + len(events):  # nobody else wrote: no need to read it back
            self._replay(events)
        else:
            self._behind = True
        return length is not None

    def read(self, since: int, most: int | None = None) -> Sequence[Event]:
        """The events from a position on, or the first few of them."""
        return read(self.log, since, most)

    def catch_up(self) -> None:
        """Replay what was written since, by this process or by others."""
        with self.lock:
            events = self.read(self.position)
            if any(self._is_foreign(event) for event in events) and self.flush():
                events = self.read(self.position)
            self._replay(events)
            self._behind = False

    def follow(self) -> None:
        """Replay what the last append left unread, if others wrote too."""
        if self._behind:
            self.catch_up()

    def pulse(self) -> None:
        """Renew leases; while trials run, write rows that have waited and read what others wrote.

        In virtual time nothing waits.
        """
        self.roster.renew()
        idle = not self._batches and not self.roster.further
        if idle or not isinstance(self.clock, WallClock) or not self.lock.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            now = self.clock.ns()
            self._drain([batch for batch in self._batches.values() if now - batch.drained_ns > WAIT_NS])
        finally:
            self.lock.release()
        if self.read(self.position, most=1):
            self.catch_up()

    def _replay(self, events: Sequence[Event]) -> None:
        for event in events:
            with fitting(event):
                self.ledger.replay(event)
            self.position += 1
            if self._is_foreign(event):
                self.referee.replay(event)
                self.referee.seen = self.position
            self.roster.publish(self.position, event)

    def _is_foreign(self, event: Event) -> TypeGuard[Reported | Told]:
        return isinstance(event, Reported | Told) and event.worker != self.referee.worker


def read(log: Log, since: int, most: int | None = None) -> Sequence[Event]:
    """What a log holds from a position on; what a storage raises becomes one sentence."""
    try:
        return log.read(since, most)
    except FairwayError:
        raise
    except Exception as error:
        raise StorageError(f"the log could not be read ({error})") from error


def write(log: Log, events: Sequence[Event]) -> int | None:
    """Append to a log, as `Log.append` says; what a storage raises becomes one sentence."""
    try:
        return log.append(events)
    except FairwayError:
        raise
    except Exception as error:
        raise StorageError(f"the log could not be written ({error}); what was told before is safe") from error
