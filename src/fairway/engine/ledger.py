"""What a log says: what every trial did, the columns for samplers, what waits in the queue, why a run ended."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine.certification import Certification
from fairway.engine.events import (
    SAVED,
    Asked,
    Dropped,
    Ended,
    Enqueued,
    Event,
    Judged,
    Noted,
    Opened,
    Reported,
    Revived,
    Sealed,
    Searched,
    Status,
    Tested,
    Told,
)
from fairway.engine.record import TrialRecord, named_errors
from fairway.engine.revival import GivenUp, Lost
from fairway.engine.soundness import refuse_other_constraints
from fairway.errors import StorageError, UsageError
from fairway.feasibility import Checkpoint
from fairway.history import Columns, History
from fairway.parameters import Value
from fairway.problem import Problem
from fairway.space import Space

_SUMS = (
    "checkpoint",
    "peak",
    "late",
    "steps",
    "last_step",
    "total",
    "interval",
    "train_ns",
    "check_ns",
    "checks",
    "saved",
    "means",
)
"""What the end of a trial says of its reports, by the names that `Told` and `Course` share."""


@dataclass(slots=True)
class Course:
    """One trial as the log tells it."""

    params: Mapping[str, Value]
    worker: int
    x: NDArray[np.float64]
    began: float
    times_lost: int = 0  # trials of this configuration before it, each lost with its worker
    ended: float = math.nan
    status: Status = "running"
    reason: str = ""
    stop_reason: str | None = None  # why the stopper ended it
    checkpoint: Checkpoint | None = None  # the one that stands for the trial
    peak: Checkpoint | None = None  # the one with the best objective, whatever its constraints
    late: Checkpoint | None = None  # the least violating check in the later half of its training
    by_octave: Mapping[int, Checkpoint] = field(default_factory=dict)  # the same among steps 1, 2 to 3, 4 to 7, ...
    means: Mapping[int, float] = field(default_factory=dict)  # the objective after so many folds, with others to come
    notes: Mapping[str, Any] = field(default_factory=dict)
    total: int | None = None
    interval: int | None = None
    last_step: int = 0
    steps: int = 0  # reported
    train_ns: int = 0
    check_ns: int = 0
    checks: int = 0  # constraints paid for
    saved: int = 0  # constraints offered and not called


class Ledger:
    """Everything that a log says, kept up to date event by event."""

    def __init__(self, space: Space, problem: Problem, seed: int = 0) -> None:
        self._space, self._problem, self._seed = space, problem, seed
        self.columns = Columns(space, problem, seed)
        self.workers = 0  # that ever joined
        self.opened: Mapping[str, Any] | None = None  # of what study this is the log
        self.courses: list[Course] = []
        self.running: dict[int, Course] = {}
        self.given_up: GivenUp[Course] = GivenUp()
        self.counts: dict[Status, int] = {"completed": 0, "stopped": 0, "failed": 0}
        self.last_stop = ""
        self.last_failure = ""
        self.terminators: dict[int, Any] = {}  # by worker, as JSON
        self.verdicts: list[Judged] = []
        self.ended: str | None = None
        self.best: tuple[int, Checkpoint] | None = None  # the best feasible checkpoint, and its trial
        self.best_ignoring_limits: tuple[int, Checkpoint] | None = None
        self.train_saved_ns = 0
        self.later: Mapping[int | None, Mapping[str, Any]] = {}  # noted later, by trial; None is the study
        self.searched: list[Searched] = []  # rows that the search saw
        self.certifications: list[Certification] = []
        self.dropped = 0  # events that a repair left out

    @property
    def queue(self) -> deque[Enqueued]:
        """Configurations that wait to be run."""
        return self.given_up.queue

    def still(self) -> Ledger:
        """A snapshot; copies only the running trials."""
        still = copy.copy(self)
        still.courses = list(self.courses)
        still.running = {number: copy.copy(course) for number, course in self.running.items()}
        for number, course in still.running.items():
            still.courses[number] = course
        still.given_up, still.counts, still.verdicts = self.given_up.still(), dict(self.counts), list(self.verdicts)
        still.certifications = [Certification(one.sealed, list(one.tests)) for one in self.certifications]
        still.terminators, still.columns = dict(self.terminators), copy.copy(self.columns)
        return still

    def replay(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, Reported):
            self._reported(event)
        elif isinstance(event, Asked):
            self._asked(event)
        elif isinstance(event, Told):
            self._told(event)
        elif isinstance(event, Revived):
            self._revived(event)
        elif isinstance(event, Opened):
            self.workers = max(self.workers, event.worker + 1)
            self.terminators[event.worker] = event.config.get("terminator")
            self.opened = self.opened or event.config
        elif isinstance(event, Enqueued):
            self.queue.append(event)
        elif isinstance(event, Judged):
            self.verdicts.append(event)
        elif isinstance(event, Ended):
            self.ended = event.reason
        elif isinstance(event, Noted):
            self._noted(event)
        elif isinstance(event, Dropped):
            self._dropped(event)
        elif isinstance(event, Searched):
            self.searched.append(event)
        elif isinstance(event, Sealed):
            if event.certification != len(self.certifications):
                raise StorageError(
                    f"the log seals certification {event.certification}, which is not due: it is damaged"
                )
            self.certifications.append(Certification(event))
        elif isinstance(event, Tested):
            self._tested(event)

    def _noted(self, event: Noted) -> None:
        number = event.number
        self.later = {**self.later, number: {**self.later.get(number, {}), **event.notes}}
        if number is not None and number < len(self.courses):
            course = self.courses[number]
            course.notes = {**course.notes, **event.notes}

    def _dropped(self, event: Dropped) -> None:
        """Keep the number of a trial of which a repair found no beginning; samplers do not see it."""
        self.dropped += 1
        if event.number is None:
            return
        if event.number != len(self.courses):
            raise StorageError(f"the log leaves out trial {event.number}, which is not the next one: it is damaged")
        nowhere = np.full(len(self._space), np.nan)
        self.courses.append(Course({}, 0, nowhere, math.nan, status="failed", reason=event.what))
        self.counts["failed"] += 1

    def _tested(self, event: Tested) -> None:
        if event.certification >= len(self.certifications):
            raise StorageError(f"the log tests for certification {event.certification}, never sealed: it is damaged")
        self.certifications[event.certification].add(event)

    def _asked(self, event: Asked) -> None:
        if event.number != len(self.courses):
            raise StorageError(f"the log asks for trial {event.number} where {len(self.courses)} is due: it is damaged")
        times_lost = self.given_up.take(event).times_lost
        try:
            x = self._space.encode(event.params)
        except UsageError as error:
            raise StorageError(
                f"trial {event.number} of the log does not fit the space ({error}): the log is damaged, or a function "
                "in when= is not the one that the study began with"
            ) from error
        course = Course(event.params, event.worker, x, event.at, times_lost)
        self.courses.append(course)
        self.running[event.number] = course
        self.ended = None

    def _reported(self, event: Reported) -> None:
        if event.number >= len(self.courses):
            raise StorageError(f"the log reports for trial {event.number}, which was never asked for: it is damaged")
        refuse_other_constraints(event, len(self._problem.constraints))
        course = self.running.get(event.number) or self.given_up.course(event.number)
        if course is None:
            return
        for name, value in self._with(course, event).items():
            setattr(course, name, value)
        course.stop_reason = event.stop_reason
        if event.number in self.running:  # otherwise its worker was given up, and did not know it yet
            self._note_best(event.number, course)

    def _note_best(self, number: int, course: Course) -> None:
        """Keep the best feasible checkpoint, and the one with the best objective whatever its constraints."""
        if course.checkpoint is not None and feasibility.known(self._problem, course.checkpoint) == 0.0:
            self.best = min(self.best or (number, course.checkpoint), (number, course.checkpoint), key=self._rank)
        if course.peak is not None:
            both = self.best_ignoring_limits or (number, course.peak), (number, course.peak)
            self.best_ignoring_limits = min(both, key=lambda one: (self._height(one[1])[:2], one[0], one[1].step))

    def _rank(self, one: tuple[int, Checkpoint]) -> tuple[float, int, int]:
        """A key that sorts feasible checkpoints of several trials as the referee does."""
        return self._problem.objective.sign * one[1].objective, one[0], one[1].step

    def _height(self, peak: Checkpoint) -> tuple[float, bool, int]:
        """A key that sorts checkpoints by objective alone; of equal ones a measured one says more, then the earlier."""
        return self._problem.objective.sign * peak.objective, None in peak.values, peak.step

    def _told(self, event: Told) -> None:
        refuse_other_constraints(event, len(self._problem.constraints))
        course = self.running.pop(event.number, None)
        if course is None and event.revived and self.given_up.course(event.number) is not None:
            return  # too late: its configuration ran again
        if course is None:
            raise StorageError(f"the log ends trial {event.number}, which is not running: it is damaged")
        as_it_ran = None if event.worker == course.worker else copy.copy(course)
        course.status, course.reason, course.notes = event.status, event.reason, {**course.notes, **event.notes}
        course.ended = event.at
        older = {"means": course.means, "late": course.late, "last_step": course.last_step}  # in its reports alone
        for name in _SUMS:
            setattr(course, name, getattr(event, name) or older.get(name, getattr(event, name)))
        course.by_octave = {}
        self._note_best(event.number, course)
        self.counts[event.status] += 1
        if event.status == "failed":
            self.last_failure = f"trial {event.number}: {event.reason}"
        by_stopper = event.left > 0 if event.by_stopper is None else event.by_stopper
        if course.stop_reason is not None or by_stopper:
            self.last_stop = f"trial {event.number}: {event.reason}"
        saved = event.left * course.train_ns // max(course.steps, 1)
        self.train_saved_ns += saved
        if as_it_ran is not None:
            self.given_up.keep(event.number, Lost(as_it_ran, self.last_failure, saved))
        self._append_row(event.number, course)

    def _append_row(self, number: int, course: Course) -> None:
        """Add a trial that has ended to the columns."""
        self.columns.append(
            number,
            course.x,
            None if course.status == "failed" else course.checkpoint,
            (course.train_ns + course.check_ns) / 1e9,
            partial=course.status == "stopped",
            some=course.means,
            peak=course.peak,
            late=course.late,
            reached=course.last_step,
        )

    def _revived(self, event: Revived) -> None:
        """Take back that a trial was given up; it runs, until the event after this."""
        number, lost = event.number, self.given_up.revive(event.number)
        if lost is None:
            return
        lost.course.notes = {**lost.course.notes, **self.later.get(number, {})}
        self.courses[number] = self.running[number] = lost.course
        self.counts["failed"] -= 1
        self.train_saved_ns -= lost.train_saved_ns
        self.last_failure = "" if self.last_failure == lost.failure else self.last_failure
        finished = self.columns.snapshot([]).number.tolist()
        self.columns = Columns(self._space, self._problem, self._seed)
        for other in finished:
            if other != number:
                self._append_row(other, self.courses[other])

    def summed(self, told: Told, batch: Reported | None) -> Told:
        """The end of a trial with what is known of it, once its last reports are added."""
        course = self.given_up.course(told.number) or self.courses[told.number]
        known = {name: getattr(course, name) for name in _SUMS} | self._with(course, batch)
        known.pop("by_octave", None)
        stopped = course.stop_reason if batch is None else batch.stop_reason
        left = 0 if stopped is None or known["total"] is None else known["total"] - known["last_step"]
        return replace(told, left=left, by_stopper=stopped is not None, **known)

    def _with(self, course: Course, batch: Reported | None) -> dict[str, Any]:
        """What is known of a trial, by the names of its course, once a batch of reports is added."""
        if batch is None:
            return {}
        trained, paid, called = batch.train_ns >= 0, batch.check_ns >= 0, batch.check_ns > 0
        late = int(called[~trained].sum())  # counted as saved when it was offered
        by_octave = self._by_octave(course.by_octave, batch)
        latest = sorted(by_octave)[-2:]
        return {
            "by_octave": by_octave,
            "late": min((by_octave[octave] for octave in latest), key=self._excess, default=None),
            "checkpoint": self._standing(course.checkpoint, batch),
            "peak": self._peak(course.peak, batch),
            "steps": course.steps + int(trained.sum()),
            "last_step": max(course.last_step, int(batch.step.max())),
            "total": batch.total,
            "interval": batch.interval,
            "train_ns": course.train_ns + int(batch.train_ns[trained].sum()),
            "check_ns": course.check_ns + int(batch.check_ns[paid].sum()),
            "checks": course.checks + int(called.sum()),
            "saved": course.saved + int((batch.check_ns[trained] == SAVED).sum()) - late,
            "means": {**course.means, **_means(batch)},
        }

    def _peak(self, so_far: Checkpoint | None, batch: Reported) -> Checkpoint | None:
        """The checkpoint with the best objective."""
        loss, unmeasured = self._problem.objective.sign * batch.objective, (batch.check_ns < 0).any(axis=1)
        lowest = int(np.lexsort((batch.step, unmeasured, loss, batch.provisional))[0])
        if batch.provisional[lowest]:
            return so_far
        new = _checkpoint(batch, lowest)
        return new if so_far is None else min(so_far, new, key=self._height)

    def _by_octave(self, so_far: Mapping[int, Checkpoint], batch: Reported) -> Mapping[int, Checkpoint]:
        """The least violating check among the steps from each power of two on."""
        paid = batch.check_ns >= 0
        rows = np.flatnonzero(paid.any(axis=1) & ~batch.provisional)
        if not len(rows):
            return so_far
        amounts = feasibility.violations(self._problem, batch.values[rows], paid[rows], batch.error_table()[rows])
        octaves, found = np.frexp(batch.step[rows].astype(np.float64))[1], dict(so_far)
        for octave in np.unique(octaves).tolist():
            among = rows[octaves == octave]
            checkpoint = _checkpoint(batch, int(among[np.argmin(np.nan_to_num(amounts[octaves == octave]))]))
            found[octave] = min(found.get(octave, checkpoint), checkpoint, key=self._excess)
        return found

    def _excess(self, checkpoint: Checkpoint) -> float:
        """How far a checkpoint is beyond its limits; what was not measured does not count."""
        return feasibility.known(self._problem, checkpoint) or 0.0

    def _standing(self, so_far: Checkpoint | None, batch: Reported) -> Checkpoint:
        """The checkpoint that stands for a trial."""
        loss = self._problem.objective.sign * batch.objective
        amounts = feasibility.violations(self._problem, batch.values, batch.check_ns >= 0, batch.error_table())
        rows = np.flatnonzero(~batch.provisional)
        rows = rows[feasibility.order(loss[rows], amounts[rows])[:1]] if len(rows) else np.arange(len(loss))
        candidates = [_checkpoint(batch, int(i)) for i in rows]
        candidates += [] if so_far is None else [so_far]
        return min(candidates, key=lambda checkpoint: feasibility.standing(self._problem, checkpoint))

    def history(self) -> History:
        """A snapshot for samplers and terminators."""
        return self.columns.snapshot([course.x for course in self.running.values()])

    def record(self, number: int) -> TrialRecord:
        """One trial, for people."""
        course = self.courses[number]
        checkpoint, amount, metrics, errors = course.checkpoint, None, {}, {}
        if checkpoint is not None:
            amount = feasibility.known(self._problem, checkpoint)
            metrics = dict(zip(self._problem.metrics, (checkpoint.objective, *checkpoint.values), strict=True))
            errors = named_errors(self._problem, checkpoint)
        return TrialRecord(
            number=number,
            params=dict(course.params),
            status=course.status,
            reason=course.reason,
            step=None if checkpoint is None else checkpoint.step,
            metrics=metrics,
            errors=errors,
            feasible=None if amount is None else amount == 0.0,
            steps=course.steps,
            training_seconds=course.train_ns / 1e9,
            check_seconds=course.check_ns / 1e9,
            notes=dict(course.notes),
        )


def _means(event: Reported) -> dict[int, float]:
    """The objective after so many folds, in reports with folds to come."""
    some = event.noise[event.noise[:, 2] < event.noise[:, 3]]
    return {int(folds): float(event.objective[int(row)]) for row, _, folds, _ in some}


def _checkpoint(event: Reported, i: int) -> Checkpoint:
    values = zip(event.values[i].tolist(), event.check_ns[i].tolist(), strict=True)
    known = tuple(value if price >= 0 else None for value, price in values)
    checkpoint = Checkpoint(int(event.step[i]), float(event.objective[i]), known)
    found = event.errors[event.errors[:, 0] == i, 1:]
    if len(found):
        errors = {int(constraint): error for constraint, error in found.tolist()}
        checkpoint = checkpoint._replace(errors=tuple(errors.get(j) for j in range(len(known))))
    folds = event.noise[event.noise[:, 0] == i, 1:]
    if not len(folds):
        return checkpoint
    return checkpoint._replace(noise=float(folds[0, 0]), folds=int(folds[0, 1]), of=int(folds[0, 2]))
