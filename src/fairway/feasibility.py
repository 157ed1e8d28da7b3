"""The feasibility order: how constraints rank checkpoints and trials. No other module ranks by constraints.

A checkpoint is *feasible* (every constraint measured, all hold), *infeasible* (a measured one is violated) or *unknown*
(none violated, some not measured). Its violation is 0, positive or unknown: the sum over constraints of the measured
value's excess over its limit, in that constraint's unit. Feasible checkpoints come first, by loss; then infeasible
ones, by violation and loss; then unknown ones, by loss; then failed trials, which measured nothing.

Once a constraint is violated, the others are often not called. So when trials are compared with each other, a
constraint that was not measured does not count as met: it counts with the median excess that was measured for it in
other trials.

A metric that is tracked has no limit, so it never makes a checkpoint infeasible or unknown.

What is compared with a limit is the bound of a measured value: the value itself, or for a constraint with a confidence
the value plus (`AtLeast`: minus) z errors. Only this module computes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.problem import Constraint, Problem

_TINY = 5e-324  # the least violation: excess / unit may underflow to 0


class Checkpoint(NamedTuple):
    """What a trial reported at one step."""

    step: int
    objective: float
    values: tuple[float | None, ...] = ()  # by constraint; None if not measured
    noise: float | None = None  # of the objective, if it was reported as `Folds`
    folds: int = 1  # so far
    of: int = 1  # in all
    errors: tuple[float | None, ...] = ()  # of the values, by constraint; None if unknown, empty if all are

    @property
    def provisional(self) -> bool:
        """Whether folds are missing, so that this is not the final mean."""
        return self.folds < self.of


def bound(constraint: Constraint, value: float, error: float | None = None) -> float:
    """The number that is compared with the limit.

    >>> import fairway as fw
    >>> round(bound(fw.AtMost("eod", 0.1, confidence=0.9), 0.08, 0.01), 4)
    0.0928
    """
    if not constraint.z:
        return value
    return value + constraint.sign * constraint.z * (math.nan if error is None else error)


def excess(constraint: Constraint, value: float, error: float | None = None) -> float:
    """How far a measured value's bound exceeds the limit, in the constraint's unit; 0 if it holds, infinity for NaN."""
    over = constraint.sign * (bound(constraint, value, error) - constraint.threshold)
    if over <= 0.0 or not constraint.has_limit:
        return 0.0
    if over != over:  # noqa: PLR0124 - NaN is the only value unlike itself
        return math.inf
    return over / constraint.unit or _TINY


def violation(
    constraints: Sequence[Constraint], values: Sequence[float | None], errors: Sequence[float | None] = ()
) -> float | None:
    """The violation of one checkpoint: 0 if feasible, positive if infeasible, None if unknown."""
    total = 0.0
    known = True
    for i, value in enumerate(values):
        if value is None:
            known = known and not constraints[i].has_limit
        else:
            total += excess(constraints[i], value, errors[i] if errors else None)
    return total if known or total else None


def bounds(problem: Problem, values: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The numbers (n, m) that are compared with the limits, from values and errors, both (n, m)."""
    z = np.array([constraint.sign * constraint.z for constraint in problem.constraints])
    return np.where(z == 0.0, values, values + z * errors)


