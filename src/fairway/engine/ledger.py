"""What a log says: what every trial did, the columns for samplers, what waits in the queue, why a run ended."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine import soundness
from fairway.engine.certification import Certification, stands
from fairway.engine.columns import fitted, widened
from fairway.engine.course import Course, add_row, height, with_reports
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
from fairway.engine.limits import Limits, differences, last_change
from fairway.engine.record import TrialRecord, recorded
from fairway.engine.remeasurement import notes_of, summed_again
from fairway.engine.revival import GivenUp, Lost
from fairway.engine.saves import Saves
from fairway.engine.soundness import fitting
from fairway.errors import StorageError, UsageError
from fairway.feasibility import Checkpoint
from fairway.history import Columns, History
from fairway.problem import Constraint, Problem
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

_SAID = ("number", "status", "reason", "at", "worker", "act", "revived", "notes", "traceback")
"""What else it says, apart from what `Ledger.summed` finds."""

_JUDGED = ("checkpoint", "peak", "late")
"""Those of them that depend on the limits."""

_SPENT = ("checks", "saved", "train_ns", "check_ns")


class _Again(NamedTuple):
    """What the log says of a trial that was measured again."""

    batches: list[Reported]
    events: list[Remeasured]


class Ledger:
    """Everything that a log says, kept up to date event by event, and judged by the limits of one problem.

    Once limits change, all that was replayed is judged again: see `extend`.
    """

    def __init__(self, space: Space, problem: Problem, seed: int = 0) -> None:
        self._space, self._problem, self._seed = space, problem, seed
        self._widths = len(problem.constraints), len(problem.columns)  # the least and most columns of an event
        self.columns = Columns(space, problem, seed)
        self.workers = 0  # that ever joined
        self.opened: Mapping[str, Any] | None = None  # of what study this is the log
        self.courses = Courses()
        self.retries = 0  # trials that try another one again, which was lost or interrupted
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
        self.judged_by = 0  # changes of the limits before those of `problem`
        self.changes: list[LimitsChanged] = []  # of the limits, so far
        self.changed_after: list[int] = []  # trials that had begun at each change
        self.remeasured: list[list[int]] = []  # trial and step of checkpoints that were measured again, alone
        self.dropped = 0  # events that a repair left out
        self.carried: list[Carried] = []  # from the studies that this one started from
        self.saves = Saves()  # checkpoints that trials saved, and that were not deleted
        self._summed: tuple[Reported, dict[str, Any]] | None = None  # reports that `summed` added, if they come next
        self._again: dict[int, _Again] = {}  # trials that were measured again, while they are judged by other limits

    @property
    def queue(self) -> deque[Enqueued]:
        """Configurations that wait to be run."""
        return self.given_up.queue

    @property
    def different_trials(self) -> int:
        """How many trials have begun; one that is tried again counts once, and not while it waits for that."""
        waiting = sum(each.is_retry for each in tuple(self.queue))  # which other threads may change meanwhile
        return len(self.courses) - self.retries - waiting

    @property
    def ended_trials(self) -> int:
        """How many of them have ended for good."""
        return self.different_trials - len(self.running)

    def has_room(self, total: int) -> bool:
        """Whether another trial may begin in a study of so many."""
        return self.different_trials < total

    @property
    def problem(self) -> Problem:
        """The objective, and the limits that everything is judged by."""
        return self._problem

    def limits(self, changes: int | None = None) -> Limits:
        """The limits now, or after so many changes."""
        n = len(self.changes) if changes is None else changes
        if n:
            return Limits.of(self.changes[n - 1])
        if self.opened is not None:
            return Limits.founding(self.opened)
        return Limits({one.metric: one for one in self._problem.constraints})

    def change(
        self, limits: Mapping[str, float | None], added: Sequence[Constraint] = (), *, at: float
    ) -> LimitsChanged | None:
        """The event by which limits change; None if they are like that already."""
        now = self.limits()
        changed = now.changed(self._problem.objective.metric, added, limits)
        return changed.event(len(self.changes), at) if differences(now, changed) else None

    def certified_limits(self, one: Certification) -> Problem:
        """The problem whose limits a certification tests: those that held when it was sealed."""
        return self.limits(one.limits).problem(self._problem) if one.limits != self.judged_by else self._problem

    def is_current(self, one: Certification) -> bool:
        """Whether a certification speaks of the study as it is: its limits hold now too, and no better model came."""
        return self.best_place == one.best and stands(self.certified_limits(one).constraints, self._problem)

    @property
    def best_place(self) -> tuple[int, int] | None:
        """Trial and step of the best."""
        return None if self.best is None else (self.best[0], self.best[1].step)

    def still(self) -> Ledger:
        """A snapshot; copies only the running trials."""
        still = copy.copy(self)
        still.courses, still.points = self.courses.still(), dict(self.points)
        still.running = {number: copy.copy(course) for number, course in self.running.items()}
        for number, course in still.running.items():
            still.courses.replace(number, course)
        still.given_up, still.counts, still.verdicts = self.given_up.still(), dict(self.counts), list(self.verdicts)
        still.certifications = [replace(one, tests=list(one.tests)) for one in self.certifications]
        still.changes, still.changed_after = list(self.changes), list(self.changed_after)
        still.sums, still.saves = dict(self.sums), self.saves.still()
        still.terminators, still.columns = dict(self.terminators), copy.copy(self.columns)
        return still

    def extend(self, events: Sequence[Event], whole: Callable[[], Sequence[Event]]) -> None:
        """Take events in; `whole` returns all events of the log up to these, which are learned again if limits change.

        The ledger stays the same object.
        """
        last = last_change(events)
        if last is not None:
            before = whole()
            until = len(before) - len(events) + last + 1
            change = before[until - 1]
            assert isinstance(change, LimitsChanged)
            with fitting(change):
                fresh = Ledger(self._space, Limits.of(change).problem(self._problem), self._seed)
            fresh.judged_by = change.change + 1
            fresh._again = {one.number: _Again([], []) for one in before[:until] if isinstance(one, Remeasured)}
            for event in before[:until]:
                with fitting(event):
                    fresh.replay(event)
            fresh._again = {}
            self.__dict__.update(fresh.__dict__)
            events = events[last + 1 :]
        for event in events:
            with fitting(event):
                self.replay(event)

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
            if self.opened is None:
                self.opened = event.config
                least = len(event.config.get("constraints", self._problem.constraints))
                self._widths = least, max(least, self._widths[1])
        elif isinstance(event, Enqueued):
            self.given_up.add(event)
        elif isinstance(event, Judged):
            self.verdicts.append(event)
        elif isinstance(event, Ended):
            self.ended = event.reason
        elif isinstance(event, Noted):
            self._noted(event)
        elif isinstance(event, Remeasured):
            self._remeasured(event)
        elif isinstance(event, Dropped):
            self._dropped(event)
        elif isinstance(event, Searched):
            self.searched.append(event)
        else:
            self._study_event(event)

    def _study_event(self, event: Event) -> None:
        """Take in what is said of the study as a whole, and of files."""
        if isinstance(event, Sealed):
            if event.certification != len(self.certifications):
                raise StorageError(
                    f"the log seals certification {event.certification}, which is not due: it is damaged"
                )
            best = event.best or self.best_place
            self.certifications.append(Certification(event, limits=len(self.changes), best=best))
        elif isinstance(event, Tested):
            self._tested(event)
        elif isinstance(event, LimitsChanged):
            if event.change != len(self.changes):
                raise StorageError(
                    f"the log has change {event.change} of the limits where {len(self.changes)} is due: it is damaged"
                )
            self._widths = self._widths[0], max(self._widths[1], len(Limits.of(event).constraints))
            self.changes.append(event)
            self.changed_after.append(len(self.courses))
        elif isinstance(event, Carried):
            soundness.check(from_json(event.copy))
            self.carried.append(event)
        elif isinstance(event, Saved):
            if event.number >= len(self.courses):
                raise StorageError(f"the log saves for trial {event.number}, which was never asked for: it is damaged")
            self.saves.add(event)
        elif isinstance(event, Removed):
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
        """Take the newer measurement of a trial that has ended, and find the best again."""
        number = event.number
        if number >= len(self.courses) or number in self.running:
            raise StorageError(f"the log measures trial {number} again, which has not ended: it is damaged")
        soundness.refuse_other_constraints(event, *self._widths)
        course, again = self.courses[number], self._again.get(number)
        if again is not None:
            again.events.append(event)
        event = fitted(event, self._problem)
        if again is not None:  # what the event says of its trial is by the limits of its time
            event = replace(event, **summed_again(self._problem, again.batches, again.events))
        notes = {**course.notes, **notes_of(self._problem, course, event)}
        known = replace(course, checkpoint=event.checkpoint, peak=event.peak, late=event.late, notes=notes)
        self.courses.replace(number, known)
        self.columns.remove(number)
        add_row(self.columns, number, self._space.encode(course.params), known)
        self.remeasured = [*self.remeasured, [number, event.step]]
        self.best = self.best_ignoring_limits = None
        for each, ran in enumerate(self.courses):
            self._note_best(each, ran)

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
        waiting = self.given_up.take(event)
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
        soundness.refuse_other_constraints(event, *self._widths)
        if event.number in self._again:
            self._again[event.number].batches.append(event)
        course = self.running.get(event.number) or self.given_up.course(event.number)
        if course is None:
            return
        for name, value in (summed or with_reports(self._problem, course, event)).items():
            setattr(course, name, value)
        course.stop_reason = event.stop_reason
        self.saves.measure(fitted(event, self._problem))
        if event.number in self.running:  # otherwise its worker was given up, and did not know it yet
            self._note_best(event.number, course)

    def _note_best(self, number: int, course: Course) -> None:
        """Keep the best feasible checkpoint, and the one with the best objective whatever its constraints."""
        checkpoint, peak = course.checkpoint, course.peak
        best, most = self.best, self.best_ignoring_limits
        if checkpoint is not None and feasibility.known(self._problem, checkpoint) == 0.0:
            is_best = best is None or self._rank((number, checkpoint)) < self._rank(best)
            self.best = (number, checkpoint) if is_best else best
        if peak is not None:
            is_most = most is None or self._peak_rank((number, peak)) < self._peak_rank(most)
            self.best_ignoring_limits = (number, peak) if is_most else most

    def _peak_rank(self, one: tuple[int, Checkpoint]) -> tuple[tuple[float, bool], int, int]:
        """A key that sorts the peaks of several trials."""
        return height(self._problem, one[1])[:2], one[0], one[1].step

    def _rank(self, one: tuple[int, Checkpoint]) -> tuple[float, int, int]:
        """A key that sorts feasible checkpoints of several trials as the referee does."""
        return self._problem.objective.sign * one[1].objective, one[0], one[1].step

    def _told(self, event: Told) -> None:
        soundness.refuse_other_constraints(event, *self._widths)
        event = fitted(event, self._problem)
        course = self.running.pop(event.number, None)
        if course is None and event.revived and self.given_up.course(event.number) is not None:
            return  # too late: its configuration ran again
        if course is None:
            raise StorageError(f"the log ends trial {event.number}, which is not running: it is damaged")
        as_it_ran = None if event.worker == course.worker else copy.copy(course)
        course.status, course.reason, course.notes = event.status, event.reason, {**course.notes, **event.notes}
        course.ended, course.traceback = event.at, event.traceback
        older = {"means": course.means, "late": course.late, "last_step": course.last_step}  # in its reports alone
        judged_otherwise = event.limits != self.judged_by and course.steps == event.steps  # and its reports are here
        for name in _SUMS:
            if not (judged_otherwise and name in _JUDGED):
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
        add_row(self.columns, event.number, self.points.pop(event.number), course)
        self.courses.end(event.number)
        self.saves.end(event.number)
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
            del known["by_octave"], known["front"]
        stopped = course.stop_reason if batch is None else batch.stop_reason
        left = 0 if stopped is None or known["total"] is None else known["total"] - known["last_step"]
        said = {name: getattr(told, name) for name in _SAID}
        ended = Told(**said, left=left, by_stopper=stopped is not None, limits=self.judged_by, **known)
        return widened(ended, self._problem)

    def history(self) -> History:
        """A snapshot for samplers and terminators."""
        return self.columns.snapshot([*self.points.values()])

    def fill(self, blocks: Sequence[Block], trials: int, running: Mapping[int, Course], *, with_reports: bool) -> None:
        """Take in so many trials that were packed, and those of them that run, with what they reported or without."""
        self.courses = Courses(blocks, trials)
        for number, course in running.items():
            self.running[number] = course if with_reports else course.bare()
            self.courses.resume(number, self.running[number])
            self.points[number] = self._space.encode(course.params)

    def forget_reports(self) -> None:
        """Leave the running trials without what they reported, as in a summary."""
        for number, course in self.running.items():
            self.running[number] = course.bare()
            self.courses.replace(number, self.running[number])

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
        return recorded(self._problem, number, self.courses[number], self.saves)
