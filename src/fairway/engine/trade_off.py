"""The price of a limit: the best objective as a function of the limit, and the checkpoints on that curve.

As in `feasibility`, limits are times the sign of their constraint, so that a lower one is tighter. As a limit is
loosened, the best loss can only fall; it falls where a better checkpoint begins to keep the limit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine.checkpoints import Checkpoints
from fairway.problem import Problem
from fairway.text import named, number

_LOOSER, _TIGHTER = 0.2, 0.1  # how far the sentence moves a limit, as a share of it
_SMALL, _LARGE = 1e-6, 1e9  # limits between these are written without a power of ten


class Steps(NamedTuple):
    """Where the best changes as one limit is loosened, from tight to loose."""

    at: NDArray[np.float64]  # (k,): the limit, times its sign
    loss: NDArray[np.float64]  # (k,): the best from there on
    row: NDArray[np.intp]  # (k,): the checkpoint that has this loss

    def best(self, limit: float) -> float | None:
        """The best loss at a limit (times its sign); None if nothing keeps the limit."""
        place = int(np.searchsorted(self.at, limit, side="right"))
        return float(self.loss[place - 1]) if place else None


class TradeOff:
    """What the limits of a problem cost, by all checkpoints of a study.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], seed=0)
    >>> for auc, eod in ((0.8005, 0.09), (0.8107, 0.1), (0.8147, 0.12)):
    ...     _ = study.tell(study.ask(), auc=auc, eod=eod)
    >>> from fairway.report.view import View
    >>> view = View(study)
    >>> TradeOff(view.problem, view.checkpoints()).in_words(0)
    'If the limit of eod moves from 0.10 to 0.12, auc rises by 0.0040; from 0.10 to 0.09 it falls by 0.0102.'
    """

    def __init__(self, problem: Problem, table: Checkpoints) -> None:
        self.problem, self.table = problem, table
        self.loss = problem.objective.sign * table.objective
        self.limits = np.array([one.sign * one.threshold for one in problem.constraints])  # as they are now
        columns = table.values, table.paid, table.errors
        self._known = feasibility.least_limits(problem, *columns, unpaid=math.inf)
        self._possible = feasibility.least_limits(problem, *columns, unpaid=-math.inf)

    def steps(self, i: int, *, possible: bool = False) -> Steps:
        """The best loss as a function of the i-th limit, while the others stay.

        With `possible`, a limit that was not measured counts as kept: this is the best that might be there.
        """
        least = self._possible if possible else self._known
        others = np.arange(len(self.limits)) != i
        rows = np.flatnonzero((least[:, others] <= self.limits[others]).all(axis=1) & (least[:, i] < math.inf))
        rows = rows[np.lexsort((self.loss[rows], least[rows, i]))]
        lowest = np.minimum.accumulate(np.append(math.inf, self.loss[rows]))
        rows = rows[lowest[1:] < lowest[:-1]]
        at = least[rows, i]
        last = np.append(at[1:] != at[:-1], True)[: len(rows)]  # of several at the same limit, the best
        return Steps(at[last], self.loss[rows[last]], rows[last])

    def front(self, most: int, *, possible: bool = False) -> NDArray[np.intp]:
        """The checkpoints for which no other is as good in the objective and every limit, in the order of `what_if`.

        With `possible`, only those with a limit that was not measured, which counts as kept. If there are more than
        `most`, those on the curve of one limit are chosen first, and then those with the best objective.
        """
        least = self._possible if possible else self._known
        wanted = ~self.table.paid.all(axis=1) if possible else self.table.paid.all(axis=1)
        carrying = () if possible else (self.steps(i).row for i in range(len(self.limits)))
        first = np.unique(np.concatenate([np.empty(0, np.intp), *carrying]))
        rows = np.flatnonzero(wanted & (least < math.inf).all(axis=1))
        order = np.lexsort((*least[rows].T, self.loss[rows], ~np.isin(rows, first)))
        rows, found = rows[order], list[int]()
        while len(rows) and len(found) < most:
            best = rows[0]
            found.append(int(best))
            loss = self.loss[rows]
            later = (loss > self.loss[best]) | (loss == self.loss[best]) & (rows >= best)
            rows = rows[~(later & (least[rows] >= least[best]).all(axis=1))]
        front = np.array(found, np.intp)
        return front[np.lexsort((front, self.loss[front]))]

    def least(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """The tightest limits (k, m) that some checkpoints keep, times their signs; -inf where not measured."""
        return self._possible[rows]

    def grid(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """The best loss (l, k) at limits x (k,) of the first constraint and y (l,) of the second, times their signs.

        Both ascend; NaN where nothing is known to keep both.
        """
        best = np.full((len(y) + 1, len(x) + 1), math.inf)
        column, row = (np.searchsorted(ends, self._known[:, i]) for i, ends in enumerate((x, y)))
        np.minimum.at(best, (row, column), self.loss)
        best = np.minimum.accumulate(np.minimum.accumulate(best[:-1, :-1], axis=0), axis=1)
        return np.where(np.isinf(best), math.nan, best)

    def neighbours(self, i: int) -> list[float]:
        """A looser and a tighter i-th limit in few digits, no further than where the best still changes."""
        constraint, steps = self.problem.constraints[i], self.steps(i)
        if not constraint.has_limit:
            return []
        now, known = float(self.limits[i]), steps.at[np.isfinite(steps.at)].tolist()
        ends = (known[-1], known[0]) if known else (now, now)
        far = abs(now) or max(map(abs, ends)) or 1.0
        looser = min(_LOOSER * far, ends[0] - now if ends[0] > now else math.inf)
        tighter = min(_TIGHTER * far, now - ends[1] if ends[1] < now else math.inf)
        moves = _rounded_up(looser), -_rounded_up(tighter)
        return [float(f"{constraint.threshold + constraint.sign * move:.12g}") for move in moves]

    def in_words(self, i: int) -> str:
        """In words, what moving the i-th limit would change, or a tracked metric's front; empty if unknown."""
        constraint, steps = self.problem.constraints[i], self.steps(i)
        if not len(steps.at):
            return ""
        if not constraint.has_limit:
            return self._front_in_words(i, steps)
        now, metric = constraint.threshold, named(self.problem.objective.metric)
        moved = self.neighbours(i)
        names = dict(zip((now, *moved), _said((now, *moved)), strict=True))
        best = {limit: steps.best(constraint.sign * limit) for limit in names}
        here, subject = best[now], f"If the limit of {named(constraint.metric)} moves from {names[now]}"
        if here is None:
            there = [limit for limit in moved if best[limit] is not None]
            return f"Nothing is known to keep {named(constraint.metric)} at {names[now]}" + (
                f"; at {names[there[0]]} {self._level(best[there[0]])} is known." if there else "."
            )
        changes = {limit: None if best[limit] is None else best[limit] - here for limit in moved}  # type: ignore[operator]
        parts = [
            f"{'from ' + names[now] if k else subject} to {names[limit]}{' it' if k else f', {metric}'} "
            f"{self._change(changes[limit], [*changes.values()])}"
            for k, limit in enumerate(moved)
        ]
        return f"{'; '.join(parts)}." if parts else ""

    def _front_in_words(self, i: int, steps: Steps) -> str:
        """Up to three places on the front of a tracked metric: its ends and the middle, the best objective first."""
        constraint, n = self.problem.constraints[i], len(steps.at)
        places = [
            f"{number(float(self.problem.objective.sign * steps.loss[k]))} at {named(constraint.metric)} "
            f"{number(float(constraint.sign * steps.at[k]))}"
            for k in dict.fromkeys([n - 1, n // 2, 0])
        ]
        return f"On the front, {named(self.problem.objective.metric)} is {', '.join(places)}."

    def _level(self, loss: float | None) -> str:
        return f"{named(self.problem.objective.metric)} {self.problem.objective.sign * (loss or 0.0):.4g}"

    def _change(self, change: float | None, all_changes: list[float | None]) -> str:
        if change is None:
            return "is not known"
        if not change:
            return "stays as it is"
        smallest = min(abs(one) for one in all_changes if one)
        places = max(1 - math.floor(math.log10(smallest)), 0)
        amount = f"{abs(change):,.{places}f}" if _SMALL < smallest <= abs(change) < _LARGE else f"{abs(change):.2g}"
        return f"{'rises' if self.problem.objective.sign * change > 0 else 'falls'} by {amount}"


def _rounded_up(distance: float) -> float:
    """A distance rounded up to two digits.

    >>> _rounded_up(0.0613), _rounded_up(0.02)
    (0.062, 0.02)
    """
    if not sys.float_info.min < distance / 100 < distance * 100 < math.inf:
        return distance
    unit = 10.0 ** (math.floor(math.log10(distance)) - 1)
    return float(f"{math.ceil(distance / unit - 1e-6) * unit:.2g}")


def _said(limits: Sequence[float]) -> list[str]:
    """Limits as text, all with as many decimals as the one that needs the most, and at least two below 1.

    >>> _said([0.1, 0.12]), _said([9.0, 10.8]), _said([1e-9, 2e-9])
    (['0.10', '0.12'], ['9.0', '10.8'], ['1e-09', '2e-09'])
    """
    if any(at and not _SMALL <= abs(at) < _LARGE for at in limits):
        return [f"{at:.6g}" for at in limits]
    texts = [f"{at:.10f}".rstrip("0").partition(".")[2] for at in limits]
    places = max(*map(len, texts), 2 if max(map(abs, limits)) < 1 else 0)
    return [f"{at:,.{places}f}" for at in limits]
