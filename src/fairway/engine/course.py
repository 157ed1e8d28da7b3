"""One trial as the log describes it, and what a batch of reports adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.buffers import Columns
from fairway.engine.columns import fitted
from fairway.engine.events import SAVED, Reported, Status
from fairway.engine.front import Front, Mark
from fairway.feasibility import Checkpoint
from fairway.parameters import Value
from fairway.problem import Problem

_FEW = 16  # batches of up to this many rows are compared row by row; of longer ones, the best rows are picked first


@dataclass(slots=True)
class Course:
    """One trial as the log describes it."""

    params: Mapping[str, Value]
    worker: int
    began: float
    times_lost: int = 0  # earlier trials of this configuration that were lost with their workers
    ended: float = math.nan
    status: Status = "running"
    reason: str = ""
    stop_reason: str | None = None  # why the stopper ended it
    checkpoint: Checkpoint | None = None  # the one that stands for the trial
    peak: Checkpoint | None = None  # the one with the best objective, whatever its constraints
    late: Checkpoint | None = None  # the most complete, then least violating check in the later half of its training
    by_octave: Mapping[int, Checkpoint] = field(default_factory=dict)  # the same in steps 1, 2 to 3, 4 to 7, ...
    lows: Mapping[int, tuple[int, float]] = field(default_factory=dict)  # by octave: its last step, its lowest loss
    halfway: tuple[int, float] | None = None  # the same over all octaves but the last two
    means: Mapping[int, float] = field(default_factory=dict)  # the objective by number of folds, while some are missing
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
    continues: int | None = None  # the trial whose last saved checkpoint it may continue
    aim: Mapping[str, float] = field(default_factory=dict)  # limits on tracked metrics that it is judged by
    front: tuple[Checkpoint, ...] = ()  # its own front of objective and tracked metrics, within the study's limits

    def bare(self) -> Course:
        """A running trial without its reports."""
        began = self.params, self.worker, self.began, self.times_lost
        return Course(*began, notes=self.notes, continues=self.continues, aim=self.aim)

    @property
    def raised_at(self) -> str:
        """The line of the user's code that raised; empty if none did."""
        return self.traceback.rpartition("\n")[2]


def with_reports(problem: Problem, course: Course, batch: Reported) -> dict[str, Any]:
    """The fields of a course after a batch of reports, by name.

    Checks that were paid for count even if their limit was dropped since.
    """
    few, fit = len(batch.step) <= _FEW, fitted(batch, problem)
    new = checkpoints_of(fit) if few else [checkpoint_of(fit, i) for i in _candidates(problem, fit)]
    peak, by_octave = course.peak, dict(course.by_octave)
    for one in new:
        if one.provisional:
            continue
        peak = _first(problem, height, peak, one)
        if one.values.count(None) < len(one.values):
            octave = one.step.bit_length()
            by_octave[octave] = _first(problem, _excess, by_octave.get(octave), one)
    best = new[0]
    if len(new) > 1:  # ties go to the first row
        best = min(new, key=lambda one: feasibility.standing(problem, one)[:-1])
    if course.checkpoint is not None:
        best = min(best, course.checkpoint, key=partial(feasibility.standing, problem))
    lows = _lows(problem, course.lows, batch)
    late = None
    for octave in sorted(by_octave)[-2:]:
        late = _first(problem, _excess, late, by_octave[octave])
    steps, train_ns, check_ns, checks, saved = _spent(batch)
    return {
        "by_octave": by_octave,
        "lows": lows,
        "halfway": _halfway(lows),
        "late": late,
        "front": _front(problem, [*course.front, *_checked(fit)]) if problem.tracked else (),
        "checkpoint": best,
        "peak": peak,
        "last_step": max(course.last_step, *batch.step.tolist()),
        "total": batch.total,
        "interval": batch.interval,
        "means": {**course.means, **_means(batch)} if len(batch.noise) else course.means,
        "steps": course.steps + steps,
        "train_ns": course.train_ns + train_ns,
        "check_ns": course.check_ns + check_ns,
        "checks": course.checks + checks,
        "saved": course.saved + saved,
    }


