"""What samplers and terminators see: read-only columns, one row for each finished trial, and the running ones.

Rows are only ever appended to shared buffers, so a snapshot is a handful of views: it costs nothing and never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.feasibility import Checkpoint
from fairway.problem import Problem
from fairway.space import Space


@dataclass(frozen=True, eq=False)
class History:
    """A snapshot of a study: n finished trials as columns, in the order in which they finished.

    `x` (n, d) holds points of the unit cube, NaN where inactive; `loss` (n,) the objective turned so that lower is
    better, NaN for failed trials; where folds are missing, it is moved by what they brought to others. `values` (n, m)
    are the raw constraint metrics; `violation` (n,) is 0 for feasible, positive for infeasible, NaN for unknown and
    failed; `partial` (n,) marks trials ended before they were done; `step` (n,) is the step of what the row shows,
    `seconds` (n,) what the trial cost, checks included; `noise` (n,) is the objective's, where it came as `Folds`, else
    NaN, and `folds` (n,) how many they were; `pending` (k, d) are the running ones; `seed` is the study's.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtMost("ms", 9.0)], seed=0)
    >>> for ms in (5.0, 20.0):
    ...     best = study.tell(study.ask(), loss=0.5, ms=ms)
    >>> study.history.feasible
    array([ True, False])
    """

    space: Space
    problem: Problem
    seed: int
    number: NDArray[np.int64]
    x: NDArray[np.float64]
    loss: NDArray[np.float64]
    values: NDArray[np.float64]
    violation: NDArray[np.float64]
    failed: NDArray[np.bool_]
    partial: NDArray[np.bool_]
    step: NDArray[np.int64]
    seconds: NDArray[np.float64]
    noise: NDArray[np.float64]
    folds: NDArray[np.int64]
    pending: NDArray[np.float64]
    means: Means | None = None  # of some folds, where trials were reported fold by fold

    def __len__(self) -> int:
        return len(self.number)

    def first(self, n: int) -> History:
        """The snapshot as it was when n trials had finished and none was running."""
        columns = {item.name: getattr(self, item.name)[:n] for item in fields(self)[3:-2]}
        if self.means is not None:
            columns["loss"] = self.means.moved(columns["folds"])
        return replace(self, **columns, pending=self.pending[:0])

    def is_new(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of some points (k, d), as `Space.snap` gives them, were neither tried nor are running."""
        seen = np.concatenate([self.space.fingerprints(self.x), self.space.fingerprints(self.pending)])
        return ~np.isin(self.space.fingerprints(x), seen)

    def beyond(self, i: int) -> NDArray[np.float64]:
        """How far each row (n,) lies beyond limit i, in the metric's unit: infinity for NaN, and NaN where unknown."""
        constraint = self.problem.constraints[i]
        over = constraint.sign * (self.values[:, i] - constraint.threshold)
        over[np.isnan(over) & np.isinf(self.violation)] = np.inf
        return np.asarray(over)

    @property
    def provisional(self) -> NDArray[np.bool_]:
        """Which rows (n,) are means of some folds: rougher than others, but no worse than they will be."""
        return np.zeros(len(self), np.bool_) if self.means is None else self.means.of(len(self)) > self.folds

    @property
    def gap(self) -> NDArray[np.float64]:
        """How far each row (n,) is from the best value there can be, where the objective names one; else its loss."""
        objective = self.problem.objective
        return self.loss if objective.best is None else self.loss - objective.sign * objective.best

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Measured, and every limit holds."""
        return np.equal(self.violation, 0.0)

    @property
    def infeasible(self) -> NDArray[np.bool_]:
        """Measured, and some limit is broken."""
        return np.greater(self.violation, 0.0)

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Ran, but no limit is known to be broken and some was never paid for."""
        return np.isnan(self.violation) & ~self.failed

    @property
    def order(self) -> NDArray[np.intp]:
        """Row indices from best to worst: feasible, infeasible, unknown, failed."""
        return feasibility.order(self.loss, self.violation)


