"""A study replayed from its log: its trials, the columns for samplers, what waits in the queue, why a run ended.

Parts with rules of their own have classes of their own: the limits as they change (`LimitHistory`), second measurements
(`SecondMeasurements`), the best (`Bests`), what waits or was given up (`Queue`), checkpoints that were saved (`Saves`).
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fairway.buffers import Columns
from fairway.engine import soundness
from fairway.engine.bests import Bests
from fairway.engine.certification import Certification, seal, stands, take_test
from fairway.engine.columns import fitted, widened
from fairway.engine.course import Course, add_row, with_reports
from fairway.engine.courses import Block, Courses
from fairway.engine.event_json import from_json
from fairway.engine.events import (
    Asked,
    Carried,
    Dropped,
    Ended,
    Enqueued,
    Event,
    Judged,
    LimitsChanged,
    Noted,
    Opened,
    Remeasured,
    Removed,
    Reported,
    Revived,
    Saved,
    Sealed,
    Searched,
    Status,
    Tested,
    Told,
)
from fairway.engine.limits import LimitHistory, Limits, last_change
from fairway.engine.queue import Lost, Queue
from fairway.engine.record import TrialRecord, recorded
from fairway.engine.remeasurement import SecondMeasurements
from fairway.engine.saves import Saves
from fairway.engine.soundness import fitting
from fairway.engine.sums import SPENT, Outcome, summed_end, take_end
from fairway.errors import StorageError, UsageError
from fairway.feasibility import Checkpoint
from fairway.history import History
from fairway.problem import Problem
from fairway.space import Space


class Ledger:
    """The state of a study, updated event by event from its log, and judged by the limits of one problem.

    When limits change, everything replayed so far is judged again: see `extend`.
    """

    def __init__(self, space: Space, problem: Problem, seed: int = 0, *, judged_by: int = 0) -> None:
        self._space, self._problem, self._seed = space, problem, seed
        self.limits = LimitHistory(problem, judged_by)  # after `judged_by` changes, they are those of the problem
        self.bests = Bests(problem)
        self.remeasured = SecondMeasurements()
        self.columns = Columns(space, problem, seed)
        self.workers = 0  # how many ever joined
        self.opened: Mapping[str, Any] | None = None  # the study's configuration, from its first `Opened`
        self.courses = Courses()
        self.retries = 0  # trials that retry one that was lost or interrupted
        self.running: dict[int, Course] = {}
        self.points: dict[int, NDArray[np.float64]] = {}  # of the running trials, in the unit cube
        self.queue = Queue()
        self.counts: dict[Status, int] = {"completed": 0, "stopped": 0, "failed": 0}  # of trials that have ended
        self.last_stop = ""
        self.last_failure = ""
        self.terminators: dict[int, Any] = {}  # by worker, as JSON
        self.verdicts: list[Judged] = []
        self.ended: str | None = None
        self.train_saved_ns = 0
        self.sums = dict.fromkeys(SPENT, 0)  # over the trials that have ended
        self.last_at = 0.0  # when a trial last began or ended
        self.later: Mapping[int | None, Mapping[str, Any]] = {}  # notes added later, by trial; None is the study
        self.searched: list[Searched] = []  # rows that the search saw
        self.certifications: list[Certification] = []
        self.dropped = 0  # events that a repair left out
        self.carried: list[Carried] = []  # from the studies that this one started from
        self.saves = Saves()  # checkpoints that trials saved, and that were not deleted
        self._summed: tuple[Reported, dict[str, Any]] | None = None  # the last batch that `summed` added, if it is next

    @property
    def by_status(self) -> dict[Status, int]:
        """How many trials are running, completed, stopped and failed."""
        return {"running": len(self.running), **self.counts}

    @property
    def different_trials(self) -> int:
        """How many different trials have begun; a retried one counts once, and not while its retry waits."""
        waiting = sum(each.is_retry for each in tuple(self.queue))  # other threads may change the queue meanwhile
        return len(self.courses) - self.retries - waiting

    @property
    def ended_trials(self) -> int:
        """How many different trials have ended for good."""
        return self.different_trials - len(self.running)

    def has_room(self, total: int) -> bool:
        """Whether another trial may begin in a study of `total` trials."""
        return self.different_trials < total

    @property
    def problem(self) -> Problem:
        """The objective, and the limits that everything is judged by."""
        return self._problem

    @property
    def best(self) -> tuple[int, Checkpoint] | None:
        """The best feasible checkpoint, and its trial."""
        return self.bests.feasible

    @property
    def best_ignoring_limits(self) -> tuple[int, Checkpoint] | None:
        """The checkpoint with the best objective whatever its constraints, and its trial."""
        return self.bests.ignoring_limits

    def certified_limits(self, one: Certification) -> Problem:
        """The problem whose limits a certification tests: those that held when it was sealed."""
        return self.limits.problem_after(one.limits)

    def is_current(self, one: Certification) -> bool:
        """Whether a certification still applies: it covers the limits in force, and the best is the same as then."""
        return self.bests.place == one.best and stands(self.certified_limits(one).constraints, self._problem)

    def still(self) -> Ledger:
        """A snapshot; copies only the running trials."""
        still = copy.copy(self)
        still.courses, still.points = self.courses.still(), dict(self.points)
        still.running = {number: copy.copy(course) for number, course in self.running.items()}
        for number, course in still.running.items():
            still.courses.replace(number, course)
        still.queue, still.counts, still.verdicts = self.queue.still(), dict(self.counts), list(self.verdicts)
        still.certifications = [replace(one, tests=list(one.tests)) for one in self.certifications]
        still.limits, still.remeasured, still.saves = self.limits.still(), self.remeasured.still(), self.saves.still()
        still.sums, still.bests = dict(self.sums), copy.copy(self.bests)
        still.terminators, still.columns = dict(self.terminators), copy.copy(self.columns)
        return still

    def extend(self, events: Sequence[Event], whole: Callable[[], Sequence[Event]]) -> None:
        """Replay events; if they change limits, judge the whole log again.

        `whole` returns all events of the log up to and including these. The ledger stays the same object.
        """
        last = last_change(events)
        if last is not None:
            before, events = whole(), events[last + 1 :]
            self._judge_again(before[: len(before) - len(events)])
        for event in events:
            with fitting(event):
                self.replay(event)

    def _judge_again(self, events: Sequence[Event]) -> None:
        """Replay the log up to a change of limits again, judged by the new limits."""
        change = events[-1]
        assert isinstance(change, LimitsChanged)
        with fitting(change):
            problem = Limits.of(change).problem(self._problem)
            fresh = Ledger(self._space, problem, self._seed, judged_by=change.change + 1)
        fresh.remeasured = SecondMeasurements(again=[one.number for one in events if isinstance(one, Remeasured)])
        for event in events:
            with fitting(event):
                fresh.replay(event)
        fresh.remeasured = fresh.remeasured.still()
        self.__dict__.update(fresh.__dict__)

    def replay(self, event: Event) -> None:
        """Replay one event."""
        summed, self._summed = self._summed, None
        if isinstance(event, Reported):
            self._reported(event, summed[1] if summed is not None and summed[0] is event else None)
        elif type(event) in self._TAKEN_BY:
            self._TAKEN_BY[type(event)](self, event)

    def _opened(self, event: Opened) -> None:
        self.workers = max(self.workers, event.worker + 1)
        self.terminators[event.worker] = event.config.get("terminator")
        if self.opened is None:
            self.opened = event.config
            self.limits.begin(event.config)

    def _enqueued(self, event: Enqueued) -> None:
        self.queue.add(event)

    def _judged(self, event: Judged) -> None:
        self.verdicts.append(event)

    def _ended(self, event: Ended) -> None:
        self.ended = event.reason

    def _searched(self, event: Searched) -> None:
        self.searched.append(event)

    def _sealed(self, event: Sealed) -> None:
        seal(self.certifications, event, limits=len(self.limits.changes), best=self.bests.place)

    def _tested(self, event: Tested) -> None:
        take_test(self.certifications, event, lambda one: self.certified_limits(one).limits)

    def _limits_changed(self, event: LimitsChanged) -> None:
        self.limits.add(event, len(self.courses))

    def _carried(self, event: Carried) -> None:
        soundness.check(from_json(event.copy))
        self.carried.append(event)

    def _saved(self, event: Saved) -> None:
        if event.number >= len(self.courses):
            raise StorageError(f"the log saves for trial {event.number}, which was never asked for: it is damaged")
        self.saves.add(event)

    def _removed(self, event: Removed) -> None:
        self.saves.remove(event.paths)

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

    def _remeasured(self, event: Remeasured) -> None:
        """Apply the second measurement of a trial that has ended, and find the best again."""
        number = event.number
        if number >= len(self.courses) or number in self.running:
            raise StorageError(f"the log measures trial {number} again, which has not ended: it is damaged")
        soundness.refuse_other_constraints(event, *self.limits.widths)
        course = self.remeasured.add(self._problem, self.courses[number], event)
        self.courses.replace(number, course)
        self.columns.remove(number)
        add_row(self.columns, number, self._space.encode(course.params), course)
        self.bests = Bests(self._problem, self.courses)

    def _dropped(self, event: Dropped) -> None:
        """Keep the number of a trial whose beginning a repair left out; samplers do not see it."""
        self.dropped += 1
        if event.number is None:
            return
        if event.number != len(self.courses):
            raise StorageError(f"the log leaves out trial {event.number}, which is not the next one: it is damaged")
        self.courses.append(Course({}, 0, math.nan, status="failed", reason=event.what))
        self.courses.end(event.number)
        self.counts["failed"] += 1

    def _asked(self, event: Asked) -> None:
        if event.number != len(self.courses):
            raise StorageError(f"the log asks for trial {event.number} where {len(self.courses)} is due: it is damaged")
        waiting = self.queue.take(event)
        try:
            point = self._space.encode(event.params)
        except UsageError as error:
            raise StorageError(
                f"trial {event.number} of the log does not fit the space ({error}): the log is damaged, or a function "
                "in when= is not the one that the study began with"
            ) from error
        course = Course(event.params, event.worker, event.at, waiting.times_lost, aim=event.aim)
        self.retries += waiting.is_retry
        if waiting.continues is not None and waiting.continues < event.number:
            course.continues = waiting.continues
        self.courses.append(course)
        self.points[event.number] = point
        self.running[event.number] = course
        self.ended = None
        self.last_at = max(self.last_at, event.at)

    def _reported(self, event: Reported, summed: Mapping[str, Any] | None) -> None:
        if event.number >= len(self.courses):
            raise StorageError(f"the log reports for trial {event.number}, which was never asked for: it is damaged")
        soundness.refuse_other_constraints(event, *self.limits.widths)
        self.remeasured.keep(event)
        course = self.running.get(event.number) or self.queue.lost_course(event.number)
        if course is None:
            return
        for name, value in (summed or with_reports(self._problem, course, event)).items():
            setattr(course, name, value)
        course.stop_reason = event.stop_reason
        self.saves.measure(fitted(event, self._problem))
        if event.number in self.running:  # otherwise its worker was given up, and did not know it yet
            self.bests.add(event.number, course)

    def _told(self, event: Told) -> None:
        soundness.refuse_other_constraints(event, *self.limits.widths)
        event = fitted(event, self._problem)
        course = self.running.pop(event.number, None)
        if course is None and event.revived and self.queue.lost_course(event.number) is not None:
            return  # too late: its configuration ran again
        if course is None:
            raise StorageError(f"the log ends trial {event.number}, which is not running: it is damaged")
        as_it_ran = None if event.worker == course.worker else copy.copy(course)
        take_end(course, event, judged_by=self.limits.judged_by)
        self.bests.add(event.number, course)
        self.counts[event.status] += 1
        if event.status == "failed":
            self.last_failure = f"trial {event.number}: {event.reason}"
        by_stopper = event.left > 0 if event.by_stopper is None else event.by_stopper
        if course.stop_reason is not None or by_stopper:
            self.last_stop = f"trial {event.number}: {event.reason}"
        saved = event.left * course.train_ns // max(course.steps, 1)
        self.train_saved_ns += saved
        if as_it_ran is not None:
            self.queue.lost[event.number] = Lost(as_it_ran, self.last_failure, saved)
        add_row(self.columns, event.number, self.points.pop(event.number), course)
        self.courses.end(event.number)
        self.saves.end(event.number)
        self._count(course, 1)
        self.last_at = max(self.last_at, event.at)

    def _revived(self, event: Revived) -> None:
        """Undo that a trial was given up: it runs again, until its next end."""
        number, lost = event.number, self.queue.revive(event.number)
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

    # The method that replays each kind of event. `replay` handles a `Reported` itself; a `Surveyed` changes no trial.
    _TAKEN_BY: ClassVar[Mapping[type[Event], Callable[[Ledger, Any], None]]] = {
        Asked: _asked,
        Told: _told,
        Revived: _revived,
        Opened: _opened,
        Enqueued: _enqueued,
        Judged: _judged,
        Ended: _ended,
        Noted: _noted,
        Remeasured: _remeasured,
        Dropped: _dropped,
        Searched: _searched,
        Sealed: _sealed,
        Tested: _tested,
        LimitsChanged: _limits_changed,
        Carried: _carried,
        Saved: _saved,
        Removed: _removed,
    }

    def summed(self, outcome: Outcome, batch: Reported | None) -> Told:
        """The end of a trial: its outcome and the sums of all its reports, the last batch included."""
        course = self.course(outcome.number)
        added = None if batch is None else with_reports(self._problem, course, batch)
        self._summed = None if batch is None or added is None else (batch, added)
        return widened(summed_end(outcome, course, batch, added, judged_by=self.limits.judged_by), self._problem)

    def course(self, number: int) -> Course:
        """A trial's course; that of a trial that was given up is as if it still ran."""
        return self.running.get(number) or self.queue.lost_course(number) or self.courses[number]

    def history(self) -> History:
        """A snapshot for samplers and terminators."""
        return self.columns.snapshot([*self.points.values()])

    def running_history(self, unwritten: Iterable[Reported] = ()) -> History:
        """`History.running`: a row for each running trial, with reports that the log does not have yet."""
        columns, silent = Columns(self._space, self._problem, self._seed), []
        added = defaultdict[int, list[Reported]](list)
        for batch in unwritten:
            added[batch.number].append(batch)
        for number, course in self.running.items():
            for batch in added[number]:
                course = replace(course, **with_reports(self._problem, course, batch))  # noqa: PLW2901
            if course.checkpoint is None:
                silent.append(self.points[number])
            else:
                add_row(columns, number, self.points[number], replace(course, status="stopped"))
        return columns.snapshot(silent)

    def fill(self, blocks: Sequence[Block], trials: int, running: Mapping[int, Course], *, with_reports: bool) -> None:
        """Fill the ledger with packed trials, and with the running ones among them, with or without their reports."""
        self.courses = Courses(blocks, trials)
        for number, course in running.items():
            self.running[number] = course if with_reports else course.bare()
            self.courses.resume(number, self.running[number])
            self.points[number] = self._space.encode(course.params)

    def forget_reports(self) -> None:
        """Drop the reports of running trials, as in a summary."""
        for number, course in self.running.items():
            self.running[number] = course.bare()
            self.courses.replace(number, self.running[number])

    def _count(self, course: Course, times: int) -> None:
        for name in SPENT:
            self.sums[name] += times * getattr(course, name)

    def spent(self) -> tuple[int, ...]:
        """Over all trials: checks paid for, checks offered and not called, nanoseconds of training and of checks."""
        running = self.running.values()
        return tuple(self.sums[name] + sum(getattr(course, name) for course in running) for name in SPENT)

    def record(self, number: int) -> TrialRecord:
        """One trial as people read it."""
        return recorded(self._problem, number, self.courses[number], self.saves)
