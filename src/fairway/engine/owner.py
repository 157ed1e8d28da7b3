"""One process owns a study's run: it begins trials, ends them, and has the search judged.

What it knows is replayed from the log by its `Journal`. Several owners may share a log: each takes a number as a
worker, claims trials one by one, and learns what the others write. An owner may take numbers for further workers,
processes that it runs trials in: it writes for them, and passes on what they have not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fairway.engine.clock import Clock
from fairway.engine.driver import Driver
from fairway.engine.ends import End, complete
from fairway.engine.events import Asked, Ended, Enqueued, Event, Judged, Noted, Opened, Reported, Revived, Status, Told
from fairway.engine.identity import Identity
from fairway.engine.journal import Journal, read, write
from fairway.engine.log import Log
from fairway.engine.outage import PATIENCE
from fairway.engine.record import Best, named_errors
from fairway.engine.referee import Referee
from fairway.engine.snapshot import keep, restore
from fairway.engine.trial import Trial
from fairway.errors import StorageError, UsageError
from fairway.feasibility import Checkpoint
from fairway.history import History
from fairway.logs import logger
from fairway.parameters import Value
from fairway.seeds import fresh_seed, stream, trial_seed
from fairway.terminators.terminator import Verdict

_LONG = 3000  # events that take a moment to replay: a thousand trials


class Owner:
    """What asks, tells and judges for a study in this process."""

    def __init__(self, identity: Identity, log: Log, *, patience: float = PATIENCE) -> None:
        assert identity.sampler is not None
        assert identity.stopper is not None
        self.space, self.problem = identity.space, identity.problem
        self.seed, founded = _open(identity, log)
        self.identity = replace(identity, seed=self.seed)
        self.referee = Referee(self.problem, identity.stopper, worker=-1)
        self.ledger, self._kept = restore(log, self.space, self.problem, self.seed, self.referee)
        self.journal = Journal(log, self.ledger, self.referee, patience=patience)
        self.journal.position = self._kept  # the rest is replayed
        self.lock = self.journal.lock
        self.running: dict[int, Trial] = {}  # in this process
        self.ends: dict[int, End] = {}  # that could not be written, by trial; the next ask writes them
        self._sampler = identity.sampler
        self._asking = threading.Lock()  # one proposal at a time, while reports continue
        self._judging = threading.Lock()  # one verdict at a time
        self.referee.worker = self.journal.join(self.identity.to_json(), founded=founded)
        logger.info("study with seed %d: %s", self.seed, identity)
        self._keep(at_least=_LONG)

    @property
    def clock(self) -> Clock:
        """Where its time comes from; a simulation sets its own."""
        return self.journal.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.journal.clock = clock

    # What is known

    @property
    def best(self) -> Best | None:
        """The best feasible checkpoint, or None while nothing feasible was measured."""
        incumbent = self.referee.incumbent
        if incumbent is None:
            return None
        objective = self.problem.objective.sign * incumbent.loss
        checkpoint = Checkpoint(incumbent.step, objective, incumbent.values, errors=incumbent.errors)
        return self.named(incumbent.number, checkpoint)

    def named(self, number: int, checkpoint: Checkpoint) -> Best:
        """A checkpoint of a trial, with its parameters and metrics by name."""
        metrics = dict(zip(self.problem.metrics, (checkpoint.objective, *checkpoint.values), strict=True))
        params, errors = dict(self.ledger.courses[number].params), named_errors(self.problem, checkpoint)
        return Best(number, checkpoint.step, params, metrics, errors)

    def history(self) -> History:
        """A snapshot for samplers and terminators."""
        with self.lock:
            return self.ledger.history()

    @property
    def counts(self) -> dict[Status, int]:
        """How many trials are running, completed, stopped and failed."""
        return {"running": len(self.ledger.running), **self.ledger.counts}

    # Asking

    def ask(self, propose: Callable[[int], Mapping[str, Value]] | None = None) -> Trial:
        """Begin the next trial, in this process."""
        asked = self.assign(self.referee.worker, propose)
        driver = Driver(asked.number, self.referee, self.clock, drain=self.journal.drain)
        driver.on_note = partial(self.note, asked.number)
        trial = Trial(asked.number, dict(asked.params), seed=trial_seed(self.seed, asked.number), driver=driver)
        with self.lock:
            self.running[asked.number] = trial
            self.journal.open(driver.batch)
        return trial

    def assign(self, worker: int, propose: Callable[[int], Mapping[str, Value]] | None = None) -> Asked:
        """Give a worker the next trial: what waits in the queue, or else what is proposed for its number."""
        propose = propose or self._propose
        with self._asking:
            self.journal.catch_up()
            for end in list(self.ends.values()):
                end.write()
            self._give_up_lost()
            return self.journal.claim(partial(self._next, worker, propose))

    def _next(self, worker: int, propose: Callable[[int], Mapping[str, Value]]) -> Asked:
        """The next trial, as far as is known."""
        with self.lock:
            number, waiting = len(self.ledger.courses), next(iter(self.ledger.queue), None)
        params = self.space.check(propose(number) if waiting is None else waiting.params)
        return Asked(number, params, self.clock.at(), worker, queued=waiting is not None)

    def _propose(self, number: int) -> Mapping[str, Value]:
        x = self._sampler.next_point(self.history(), stream(self.seed, number, "sampler"))
        return self.space.decode(np.nan_to_num(x, nan=0.5))  # inactive parameters are NaN, and decode leaves them out

    # Telling

    def close(self, trial: Trial, status: Status, reason: str, traceback: str = "") -> bool:
        """Write that a trial of this process ended, and only then forget it: a write that fails is kept in `ends`.

        `traceback` says where it raised. False if somebody else ended it before.
        """
        driver, number = trial.driver, trial.number
        with self.journal.turn():
            if self.running.get(number) is not trial:
                raise UsageError(f"trial {number} was told already ({trial.status}); a trial is told once")
            write = partial(self.close, trial, status, reason, traceback)
            end = End(status, reason, write, driver.notes, traceback=traceback)
            end = self.ends.setdefault(number, end)
            self.journal.catch_up()
            written = self._has_ended(number)
            if not written:
                end.rows = driver.batch.event()
                self.journal.close(number)
                try:
                    written = self._tell(number, end)
                except BaseException:
                    self.journal.open(driver.batch)
                    end.rows = None
                    raise
            del self.running[number], self.ends[number]
            self.journal.close(number)
            self.journal.follow()
            if not written:  # given up at this moment, and perhaps to be revived
                end.rows = None
                written = self._tell(number, end)
                self.journal.follow()
            driver.status = self.ledger.courses[number].status
            self._keep(at_least=10 * _LONG + self._kept // 2)
        return written and driver.status == status

    def tell_for(self, told: Told, rows: Reported | None) -> bool:
        """Write that a further worker's trial ended, with its last reports; False if somebody else was first."""
        with self.journal.turn():
            write = partial(self.tell_for, told, rows)
            self.ends[told.number] = End(told.status, told.reason, write, rows=rows, told=told)
            self.journal.follow()
            written = self._has_ended(told.number) or self._write(told, rows)
            del self.ends[told.number]
            self.journal.follow()
            if not written:
                written = self._write(told, None)
                self.journal.follow()
            self._keep(at_least=10 * _LONG + self._kept // 2)
        return written

    @property
    def unwritten(self) -> list[Event]:
        """What this process knows and the log does not hold: reports, and the ends of trials."""
        with self.lock:
            open_ends = [(number, end) for number, end in self.ends.items() if number in self.ledger.running]
            ends = [
                (end.told or self._told(number, end, act), end.rows)
                for act, (number, end) in enumerate(open_ends, self.referee.acts + 1)
            ]
            return complete(self.ledger, self.journal.unwritten, ends)

    def _has_ended(self, number: int) -> bool:
        """Whether the end of a trial is in the log by its own worker: written, though the write seemed to fail."""
        course = self.ledger.courses[number]
        return course.status != "running" and self.ledger.given_up.course(number) is None

    def give_up(self, number: int, reason: str, *, retry: int) -> bool:
        """Fail a trial whose worker is gone; whether it is put back in the queue, as it is up to `retry` times."""
        with self.journal.turn():
            self.journal.follow()
            course = self.ledger.running.get(number)
            if course is None or number in self.ends:
                return False
            again = course.times_lost < retry
            then = [Enqueued(course.params, course.times_lost + 1)] if again else []
            written = self._tell(number, End("failed", reason, lambda: None), then)
            self.journal.follow()
        return written and again

    def _give_up_lost(self) -> None:
        """Fail the running trials of others' workers that are gone."""
        with self.journal.turn():
            known = {self.referee.worker, *self.journal.roster.further}
            others = {course.worker for course in self.ledger.running.values()} - known
            gone = self.journal.outage.insist(partial(self.journal.roster.lost, others))
            for number in [n for n, course in self.ledger.running.items() if course.worker in gone]:
                self.give_up(number, "lost its worker", retry=1)

    def _keep(self, *, at_least: int) -> None:
        """Keep a snapshot beside the log, if so many events were written since the last one."""
        if self.journal.position - self._kept < at_least:
            return
        with self.lock:
            try:
                self.journal.flush()  # what the referee ruled on must be in the log
                self.journal.catch_up()
                if self.unwritten:
                    return
                self._kept = self.journal.position
                keep(self.journal.log, self._kept, self.ledger, self.referee)
            except StorageError as error:
                logger.debug("no snapshot was kept: %s", error)  # the log has it all

    def _tell(self, number: int, end: End, then: Sequence[Event] = ()) -> bool:
        """Write that a trial ended, by an act of this process; False if another worker was first.

        While this waits for the log, and after it fails, others rule: the act is done by then, and theirs come after.
        """
        told = end.told or self._told(number, end, self.referee.acts + 1)

        def finish() -> None:
            end.told = told
            if told.act > self.referee.acts:
                self.referee.finish(number, completed=end.status == "completed")

        try:
            written = self._write(told, end.rows, then, meanwhile=finish)
        except BaseException:
            finish()
            raise
        if written:
            finish()
            logger.debug("trial %d %s: %s", number, end.status, end.reason)
        return written

    def _told(self, number: int, end: End, act: int) -> Told:
        by = self.clock.at(), self.referee.worker, act
        return Told(number, end.status, end.reason, *by, notes=end.notes, traceback=end.traceback)

    def _write(
        self,
        told: Told,
        rows: Reported | None,
        then: Sequence[Event] = (),
        meanwhile: Callable[[], object] | None = None,
    ) -> bool:
        """Write a trial's end with the sums of its reports, and the last of them before it.

        One that was given up, and has not run again since, is revived first.
        """
        kept: list[Event] = [] if rows is None else [rows]
        before = []
        if self.ledger.given_up.may_revive(told):
            told, before = replace(told, revived=True), [Revived(told.number, told.worker, told.at)]
        summed = self.ledger.summed(told, rows)
        written = self.journal.append(*before, *kept, summed, *then, meanwhile=meanwhile)
        if not written and kept:  # what was ruled on is part of the log all the same
            self.journal.append(*kept)
        return written

    # Further workers

    def enlist(self) -> Referee:
        """Take a number for a further worker; the referee that it starts with."""
        with self.journal.turn():
            worker = self.journal.join(self.identity.to_json())
            self.journal.flush()
            self.journal.catch_up()
            self.journal.roster.add(worker)
            return self.referee.replica(worker, self.journal.position)

    def dismiss(self, worker: int) -> None:
        """Keep no more news for a further worker, and show no more that it lives."""
        with self.lock:
            self.journal.roster.remove(worker)

    def another(self) -> Owner:
        """One more owner of the same study and log."""
        return Owner(self.identity, self.journal.log, patience=self.journal.outage.patience)

    # Judging

    def judge(self) -> Verdict | None:
        """Have the terminator look at what has finished, and write its verdict; None if it is not asked."""
        terminator = self.identity.terminator
        if terminator is None or not self._judging.acquire(blocking=False):
            return None
        try:
            with self.lock:
                history, seen = self.ledger.history(), self.journal.position
                last = next((said for said in reversed(self.ledger.verdicts) if self._is_mine(said)), None)
            if last is not None and len(history) < last.finished + terminator.pause(last.finished):
                return None
            verdict = terminator.check(history.first(len(history)))  # what is running must not matter
            if not isinstance(verdict, Verdict) or not isinstance(verdict.stop, bool | np.bool_):
                raise UsageError(f"{terminator!r} said {verdict!r}: a Verdict(stop, reason, ...) is expected")
            reason = str(verdict.reason) or "the terminator said so"
            verdict = Verdict(bool(verdict.stop), reason, float(verdict.value), float(verdict.threshold))
            self.journal.append(Judged(self.referee.worker, len(history), *verdict, self.clock.at(), seen))
            self.journal.follow()
        finally:
            self._judging.release()
        return verdict

    def verdicts_since(self, first: int) -> list[Judged]:
        """The verdicts of this owner's terminator, also to others that have the same, from a place in the log on."""
        return [said for said in self.ledger.verdicts[first:] if self._is_mine(said)]

    def _is_mine(self, said: Judged) -> bool:
        """Whether a verdict is that of a terminator like this owner's."""
        terminators = self.ledger.terminators
        return bool(terminators.get(said.worker) == terminators[self.referee.worker])

    def note(self, number: int | None, notes: Mapping[str, Any]) -> None:
        """Keep something that was learned later: of a trial that has ended, or of the study."""
        self.journal.append(Noted(number, notes, self.clock.at()))

    def end(self, reason: str) -> None:
        """Write why a run ended."""
        self.journal.append(Ended(reason, self.clock.at()))
        self._keep(at_least=_LONG)
        logger.info("ended: %s", reason)


def _open(identity: Identity, log: Log) -> tuple[int, bool]:
    """The study's seed, and whether this process has opened its log, as worker 0; refuse the log of another study."""
    first = next(iter(read(log, 0, most=1)), None)
    if first is None:
        seed = fresh_seed() if identity.seed is None else identity.seed
        if write(log, [Opened(0, replace(identity, seed=seed).to_json())]) is not None:
            return seed, True
        first = next(iter(read(log, 0, most=1)), None)  # somebody was as quick
    if not isinstance(first, Opened) or type(first.config.get("seed")) is not int:
        raise StorageError("the log does not begin by saying what study it is of: it is damaged")
    identity.refuse_another(first.config)
    seed = first.config["seed"]
    if identity.seed not in (None, seed):
        raise UsageError(f"the study in this storage has seed {seed}; leave seed out, or give that one")
    return seed, False
