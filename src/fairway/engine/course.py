"""One trial as the log tells it, and what a batch of its reports adds to that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine.events import SAVED, Reported, Status
from fairway.feasibility import Checkpoint
from fairway.parameters import Value
from fairway.problem import Problem


@dataclass(slots=True)
class Course:
    """One trial as the log tells it."""

    params: Mapping[str, Value]
    worker: int
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
    traceback: str = ""  # where it raised, a line for each of the user's frames

    @property
    def raised_at(self) -> str:
        """The line of the user's code that raised; empty if none did."""
        return self.traceback.rpartition("\n")[2]


def with_reports(problem: Problem, course: Course, batch: Reported) -> dict[str, Any]:
    """What is known of a trial, by the names of its course, once a batch of reports is added."""
    reports = _Reports(problem, batch)
    trained, paid, called = batch.train_ns >= 0, batch.check_ns >= 0, batch.check_ns > 0
    late = int(called[~trained].sum())  # counted as saved when it was offered
    by_octave = reports.by_octave(course.by_octave)
    latest = sorted(by_octave)[-2:]
    return {
        "by_octave": by_octave,
        "late": min((by_octave[octave] for octave in latest), key=reports.excess, default=None),
        "checkpoint": reports.standing(course.checkpoint),
        "peak": reports.peak(course.peak),
        "steps": course.steps + int(trained.sum()),
        "last_step": max(course.last_step, int(batch.step.max())),
        "total": batch.total,
        "interval": batch.interval,
        "train_ns": course.train_ns + int(batch.train_ns[trained].sum()),
        "check_ns": course.check_ns + int(batch.check_ns[paid].sum()),
        "checks": course.checks + int(called.sum()),
        "saved": course.saved + int((batch.check_ns[trained] == SAVED).sum()) - late,
        "means": {**course.means, **reports.means()} if len(batch.noise) else course.means,
    }


def height(problem: Problem, peak: Checkpoint) -> tuple[float, bool, int]:
    """A key that sorts checkpoints by objective alone; of equal ones a measured one says more, then the earlier."""
    return problem.objective.sign * peak.objective, None in peak.values, peak.step


class _Reports:
    """The checkpoints of a batch. Most trials of many are told in one report, where there is nothing to choose."""

    def __init__(self, problem: Problem, batch: Reported) -> None:
        self._problem, self._batch = problem, batch
        self._provisional = batch.provisional
        self._final = np.flatnonzero(~self._provisional)  # rows that are not means of some folds
        self._made: dict[int, Checkpoint] = {}

    def peak(self, so_far: Checkpoint | None) -> Checkpoint | None:
        """The checkpoint with the best objective."""
        batch, rows = self._batch, self._final
        if not len(rows):
            return so_far
        if len(rows) > 1:
            loss, unmeasured = self._problem.objective.sign * batch.objective, (batch.check_ns < 0).any(axis=1)
            rows = np.lexsort((batch.step, unmeasured, loss, self._provisional))
        new = self._checkpoint(int(rows[0]))
        return new if so_far is None else min(so_far, new, key=lambda peak: height(self._problem, peak))

    def by_octave(self, so_far: Mapping[int, Checkpoint]) -> Mapping[int, Checkpoint]:
        """The least violating check among the steps from each power of two on."""
        batch, rows = self._batch, self._final
        if len(rows):
            rows = rows[(batch.check_ns[rows] >= 0).any(axis=1)]
        if not len(rows):
            return so_far
        octaves, found = np.frexp(batch.step[rows].astype(np.float64))[1], dict(so_far)
        amounts = self._amounts(rows)
        for octave in sorted({*octaves.tolist()}):
            among = octaves == octave
            checkpoint = self._checkpoint(int(rows[among][np.argmin(amounts[among])]))
            found[octave] = min(found.get(octave, checkpoint), checkpoint, key=self.excess)
        return found

    def _amounts(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """The violations of some rows, 0 if unknown; of a single one, which is compared with none, 0."""
        if len(rows) == 1:
            return np.zeros(1)
        batch = self._batch
        errors = batch.error_table()[rows]
        found = feasibility.violations(self._problem, batch.values[rows], batch.check_ns[rows] >= 0, errors)
        return np.nan_to_num(found)

    def excess(self, checkpoint: Checkpoint) -> float:
        """How far a checkpoint is beyond its limits; what was not measured does not count."""
        return feasibility.known(self._problem, checkpoint) or 0.0

    def standing(self, so_far: Checkpoint | None) -> Checkpoint:
        """The checkpoint that stands for a trial."""
        batch, rows = self._batch, self._final
        if len(rows) > 1:
            loss = self._problem.objective.sign * batch.objective
            amounts = feasibility.violations(self._problem, batch.values, batch.check_ns >= 0, batch.error_table())
            rows = rows[feasibility.order(loss[rows], amounts[rows])[:1]]
        candidates = [self._checkpoint(i) for i in (rows.tolist() if len(rows) else range(len(batch.step)))]
        candidates += [] if so_far is None else [so_far]
        if len(candidates) == 1:
            return candidates[0]
        return min(candidates, key=lambda checkpoint: feasibility.standing(self._problem, checkpoint))

    def means(self) -> dict[int, float]:
        """The objective after so many folds, in reports with folds to come."""
        batch = self._batch
        some = batch.noise[batch.noise[:, 2] < batch.noise[:, 3]]
        return {int(folds): float(batch.objective[int(row)]) for row, _, folds, _ in some}

    def _checkpoint(self, i: int) -> Checkpoint:
        made = self._made.get(i)
        if made is None:
            made = self._made[i] = _checkpoint(self._batch, i)
        return made


def _checkpoint(event: Reported, i: int) -> Checkpoint:
    values = zip(event.values[i].tolist(), event.check_ns[i].tolist(), strict=True)
    known = tuple(value if price >= 0 else None for value, price in values)
    checkpoint = Checkpoint(int(event.step[i]), float(event.objective[i]), known)
    if len(event.errors):
        found = event.errors[event.errors[:, 0] == i, 1:]
        if len(found):
            errors = {int(constraint): error for constraint, error in found.tolist()}
            checkpoint = checkpoint._replace(errors=tuple(errors.get(j) for j in range(len(known))))
    folds = event.noise[event.noise[:, 0] == i, 1:] if len(event.noise) else event.noise
    if not len(folds):
        return checkpoint
    return checkpoint._replace(noise=float(folds[0, 0]), folds=int(folds[0, 1]), of=int(folds[0, 2]))
