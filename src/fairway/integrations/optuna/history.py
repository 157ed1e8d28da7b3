"""Spaces, problems and finished trials of an Optuna study as ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from fairway.errors import UsageError
from fairway.feasibility import Checkpoint
from fairway.history import Columns, History
from fairway.parameters import Choice, Float, Int, Parameter, Value
from fairway.problem import AtMost, Constraint, Maximize, Minimize, Objective, Problem
from fairway.space import Space

UNKNOWN = 1e300
"""What stands in Optuna for a constraint that was never measured: nothing there takes such a trial for feasible."""


class Table(NamedTuple):
    """A search space of Optuna as ours; options of categories are told apart by their index, whatever they are."""

    space: Space
    distributions: Mapping[str, BaseDistribution]

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution]) -> Table:
        return cls(Space({name: _parameter(name, each) for name, each in distributions.items()}), distributions)

    def to_ours(self, params: Mapping[str, Any]) -> dict[str, Value]:
        return {
            name: int(each.to_internal_repr(params[name]))
            if isinstance(each, CategoricalDistribution)
            else params[name]
            for name, each in self.distributions.items()
        }

    def to_theirs(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: each.to_external_repr(params[name]) if isinstance(each, CategoricalDistribution) else params[name]
            for name, each in self.distributions.items()
        }


def _parameter(name: str, distribution: BaseDistribution) -> Parameter:
    if isinstance(distribution, FloatDistribution):
        return Float(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
    if isinstance(distribution, IntDistribution):
        return Int(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
    if isinstance(distribution, CategoricalDistribution):
        return Choice(range(len(distribution.choices)))
    raise UsageError(f"parameter {name!r} has a distribution that fairway does not know: {distribution!r}")


def objective_of(study: optuna.Study, metric: str = "value") -> Objective:
    """An Optuna study's objective under a name of ours."""
    if len(study.directions) != 1:
        raise UsageError(f"the Optuna study has {len(study.directions)} objectives; fairway takes one, and limits")
    maximize = study.direction == optuna.study.StudyDirection.MAXIMIZE
    return Maximize(metric) if maximize else Minimize(metric)


def _measured(trial: FrozenTrial) -> dict[str, float]:
    """A trial's constraints by name; those of the older format, by their place, where there are no others."""
    everything = trial.constraints
    named = {name: value for name, value in everything.items() if f"constraints:{name}" in trial.system_attrs}
    return {name: float(value) for name, value in (named or everything).items() if value != UNKNOWN}


def constraints_of(trials: Sequence[FrozenTrial]) -> dict[str, Constraint]:
    """Every constraint that any trial has, met at 0."""
    return {
        name: AtMost(name, 0.0, scale=1.0) for name in sorted({name for each in trials for name in _measured(each)})
    }


def checkpoint_of(trial: FrozenTrial, names: Sequence[str]) -> Checkpoint | None:
    """What stands for a finished trial: its value, or the last one that a pruned trial reported."""
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
    if value is None or not math.isfinite(value):
        return None
    known = _measured(trial)
    return Checkpoint(max(trial.last_step or 0, 1), float(value), tuple(known.get(name) for name in names))


def history_of(study: optuna.Study, trials: Sequence[FrozenTrial], table: Table, seed: int) -> History:
    """The columns that our samplers and terminators see, from trials that have the table's parameters."""
    constraints = constraints_of(trials)
    problem = Problem(objective_of(study), list(constraints.values()))
    columns = Columns(table.space, problem, seed)
    pending = []
    for trial in trials:
        if any(trial.distributions.get(name) is None for name in table.distributions):
            continue
        x = table.space.encode(table.space.check(table.to_ours(trial.params)))
        if not trial.state.is_finished():
            pending.append(x)
            continue
        seconds = trial.duration.total_seconds() if trial.duration is not None else 0.0
        partial = trial.state == TrialState.PRUNED
        columns.append(trial.number, x, checkpoint_of(trial, list(constraints)), seconds, partial=partial)
    return columns.snapshot(pending)


def excess(limit: Constraint, value: float | None) -> float:
    """How far a value lies beyond its limit, as Optuna wants it; NaN and infinite are measured, and broken."""
    if value is None:
        return UNKNOWN
    over = limit.sign * (value - limit.threshold)
    return over if math.isfinite(over) else UNKNOWN / 2
