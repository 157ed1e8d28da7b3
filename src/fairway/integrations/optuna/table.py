"""Spaces, problems and finished trials of an Optuna study as ours, and back."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from fairway import feasibility
from fairway.buffers import Columns
from fairway.errors import UsageError
from fairway.feasibility import Checkpoint
from fairway.history import History
from fairway.integrations.bridge import as_choice
from fairway.parameters import Choice, Float, Int, Parameter, Value, identity
from fairway.problem import AtMost, Constraint, Maximize, Minimize, Objective, Problem
from fairway.space import Space

UNKNOWN = 1e300
"""What Optuna gets for a constraint that was never measured: no part of Optuna takes such a trial for feasible."""


class Table(NamedTuple):
    """A search space of Optuna as ours; with `scalars`, options that are JSON scalars stay, others become indices."""

    space: Space
    distributions: Mapping[str, BaseDistribution]
    indexed: Collection[str]  # categories whose options are known here by their index

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution], *, scalars: bool = False) -> Table:
        kept = {
            name: scalars and as_choice(each.choices)
            for name, each in distributions.items()
            if isinstance(each, CategoricalDistribution)
        }
        space = Space({name: kept.get(name) or _parameter(name, each) for name, each in distributions.items()})
        return cls(space, distributions, {name for name, choice in kept.items() if not choice})

    def to_ours(self, params: Mapping[str, Any]) -> dict[str, Value]:
        return {
            name: int(self.distributions[name].to_internal_repr(value)) if name in self.indexed else value
            for name, value in params.items()
            if name in self.distributions
        }

    def to_theirs(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: each.to_external_repr(params[name]) if name in self.indexed else params[name]
            for name, each in self.distributions.items()
        }


def _parameter(name: str, distribution: BaseDistribution) -> Parameter:
    if isinstance(distribution, CategoricalDistribution):
        return Choice(range(len(distribution.choices)))
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        raise UsageError(f"parameter {name!r} has a distribution that fairway does not know: {distribution!r}")
    kind: Any = Float if isinstance(distribution, FloatDistribution) else Int
    parameter: Parameter = kind(distribution.low, distribution.high, log=distribution.log, step=distribution.step)
    return parameter


def distribution_of(parameter: Parameter) -> BaseDistribution:
    """A parameter of ours as Optuna's."""
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.options)
    assert isinstance(parameter, Float | Int)
    kind: Any = FloatDistribution if isinstance(parameter, Float) else IntDistribution
    distribution: BaseDistribution = kind(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    return distribution


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Each coordinate of a space as Optuna's.

    In Optuna a number may have another range in each trial; a category has the same options in all.
    """
    found: dict[str, BaseDistribution] = {}
    for name, branches in space.declared.items():
        options = [option for branch in branches if isinstance(branch, Choice) for option in branch.options]
        whole = Choice([*{identity(option): option for option in options}.values()]) if options else None
        kinds = {(type(branch), getattr(branch, "log", None)) for branch in branches}
        if len(kinds) > 1:
            raise UsageError(
                f"parameter {name!r} has branches of several kinds, which Optuna does not hold: use to_frame"
            )
        found |= {key: distribution_of(whole or space[key]) for key in space if space.name_of(key) == name}
    return found


def objective_of(study: optuna.Study, metric: str = "value") -> Objective:
    """An Optuna study's objective under a name of ours."""
    if len(study.directions) != 1:
        raise UsageError(f"the Optuna study has {len(study.directions)} objectives; fairway takes one, and constraints")
    return (Maximize if study.direction == optuna.study.StudyDirection.MAXIMIZE else Minimize)(metric)


def measured(trial: FrozenTrial) -> dict[str, float]:
    """A trial's constraints by name; if it has none by name, those of the older format, by position."""
    everything = trial.constraints
    named = {name: value for name, value in everything.items() if f"constraints:{name}" in trial.system_attrs}
    return {name: float(value) for name, value in (named or everything).items() if value != UNKNOWN}


def constraints_of(trials: Sequence[FrozenTrial]) -> dict[str, Constraint]:
    """Every constraint that any trial has; each limit is 0."""
    names = sorted({name for each in trials for name in measured(each)})
    return {name: AtMost(name, 0.0, scale=1.0) for name in names}


def checkpoint_of(trial: FrozenTrial, names: Sequence[str]) -> Checkpoint | None:
    """The checkpoint that represents a finished trial: its value, or the last one that a pruned trial reported."""
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
    if value is None or not math.isfinite(value):
        return None
    known = measured(trial)
    return Checkpoint(max(trial.last_step or 0, 1), float(value), tuple(known.get(name) for name in names))


def history_of(study: optuna.Study, trials: Sequence[FrozenTrial], table: Table, seed: int) -> History:
    """The columns that our samplers and terminators see, from trials that have the table's parameters."""
    constraints = constraints_of(trials)
    columns = Columns(table.space, Problem(objective_of(study), list(constraints.values())), seed)
    pending = []
    for trial in trials:
        if any(trial.distributions.get(name) is None for name in table.distributions):
            continue
        x = table.space.encode(table.to_ours(trial.params))
        if not trial.state.is_finished():
            pending.append(x)
            continue
        seconds = trial.duration.total_seconds() if trial.duration is not None else 0.0
        partial = trial.state == TrialState.PRUNED
        columns.append(trial.number, x, checkpoint_of(trial, list(constraints)), seconds, partial=partial)
    return columns.snapshot(pending)


def excess(constraint: Constraint, value: float | None, error: float | None) -> float:
    """How far a value lies beyond the limit, as Optuna expects it; NaN and infinity count as measured and violated."""
    if value is None:
        return UNKNOWN
    over = constraint.sign * (feasibility.bound(constraint, value, error) - constraint.threshold)
    return over if math.isfinite(over) else UNKNOWN / 2
