"""Which trials are measured again before a certificate, on the rows that the search judged by.

The search pays for a check only where a checkpoint could become the best. So it measured almost no checkpoints that are
safer than its best and a bit worse, and those are what passes on fresh rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine.certification import promising
from fairway.engine.events import Reported, Surveyed
from fairway.engine.owner import Owner
from fairway.engine.record import Best
from fairway.feasibility import Checkpoint

_STEPS = 12  # of a trial that are measured
_KINDS = 20  # groups of trials with similar objectives, in each of which the cheapest is measured
_FEASIBLE = 5  # of the best feasible trials are measured
_SHARE = 0.08  # of the search's time that the trainings may take, as far as the log can tell


def plan_survey(owner: Owner, level: float) -> list[tuple[Best, list[int]]]:
    """Which trials to measure again, each up to a checkpoint, and at which steps on the way.

    The search itself measured little that is safer than its best and a bit worse. So half of the time goes to trials on
    the front of what it measured and to the best feasible ones, the other half to the cheapest trial of each group with
    similar objectives. In each trial, some of the steps that improved its objective are measured.
    """
    ledger, problem = owner.ledger, owner.problem
    events = owner.journal.read(0)
    done = {event.number for event in events if isinstance(event, Surveyed)}
    peaks = {
        number: problem.objective.sign * course.peak.objective
        for number, course in enumerate(ledger.courses)
        if course.status in ("completed", "stopped") and course.peak is not None and course.steps > 1
    }
    ranked = sorted(peaks, key=lambda number: (peaks[number], number))
    feasible = [number for number in ranked if _is_feasible(owner, number)]
    front = promising(problem, events, level=level)
    kinds = np.array_split(np.array(ranked, int), min(len(ranked), _KINDS)) if ranked else []
    cheapest = [min(map(int, kind), key=lambda number: ledger.courses[number].train_ns) for kind in kinds]
    spent = sum(course.train_ns + course.check_ns for course in ledger.courses)
    price = sum(course.check_ns for course in ledger.courses) / max(sum(course.checks for course in ledger.courses), 1)
    plan: dict[int, tuple[Best, list[int]]] = {}
    for kind in ([*(one.number for one in front), *feasible[:_FEASIBLE]], cheapest):
        cost = 0.0
        for number in dict.fromkeys(kind):
            if number in plan or number in done or number not in peaks:
                continue
            steps = _improvements(problem.objective.sign, owner.journal.log.reports([number]))
            steps |= {one.step: one.objective for one in front if one.number == number}
            cost += ledger.courses[number].train_ns + price * len(steps) * len(problem.constraints)
            if plan and cost > _SHARE / 2 * spent:
                break
            last = Checkpoint(max(steps), steps[max(steps)], (None,) * len(problem.constraints))
            plan[number] = (owner.named(number, last), sorted(steps))
    return [*plan.values()]


def _is_feasible(owner: Owner, number: int) -> bool:
    checkpoint = owner.ledger.courses[number].checkpoint
    return checkpoint is not None and feasibility.known(owner.problem, checkpoint) == 0.0


def _improvements(sign: float, batches: Sequence[Reported]) -> dict[int, float]:
    """The steps at which a trial's objective was better than at any before, with the objective; at most `_STEPS`."""
    if not batches:
        return {}
    trained = [batch.train_ns >= 0 for batch in batches]
    step = np.concatenate([batch.step[rows] for batch, rows in zip(batches, trained, strict=True)])
    objective = np.concatenate([batch.objective[rows] for batch, rows in zip(batches, trained, strict=True)])
    loss: NDArray[np.float64] = sign * objective
    better = np.flatnonzero(loss < np.concatenate([[np.inf], np.minimum.accumulate(loss)[:-1]]))
    if len(better) > _STEPS:
        better = better[np.unique(np.linspace(0, len(better) - 1, _STEPS).round().astype(np.intp))]
    return {int(step[i]): float(objective[i]) for i in better}
