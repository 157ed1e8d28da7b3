"""A trial and a checkpoint as people read them: `study.trials` and `study.best`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairway import feasibility
from fairway.engine.course import Course
from fairway.engine.events import Status
from fairway.engine.saves import Saves
from fairway.errors import UsageError
from fairway.feasibility import Checkpoint
from fairway.problem import Problem
from fairway.space import Space
from fairway.tables import Table, group, metric_rows, param_rows
from fairway.text import counted, named, number


class Best(NamedTuple):
    """A checkpoint of a trial: `study.best` is the best feasible one, on the rows that the search judged by.

    `metrics` has the objective first, then the constraints, None where one was not measured. `objective` is the
    objective's value, a `float` to a type checker too. `errors` has the errors of constraints that came as `Measured`
    or `Folds`: the bound lies z errors from the value. `checkpoint` is the path of what `trial.save` saved at this
    step, None if it saved nothing or the file is gone.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=7)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=3)
    >>> study.best.number, study.best.params
    (1, {'x': 0.0261884112})
    >>> study.best.objective == study.best.metrics["loss"]
    True
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
    checkpoint: Path | None = None

    @property
    def objective(self) -> float:
        """The objective's value, which was always measured: the first of the metrics."""
        value = next(iter(self.metrics.values()))
        assert value is not None
        return value

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        rows = metric_rows(self.metrics, self.errors) + param_rows(self.params)
        rows += [] if self.checkpoint is None else group("checkpoint", [("", str(self.checkpoint))])
        return Table(f"trial {self.number}, step {self.step}", rows)


def checkpoint_of(best: Best | None) -> Path:
    """The path of the best's checkpoint; raises a `UsageError` if there is none."""
    if best is None:
        raise UsageError("there is no best checkpoint: nothing within the limits was found so far")
    if best.checkpoint is None:
        raise UsageError(
            f"the best is trial {best.number} at step {best.step}, which has no checkpoint: it was not saved, or was "
            "deleted; call trial.save(...) after each report, or build the model with study.rebuild(function)"
        )
    return best.checkpoint


@dataclass(frozen=True)
class TrialRecord:
    """One trial and its outcome; `study.trials` lists them.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: 0.5, trials=1)
    >>> study.trials[0].status, study.trials[0].metrics
    ('completed', {'loss': 0.5})

    `step` and `metrics` are those of the checkpoint that stands for the trial: its best feasible one; else the least
    violating measured one; else the best by objective, its constraints unknown (None). `feasible` is None if unknown.
    `traceback` says where your code raised, a line for each of its frames: file, line, function and source.
    `checkpoint` is the path where `trial.save` saved that checkpoint, None if it did not.
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
    checkpoint: Path | None = None

    @property
    def partial(self) -> bool:
        """Whether the stopper or a timeout ended the trial before it was done."""
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
            **{f"note.{name}": _cell(self.notes.get(name)) for name in notes},
        }


def recorded(problem: Problem, number: int, course: Course, saves: Saves) -> TrialRecord:
    """A trial of the log as people read it."""
    checkpoint, amount, metrics, errors = course.checkpoint, None, {}, {}
    if checkpoint is not None:
        amount = feasibility.known(problem, checkpoint)
        metrics = dict(zip(problem.metrics, (checkpoint.objective, *checkpoint.values), strict=True))
        errors = named_errors(problem, checkpoint)
    return TrialRecord(
        number=number,
        params=dict(course.params),
        status=course.status,
        reason=course.reason,
        step=None if checkpoint is None else checkpoint.step,
        metrics=metrics,
        errors=errors,
        feasible=None if amount is None else amount == 0.0,
        steps=course.steps,
        training_seconds=course.train_ns / 1e9,
        check_seconds=course.check_ns / 1e9,
        notes=dict(course.notes),
        traceback=course.traceback,
        checkpoint=None if checkpoint is None else saves.path(number, checkpoint.step),
    )


def unchecked(problem: Problem, course: Course) -> str:
    """In words, a step better than the trial's checkpoint where a limit was not measured; empty if there is none.

    >>> import fairway as fw
    >>> problem = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.1)])
    >>> known, peak = Checkpoint(2, 0.7, (0.05,)), Checkpoint(9, 0.8, (None,))
    >>> unchecked(problem, Course({}, 0, 0.0, checkpoint=known, peak=peak))
    'auc 0.8 at step 9, where eod was not measured'
    """
    known, peak, objective = course.checkpoint, course.peak, problem.objective
    if known is None or peak is None or objective.sign * (peak.objective - known.objective) >= 0.0:
        return ""
    values = feasibility.each_value(problem, peak)
    missing = [named(one.metric) for one, value, _ in values if value is None and one.has_limit]
    verb = "was" if len(missing) == 1 else "were"
    where = f"{' and '.join(missing)} {verb} not measured"
    return f"{named(objective.metric)} {number(peak.objective)} at step {peak.step:,}, where {where}" if missing else ""


def table(records: Sequence[TrialRecord], space: Space, problem: Problem) -> list[dict[str, Any]]:
    """Trials as rows with the same columns, with `error.` columns for known errors and `note.` columns for notes."""
    errors = [name for name in problem.metrics if any(name in record.errors for record in records)]
    notes = {name: None for record in records for name in record.notes}
    return [record.row(space, problem, errors=errors, notes=notes) for record in records]


def _cell(note: Any) -> Any:
    """A note as one value: a list or a dict becomes JSON."""
    return note if note is None or isinstance(note, str | int | float) else json.dumps(note, default=str)


def at_checkpoint(problem: Problem, number: int, params: Mapping[str, Any], checkpoint: Checkpoint) -> Best:
    """A checkpoint of a trial, with its parameters and metrics by name."""
    metrics = dict(zip(problem.metrics, (checkpoint.objective, *checkpoint.values), strict=True))
    return Best(number, checkpoint.step, dict(params), metrics, named_errors(problem, checkpoint))


def named_errors(problem: Problem, checkpoint: Checkpoint) -> dict[str, float]:
    """The known errors of a checkpoint's constraints, by metric."""
    known = zip(problem.constraints, checkpoint.errors, strict=False)
    return {constraint.metric: error for constraint, error in known if error is not None}