class Means:
    """What trials showed while folds were missing, and how far those that went on have moved since.

    Folds differ: a trial that was stopped after an easy one would look better than all that were not. So the mean of
    some folds is moved by what the others brought, on average, to the trials among the first n that have them all.
    """

    def __init__(self) -> None:
        self._raw: list[float] = []  # the loss of each row, as measured
        self._of: list[int] = []
        self._moves: list[tuple[int, int, int, float]] = []  # row, folds, of how many, how far it moved since

    def append(self, loss: float, of: int, some: Mapping[int, float]) -> None:
        """Add a row, and its losses when it had fewer folds, unless some are still missing."""
        self._moves += [(len(self._raw), folds, of, loss - mean) for folds, mean in some.items()]
        self._raw.append(loss)
        self._of.append(of)

    def of(self, n: int) -> NDArray[np.int64]:
        """How many folds there are, for each of the first n rows."""
        return np.array(self._of[:n], np.int64)

    def moved(self, folds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The losses of the first n rows, given how many folds each (n,) has."""
        n = len(folds)
        loss, of = np.array(self._raw[:n]), self.of(n)
        moves = np.array([move for move in self._moves if move[0] < n]).reshape(-1, 4)
        for k, total in {(folds[i], of[i]) for i in np.flatnonzero(folds < of)}:
            since = moves[(moves[:, 1] == k) & (moves[:, 2] == total), 3]
            loss[(folds == k) & (of == total)] += since.mean() if len(since) else 0.0
        loss.flags.writeable = False
        return loss


class Columns:
    """The growing buffers behind `History`."""

    def __init__(self, space: Space, problem: Problem, seed: int) -> None:
        self._space, self._problem, self._seed = space, problem, seed
        d, m = len(space), len(problem.constraints)
        self._dtype = np.dtype(
            [
                ("number", np.int64),
                ("x", np.float64, (d,)),
                ("loss", np.float64),
                ("values", np.float64, (m,)),
                ("violation", np.float64),
                ("failed", np.bool_),
                ("partial", np.bool_),
                ("step", np.int64),
                ("seconds", np.float64),
                ("noise", np.float64),
                ("folds", np.int64),
            ]
        )
        self._buffers = {name: self._empty(name, 64) for name in self._names}
        self._n = 0
        self._means = Means()
        self._by_fold = False  # some trial was reported fold by fold

    @property
    def _names(self) -> tuple[str, ...]:
        return self._dtype.names or ()

    def _empty(self, name: str, rows: int) -> NDArray[Any]:
        field = self._dtype[name]
        return np.empty((rows, *field.shape), field.base)

    def append(
        self,
        number: int,
        x: NDArray[np.float64],
        checkpoint: Checkpoint | None,
        seconds: float,
        *,
        partial: bool,
        some: Mapping[int, float] | None = None,
    ) -> None:
        """Add a finished trial (a failed one has no checkpoint) below the rows that snapshots may be looking at.

        `some` are the objectives that it had after so many folds, while others were to come.
        """
        if self._n == len(self._buffers["number"]):
            for name, old in self._buffers.items():
                self._buffers[name] = new = self._empty(name, 2 * self._n)
                new[: self._n] = old
        cells: dict[str, object] = {"number": number, "x": x, "seconds": seconds, "partial": partial}
        if checkpoint is None:
            cells |= {"loss": np.nan, "values": np.nan, "violation": np.nan, "failed": True, "step": 0, "noise": np.nan}
            cells["folds"] = 0
            self._means.append(np.nan, 0, {})
        else:
            amount = feasibility.known(self._problem, checkpoint)
            cells |= {
                "loss": self._problem.objective.sign * checkpoint.objective,
                "values": self._values(checkpoint, amount),
                "violation": np.nan if amount is None else amount,
                "failed": False,
                "step": checkpoint.step,
                "noise": np.nan if checkpoint.noise is None else checkpoint.noise,
                "folds": checkpoint.folds,
            }
            sign = self._problem.objective.sign
            before = {} if checkpoint.provisional else {k: sign * mean for k, mean in (some or {}).items()}
            self._means.append(sign * checkpoint.objective, checkpoint.of, before)
            self._by_fold = self._by_fold or checkpoint.provisional
        for name, cell in cells.items():
            self._buffers[name][self._n] = cell
        self._n += 1

    @staticmethod
    def _values(checkpoint: Checkpoint, violation: float | None) -> list[float]:
        """What is known of the limits: by some folds only that they are broken, else what was stopped looks allowed."""
        if checkpoint.provisional and not violation:
            return [np.nan] * len(checkpoint.values)
        return [np.nan if value is None else value for value in checkpoint.values]

    def snapshot(self, pending: Sequence[NDArray[np.float64]]) -> History:
        """The rows so far, as views that nobody can write through."""
        views = {name: self._buffers[name][: self._n] for name in self._names}
        views["pending"] = np.array(pending, np.float64).reshape(len(pending), len(self._space))
        for view in views.values():
            view.flags.writeable = False
        if self._by_fold:
            views["loss"] = self._means.moved(views["folds"])
        return History(self._space, self._problem, self._seed, **views, means=self._means if self._by_fold else None)
