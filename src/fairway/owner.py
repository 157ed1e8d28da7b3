"""One process owns a study's run: it samples, writes the log, folds it, and ends trials.

What it knows is a fold of the log (`Ledger`, `Referee`), plus the trials it is running. Several owners may share a log:
each takes a number as a worker, claims trials one by one, and folds in what the others write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from fairway.clock import Clock, WallClock
from fairway.errors import FairwayError, StorageError, UsageError
from fairway.events import Asked, Ended, Event, Opened, Reported, Status, Told
from fairway.identity import Identity
from fairway.ledger import Ledger
from fairway.problem import Problem
from fairway.referee import Referee
from fairway.samplers.sampler import Sampler
from fairway.seeds import fresh_seed, stream, trial_seed
from fairway.space import Space, Value
from fairway.stoppers.stopper import Stopper
from fairway.storage.log import Log
from fairway.trial import Trial

logger = logging.getLogger("fairway")


class Owner:
    """The writer of a study's log in this process."""

    def __init__(
        self, space: Space, problem: Problem, sampler: Sampler, stopper: Stopper, *, log: Log, seed: int | None
    ) -> None:
        self.space, self.problem, self.sampler, self.stopper = space, problem, sampler, stopper
        self.log = log
        self.seed = self._agree(seed)
        self.clock: Clock = WallClock()
        self.ledger = Ledger(space, problem)
        self.referee = Referee(problem, stopper, worker=-1)
        self._lock = self.referee.lock
        self.running: dict[int, Trial] = {}
        self._position = 0  # of the log, folded so far
        self._join()
        logger.info("study with seed %d, %s, %s", self.seed, sampler, stopper)

    def finish(self, trial: Trial) -> None:
        """End a trial that has reported all it will."""
        late = trial._look_back()
        if late is not None:
            trial._settle(*late)
        if trial._failure:
            self.close(trial, "failed", trial._failure)
        elif not trial._last:
            if not trial._cut:
                objective = self.problem.objective.metric
                raise UsageError(
                    f"trial {trial.number} reported nothing: tell(trial, {objective}=...) or tell(trial, failed='why')"
                )
            self.close(trial, "failed", trial._cut)
        elif trial.stopped:
            self.close(trial, "stopped", trial._verdict or trial._cut)
        else:
            self.close(trial, "completed", "")

    def ask(self, propose: Callable[[int], Mapping[str, Value]] | None = None) -> Trial:
        """Begin the next trial with what waits in the queue, or else with what is proposed for its number."""
        propose = propose or self._propose
        with self._lock:
            self.catch_up()
            self._give_up_lost()
            while True:
                number, queue = len(self.ledger.courses), self.ledger.queue
                params = self.space.check(queue[0] if queue else propose(number))
                asked = Asked(number, params, self.clock.at(), self.referee.worker, queued=bool(queue))
                if self.append(asked):
                    break
                self.catch_up()
            trial = Trial(
                number,
                dict(params),
                seed=trial_seed(self.seed, number),
                referee=self.referee,
                send=self.append,
                clock=self.clock,
            )
            self.running[number] = trial
            return trial

    def _propose(self, number: int) -> Mapping[str, Value]:
        return self.space.decode(self.sampler.propose(self.ledger.history(), stream(self.seed, number, "sampler")))

    def _give_up_lost(self) -> None:
        """Fail the running trials of workers that are gone."""
        others = {course.worker for course in self.ledger.running.values()} - {self.referee.worker}
        gone = self.log.lost(others) if others else set()
        if gone:
            for number in [n for n, course in self.ledger.running.items() if course.worker in gone]:
                self._tell(number, "failed", "lost its worker")

    def end(self, reason: str) -> None:
        """Note why a run ended."""
        self.append(Ended(reason, self.clock.at()))
        logger.info("ended: %s", reason)

    def close(self, trial: Trial, status: Status, reason: str) -> None:
        """Write that a trial ended, and only then forget it: a write that fails may be tried again."""
        with self._lock:
            self.catch_up()
            written = self._tell(trial.number, status, reason, trial)
            course = self.ledger.courses[trial.number]
            trial._status = course.status
        if not written:
            why = course.reason
            raise UsageError(f"trial {trial.number} was ended by another worker ({why}); its tell comes late")

    def _tell(self, number: int, status: Status, reason: str, trial: Trial | None = None) -> bool:
        """Write that a trial ended, with its last reports if it is ours; False if another worker was first."""
        batch = None if trial is None else trial._batch()
        steps, train_ns, check_ns = self.ledger.totals(number, batch)
        told = Told(
            number=number,
            status=status,
            reason=reason,
            at=self.clock.at(),
            worker=self.referee.worker,
            act=self.referee.acts + 1,
            checkpoint=self.ledger.standing(number, batch),
            steps=steps,
            train_ns=train_ns,
            check_ns=check_ns,
            notes={} if trial is None else trial._notes,
        )
        written = self.append(told) if batch is None else self.append(batch, told)
        if trial is not None:
            del self.running[number]  # before anything is folded: its reports are in the log, or too late for it
        if written:
            self.referee.finish(number, completed=status == "completed")
            logger.debug("trial %d %s: %s", number, status, reason)
        if number in self.ledger.running:  # others wrote too, so it is not folded in yet
            self.catch_up()
        return written

    def _agree(self, seed: int | None) -> int:
        """Make sure that the log, if it holds a study, holds this one; the seed, its own if none was given."""
        first = next(iter(self._read(0)), None)
        stored = first.config if isinstance(first, Opened) else {}
        if stored:
            Identity(self.space, self.problem, 0, self.sampler, self.stopper).refuse_another(stored)
        if seed is not None and stored.get("seed", seed) != seed:
            raise UsageError(f"the study in this storage has seed {stored['seed']}; leave seed out, or give that one")
        return int(stored.get("seed", fresh_seed() if seed is None else seed))

    def _join(self) -> None:
        """Take a number as a worker of this study."""
        identity = Identity(self.space, self.problem, self.seed, self.sampler, self.stopper).to_json()
        while True:
            self.catch_up()
            worker = self.ledger.workers
            if self.append(Opened(worker, identity)):
                break
        self.referee.worker = worker
        self.log.attend(worker)

    def append(self, *events: Event) -> bool:
        """Write to the log and fold it; False, with nothing written, if another worker was first to claim it."""
        with self._lock:
            try:
                length = self.log.append(events)
            except FairwayError:
                raise
            except Exception as error:
                raise StorageError(f"the log could not be written ({error}); what was told before is safe") from error
            if length == self._position + len(events):  # nobody else wrote: no need to read it back
                self._fold(events)
            return length is not None

    def _read(self, since: int) -> Sequence[Event]:
        try:
            return self.log.read(since)
        except FairwayError:
            raise
        except Exception as error:
            raise StorageError(f"the log could not be read ({error})") from error

    def catch_up(self) -> None:
        """Fold in what was written since, by this study or by others."""
        events = self._read(self._position)
        if any(self._is_foreign(event) for event in events):
            self.flush()  # with what had been seen when those reports were ruled on
            events = self._read(self._position)
        self._fold(events)

    def _fold(self, events: Sequence[Event]) -> None:
        for event in events:
            self.ledger.fold(event)
            self._position += 1
            if self._is_foreign(event):
                self.referee.fold(event)
                self.referee.seen = self._position

    def flush(self) -> None:
        """Send what running trials have reported to the log."""
        for trial in self.running.values():
            trial._flush()

    def _is_foreign(self, event: Event) -> TypeGuard[Reported | Told]:
        return isinstance(event, Reported | Told) and event.worker != self.referee.worker
