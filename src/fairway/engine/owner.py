"""One process owns a study's run: it begins trials, ends them, and has the search judged.

What it knows is replayed from the log by its `Journal`. Several owners may share a log: each takes a number as a
worker, claims trials one by one, and learns what the others write. An owner may take numbers for further workers,
processes that it runs trials in: it writes for them, and passes on what they have not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fairway.engine import snapshot
from fairway.engine.aims import next_aim
from fairway.engine.carried import Source, histories
from fairway.engine.clock import Clock
from fairway.engine.driver import Driver
from fairway.engine.ends import End, complete
from fairway.engine.events import (
    Asked,
    Ended,
    Enqueued,
    Event,
    Noted,
    Reported,
    Revived,
    Status,
    Told,
)
from fairway.engine.founding import open_study
from fairway.engine.identity import Identity, plain
from fairway.engine.journal import Journal
from fairway.engine.keep import Keep, ancestors, got_further, resumable
from fairway.engine.keeper import Keeper
from fairway.engine.ledger import Ledger
from fairway.engine.limits import last_limits
from fairway.engine.log import Log
from fairway.engine.outage import PATIENCE
from fairway.engine.record import Best, at_checkpoint
from fairway.engine.referee import Referee
from fairway.engine.remeasurement import may_fall
from fairway.engine.sums import Outcome
from fairway.engine.trial import Trial
from fairway.engine.verdicts import Verdicts
from fairway.errors import StorageError, StudyComplete, UsageError
from fairway.feasibility import Checkpoint
from fairway.history import History
from fairway.logs import logger
from fairway.parameters import Value
from fairway.problem import Constraint, Problem
from fairway.samplers.sampler import with_given
from fairway.seeds import stream, trial_seed
from fairway.text import counted

Propose: TypeAlias = Callable[[int, Mapping[str, Value], Mapping[str, float]], Mapping[str, Value]]
"""Makes a configuration of a trial's number, the parameters that it must have, and the limits that it aims at."""

_LONG = 3000  # events that take a moment to replay: a thousand trials


