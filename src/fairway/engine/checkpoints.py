"""Every checkpoint of a study as columns, to answer questions about other limits.

The end of a trial sums up its reports under the study's own limits. Under other limits, another of its checkpoints may
be the best, so the reports themselves are read from the log. Those of a trial that has ended are read once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.engine.events import Reported
from fairway.engine.ledger import Ledger
from fairway.engine.log import Log
from fairway.engine.remeasurement import SecondMeasurements
from fairway.engine.soundness import refuse_other_constraints
from fairway.feasibility import Checkpoint
from fairway.problem import Problem

_AT_ONCE = 20_000  # trials whose reports are read at a time


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """All checkpoints (n,) of a study with m constraints, by trial and step, except those with folds to come."""

    number: NDArray[np.int64]  # (n,)
    step: NDArray[np.int64]  # (n,)
    objective: NDArray[np.float64]  # (n,)
    values: NDArray[np.float64]  # (n, m)
    paid: NDArray[np.bool_]  # (n, m): whether a constraint was measured
    errors: NDArray[np.float64]  # (n, m): of the values, NaN if unknown

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Checkpoints:
        return Checkpoints(*(column[rows] for column in self.columns))

    def of(self, constraints: Sequence[int]) -> Checkpoints:
        """The same checkpoints with only the constraints at these places."""
        places = list(constraints)
        some = {name: getattr(self, name)[:, places] for name in ("values", "paid", "errors")}
        return replace(self, **some)

    @property
    def columns(self) -> Sequence[NDArray[Any]]:
        """The columns in their order."""
        return [getattr(self, item.name) for item in fields(self)]

    def one(self, row: int) -> Checkpoint:
        """The checkpoint in one row."""
        known = self.paid[row].tolist()
        values = tuple(v if paid else None for v, paid in zip(self.values[row].tolist(), known, strict=True))
        errors = tuple(None if np.isnan(error) else error for error in self.errors[row].tolist())
        some = errors if any(error is not None for error in errors) else ()
        return Checkpoint(int(self.step[row]), float(self.objective[row]), values, errors=some)


class CheckpointReader:
    """Reads the checkpoints of one study, and keeps those that can no longer change. Threads may share it."""

    def __init__(self, log: Log, problem: Problem) -> None:
        self._log, self._problem, self._lock = log, problem, threading.Lock()
        self._kept = _table([], {}, problem)
        self._ends: dict[int, tuple[float, int, int, int]] = {}  # by trial in `_kept`, to notice a change

    def read(self, ledger: Ledger, problem: Problem | None = None) -> Checkpoints:
        """The checkpoints of all trials in a ledger, with the newer values of those measured again.

        They have the constraints of the ledger's problem, or of `problem`, which may include dropped limits.
        """
        problem = problem or ledger.problem
        running, ended, changed = dict[int, int](), dict[int, int](), set[int]()
        again = Counter(number for number, _ in ledger.remeasured.places)
        with self._lock:
            if self._problem.metrics != problem.metrics:  # a constraint was added or dropped
                self._kept, self._ends = _table([], {}, problem), {}
            self._problem = problem
            for number, course in enumerate(ledger.courses):
                end = course.ended, course.steps, course.checks, again[number]
                if self._ends.get(number, end) != end:  # the trial was revived or measured again since
                    changed.add(number)
                    del self._ends[number]
                if course.checkpoint is None or self._ends.get(number) == end:
                    continue
                if course.status == "running":
                    running[number] = course.last_step
                else:
                    ended[number], self._ends[number] = course.last_step, end
            if changed:
                self._kept = self._kept[~np.isin(self._kept.number, [*changed])]
            if ended:
                self._kept = _joined([self._kept, *self._read(ledger.remeasured, ended)])
            return _joined([self._kept, *self._read(ledger.remeasured, running)])

    def _read(self, again: SecondMeasurements, last: Mapping[int, int]) -> Iterable[Checkpoints]:
        """Yield tables of what some trials reported up to their last steps."""
        numbers = [*last]
        for i in range(0, len(numbers), _AT_ONCE):
            batches = self._log.reports({*numbers[i : i + _AT_ONCE]})
            for batch in batches:
                refuse_other_constraints(batch, 0, len(self._problem.columns))
            yield _table(again.corrected(self._problem, batches), last, self._problem)


def _joined(tables: Sequence[Checkpoints]) -> Checkpoints:
    """Tables of different trials as one."""
    filled = [table for table in tables if len(table)]
    if len(filled) <= 1:
        return filled[0] if filled else tables[0]
    whole = Checkpoints(*(np.concatenate(column) for column in zip(*(one.columns for one in filled), strict=True)))
    return whole[np.lexsort((whole.step, whole.number))]


def _table(batches: Sequence[Reported], last: Mapping[int, int], problem: Problem) -> Checkpoints:
    """The checkpoints in batches of reports; what a worker wrote after others had ended its trial is left out."""
    if not batches:
        whole, real, none = np.empty(0, np.int64), np.empty(0), np.empty((0, len(problem.constraints)))
        return Checkpoints(whole, whole, real, none, none.astype(np.bool_), none)
    sizes = [len(batch.step) for batch in batches]
    step = np.concatenate([batch.step for batch in batches])
    ends = np.repeat([last[batch.number] or np.inf for batch in batches], sizes)  # the last step is 0 in older logs
    table = Checkpoints(
        np.repeat(np.array([batch.number for batch in batches], np.int64), sizes),
        step,
        np.concatenate([batch.objective for batch in batches]),
        np.concatenate([batch.values for batch in batches]),
        np.concatenate([batch.check_ns for batch in batches]) >= 0,
        np.concatenate([batch.error_table() for batch in batches]),
    )
    whole_folds = ~np.concatenate([batch.provisional for batch in batches])
    return _with_late_checks(table[whole_folds & np.isfinite(table.objective) & (step <= ends)])


def _with_late_checks(table: Checkpoints) -> Checkpoints:
    """The table in order, with each late check merged into the row of its checkpoint."""
    table = table[np.lexsort((table.step, table.number))]  # stable: a late check stays behind its checkpoint
    again = (np.diff(table.number) == 0) & (np.diff(table.step) == 0)
    for row in np.flatnonzero(again).tolist():
        missing = table.paid[row] & ~table.paid[row + 1]
        for column in (table.values, table.errors, table.paid):
            column[row + 1, missing] = column[row, missing]
    return table[np.append(~again, True)[: len(table)]]
