"""A trial and a checkpoint as people read them: `study.trials` and `study.best`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairway.engine.events import Status
from fairway.feasibility import Checkpoint
from fairway.problem import Problem
from fairway.space import Space
from fairway.tables import Table, group, metric_rows, param_rows
from fairway.text import counted


class Best(NamedTuple):
    """A checkpoint of a trial: `study.best` is the best feasible one, on the rows that the search judged by.

    `errors` has the errors of constraints that came as `Measured` or `Folds`: z of them lead from the value to its
    bound.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=7)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=3)
    >>> study.best.number, study.best.params
    (1, {'x': 0.0261884112})
    >>> print(study.best)
    trial 1, step 1
    metric     loss  0.0006858
    parameter  x     0.0261884112
    """

    number: int
    step: int
    params: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    errors: Mapping[str, float]

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        rows = metric_rows(self.metrics, self.errors) + param_rows(self.params)
        return Table(f"trial {self.number}, step {self.step}", rows)


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
    `traceback` says where your code raised, a line for each of its frames: file, line, function and source.
    """

    number: int
    params: Mapping[str, Any]
    status: Status
    reason: str
    step: int | None
    metrics: Mapping[str, float | None]
    errors: Mapping[str, float]  # of the constraints that came as `Measured` or `Folds`
    feasible: bool | None
    steps: int
    training_seconds: float
    check_seconds: float
    notes: Mapping[str, Any]
    traceback: str = ""

    @property
    def partial(self) -> bool:
        """Whether it was ended before it was done: by the stopper or by a timeout."""
        return self.status == "stopped"

    def _repr_html_(self) -> str:
        outcome = [("feasible", {True: "yes", False: "no", None: "unknown"}[self.feasible])]
        outcome += [("reason", self.reason)] if self.reason else []
        notes = [(name, str(note)) for name, note in self.notes.items()]
        rows = metric_rows(self.metrics, self.errors) + param_rows(self.params)
        rows += group("outcome", outcome) + group("note", notes)
        return Table(f"trial {self.number}, {self.status} after {counted(self.steps, 'step')}", rows).html()

    def row(
        self, space: Space, problem: Problem, *, errors: Collection[str] = (), notes: Collection[str] = ()
    ) -> dict[str, Any]:
        """The trial as a row of a table: every parameter and metric, these metrics' errors, and these notes."""
        return {
            "number": self.number,
            "status": self.status,
            "feasible": self.feasible,
            **{f"param.{name}": self.params.get(name) for name in space.names},
            **{f"metric.{name}": self.metrics.get(name) for name in problem.metrics},
            **{f"error.{name}": self.errors.get(name) for name in errors},
            "step": self.step,
            "steps": self.steps,
            "training_seconds": self.training_seconds,
            "check_seconds": self.check_seconds,
            "reason": self.reason,
            **{f"note.{name}": note if _is_scalar(note := self.notes.get(name)) else None for name in notes},
        }


def table(records: Sequence[TrialRecord], space: Space, problem: Problem) -> list[dict[str, Any]]:
    """Trials as rows with the same columns: `error.` of metrics whose error is known, `note.` of notes of one value."""
    errors = [name for name in problem.metrics if any(name in record.errors for record in records)]
    notes = {name: None for record in records for name, note in record.notes.items() if _is_scalar(note)}
    return [record.row(space, problem, errors=errors, notes=notes) for record in records]


def _is_scalar(note: Any) -> bool:
    return note is None or isinstance(note, str | int | float)


def named_errors(problem: Problem, checkpoint: Checkpoint) -> dict[str, float]:
    """The errors of a checkpoint's constraints that are known, by metric."""
    known = zip(problem.constraints, checkpoint.errors, strict=False)
    return {constraint.metric: error for constraint, error in known if error is not None}