class Owner:
    """What asks, tells and judges for a study in this process."""

    def __init__(
        self,
        identity: Identity,
        log: Log,
        *,
        patience: float = PATIENCE,
        start_from: Callable[[], Sequence[Source]] | None = None,
        keep: Keep | None = None,
    ) -> None:
        assert identity.sampler is not None
        assert identity.stopper is not None
        self.space = identity.space
        self.seed, founded, stored = open_study(identity, log, start_from)
        self._identity = replace(identity, seed=self.seed)
        falls = may_fall(identity.problem, stored)
        self.referee = Referee(identity.problem, identity.stopper, worker=-1, may_fall=falls)
        self.ledger, self._snapshot_at = snapshot.restore(log, self.space, identity.problem, self.seed, self.referee)
        if identity.has_other_limits(stored["constraints"]):
            self._refuse_other_limits(log, stored)
        self.journal = Journal(log, self.ledger, self.referee, patience=patience)
        self.journal.position = self._snapshot_at  # the rest is replayed
        self.lock = self.journal.lock
        self.verdicts = Verdicts(identity.terminator, self.journal)
        self.keeper = Keeper(self.journal, keep or Keep(), getattr(log, "file", None))
        self.running: dict[int, Trial] = {}  # in this process
        self.ends: dict[int, End] = {}  # that could not be written, by trial; the next ask writes them
        self._sampler = identity.sampler
        self._earlier: tuple[Problem, tuple[History, ...]] | None = None  # what it started from, once somebody looked
        self._asking = threading.Lock()  # one proposal at a time, while reports continue
        self.journal.catch_up()
        if self.ledger.limits.changes:
            identity.refuse_other_limits(plain(self.ledger.limits.now.in_force), changed=True)
        self.referee.worker = self.journal.join(self.identity.to_json(), founded=founded)
        logger.info("study with seed %d: %s", self.seed, identity)
        self._keep_snapshot(at_least=_LONG)

    @property
    def clock(self) -> Clock:
        """Where its time comes from; a simulation sets its own."""
        return self.journal.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.journal.clock = clock

    def _refuse_other_limits(self, log: Log, stored: Mapping[str, Any]) -> None:
        """Refuse constraints that the study neither began with nor has now; before anything is replayed by them."""
        changed = last_limits([*self.ledger.limits.changes, *log.summary(self._snapshot_at)[0]])
        found = stored["constraints"] if changed is None else plain(changed.in_force)
        self._identity.refuse_other_limits(found, changed=changed is not None)

    # What is known

    @property
    def problem(self) -> Problem:
        """The objective, and the constraints that hold now."""
        return self.referee.problem

    @property
    def identity(self) -> Identity:
        """What the study is, with the constraints that hold now."""
        return replace(self._identity, problem=self.problem)

    @property
    def best(self) -> Best | None:
        """The best feasible checkpoint, or None while nothing feasible was measured."""
        incumbent = self.referee.incumbent
        if incumbent is None:
            return None
        objective = self.problem.objective.sign * incumbent.loss
        checkpoint = Checkpoint(incumbent.step, objective, incumbent.values, errors=incumbent.errors)
        return self.named(incumbent.number, checkpoint)

    def still(self) -> Ledger:
        """What the log says at this moment, while other threads go on."""
        with self.lock:
            return self.ledger.still()

    def named(self, number: int, checkpoint: Checkpoint) -> Best:
        """A checkpoint of a trial, with its parameters and metrics by name."""
        found = at_checkpoint(self.problem, number, self.ledger.courses[number].params, checkpoint)
        return found._replace(checkpoint=self.keeper.path(number, checkpoint.step))

    def seed_of(self, number: int) -> int:
        """The seed of a trial's own training code; one that continues another has that one's."""
        return trial_seed(self.seed, [number, *ancestors(self.ledger, number)][-1])

    def history(self, given: Mapping[str, Value] | None = None, aim: Mapping[str, float] | None = None) -> History:
        """A snapshot for samplers and terminators, with the parameters that the next configuration must have.

        With an `aim`, even an empty one, tracked metrics have those limits, or are left out.
        """
        with self.lock:
            history = self.ledger.history()
            if self._sampler.sees_running(history):
                reports = [event for event in self.journal.unwritten if isinstance(event, Reported)]
                history = replace(history, running=self.ledger.running_history(reports))
            if self._earlier is None or self._earlier[0] is not self.problem:
                self._earlier = self.problem, histories(self.ledger.carried, self.space, self.problem)
            earlier = self._earlier[1]
        if given or earlier:
            point = self.space.encode_some(given) if given else None
            history = replace(history, given=point, earlier=earlier)
        return history if aim is None else history.aimed(aim)

    def enqueue(self, params: Mapping[str, Value]) -> None:
        """Have a configuration run before the sampler is asked again, or a part of one, which the sampler completes."""
        given = self.space.check_some(params)
        if not self.space.is_whole(given):
            with_given(self.history(given))  # which raises if there is none
        self.journal.append(Enqueued(given))

    @property
    def counts(self) -> dict[Status, int]:
        """How many trials are running, completed, stopped and failed."""
        return self.ledger.by_status

    # Asking

    def ask(self, propose: Propose | None = None, *, total: int | None = None) -> Trial:
        """Begin the next trial, in this process."""
        asked = self.assign(self.referee.worker, propose, total=total)
        driver = Driver(asked.number, self.referee, self.clock, drain=self.journal.drain)
        driver.on_note, driver.saver = partial(self.note, asked.number), self.keeper.saver(asked.number)
        trial = Trial(asked.number, dict(asked.params), seed=self.seed_of(asked.number), driver=driver)
        with self.lock:
            self.running[asked.number] = trial
            self.journal.open(driver.batch)
        return trial

    def assign(self, worker: int, propose: Propose | None = None, *, total: int | None = None) -> Asked:
        """Give a worker the next trial: what is proposed for its number, from what waits in the queue if anything does.

        `propose` gets the number and the parameters that wait, which may be a part of a configuration, or none. If the
        study has `total` trials already, whoever ran them, this raises `StudyComplete`.
        """
        propose = propose or self._propose
        with self._asking:
            self.journal.catch_up()
            with self.journal.turn():  # or else another thread is in the middle of writing one
                for end in list(self.ends.values()):
                    end.write()
            self._give_up_lost()
            return self.journal.claim(partial(self._next, worker, propose, total))

    def _next(self, worker: int, propose: Propose, total: int | None) -> Asked:
        """The next trial, as far as is known."""
        with self.lock:
            if total is not None and not self.ledger.has_room(total):
                raise StudyComplete(f"the study has {counted(self.ledger.different_trials, 'trial')}")
            number, waiting = len(self.ledger.courses), next(iter(self.ledger.queue), None)
            history = self.ledger.history() if self.problem.tracked else None
        aim = {} if history is None else next_aim(history, stream(self.seed, number, "aim"))
        params = self.space.check(propose(number, {} if waiting is None else waiting.params, aim))
        return Asked(number, params, self.clock.at(), worker, queued=waiting is not None, aim=aim)

    def _propose(self, number: int, given: Mapping[str, Value], aim: Mapping[str, float]) -> Mapping[str, Value]:
        """What waits in the queue, completed by the sampler where it is a part of a configuration; or a proposal."""
        if given and self.space.is_whole(given):
            return given
        x = self._sampler.next_point(self.history(given, aim), stream(self.seed, number, "sampler"))
        # Inactive parameters are NaN, and decode leaves them out. What is given stays as it is, to the last digit.
        return {**self.space.decode(np.where(np.isnan(x), 0.5, x)), **given}

    # Telling

    def close(self, trial: Trial, status: Status, reason: str, traceback: str = "", *, paused: bool = False) -> bool:
        """Write that a trial of this process ended, and only then forget it: a write that fails is kept in `ends`.

        `traceback` says where it raised; one that is `paused` continues later from its last checkpoint, if it has one.
        False if somebody else ended it before.
        """
        driver, number = trial.driver, trial.number
        with self.journal.turn():
            if self.running.get(number) is not trial:
                raise UsageError(f"trial {number} was told already ({trial.status}); a trial is told once")
            write = partial(self.close, trial, status, reason, traceback, paused=paused)
            end = self.ends.setdefault(number, End(status, reason, write, driver.notes, traceback=traceback))
            self.journal.follow()  # what others wrote since, the append will tell
            if paused and resumable(self.ledger, number):
                end.then = self._again(number, lost=0)
            end.rows = driver.batch.event()
            self.journal.close(number)  # its rows go with its end
            try:
                written = self._settle(number, end, partial(self._tell, number, end))
            except BaseException:
                if number in self.running:
                    self.journal.open(driver.batch)
                    end.rows = None
                raise
            driver.status = self.ledger.courses[number].status
        self.keeper.tidy()
        return written and driver.status == status

    def tell_for(self, told: Told, rows: Reported | None) -> bool:
        """Write that a further worker's trial ended, with its last reports; False if somebody else was first."""
        with self.journal.turn():
            write = partial(self.tell_for, told, rows)
            outcome = Outcome.of(told)
            end = self.ends[told.number] = End(told.status, told.reason, write, rows=rows, outcome=outcome)
            self.journal.follow()
            written = self._settle(told.number, end, lambda: self._write(outcome, end.rows))
        self.keeper.tidy()
        return written

    def _settle(self, number: int, end: End, write: Callable[[], bool]) -> bool:
        """Have an end written, unless it is in the log, and forget its trial; False if somebody else's is there."""
        written = self._has_ended(number) or write()
        del self.ends[number]
        self.running.pop(number, None)
        self.journal.follow()
        if not written:  # given up at this moment, and perhaps to be revived
            end.rows = None
            written = write()
            self.journal.follow()
        self._keep_snapshot(at_least=10 * _LONG + self._snapshot_at // 2)
        return written

    @property
    def unwritten(self) -> list[Event]:
        """What this process knows and the log does not hold: reports, and the ends of trials."""
        with self.lock:
            open_ends = [(number, end) for number, end in self.ends.items() if number in self.ledger.running]
            ends = [
                (end.outcome or self._outcome(number, end, act), end.rows)
                for act, (number, end) in enumerate(open_ends, self.referee.acts + 1)
            ]
            return complete(self.ledger, self.journal.unwritten, ends)

    def _has_ended(self, number: int) -> bool:
        """Whether the end of a trial is in the log by its own worker: written, though the write seemed to fail."""
        return number not in self.ledger.running and self.ledger.queue.lost_course(number) is None

    def give_up(self, number: int, reason: str, *, retry: int, paused: bool = False) -> bool:
        """Fail a trial whose worker is gone; whether it is put back in the queue, as it is up to `retry` times.

        One that got further than those it continues, and saved that, is put back however often they were lost. So is
        one that is `paused`, if there is a checkpoint to continue from.
        """
        with self.journal.turn():
            self.journal.follow()
            course = self.ledger.running.get(number)
            if course is None or number in self.ends:
                return False
            again = course.times_lost < retry or retry > 0 and got_further(self.ledger, number)
            again = again or paused and bool(resumable(self.ledger, number))
            then = self._again(number, lost=0 if paused else 1) if again else ()
            written = self._tell(number, End("failed", reason, lambda: None, then=then))
            self.journal.follow()
        return written and again

    def _again(self, number: int, *, lost: int) -> list[Enqueued]:
        """The configuration of a trial, to be tried again, from its last checkpoint if it has one."""
        course = self.ledger.courses[number]
        continues = number if resumable(self.ledger, number) else None
        return [Enqueued(course.params, course.times_lost + lost, continues)]

    def lost(self, workers: Iterable[int]) -> set[int]:
        """Which of some workers are gone; those of this process never are."""
        with self.journal.turn():
            others = {*workers} - {self.referee.worker, *self.journal.roster.further}
            return self.journal.outage.insist(partial(self.journal.roster.lost, others))

    def _give_up_lost(self) -> None:
        """Fail the running trials of others' workers that are gone."""
        with self.journal.turn():
            gone = self.lost(course.worker for course in self.ledger.running.values())
            for number in [n for n, course in self.ledger.running.items() if course.worker in gone]:
                self.give_up(number, "lost its worker", retry=1)

    def _keep_snapshot(self, *, at_least: int) -> None:
        """Keep a snapshot beside the log, if so many events were written since the last one."""
        if self.journal.position - self._snapshot_at < at_least:
            return
        with self.lock:
            try:
                self.journal.flush()  # what the referee ruled on must be in the log
                self.journal.catch_up()
                if self.unwritten:
                    return
                self._snapshot_at = self.journal.position
                snapshot.keep(self.journal.log, self._snapshot_at, self.ledger, self.referee)
            except StorageError as error:
                logger.debug("no snapshot was kept: %s", error)  # the log has it all

    def _tell(self, number: int, end: End) -> bool:
        """Write that a trial ended, by an act of this process; False if another worker was first.

        While this waits for the log, and after it fails, others rule: the act is done by then, and theirs come after.
        """
        outcome = end.outcome or self._outcome(number, end, self.referee.acts + 1)

        def finish() -> None:
            end.outcome = outcome
            if outcome.act > self.referee.acts:
                self.referee.finish(number, completed=end.status == "completed")

        try:
            written = self._write(outcome, end.rows, end.then, meanwhile=finish)
        except BaseException:
            finish()
            raise
        if written:
            finish()
            logger.debug("trial %d %s: %s", number, end.status, end.reason)
        return written

    def _outcome(self, number: int, end: End, act: int) -> Outcome:
        by = self.clock.at(), self.referee.worker, act
        return Outcome(number, end.status, end.reason, *by, notes=end.notes, traceback=end.traceback)

    def _write(
        self,
        outcome: Outcome,
        rows: Reported | None,
        then: Sequence[Event] = (),
        meanwhile: Callable[[], object] | None = None,
    ) -> bool:
        """Write a trial's end with the sums of its reports, and the last of them before it.

        One that was given up, and has not run again since, is revived first.
        """
        kept: list[Event] = [] if rows is None else [rows]
        before, told = [], self.ledger.summed(outcome, rows)
        if self.ledger.queue.may_revive(told):
            told, before = replace(told, revived=True), [Revived(told.number, told.worker, told.at)]
        written = self.journal.append(*before, *kept, told, *then, meanwhile=meanwhile)
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
        patience = self.journal.outage.patience
        return Owner(self.identity, self.journal.log, patience=patience, keep=self.keeper.keep)

    # The study as a whole

    def set_limit(self, added: Sequence[Constraint], limits: Mapping[str, float | None]) -> None:
        """Change limits; from here on everything is judged by the new ones."""
        self.journal.catch_up()
        while event := self.ledger.limits.change(limits, added, at=self.clock.at()):
            if self.write(event):
                logger.info("limits changed: %s", ", ".join(map(str, self.problem.constraints)))
                break
        self._keep_snapshot(at_least=1 if self.journal.position > _LONG else _LONG)  # so readers need not judge all

    def write(self, *events: Event) -> bool:
        """Write events and read what others wrote before them; False if another process was first to claim one."""
        written = self.journal.append(*events)
        self.journal.catch_up()
        return written

    def note(self, number: int | None, notes: Mapping[str, Any]) -> None:
        """Keep something that was learned later: of a trial that has ended, or of the study."""
        self.journal.append(Noted(number, notes, self.clock.at()))

    def end(self, reason: str) -> None:
        """Write why a run ended."""
        self.keeper.tidy()
        self.journal.append(Ended(reason, self.clock.at()))
        self._keep_snapshot(at_least=_LONG)
        logger.info("ended: %s", reason)