def _first(
    problem: Problem, key: Callable[[Problem, Checkpoint], Any], known: Checkpoint | None, new: Checkpoint
) -> Checkpoint:
    """The checkpoint with the lower `key(problem, checkpoint)`; ties go to the known one."""
    return new if known is None else min(known, new, key=partial(key, problem))


def _lows(problem: Problem, known: Mapping[int, tuple[int, float]], batch: Reported) -> dict[int, tuple[int, float]]:
    """The last step and the lowest loss in each octave of steps (1, 2 to 3, 4 to 7, ...), after a batch of reports."""
    lows, sign = dict(known), problem.objective.sign
    rows: Iterable[tuple[int, float]] = zip(batch.step.tolist(), batch.objective.tolist(), strict=True)
    if len(batch.noise):
        rows = compress(rows, (~batch.provisional).tolist())
    for step, objective in rows:
        octave = step.bit_length()
        last, lowest = lows.get(octave, (0, math.inf))
        lows[octave] = max(last, step), min(lowest, sign * objective)
    return lows


def _halfway(lows: Mapping[int, tuple[int, float]]) -> tuple[int, float] | None:
    """The last step before the last two octaves, and the lowest loss until then; None if nothing was reported there."""
    before = [low for octave, low in lows.items() if octave < max(lows) - 1]
    return (max(step for step, _ in before), min(loss for _, loss in before)) if before else None


def _spent(batch: Reported) -> tuple[int, int, int, int, int]:
    """What a batch of reports adds to the sums of its trial: steps, both times, checks paid for, checks not called."""
    train_ns = [ns for ns in batch.train_ns.tolist() if ns >= 0]
    check_ns = batch.check_ns.ravel().tolist()
    paid = [price for price in check_ns if price > 0]
    saved = check_ns.count(SAVED)
    if len(train_ns) < len(batch.train_ns):  # a late check was counted as saved when it was offered
        late = batch.check_ns[batch.train_ns < 0]
        saved -= int(np.count_nonzero((late == SAVED) | (late > 0)))
    return len(train_ns), sum(train_ns), sum(paid), len(paid), saved


def add_row(columns: Columns, number: int, point: NDArray[np.float64], course: Course) -> None:
    """Add a trial that has ended to the samplers' columns; a failed one comes without its checkpoint."""
    columns.append(
        number,
        point,
        None if course.status == "failed" else course.checkpoint,
        (course.train_ns + course.check_ns) / 1e9,
        partial=course.status == "stopped",
        some=course.means,
        peak=course.peak,
        late=course.late,
        reached=course.last_step,
        halfway=course.halfway,
        front=course.front,
    )


def height(problem: Problem, peak: Checkpoint) -> tuple[float, bool, int]:
    """A key that sorts checkpoints by objective alone; ties go to a fully measured one, then to the earlier."""
    return problem.objective.sign * peak.objective, None in peak.values, peak.step


def _excess(problem: Problem, checkpoint: Checkpoint) -> tuple[float, ...]:
    """A key that sorts checks by the number of limits not measured, then by violation, then by tracked metrics.

    A checkpoint where a limit was measured and broken says more than one where it was not measured.
    """
    amount, missing = feasibility.known(problem, checkpoint) or 0.0, 0
    if None in checkpoint.values:
        columns = zip(problem.constraints, checkpoint.values, strict=True)
        missing = sum(one.has_limit and value is None for one, value in columns)
    return (missing, amount, *_tracked(problem, checkpoint)) if problem.tracked else (missing, amount)


def _tracked(problem: Problem, checkpoint: Checkpoint) -> tuple[float, ...]:
    """The tracked metrics by sign, infinity where one was not measured."""
    columns = zip(problem.constraints, checkpoint.values, strict=True)
    signed = [math.inf if value is None else one.sign * value for one, value in columns if not one.has_limit]
    return tuple(math.inf if math.isnan(value) else value for value in signed)


def _checked(batch: Reported) -> list[Checkpoint]:
    """The checkpoints of a batch at which something was measured."""
    rows = np.flatnonzero((batch.check_ns >= 0).any(axis=1) & ~batch.provisional)
    return [checkpoint_of(batch, i) for i in rows.tolist()]


