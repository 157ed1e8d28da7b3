"""The only place where constraints become an order.

A checkpoint is *feasible* (every constraint measured, all hold), *infeasible* (some measured one is violated) or
*unknown* (nothing violated, something never measured). Its violation is 0, positive or unknown: the sum over
constraints of how far each measured value lies beyond its threshold, in that constraint's unit. The order: feasible
ones by loss, then infeasible ones by violation and loss, then unknown ones by loss. Failed trials, which measured
nothing, come after all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.problem import Constraint, Problem

_TINY = 5e-324  # what is beyond a threshold is violated, even where the quotient underflows


class Checkpoint(NamedTuple):
    """One reported state of one trial: what was measured there. A constraint that was not measured is None."""

    step: int
    objective: float
    values: tuple[float | None, ...] = ()
    noise: float | None = None  # of the objective, where it came as `Folds`
    folds: int = 1  # how many
    of: int = 1  # of how many

    @property
    def provisional(self) -> bool:
        """Whether it is the mean of some folds, with others to come: no model stands behind it yet."""
        return self.folds < self.of


def excess(constraint: Constraint, value: float) -> float:
    """How far a measured value breaks one limit, in that constraint's unit; 0 where it holds, infinity for NaN."""
    over = constraint.sign * (value - constraint.threshold)
    if over <= 0.0:
        return 0.0
    if over != over:  # noqa: PLR0124 - NaN is the only value unlike itself
        return math.inf
    return over / constraint.unit or _TINY


def violation(constraints: Sequence[Constraint], values: Sequence[float | None]) -> float | None:
    """The violation of one checkpoint: 0 feasible, positive infeasible, None unknown."""
    total = 0.0
    known = True
    for i, value in enumerate(values):
        if value is None:
            known = False
        else:
            total += excess(constraints[i], value)
    return total if known or total else None


def violations(problem: Problem, values: NDArray[np.float64], paid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The violation of many checkpoints (n,), from values and what was measured, both (n, m); NaN for unknown."""
    if not problem.constraints:
        return np.zeros(len(values))
    sign = np.array([constraint.sign for constraint in problem.constraints])
    threshold = np.array([constraint.threshold for constraint in problem.constraints])
    unit = np.array([constraint.unit for constraint in problem.constraints])
    with np.errstate(over="ignore", invalid="ignore"):
        over = sign * (values - threshold)
        amount = np.where(over > 0.0, np.maximum(over / unit, _TINY), 0.0)
    total = np.where(paid, np.where(np.isnan(over), np.inf, amount), 0.0).sum(axis=1)
    total[(total == 0.0) & ~paid.all(axis=1)] = np.nan
    return np.asarray(total)


def order(loss: NDArray[np.float64], violation: NDArray[np.float64]) -> NDArray[np.intp]:
    """The indices of many checkpoints from best to worst; both (n,), violation NaN for unknown, loss NaN for failed."""
    failed = np.isnan(loss)
    unknown = np.isnan(violation)
    return np.lexsort((loss, np.where(unknown, 0.0, violation), unknown, failed))


def standing(problem: Problem, checkpoint: Checkpoint) -> tuple[int, bool, float, float, int]:
    """A key that sorts one trial's checkpoints as `order` does; the earlier step wins a tie.

    Provisional ones come last, and among them that of the most folds first: it says the most of the trial.
    """
    amount, missing = known(problem, checkpoint), checkpoint.of - checkpoint.folds
    return (missing, amount is None, amount or 0.0, problem.objective.sign * checkpoint.objective, checkpoint.step)


def known(problem: Problem, checkpoint: Checkpoint) -> float | None:
    """The violation of a checkpoint that may stand for its trial; a provisional one is never known to be feasible."""
    amount = violation(problem.constraints, checkpoint.values)
    return None if checkpoint.provisional and not amount else amount
