"""The growing buffers behind `History`: a row is appended as each trial ends, and rows never change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.derived import Derived
from fairway.feasibility import Checkpoint
from fairway.history import COLUMNS, History, Means
from fairway.problem import Problem
from fairway.space import Space

_AT_ONCE = 64  # the most rows that wait until somebody looks: it is quicker to add them together
_MEASURED = ("loss", "values", "bounds", "violation", "lowest", "halfway", "late", "noise")  # NaN if a trial failed


class _Row(NamedTuple):
    """One trial to add to the columns, with what `Means` needs to correct for missing folds."""

    cells: Mapping[str, object]
    loss: float
    of: int
    some: Mapping[int, float]
    front: Sequence[Sequence[float]] = ()  # step, loss and bounds of each checkpoint on its own front
    by_fold: bool = False


class Columns:
    """One row for each trial that has ended; `snapshot` returns views of the rows.

    Threads that share columns take turns, to look too: a row waits until somebody looks.
    """

    def __init__(self, space: Space, problem: Problem, seed: int) -> None:
        self._space, self._problem, self._seed = space, problem, seed
        shapes = {
            "x": (len(space),),
            "halfway": (2,),
            **dict.fromkeys(("values", "bounds", "late"), (len(problem.constraints),)),
        }
        self._buffers: dict[str, NDArray[Any]] = {
            name: np.empty((64, *shapes.get(name, ())), kind) for name, kind in COLUMNS.items()
        }
        self._n = 0
        self._fronts: list[list[float]] = []  # row, step, loss and bounds of each checkpoint on its trial's own front
        self._means = Means()
        self._by_fold = False  # whether any trial was reported fold by fold
        self._derived = Derived()
        self._earlier: Callable[[], Mapping[str, NDArray[Any]]] | None = None  # given to `fill`; None once read
        self._waiting: deque[_Row] = deque()  # rows that came since, or since somebody looked

    def append(
        self,
        number: int,
        x: NDArray[np.float64],
        checkpoint: Checkpoint | None,
        seconds: float,
        *,
        partial: bool,
        some: Mapping[int, float] | None = None,
        peak: Checkpoint | None = None,
        late: Checkpoint | None = None,
        reached: int = 0,
        halfway: tuple[int, float] | None = None,
        front: Sequence[Checkpoint] = (),
    ) -> None:
        """Add a finished trial; a failed one has no checkpoint.

        `some` maps each smaller number of folds to the objective after that many. `peak`, `late`, `reached` and
        `halfway` fill the columns `lowest`, `late`, `reached` and `halfway`; by default, the checkpoint fills the first
        three. `front` fills `fronts`.
        """
        cells: dict[str, object] = {"number": number, "x": x, "seconds": seconds, "partial": partial}
        if checkpoint is None:
            cells |= {"failed": True, "step": 0, "reached": 0, "folds": 0, **dict.fromkeys(_MEASURED, np.nan)}
            row = _Row(cells, np.nan, 0, {})
        else:
            amount, sign = feasibility.known(self._problem, checkpoint), self._problem.objective.sign
            provisional, loss = checkpoint.provisional, sign * checkpoint.objective
            hidden = provisional and not amount  # while folds are missing, only a violation is known
            values = [np.nan if value is None or hidden else value for value in checkpoint.values]
            bounds, same = self._bounds(values, checkpoint.errors), hidden or late == checkpoint
            cells |= {
                "loss": loss,
                "values": values,
                "bounds": bounds,
                "violation": np.nan if amount is None else amount,
                "failed": False,
                "step": checkpoint.step,
                "reached": max(reached, checkpoint.step),
                "lowest": sign * (peak or checkpoint).objective,
                "halfway": np.nan if halfway is None else halfway,
                "late": bounds if late is None or same else self._bounds(late.values, late.errors),
                "noise": np.nan if checkpoint.noise is None else checkpoint.noise,
                "folds": checkpoint.folds,
            }
            before = {} if provisional else {k: sign * mean for k, mean in (some or {}).items()}
            marks = [[one.step, sign * one.objective, *self._bounds(one.values, one.errors)] for one in front]
            row = _Row(cells, loss, checkpoint.of, before, marks, by_fold=provisional)
        self._waiting.append(row)
        if len(self._waiting) >= _AT_ONCE:
            self._put_waiting()

    def _put_waiting(self) -> None:
        """Add the rows that wait, unless earlier ones are still to be read."""
        while self._earlier is None and self._waiting:
            self._put(self._waiting[0])
            self._waiting.popleft()  # only now, so that Ctrl-C loses none

    def _put(self, row: _Row) -> None:
        if self._n == len(self._buffers["number"]):
            self._grow()
        self._fronts += [[self._n, *mark] for mark in row.front]
        for name, cell in row.cells.items():
            self._buffers[name][self._n] = cell
        self._n += 1
        self._means.append(row.loss, row.of, row.some)
        self._by_fold = self._by_fold or row.by_fold

    def _grow(self) -> None:
        for name, old in self._buffers.items():
            self._buffers[name] = np.concatenate([old, np.empty((max(64, len(old)), *old.shape[1:]), old.dtype)])

    def remove(self, number: int) -> None:
        """Remove a trial; existing snapshots do not change."""
        self._read()
        row = self._buffers["number"][: self._n].tolist().index(number)
        self._buffers = {name: np.delete(buffer, row, axis=0) for name, buffer in self._buffers.items()}
        self._n, self._means, self._derived = self._n - 1, self._means.without(row), Derived()
        self._fronts = [[at - (at > row), *rest] for at, *rest in self._fronts if at != row]

    def rows(self) -> dict[str, NDArray[Any]]:
        """All rows, as arrays by name, for `fill`."""
        self._read()
        columns = {name: buffer[: self._n] for name, buffer in self._buffers.items()}
        return columns | self._means.columns() | {"fronts": self._front_table()}

    def _front_table(self) -> NDArray[np.float64]:
        return np.array(self._fronts, np.float64).reshape(-1, 3 + len(self._problem.constraints))

    def fill(self, earlier: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """Take over the `rows` of other columns, read when they are first needed; these columns must be empty."""
        self._earlier = earlier

    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy, whose lists do not grow with this one's."""
        self._put_waiting()  # once, since the copy shares what they are added to
        return {**self.__dict__, "_waiting": deque(self._waiting), "_fronts": list(self._fronts)}

    def _read(self) -> None:
        """Read the rows that `fill` promised, if any, and add those that came since."""
        if self._earlier is not None:
            self._read_earlier(self._earlier())
        self._put_waiting()

    def _read_earlier(self, rows: Mapping[str, NDArray[Any]]) -> None:
        self._buffers = {name: np.array(rows[name], buffer.dtype) for name, buffer in self._buffers.items()}
        self._n = len(rows["number"])
        self._fronts = rows["fronts"].tolist()
        self._means = Means(*(rows[name].tolist() for name in Means.COLUMNS))
        self._by_fold = bool((rows["of"] > rows["folds"]).any())
        self._earlier = None

    def _bounds(self, values: Sequence[float | None], errors: Sequence[float | None]) -> list[float]:
        known = [np.nan if value is None else value for value in values]
        columns = zip(self._problem.constraints, known, errors or (None,) * len(known), strict=True)
        return [feasibility.bound(*column) for column in columns]

    def snapshot(self, pending: Sequence[NDArray[np.float64]]) -> History:
        """The rows so far, as read-only views."""
        self._read()
        views = {name: buffer[: self._n] for name, buffer in self._buffers.items()}
        views["pending"] = np.array(pending, np.float64).reshape(len(pending), len(self._space))
        for view in views.values():
            view.flags.writeable = False
        if self._by_fold:
            views["loss"] = views["lowest"] = self._means.moved(views["folds"])
        means = self._means if self._by_fold else None
        parts = {"means": means, "derived": self._derived, "fronts": self._front_table()}
        return History(self._space, self._problem, self._seed, **views, **parts)  # type: ignore[arg-type]
