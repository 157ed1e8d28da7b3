"""What a log says: what every trial did, the columns for samplers, what waits in the queue, why a run ended."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine.certification import Certification
from fairway.engine.course import Course, height, with_reports
from fairway.engine.courses import Courses
from fairway.engine.events import (
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


_SPENT = ("checks", "saved", "train_ns", "check_ns")


class Ledger:
    """Everything that a log says, kept up to date event by event."""

    def __init__(self, space: Space, problem: Problem, seed: int = 0) -> None:
        self._space, self._problem, self._seed = space, problem, seed
        self.columns = Columns(space, problem, seed)
        self.workers = 0  # that ever joined
        self.opened: Mapping[str, Any] | None = None  # of what study this is the log
        self.courses = Courses()
        self.running: dict[int, Course] = {}
        self.points: dict[int, NDArray[np.float64]] = {}  # of the running trials, in the unit cube
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
        self.sums = dict.fromkeys(_SPENT, 0)  # over the trials that have ended
        self.last_at = 0.0  # when a trial last began or ended
        self.later: Mapping[int | None, Mapping[str, Any]] = {}  # noted later, by trial; None is the study
        self.searched: list[Searched] = []  # rows that the search saw
        self.certifications: list[Certification] = []
        self.dropped = 0  # events that a repair left out
        self._summed: tuple[Reported, dict[str, Any]] | None = None  # reports that `summed` added, if they come next

    @property
    def queue(self) -> deque[Enqueued]:
        """Configurations that wait to be run."""
        return self.given_up.queue

    def still(self) -> Ledger:
        """A snapshot; copies only the running trials."""
        still = copy.copy(self)
        still.courses, still.points = self.courses.still(), dict(self.points)
        still.running = {number: copy.copy(course) for number, course in self.running.items()}
        for number, course in still.running.items():
            still.courses.replace(number, course)
        still.given_up, still.counts, still.verdicts = self.given_up.still(), dict(self.counts), list(self.verdicts)
        still.certifications = [Certification(one.sealed, list(one.tests)) for one in self.certifications]
        still.sums = dict(self.sums)
        still.terminators, still.columns = dict(self.terminators), copy.copy(self.columns)
        return still

    def replay(self, event: Event) -> None:
        """Take one event in."""
        summed, self._summed = self._summed, None
        if isinstance(event, Reported):
            self._reported(event, summed[1] if summed is not None and summed[0] is event else None)
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
            noted = {**course.notes, **event.notes}
            if number in self.running:
                course.notes = noted
            else:
                self.courses.replace(number, replace(course, notes=noted))

    def _dropped(self, event: Dropped) -> None:
        """Keep the number of a trial of which a repair found no beginning; samplers do not see it."""
        self.dropped += 1
        if event.number is None:
            return
        if event.number != len(self.courses):
            raise StorageError(f"the log leaves out trial {event.number}, which is not the next one: it is damaged")
        self.courses.append(Course({}, 0, math.nan, status="failed", reason=event.what))
        self.courses.end(event.number)
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
            point = self._space.encode(event.params)
        except UsageError as error:
            raise StorageError(
                f"trial {event.number} of the log does not fit the space ({error}): the log is damaged, or a function "
                "in when= is not the one that the study began with"
            ) from error
        course = Course(event.params, event.worker, event.at, times_lost)
        self.courses.append(course)
        self.points[event.number] = point
        self.running[event.number] = course
        self.ended = None
        self.last_at = max(self.last_at, event.at)

    def _reported(self, event: Reported, summed: Mapping[str, Any] | None) -> None:
        if event.number >= len(self.courses):
            raise StorageError(f"the log reports for trial {event.number}, which was never asked for: it is damaged")
        refuse_other_constraints(event, len(self._problem.constraints))
        course = self.running.get(event.number) or self.given_up.course(event.number)
        if course is None:
            return
        for name, value in (summed or with_reports(self._problem, course, event)).items():
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
            self.best_ignoring_limits = min(both, key=self._peak_rank)

    def _peak_rank(self, one: tuple[int, Checkpoint]) -> tuple[tuple[float, bool], int, int]:
        """A key that sorts the peaks of several trials."""
        return height(self._problem, one[1])[:2], one[0], one[1].step

    def _rank(self, one: tuple[int, Checkpoint]) -> tuple[float, int, int]:
        """A key that sorts feasible checkpoints of several trials as the referee does."""
        return self._problem.objective.sign * one[1].objective, one[0], one[1].step

    def _told(self, event: Told) -> None:
        refuse_other_constraints(event, len(self._problem.constraints))
        course = self.running.pop(event.number, None)
        if course is None and event.revived and self.given_up.course(event.number) is not None:
            return  # too late: its configuration ran again
        if course is None:
            raise StorageError(f"the log ends trial {event.number}, which is not running: it is damaged")
        as_it_ran = None if event.worker == course.worker else copy.copy(course)
        course.status, course.reason, course.notes = event.status, event.reason, {**course.notes, **event.notes}
        course.ended, course.traceback = event.at, event.traceback
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
        self.columns.append(
            event.number,
            self.points.pop(event.number),
            None if course.status == "failed" else course.checkpoint,
            (course.train_ns + course.check_ns) / 1e9,
            partial=course.status == "stopped",
            some=course.means,
            peak=course.peak,
            late=course.late,
            reached=course.last_step,
        )
        self.courses.end(event.number)
        self._count(course, 1)
        self.last_at = max(self.last_at, event.at)

    def _revived(self, event: Revived) -> None:
        """Take back that a trial was given up; it runs, until the event after this."""
        number, lost = event.number, self.given_up.revive(event.number)
        if lost is None:
            return
        lost.course.notes = {**lost.course.notes, **self.later.get(number, {})}
        self._count(self.courses[number], -1)
        self.running[number] = lost.course
        self.courses.resume(number, lost.course)
        self.points[number] = self._space.encode(lost.course.params)
        self.counts["failed"] -= 1
        self.train_saved_ns -= lost.train_saved_ns
        self.last_failure = "" if self.last_failure == lost.failure else self.last_failure
        self.columns.remove(number)

    def summed(self, told: Told, batch: Reported | None) -> Told:
        """The end of a trial with what is known of it, once its last reports are added."""
        course = self.given_up.course(told.number) or self.courses[told.number]
        known = {name: getattr(course, name) for name in _SUMS}
        if batch is not None:
            self._summed = batch, with_reports(self._problem, course, batch)
            known |= self._summed[1]
            del known["by_octave"]
        stopped = course.stop_reason if batch is None else batch.stop_reason
        left = 0 if stopped is None or known["total"] is None else known["total"] - known["last_step"]
        return replace(told, left=left, by_stopper=stopped is not None, **known)

    def history(self) -> History:
        """A snapshot for samplers and terminators."""
        return self.columns.snapshot([*self.points.values()])

    def fill(self, blocks: Sequence[bytes], trials: int, running: Mapping[int, Course], *, with_reports: bool) -> None:
        """Take in so many trials that were packed, and those of them that run, with what they reported or without."""
        self.courses = Courses(blocks, trials)
        for number, course in running.items():
            bare = Course(course.params, course.worker, course.began, course.times_lost, notes=course.notes)
            self.running[number] = course if with_reports else bare
            self.courses.resume(number, self.running[number])
            self.points[number] = self._space.encode(course.params)

    def _count(self, course: Course, times: int) -> None:
        for name in _SPENT:
            self.sums[name] += times * getattr(course, name)

    def spent(self) -> tuple[int, ...]:
        """Over all trials: checks paid for, checks offered and not called, nanoseconds of training and of checks."""
        running = self.running.values()
        return tuple(self.sums[name] + sum(getattr(course, name) for course in running) for name in _SPENT)

    def cube(self) -> NDArray[np.float64]:
        """Every trial as a point of the unit cube, by number."""
        history, points = self.history(), np.empty((len(self.courses), len(self._space)))
        points[history.number] = history.x
        points[[*self.points]] = history.pending
        return points

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
            traceback=course.traceback,
        )
