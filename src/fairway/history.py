"""What samplers and terminators see: read-only columns with a row for each finished trial, and the running trials.

Rows are only ever appended to shared buffers, so a snapshot is a set of views: it costs nothing and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.derived import Derived, Keys
from fairway.problem import Problem
from fairway.space import Space

COLUMNS: Mapping[str, type[np.generic]] = {
    **dict.fromkeys(("number", "step", "reached", "folds"), np.int64),
    **dict.fromkeys(("x", "loss", "values", "bounds", "violation", "lowest", "halfway", "late"), np.float64),
    **dict.fromkeys(("seconds", "noise"), np.float64),
    **dict.fromkeys(("failed", "partial"), np.bool_),
}
"""The columns of a history that have a row for each finished trial."""


@dataclass(frozen=True, eq=False)
class History:
    """A snapshot of a study: n finished trials as columns, in the order in which they finished.

    | column | shape | meaning |
    | --- | --- | --- |
    | `x` | (n, d) | points of the unit cube, NaN where inactive |
    | `loss` | (n,) | the objective, lower is better; NaN if failed; see `Means` if folds are missing |
    | `values` | (n, m) | the constraints' metrics, NaN if not measured |
    | `bounds` | (n, m) | what is compared with the limits: the values, or their bounds under a `confidence` |
    | `violation` | (n,) | 0 if feasible, positive if infeasible, NaN if unknown or failed |
    | `partial` | (n,) | whether the trial ended early |
    | `step` | (n,) | the step that the row describes |
    | `reached` | (n,) | the last step that was trained |
    | `lowest` | (n,) | the lowest loss of the trial at any step, whatever its constraints |
    | `halfway` | (n, 2) | a step, a quarter to a half through its training, and the lowest loss until then; or NaN |
    | `late` | (n, m) | the bounds of the least violating check in the later half of its training |
    | `seconds` | (n,) | the cost of the trial, checks included |
    | `noise`, `folds` | (n,) | the noise and the number of `Folds`; NaN and 1 for a plain number |
    | `pending` | (k, d) | points of the running trials |
    | `given` | (d,) | coordinates that the next point must have, NaN where the sampler is free; None: all are free |
    | `fronts` | (k, 3 + m) | if metrics are tracked, the checkpoints on each trial's front: row, step, loss, bounds |

    `running` has a row for each running trial that has reported, as if it had been stopped there; its `pending` are the
    others. Only samplers that ask for it (`Sampler.sees_running`) are shown it. After `with_running`, the last
    `count_running` rows are those.

    `earlier` holds the studies that this one started from, each as a history in this study's space with its own
    objective and constraints. Their losses and values come from other data, so only ranks are comparable.

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
    bounds: NDArray[np.float64]
    violation: NDArray[np.float64]
    failed: NDArray[np.bool_]
    partial: NDArray[np.bool_]
    step: NDArray[np.int64]
    reached: NDArray[np.int64]
    lowest: NDArray[np.float64]
    halfway: NDArray[np.float64]
    late: NDArray[np.float64]
    seconds: NDArray[np.float64]
    noise: NDArray[np.float64]
    folds: NDArray[np.int64]
    pending: NDArray[np.float64]
    means: Means | None = None  # if trials were reported fold by fold
    derived: Derived = field(default_factory=Derived, repr=False)  # shared with later snapshots of the same study
    given: NDArray[np.float64] | None = None
    earlier: tuple[History, ...] = ()
    running: History | None = None
    count_running: int = 0
    fronts: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 3)), repr=False)

    def __len__(self) -> int:
        return len(self.number)

    def first(self, n: int) -> History:
        """The snapshot as it was when n trials had finished and none was running."""
        columns = {name: getattr(self, name)[:n] for name in COLUMNS}
        if self.means is not None:
            columns["loss"] = columns["lowest"] = self.means.moved(columns["folds"])
        fronts = self.fronts[self.fronts[:, 0] < n]
        return replace(self, **columns, pending=self.pending[:0], running=None, count_running=0, fronts=fronts)

    def with_running(self) -> History:
        """The snapshot with the rows of `running` after its own; itself if trials are reported fold by fold."""
        running = self.running
        if running is None or not len(running) or self.means is not None or running.means is not None:
            return self
        fronts = running.fronts.copy()
        fronts[:, 0] += len(self)
        changed: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(running, name)]) for name in COLUMNS
        }
        changed["fronts"] = np.concatenate([self.fronts, fronts])
        for column in changed.values():
            column.flags.writeable = False
        changed |= {"pending": running.pending, "running": None, "count_running": len(running)}
        return replace(self, **changed, derived=Derived())

    def aimed(self, aim: Mapping[str, float]) -> History:
        """The snapshot as a search with these limits on the tracked metrics sees it; metrics without one are left out.

        Each trial is represented by the checkpoint of its own front that is best under these limits. A trial that
        violates them counts as trained for one step, since under these limits it would have been stopped.
        """
        if not self.problem.tracked:
            return self
        aimed = self.problem.aimed(aim)
        kept = [i for i, one in enumerate(aimed.constraints) if one.has_limit]
        problem = Problem(aimed.objective, aimed.limits)
        loss, step, bounds = self.loss.copy(), self.step.copy(), self.bounds[:, kept]
        rows, steps, losses = self.fronts[:, 0].astype(np.intp), self.fronts[:, 1], self.fronts[:, 2]
        found = self.fronts[:, 3:][:, kept]
        order = np.lexsort((losses, _violations(problem, found), rows))
        first = order[np.unique(rows[order], return_index=True)[1]]
        loss[rows[first]], step[rows[first]], bounds[rows[first]] = losses[first], steps[first], found[first]
        violation = np.where(self.violation > 0.0, self.violation, _violations(problem, bounds))
        violation[self.failed] = np.nan
        return replace(
            self,
            problem=problem,
            loss=loss,
            step=step,
            values=bounds,
            bounds=bounds,
            violation=violation,
            lowest=np.where(violation == 0.0, loss, self.lowest),
            reached=np.where(violation > 0.0, 1, self.reached),
            late=self.late[:, kept],
            halfway=np.full_like(self.halfway, np.nan),  # the checkpoint it led to may not represent the trial now
            derived=Derived(),
            running=None if self.running is None else self.running.aimed(aim),
            fronts=self.fronts[:0],
        )

    def candidates(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points (k, d) as `Space.snap` returns them, with the given coordinates filled in; at most k of them."""
        return self.space.snap(x) if self.given is None else self.space.with_given(x, self.given)

    def is_new(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each of the points (k, d), as returned by `Space.snap`, is neither tried nor running."""
        n = len(self)
        tried = self.derived.first_with(n, lambda since: self.space.fingerprints(self.x[since:]))
        running = set(self.space.fingerprints(self.pending).tolist()) if len(self.pending) else ()
        asked = self.space.fingerprints(x).tolist()
        return np.array([each not in running and tried.get(each, n) >= n for each in asked], np.bool_)

    def ranked(self, name: str, keys: Callable[[int], Keys]) -> NDArray[np.intp]:
        """The row indices (n,), sorted by columns, the most important first, and then by number; NaN last.

        `keys(row)` computes the columns from that row on. The order is cached under `name`, so that after one more
        trial only that trial is inserted; `name` must therefore say everything that the columns depend on.

        >>> import fairway as fw
        >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
        >>> for loss in (0.3, 0.1, 0.2):
        ...     best = study.tell(study.ask(), loss=loss)
        >>> history = study.history
        >>> history.ranked("steps, then loss", lambda since: [history.reached[since:], history.loss[since:]])
        array([1, 2, 0])
        """
        if self.means is not None:  # losses move when folds are added
            return np.lexsort([*reversed(keys(0))])
        return self.derived.order(name, len(self), keys)

    def beyond(self, i: int) -> NDArray[np.float64]:
        """Each row's excess (n,) over the limit of constraint i, in the metric's unit; inf for NaN, NaN if unknown."""
        return self._over("bounds", i)

    def late_beyond(self, i: int) -> NDArray[np.float64]:
        """`beyond`, late in training: that an untrained model meets a limit says nothing about a trained one."""
        return self._over("late", i)

    def _over(self, column: str, i: int) -> NDArray[np.float64]:
        constraint = self.problem.constraints[i]

        def since(row: int) -> NDArray[np.float64]:
            over = constraint.sign * (getattr(self, column)[row:, i] - constraint.threshold)
            over[np.isnan(over) & np.isinf(self.violation[row:])] = np.inf
            return np.asarray(over)

        return self.derived.column(f"{column} {i}", len(self), since)

    @property
    def provisional(self) -> NDArray[np.bool_]:
        """Whether each row (n,) lacks folds; its loss is then corrected, but noisier."""
        return np.zeros(len(self), np.bool_) if self.means is None else self.means.of(len(self)) > self.folds

    @property
    def gap(self) -> NDArray[np.float64]:
        """The loss (n,), relative to the objective's `best` value if it has one."""
        objective = self.problem.objective
        return self.loss if objective.best is None else self.loss - objective.sign * objective.best

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether every constraint was measured and holds (n,)."""
        return np.equal(self.violation, 0.0)

    @property
    def infeasible(self) -> NDArray[np.bool_]:
        """Whether some constraint is violated (n,)."""
        return np.greater(self.violation, 0.0)

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Whether no constraint is violated, but some were not measured (n,); failed trials are not unknown."""
        return np.isnan(self.violation) & ~self.failed

    @property
    def order(self) -> NDArray[np.intp]:
        """The row indices from best to worst: feasible, infeasible, unknown, failed."""
        return self.top(len(self))

    def top(self, k: int) -> NDArray[np.intp]:
        """The first k of `order`, or all if there are fewer; with several constraints, only these k are sorted."""
        if len(self.problem.constraints) > 1:  # what was not measured counts as a median, which changes
            away = feasibility.distances(self.problem, self.bounds, self.violation)
            return feasibility.order(self.loss, away, k)
        order = self.ranked("order", lambda since: feasibility.keys(self.loss[since:], self.violation[since:]))
        return order[:k]

    @property
    def best_first(self) -> NDArray[np.intp]:
        """The row indices of the trials that did not fail, from best to worst."""
        return self.order[: np.count_nonzero(~self.failed)]


def _violations(problem: Problem, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The violations (n,) that follow from bounds (n, m), NaN if not measured."""
    return feasibility.violations(problem, bounds, ~np.isnan(bounds), np.zeros_like(bounds))


class Means:
    """Corrects the losses of trials with missing folds.

    Folds differ: a trial stopped after an easy fold would look better than one that completed all. So a mean over k of
    the folds is corrected by the mean change, from k folds to all, in trials that completed them.
    """

    COLUMNS = "raw", "of", "changes"

    def __init__(
        self, raw: Sequence[float] = (), of: Sequence[int] = (), changes: Sequence[tuple[int, int, int, float]] = ()
    ) -> None:
        self._raw = list(raw)  # the loss of each row, as measured
        self._of = list(of)
        self._changes = list(changes)  # row, folds, folds in all, final loss minus the loss after `folds`

    def append(self, loss: float, of: int, some: Mapping[int, float]) -> None:
        """Add a row; if it has all folds, `some` gives its loss after each smaller number of folds."""
        self._changes += [(len(self._raw), folds, of, loss - mean) for folds, mean in some.items()]
        self._raw.append(loss)
        self._of.append(of)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The arguments that would build it again, as arrays by name."""
        parts = (np.array(self._raw), np.array(self._of, np.int64), np.array(self._changes).reshape(-1, 4))
        return dict(zip(self.COLUMNS, parts, strict=True))

    def without(self, row: int) -> Means:
        """A copy without one row."""
        kept = (change for change in self._changes if change[0] != row)
        changes = [(at - (at > row), folds, of, change) for at, folds, of, change in kept]
        return Means(self._raw[:row] + self._raw[row + 1 :], self._of[:row] + self._of[row + 1 :], changes)

    def of(self, n: int) -> NDArray[np.int64]:
        """The final number of folds, for each of the first n rows."""
        return np.array(self._of[:n], np.int64)

    def moved(self, folds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The corrected losses (n,) of the first n rows, given how many folds each has (n,)."""
        n = len(folds)
        loss, of = np.array(self._raw[:n]), self.of(n)
        changes = np.array([change for change in self._changes if change[0] < n]).reshape(-1, 4)
        for k, total in {(folds[i], of[i]) for i in np.flatnonzero(folds < of)}:
            change = changes[(changes[:, 1] == k) & (changes[:, 2] == total), 3]
            loss[(folds == k) & (of == total)] += change.mean() if len(change) else 0.0
        loss.flags.writeable = False
        return loss