def violations(
    problem: Problem, values: NDArray[np.float64], paid: NDArray[np.bool_], errors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The violation (n,) of checkpoints, NaN if unknown.

    From values, whether each was measured, and errors, NaN if unknown; all (n, m).
    """
    if not problem.constraints:
        return np.zeros(len(values))
    values = bounds(problem, values, errors)
    sign = np.array([constraint.sign for constraint in problem.constraints])
    threshold = np.array([constraint.threshold for constraint in problem.constraints])
    unit = np.array([constraint.unit for constraint in problem.constraints])
    limited = np.array([constraint.has_limit for constraint in problem.constraints])
    paid = paid | ~limited
    with np.errstate(over="ignore", invalid="ignore"):
        over = np.where(limited, sign * (values - threshold), 0.0)
        amount = np.where(over > 0.0, np.maximum(over / unit, _TINY), 0.0)
    total = np.where(paid, np.where(np.isnan(over), np.inf, amount), 0.0).sum(axis=1)
    total[(total == 0.0) & ~paid.all(axis=1)] = np.nan
    return np.asarray(total)


def least_limits(
    problem: Problem,
    values: NDArray[np.float64],
    paid: NDArray[np.bool_],
    errors: NDArray[np.float64],
    *,
    unpaid: float,
) -> NDArray[np.float64]:
    """The tightest limits (n, m) that checkpoints would meet, times the signs of their constraints: lower is tighter.

    An entry is `unpaid` if the constraint was not measured, and infinity if it is NaN, which meets no limit.
    """
    sign = np.array([constraint.sign for constraint in problem.constraints])
    least = sign * bounds(problem, values, errors)
    return np.where(paid, np.where(np.isnan(least), np.inf, least), unpaid)


def distances(problem: Problem, bounds: NDArray[np.float64], violation: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far trials (n,) are from meeting every limit: their violation, plus the median excess where not measured.

    `bounds` (n, m) is NaN where not measured; `violation` (n,) is NaN where unknown, and stays NaN.
    """
    total = violation.copy()
    for i, constraint in enumerate(problem.constraints if len(problem.constraints) > 1 else ()):
        missing = np.isnan(bounds[:, i])
        if constraint.has_limit and missing.any() and not missing.all():
            over = constraint.sign * (bounds[~missing, i] - constraint.threshold) / constraint.unit
            total[missing] += np.median(np.maximum(over, 0.0))
    return total


def nearest(problem: Problem, checkpoints: Mapping[int, Checkpoint]) -> int | None:
    """The trial whose checkpoint, of those that are infeasible, is nearest to meeting every limit; None without one.

    Checkpoints with missing folds come last.
    """
    numbers, marks = [*checkpoints], [*checkpoints.values()]
    amounts = np.array([_or_nan(known(problem, mark)) for mark in marks])
    table = [
        [_or_nan(v if v is None else bound(one, v, e)) for one, v, e in each_value(problem, mark)] for mark in marks
    ]
    away = distances(problem, np.array(table).reshape(len(marks), len(problem.constraints)), amounts)
    keys = [
        (mark.of - mark.folds, float(away[k]), problem.objective.sign * mark.objective, numbers[k])
        for k, mark in enumerate(marks)
        if amounts[k] > 0.0
    ]
    return min(keys)[-1] if keys else None


def each_value(problem: Problem, checkpoint: Checkpoint) -> Iterator[tuple[Constraint, float | None, float | None]]:
    """Each constraint, with the value that a checkpoint measured for it and that value's error."""
    errors = checkpoint.errors or (None,) * len(problem.constraints)
    return zip(problem.constraints, checkpoint.values, errors, strict=True)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def order(loss: NDArray[np.float64], violation: NDArray[np.float64], most: int | None = None) -> NDArray[np.intp]:
    """The indices of checkpoints from best to worst; with `most`, only that many, without sorting the others.

    `loss` and `violation` are (n,); violation is NaN if unknown, loss is NaN if failed.
    """
    columns = keys(loss, violation)
    if most is None or most >= len(loss):
        return np.lexsort([*reversed(columns)])
    rows = _first(columns, most)
    return rows[np.lexsort([column[rows] for column in reversed(columns)])]


def _first(columns: Sequence[NDArray[Any]], k: int) -> NDArray[np.intp]:
    """The k rows that sort first by columns (the most important one first) and then by number, in order of number."""
    chosen, tied = np.empty(0, np.intp), np.arange(len(columns[0]))
    for column in columns:
        values, wanted = column[tied], k - len(chosen)
        if wanted <= 0 or wanted >= len(tied):
            break
        last = np.partition(values, wanted - 1)[wanted - 1]
        before, equal = (values < last, values == last) if last == last else (values == values, values != values)  # noqa: PLR0124 - NaN comes last
        chosen, tied = np.concatenate([chosen, tied[before]]), tied[equal]
    return np.sort(np.concatenate([chosen, tied[: k - len(chosen)]]))


def keys(loss: NDArray[np.float64], violation: NDArray[np.float64]) -> tuple[NDArray[Any], ...]:
    """The columns (n,) by which checkpoints are sorted from best to worst, the most important one first."""
    failed = np.isnan(loss)
    unknown = np.isnan(violation)
    return failed, unknown, np.where(unknown, 0.0, violation), loss


def standing(problem: Problem, checkpoint: Checkpoint) -> tuple[int, bool, int, float, float, int]:
    """A key that sorts one trial's checkpoints as `order` does, ties by step.

    Among those that violate a limit, the ones with the fewest unmeasured constraints come first: an unmeasured value
    may be far beyond its limit. Provisional checkpoints come last, those with the most folds first.
    """
    amount, missing = known(problem, checkpoint), checkpoint.of - checkpoint.folds
    columns = zip(problem.constraints, checkpoint.values, strict=True)
    lacks = sum(value is None and one.has_limit for one, value in columns) if amount else 0
    loss = problem.objective.sign * checkpoint.objective
    return (missing, amount is None, lacks, amount or 0.0, loss, checkpoint.step)


def first_standing(
    problem: Problem, loss: NDArray[np.float64], violation: NDArray[np.float64], paid: NDArray[np.bool_]
) -> int:
    """The index of the checkpoint that `standing` sorts first, among those of one trial (n,), none of them provisional.

    `paid` (n, m) says what was measured.
    """
    limited = np.array([one.has_limit for one in problem.constraints], np.bool_)
    lacks = np.where(violation > 0.0, (~paid & limited).sum(axis=1), 0)
    failed, unknown, amount, loss = keys(loss, violation)
    return int(np.lexsort((loss, amount, lacks, unknown, failed))[0])


def known(problem: Problem, checkpoint: Checkpoint) -> float | None:
    """The violation of a checkpoint; None, not 0, for a provisional one, since later folds may violate a constraint."""
    amount = violation(problem.constraints, checkpoint.values, checkpoint.errors)
    return None if checkpoint.provisional and not amount else amount
