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
from fairway.events import Status
from fairway.feasibility import Checkpoint
from fairway.problem import Problem
from fairway.space import Space, Value


@dataclass(frozen=True)
class TrialRecord:
    """What is known of one trial; `study.trials` lists them.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: 0.5, trials=1)
    >>> study.trials[0].status, study.trials[0].metrics
    ('completed', {'loss': 0.5})

    `step` and `metrics` are those of the checkpoint that stands for it: its best feasible one; else the least violating
    measured one; else the best by objective, its constraints unknown (None). `feasible` is None while unknown.
    """

    number: int
    params: Mapping[str, Value]
    status: Status
    reason: str
    step: int | None
    metrics: Mapping[str, float | None]
    feasible: bool | None
    steps: int
    training_seconds: float
    check_seconds: float
    notes: Mapping[str, Any]

    @property
    def partial(self) -> bool:
        """Whether it was ended before it was done: by the stopper or by a timeout."""
        return self.status == "stopped"

    def row(self, space: Space, problem: Problem) -> dict[str, Any]:
        """The trial as a row of a table, with a column for every parameter and metric."""
        return {
            "number": self.number,
            "status": self.status,
            "feasible": self.feasible,
            **{f"param.{name}": self.params.get(name) for name in space},
            **{f"metric.{name}": self.metrics.get(name) for name in problem.metrics},
            "step": self.step,
            "steps": self.steps,
            "training_seconds": self.training_seconds,
            "check_seconds": self.check_seconds,
            "reason": self.reason,
        }


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

    def __len__(self) -> int:
        return len(self.number)

    def first(self, n: int) -> History:
        """The snapshot as it was when n trials had finished and none was running."""
        columns = {item.name: getattr(self, item.name)[:n] for item in fields(self)[3:]}
        return replace(self, **{**columns, "pending": self.pending[:0]})

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
    ) -> None:
        """Add a finished trial (a failed one has no checkpoint) below the rows that snapshots may be looking at."""
        if self._n == len(self._buffers["number"]):
            for name, old in self._buffers.items():
                self._buffers[name] = new = self._empty(name, 2 * self._n)
                new[: self._n] = old
        cells: dict[str, object] = {"number": number, "x": x, "seconds": seconds, "partial": partial}
        if checkpoint is None:
            cells |= {"loss": np.nan, "values": np.nan, "violation": np.nan, "failed": True, "step": 0, "noise": np.nan}
            cells["folds"] = 0
        else:
            amount = feasibility.known(self._problem, checkpoint)
            cells |= {
                "loss": self._problem.objective.sign * checkpoint.objective,
                "values": [np.nan if value is None else value for value in checkpoint.values],
                "violation": np.nan if amount is None else amount,
                "failed": False,
                "step": checkpoint.step,
                "noise": np.nan if checkpoint.noise is None else checkpoint.noise,
                "folds": checkpoint.folds,
            }
        for name, cell in cells.items():
            self._buffers[name][self._n] = cell
        self._n += 1

    def snapshot(self, pending: Sequence[NDArray[np.float64]]) -> History:
        """The rows so far, as views that nobody can write through."""
        views = {name: self._buffers[name][: self._n] for name in self._names}
        views["pending"] = np.array(pending, np.float64).reshape(len(pending), len(self._space))
        for view in views.values():
            view.flags.writeable = False
        return History(self._space, self._problem, self._seed, **views)
