"""The best checkpoint under other limits, using only what was measured, and how much of that is unknown.

A checkpoint with a limit that was never measured may be better than all that are known to keep the limits. It counts as
unknown if no limit that was measured is violated.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.checks import is_finite, short
from fairway.engine.checkpoints import CheckpointReader, Checkpoints
from fairway.engine.front import rows_on_front
from fairway.engine.ledger import Ledger
from fairway.engine.log import Log
from fairway.engine.record import Best, at_checkpoint
from fairway.errors import UsageError
from fairway.problem import Constraint, Problem, Track
from fairway.text import counted, limit, measured, named, number, shown

_LONGEST = 2000  # the most characters of the answer in a notebook


@dataclass(frozen=True)
class WhatIf:
    """The best checkpoint under other limits: `study.what_if` returns it, and `print` says it in words.

    `best` is None if no checkpoint is known to keep the limits of `problem`. `best_now` is the best under the study's
    own limits. Of all `checkpoints`, `unknown` could be better than `best`, because a limit was never measured there;
    `unknown_best` is the best objective among these.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], seed=0)
    >>> for auc, eod in ((0.80, 0.09), (0.81, 0.11), (0.83, 0.2)):
    ...     _ = study.tell(study.ask(), auc=auc, eod=eod)
    >>> found = study.what_if(eod=0.12)
    >>> found.best.number, found.best_now.number, found.unknown
    (1, 0, 0)
    >>> print(found)
    With eod ≤ 0.12 the best is trial 1, step 1: auc 0.81, eod 0.11. That is 0.01 better than the study's best.
    """

    problem: Problem
    best: Best | None
    best_now: Best | None
    checkpoints: int
    unknown: int
    unknown_best: float | None

    def __str__(self) -> str:
        return " ".join(filter(None, (self._answer(), self._unknown())))

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(shown(str(self), _LONGEST))}</p>"

    def _answer(self) -> str:
        limits = " and ".join(f"{named(one.metric)} {limit(one)}" for one in self.problem.limits)
        condition = f"With {limits}" if limits else "Without limits"
        if not self.checkpoints:
            return "No checkpoint was measured yet."
        if self.best is None:
            return f"{condition} no checkpoint is known to be feasible."
        found = measured(self.best.metrics.keys(), self.best.metrics.values(), self.best.errors)
        answer = f"{condition} the best is trial {self.best.number:,}, step {self.best.step:,}: {found}."
        if self.best_now is None:
            return f"{answer} With the study's limits none is known."
        metric = self.problem.objective.metric
        change = (self.best.metrics[metric] or 0.0) - (self.best_now.metrics[metric] or 0.0)
        side = "worse" if self.problem.objective.sign * change > 0 else "better"
        compared = f"{number(abs(change))} {side} than" if change else "as good as"
        return f"{answer} That is {compared} the study's best."

    def _unknown(self) -> str:
        if self.unknown_best is None:
            return ""
        among = f"{self.unknown:,} of {counted(self.checkpoints, 'checkpoint')}"
        objective = f"{named(self.problem.objective.metric)} {number(self.unknown_best)}"
        missing = named(self.problem.limits[0].metric) if len(self.problem.limits) == 1 else "a limit"
        return f"{among} could be better, up to {objective}: {missing} was not measured there."


class Found(NamedTuple):
    """The row of the best feasible checkpoint of a table, and the rows of unknown ones with a better objective."""

    best: int | None
    unknown: NDArray[np.intp]


def search(problem: Problem, table: Checkpoints) -> Found:
    """The best checkpoint of a table under the limits of a problem; ties go to the earlier trial, then step."""
    loss = problem.objective.sign * table.objective
    amount = feasibility.violations(problem, table.values, table.paid, table.errors)
    feasible, unknown = np.flatnonzero(amount == 0.0), np.flatnonzero(np.isnan(amount))
    if not len(feasible):
        return Found(None, unknown)
    best = int(feasible[np.argmin(loss[feasible])])  # the first of equal ones, as the table is in order
    return Found(best, unknown[loss[unknown] < loss[best]])


def on_front(problem: Problem, table: Checkpoints) -> list[int]:
    """The rows on the front of objective and tracked metrics, within the limits, the best objective first."""
    places = [i for i, one in enumerate(problem.constraints) if not one.has_limit]
    if not places:
        best = search(problem, table).best
        return [] if best is None else [best]
    amount = feasibility.violations(problem, table.values, table.paid, table.errors)
    values = table.values[:, places] * np.array([one.sign for one in problem.tracked])
    rows = np.flatnonzero((amount == 0.0) & table.paid[:, places].all(axis=1) & ~np.isnan(values).any(axis=1))
    marks = np.column_stack([problem.objective.sign * table.objective[rows], values[rows]])
    return [int(row) for row in rows[rows_on_front(marks)]]


def with_limits(problem: Problem, limits: Mapping[str, Any]) -> tuple[Problem, list[int]]:
    """The problem with some limits moved, or dropped if None; and the places of the constraints that are left."""
    names = [constraint.metric for constraint in problem.constraints]
    for metric, threshold in limits.items():
        if metric not in names:
            there = f"it limits {', '.join(map(short, names))}" if names else "it has none"
            raise UsageError(f"what_if: the study has no limit on {short(metric)}; {there}")
        if threshold is not None and not is_finite(threshold):
            raise UsageError(
                f"what_if: {named(metric)}={short(threshold)}: a finite number is expected, or None for no limit"
            )
    left = [i for i, name in enumerate(names) if limits.get(name, 0.0) is not None]
    moved = [_moved(problem.constraints[i], limits.get(names[i])) for i in left]
    return Problem(problem.objective, moved), left


def _moved(constraint: Constraint, threshold: Any) -> Constraint:
    """A constraint with another limit, or unchanged for None; one that is tracked gets a limit."""
    if threshold is None:
        return constraint
    if isinstance(constraint, Track):
        return constraint.limited(float(threshold))
    return replace(constraint, threshold=float(threshold))


def what_if(ledger: Ledger, reader: CheckpointReader, log: Log, limits: Mapping[str, Any]) -> WhatIf:
    """The best of all checkpoints with some of a study's limits moved, brought back if dropped, or dropped if None."""
    own, now = ledger.problem, ledger.limits.now
    back = {metric for metric, threshold in limits.items() if metric in now.dropped and threshold is not None}
    problem = replace(now, dropped=now.dropped - back).problem(own) if back else own
    asked, left = with_limits(problem, limits)
    table = CheckpointReader(log, problem).read(ledger, problem) if back else reader.read(ledger)
    found, unknown_best = search(asked, table.of(left)), None
    if len(found.unknown):
        losses = asked.objective.sign * table.objective[found.unknown]
        unknown_best = float(asked.objective.sign * losses.min())

    def best(row: int | None) -> Best | None:
        if row is None:
            return None
        k = int(table.number[row])
        return at_checkpoint(problem, k, ledger.courses[k].params, table.one(row))

    ours = [i for i, one in enumerate(problem.constraints) if one.metric not in back]
    return WhatIf(
        problem=asked,
        best=best(found.best),
        best_now=best(search(own, table.of(ours)).best),
        checkpoints=len(table),
        unknown=len(found.unknown),
        unknown_best=unknown_best,
    )