def _front(problem: Problem, checkpoints: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
    """The front of one trial's checkpoints: no other is as good in the objective and in every tracked metric."""
    steps = {mark.step for mark in front_of(problem, [(0, one) for one in checkpoints])}
    return tuple({one.step: one for one in checkpoints if one.step in steps}.values())


def front_of(problem: Problem, checkpoints: Iterable[tuple[int, Checkpoint]]) -> list[Mark]:
    """The front of those checkpoints that are within the limits and have all tracked metrics measured."""
    front = Front()
    for number, one in checkpoints:
        values = _tracked(problem, one)
        if feasibility.known(problem, one) == 0.0 and max(values) < math.inf:
            front.add(Mark(problem.objective.sign * one.objective, values, number, one.step))
    return front.marks


def _candidates(problem: Problem, batch: Reported) -> list[int]:
    """The rows of a long batch, in order, that may stand for the trial or for an octave, or be its peak."""
    rows = np.flatnonzero(~batch.provisional)
    if not len(rows):
        return [*range(len(batch.step))]
    loss, checked = problem.objective.sign * batch.objective[rows], batch.check_ns[rows] >= 0
    amounts = feasibility.violations(problem, batch.values[rows], checked, batch.error_table()[rows])
    peak = np.lexsort((batch.step[rows], ~checked.all(axis=1), loss))[0]
    chosen = {int(rows[peak]), int(rows[feasibility.first_standing(problem, loss, amounts, checked)])}
    if problem.tracked:
        chosen |= {*rows[checked.any(axis=1)].tolist()}
    missing = np.count_nonzero(~checked[:, [one.has_limit for one in problem.constraints]], axis=1)
    octaves = np.frexp(batch.step[rows].astype(np.float64))[1]
    octaves[~checked.any(axis=1)] = -1
    for octave in {*octaves.tolist()} - {-1}:
        among = np.flatnonzero(octaves == octave)
        chosen.add(int(rows[among[np.lexsort((np.nan_to_num(amounts[among]), missing[among]))[0]]]))
    return sorted(chosen)


def _means(batch: Reported) -> dict[int, float]:
    """The mean objective by number of folds, from reports with folds to come."""
    some = batch.noise[batch.noise[:, 2] < batch.noise[:, 3]]
    return {int(folds): float(batch.objective[int(row)]) for row, _, folds, _ in some}


def checkpoints_of(event: Reported) -> list[Checkpoint]:
    """The checkpoint in each row of some reports."""
    if len(event.errors) or len(event.noise):
        return [checkpoint_of(event, i) for i in range(len(event.step))]
    step, objective, values, prices = event.step, event.objective, event.values, event.check_ns
    rows = zip(step.tolist(), objective.tolist(), values.tolist(), prices.tolist(), strict=True)
    return [Checkpoint(step, objective, _known(values, prices)) for step, objective, values, prices in rows]


def _known(values: Iterable[float], prices: Iterable[int]) -> tuple[float | None, ...]:
    """The values of one row, None where nothing was measured."""
    return tuple([value if price >= 0 else None for value, price in zip(values, prices, strict=True)])


def checkpoint_of(event: Reported, i: int) -> Checkpoint:
    """The checkpoint in row `i` of some reports."""
    known = _known(event.values[i].tolist(), event.check_ns[i].tolist())
    checkpoint = Checkpoint(event.step.item(i), event.objective.item(i), known)
    if len(event.errors):
        found = event.errors[event.errors[:, 0] == i, 1:]
        if len(found):
            errors = {int(constraint): error for constraint, error in found.tolist()}
            checkpoint = checkpoint._replace(errors=tuple(errors.get(j) for j in range(len(known))))
    folds = event.noise[event.noise[:, 0] == i, 1:] if len(event.noise) else event.noise
    if not len(folds):
        return checkpoint
    return checkpoint._replace(noise=float(folds[0, 0]), folds=int(folds[0, 1]), of=int(folds[0, 2]))
