"""The fold of a log: what every trial did, the columns for samplers, what waits in the queue, why a run ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.errors import FairwayError
from fairway.events import Asked, Ended, Enqueued, Event, Reported, Status, Told
from fairway.feasibility import Checkpoint
from fairway.history import Columns, History, Row, TrialRecord
from fairway.problem import Problem
from fairway.space import Space, Value


class Course:
    """One trial as the log tells it."""

    __slots__ = ("asked", "check_ns", "last_step", "notes", "reason", "row", "rows", "status", "total", "train_ns", "x")

    def __init__(self, asked: Asked, x: NDArray[np.float64]) -> None:
        self.asked = asked
        self.x = x
        self.status: Status = "running"
        self.reason = ""
        self.row: Checkpoint | None = None
        self.notes: Mapping[str, Any] = {}
        self.total: int | None = None
        self.last_step = 0
        self.rows = 0  # steps reported
        self.train_ns = 0
        self.check_ns = 0


class Ledger:
    """Everything that a log says, kept up to date event by event."""

    def __init__(self, space: Space, problem: Problem) -> None:
        self._space, self._problem = space, problem
        self._columns = Columns(space, problem)
        self.courses: list[Course] = []
        self.running: dict[int, Course] = {}
        self.queue: deque[Mapping[str, Value]] = deque()
        self.counts: dict[Status, int] = {"completed": 0, "stopped": 0, "failed": 0}
        self.last_stop = ""  # why the last stopped trial was stopped
        self.ended: str | None = None
        self.best_ignoring_limits: tuple[int, Checkpoint] | None = None
        self.train_saved_ns = 0

    def fold(self, event: Event) -> None:
        """Take one event in."""
        if isinstance(event, Asked):
            self._asked(event)
        elif isinstance(event, Reported):
            self._reported(event)
        elif isinstance(event, Told):
            self._told(event)
        elif isinstance(event, Enqueued):
            self.queue.append(event.params)
        else:
            self._ended(event)

    def _asked(self, event: Asked) -> None:
        if event.number != len(self.courses):
            raise FairwayError(f"the log asks for trial {event.number} where {len(self.courses)} is due: it is damaged")
        if event.queued:
            self.queue.popleft()
        course = Course(event, self._space.encode(event.params))
        self.courses.append(course)
        self.running[event.number] = course
        self.ended = None

    def _reported(self, event: Reported) -> None:
        course = self.courses[event.number]
        paid = event.check_ns >= 0
        trained = event.train_ns >= 0
        loss = self._problem.objective.sign * event.objective
        best = feasibility.order(loss, feasibility.violations(self._problem, event.values, paid))[0]
        course.row = self._better(course.row, self._checkpoint(event, int(best)))
        lowest = int(np.lexsort((~paid.all(axis=1), loss))[0])  # of equal ones a measured one says more
        so_far = self.best_ignoring_limits
        sign = self._problem.objective.sign
        if so_far is None or loss[lowest] < sign * so_far[1].objective:
            self.best_ignoring_limits = (event.number, self._checkpoint(event, lowest))
        course.total = event.total
        course.last_step = max(course.last_step, int(event.step.max()))
        course.rows += int(trained.sum())
        course.train_ns += int(event.train_ns[trained].sum())
        course.check_ns += int(event.check_ns[paid].sum())

    def _told(self, event: Told) -> None:
        course = self.running.pop(event.number)
        course.status, course.reason, course.notes = event.status, event.reason, event.notes
        course.row = event.row
        self.counts[event.status] += 1
        if event.status == "stopped":
            self.last_stop = f"trial {event.number}: {event.reason}"
            if course.total is not None and course.rows:
                self.train_saved_ns += (course.total - course.last_step) * course.train_ns // course.rows
        seconds = (course.train_ns + course.check_ns) / 1e9
        row = None if event.status == "failed" else event.row
        self._columns.append(Row(event.number, course.x, event.status, row, seconds))

    def _ended(self, event: Ended) -> None:
        self.ended = event.reason

    def _checkpoint(self, event: Reported, i: int) -> Checkpoint:
        values = zip(event.values[i].tolist(), event.check_ns[i].tolist(), strict=True)
        known = tuple(value if price >= 0 else None for value, price in values)
        return Checkpoint(int(event.step[i]), float(event.objective[i]), known)

    def _better(self, one: Checkpoint | None, other: Checkpoint) -> Checkpoint:
        if one is None:
            return other
        return min(one, other, key=lambda checkpoint: feasibility.standing(self._problem, checkpoint))

    def history(self) -> History:
        """A snapshot for samplers and terminators."""
        return self._columns.snapshot([course.x for course in self.running.values()])

    def record(self, number: int) -> TrialRecord:
        """One trial, for people."""
        course = self.courses[number]
        row, amount, metrics = course.row, None, {}
        if row is not None:
            amount = feasibility.violation(self._problem.constraints, row.values)
            metrics = dict(zip(self._problem.metrics, (row.objective, *row.values), strict=True))
        return TrialRecord(
            number=number,
            params=course.asked.params,
            status=course.status,
            reason=course.reason,
            step=None if row is None else row.step,
            metrics=metrics,
            feasible=None if amount is None else amount == 0.0,
            steps=course.rows,
            seconds=course.train_ns / 1e9,
            check_seconds=course.check_ns / 1e9,
            notes=course.notes,
        )
