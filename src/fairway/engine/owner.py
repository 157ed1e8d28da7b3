"""One process owns a study's run: it samples, writes the log, folds it, ends trials, and has the search judged.

What it knows is a fold of the log (`Ledger`, `Referee`), plus the trials it is running. Several owners may share a log:
each takes a number as a worker, claims trials one by one, and folds in what the others write. An owner may take numbers
for further workers, processes that it runs trials in: it writes for them, and passes on what they have not seen.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from fairway.engine.clock import Clock, WallClock
from fairway.engine.events import Asked, Ended, Enqueued, Event, Judged, Opened, Reported, Status, Told
from fairway.engine.identity import Identity
from fairway.engine.ledger import Ledger
from fairway.engine.referee import Referee
from fairway.engine.trial import Trial
from fairway.errors import FairwayError, StorageError, UsageError
from fairway.seeds import fresh_seed, stream, trial_seed
from fairway.space import Value
from fairway.storage.log import Log
from fairway.terminators.terminator import Verdict

logger = logging.getLogger("fairway")

_WAITS_NS = 800_000_000  # reports that have waited for so long are sent to the log
_PATIENCE_SECONDS = 1.0  # with which the pulse waits for its turn; it comes again
_MOST_NEWS = 65536  # bytes at a time: what any connection that is free takes without waiting


class _Unseen(NamedTuple):
    """An event that some further worker has not seen."""

    position: int  # of the log, once it is folded in
    event: bytes


class Owner:
    """The writer of a study's log in this process."""

    def __init__(self, identity: Identity, log: Log) -> None:
        assert identity.sampler is not None
        assert identity.stopper is not None
        self.space, self.problem = identity.space, identity.problem
        self.log = log
        self._sampler = identity.sampler
        self.seed = self._agree(identity)
        self.identity = replace(identity, seed=self.seed)
        self.clock: Clock = WallClock()
        self.ledger = Ledger(self.space, self.problem, self.seed)
        self.referee = Referee(self.problem, identity.stopper, worker=-1)
        self.running: dict[int, Trial] = {}  # in this process
        self.lock = self.referee.lock  # held while anything known here changes
        self._asking = threading.Lock()  # one proposal at a time, while reports go on
        self._judging = threading.Lock()  # one verdict at a time
        self._news: dict[int, deque[_Unseen]] = {}  # by further worker: the events it has not seen
        self._process = os.getpid()
        self._position = 0  # of the log, folded so far
        self._behind = False  # others wrote before our last append
        self.referee.worker = self._join()
        log.attend(self.referee.worker, self.pulse)
        logger.info("study with seed %d: %s", self.seed, identity)

    # Trials

    def ask(self, propose: Callable[[int], Mapping[str, Value]] | None = None) -> Trial:
        """Begin the next trial, in this process."""
        asked = self.assign(self.referee.worker, propose)
        seed = trial_seed(self.seed, asked.number)
        trial = Trial(
            asked.number, dict(asked.params), seed=seed, referee=self.referee, send=self.append, clock=self.clock
        )
        with self.lock:
            self.running[asked.number] = trial
        return trial

    def assign(self, worker: int, propose: Callable[[int], Mapping[str, Value]] | None = None) -> Asked:
        """Give a worker the next trial: what waits in the queue, or else what is proposed for its number."""
        propose = propose or self._propose
        with self._asking:
            self.catch_up()
            self._give_up_lost()
            while True:
                with self.lock:
                    number, waiting = len(self.ledger.courses), next(iter(self.ledger.queue), None)
                params = self.space.check(propose(number) if waiting is None else waiting.params)
                asked = Asked(number, params, self.clock.at(), worker, queued=waiting is not None)
                taken = self.append(asked)
                self.follow()
                if taken:
                    return asked

    def _propose(self, number: int) -> Mapping[str, Value]:
        with self.lock:
            history = self.ledger.history()
        x = self._sampler.next_point(history, stream(self.seed, number, "sampler"))
        return self.space.decode(np.nan_to_num(x, nan=0.5))

    def close(self, trial: Trial, status: Status, reason: str) -> bool:
        """Write that a trial of this process ended, and only then forget it: a write that fails may be tried again.

        False if somebody else ended it before.
        """
        with self.lock:
            if self.running.get(trial.number) is not trial:
                raise UsageError(f"trial {trial.number} was told already ({trial.status}); a trial is told once")
            self.catch_up()
            written = self._tell(trial.number, status, reason, batch=trial._batch(), notes=trial._notes)
            del self.running[trial.number]  # before anything is folded: its reports are in the log, or too late for it
            self.follow()
            trial._status = self.ledger.courses[trial.number].status
        return written

    def tell_for(self, told: Told, batch: Reported | None) -> bool:
        """Write that a further worker's trial ended, with its last reports; False if somebody else was first."""
        with self.lock:
            written = self._write(told, batch)
            self.follow()
        return written

    def give_up(self, number: int, reason: str, *, retry: int) -> bool:
        """Fail a trial whose worker is gone; whether its configuration is put back, having been lost so often only."""
        with self.lock:
            course = self.ledger.running.get(number)
            if course is None:
                return False
            again = course.losses < retry
            then = [Enqueued(course.params, course.losses + 1)] if again else []
            written = self._tell(number, "failed", reason, then=then)
            self.follow()
        return written and again

    def _give_up_lost(self) -> None:
        """Fail the running trials of others' workers that are gone."""
        with self.lock:
            known = {self.referee.worker, *self._news}
            others = {course.worker for course in self.ledger.running.values()} - known
            gone = self.log.lost(others) if others else set()
            for number in [n for n, course in self.ledger.running.items() if course.worker in gone]:
                self.give_up(number, "lost its worker", retry=1)

    def _tell(
        self,
        number: int,
        status: Status,
        reason: str,
        *,
        batch: Reported | None = None,
        notes: Mapping[str, Any] | None = None,
        then: Sequence[Event] = (),
    ) -> bool:
        """Write that a trial ended, by an act of this process; False if another worker was first."""
        act = self.referee.acts + 1
        told = Told(number, status, reason, self.clock.at(), self.referee.worker, act, notes=notes or {})
        written = self._write(told, batch, then)
        if written:
            self.referee.finish(number, completed=status == "completed")
            logger.debug("trial %d %s: %s", number, status, reason)
        return written

    def _write(self, told: Told, batch: Reported | None, then: Sequence[Event] = ()) -> bool:
        """Write a trial's end with what its reports come to, and the last of them before it."""
        told = self.ledger.summed(told, batch)
        if batch is None:
            return self.append(told, *then)
        written = self.append(batch, told, *then)
        if not written:  # what was ruled on is part of the log all the same
            self.append(batch)
        return written

    def judge(self) -> Verdict | None:
        """Have the terminator look at what has finished, and write down what it says; None if nobody is to be asked."""
        terminator = self.identity.terminator
        if terminator is None or not self._judging.acquire(blocking=False):
            return None
        try:
            with self.lock:
                history = self.ledger.history()
                last = next((said for said in reversed(self.ledger.verdicts) if self._is_mine(said)), None)
            if last is not None and len(history) < last.finished + terminator.pause(last.finished):
                return None
            verdict = terminator.check(history.first(len(history)))  # what is running must not matter
            if not isinstance(verdict, Verdict) or not isinstance(verdict.stop, bool | np.bool_):
                raise UsageError(f"{terminator!r} said {verdict!r}: a Verdict(stop, reason, ...) is expected")
            reason = str(verdict.reason) or "the terminator said so"
            verdict = Verdict(bool(verdict.stop), reason, float(verdict.value), float(verdict.threshold))
            self.append(Judged(self.referee.worker, len(history), *verdict, self.clock.at()))
            self.follow()
        finally:
            self._judging.release()
        return verdict

    def verdicts_since(self, first: int) -> list[Judged]:
        """What this owner's terminator said, to it and to others that have the same, from a place in the log on."""
        return [said for said in self.ledger.verdicts[first:] if self._is_mine(said)]

    def _is_mine(self, said: Judged) -> bool:
        """Whether a verdict is that of a terminator like this owner's."""
        terminators = self.ledger.terminators
        return bool(terminators.get(said.worker) == terminators[self.referee.worker])

    def end(self, reason: str) -> None:
        """Note why a run ended."""
        self.append(Ended(reason, self.clock.at()))
        logger.info("ended: %s", reason)

    # Workers

    def _agree(self, identity: Identity) -> int:
        """Make sure that the log, if it holds a study, holds this one; the seed, its own if none was given."""
        first = next(iter(self._read(0, most=1)), None)
        stored = first.config if isinstance(first, Opened) else {}
        if stored:
            identity.refuse_another(stored)
        seed = identity.seed
        if seed is not None and stored.get("seed", seed) != seed:
            raise UsageError(f"the study in this storage has seed {stored['seed']}; leave seed out, or give that one")
        return int(stored.get("seed", fresh_seed() if seed is None else seed))

    def _join(self) -> int:
        """Take a number as a worker of this study."""
        config = self.identity.to_json()
        while True:
            self.catch_up()
            worker = self.ledger.workers
            if self.append(Opened(worker, config)):
                return worker

    def another(self) -> Owner:
        """One more owner of the same study and log."""
        return Owner(self.identity, self.log)

    def enlist(self) -> Referee:
        """Take a number for a further worker; the referee that it starts with."""
        with self.lock:
            worker = self._join()
            self.log.attend(worker)
            self.flush()
            self.catch_up()
            self._news[worker] = deque()
            return self.referee.replica(worker, self._position)

    def dismiss(self, worker: int) -> None:
        """Keep no more news for a worker, and show no more that it lives."""
        with self.lock:
            self._news.pop(worker, None)
        self.log.leave(worker)

    def has_news(self, worker: int) -> bool:
        """Whether others wrote what a further worker has not seen."""
        return bool(self._news.get(worker))

    def news(self, worker: int) -> tuple[list[bytes], int]:
        """What others wrote that a further worker has not seen, pickled, as much as it can take; and up to where."""
        with self.lock:
            unseen, events, size, position = self._news[worker], [], 0, 0
            while unseen and size < _MOST_NEWS:
                position, event = unseen.popleft()
                events.append(event)
                size += len(event)
            return events, position if unseen else self._position

    # The log

    def append(self, *events: Event) -> bool:
        """Write to the log and fold it; False, with nothing written, if another worker was first to claim it."""
        if os.getpid() != self._process:
            raise UsageError("this study was made in another process; after a fork, open a Study of its own")
        with self.lock:
            if any(self._is_foreign(event) for event in events):
                self.flush()  # with what had been seen when those reports were ruled on
            try:
                length = self.log.append(events)
            except FairwayError:
                raise
            except Exception as error:
                raise StorageError(f"the log could not be written ({error}); what was told before is safe") from error
            if length == self._position + len(events):  # nobody else wrote: no need to read it back
                self._fold(events)
            else:
                self._behind = True
            return length is not None

    def _read(self, since: int, most: int | None = None) -> Sequence[Event]:
        try:
            return self.log.read(since, most)
        except FairwayError:
            raise
        except Exception as error:
            raise StorageError(f"the log could not be read ({error})") from error

    def catch_up(self) -> None:
        """Fold in what was written since, by this process or by others."""
        with self.lock:
            events = self._read(self._position)
            if any(self._is_foreign(event) for event in events) and self.flush():
                events = self._read(self._position)
            self._fold(events)
            self._behind = False

    def follow(self) -> None:
        """Fold in what the last append left unread, if others wrote too."""
        if self._behind:
            self.catch_up()

    def pulse(self) -> None:
        """While trials run: send reports that have waited, learn what others wrote. In virtual time nothing waits."""
        idle = not self.running and not self._news
        if idle or not isinstance(self.clock, WallClock) or not self.lock.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            now = self.clock.ns()
            for trial in self.running.values():
                if now - trial._flushed > _WAITS_NS:
                    trial._flush()
        finally:
            self.lock.release()
        if self._read(self._position, most=1):
            self.catch_up()

    def _fold(self, events: Sequence[Event]) -> None:
        for event in events:
            self.ledger.fold(event)
            self._position += 1
            if self._is_foreign(event):
                self.referee.fold(event)
                self.referee.seen = self._position
            if self._news and isinstance(event, Reported | Told):
                unseen = _Unseen(self._position, pickle.dumps(event))  # once for all
                for worker, others in self._news.items():
                    if worker != event.worker:
                        others.append(unseen)

    def flush(self) -> bool:
        """Send what the trials of this process have reported to the log; whether there was anything."""
        with self.lock:
            sent = [trial._flush() for trial in self.running.values()]
        return any(sent)

    def _is_foreign(self, event: Event) -> TypeGuard[Reported | Told]:
        return isinstance(event, Reported | Told) and event.worker != self.referee.worker
