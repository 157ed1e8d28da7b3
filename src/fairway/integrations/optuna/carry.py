"""Studies moved from Optuna to fairway and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState

from fairway.engine.events import Reported
from fairway.errors import UsageError
from fairway.integrations.optuna.history import (
    Table,
    checkpoint_of,
    constraints_of,
    distribution_of,
    excess,
    objective_of,
)
from fairway.problem import Constraint
from fairway.samplers.random import Random
from fairway.space import Value
from fairway.stoppers.never import Never
from fairway.study import Study


def from_optuna(study: optuna.Study, *, metric: str = "value", **settings: Any) -> Study:
    """A study of ours with the finished trials of an Optuna study; `settings` are those of `fw.Study`.

    Options of categories that are not JSON scalars become their index. Parameters that only some of its trials have are
    refused: fairway declares a space, with `when=`, before it searches.

    >>> import fairway as fw, optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> theirs = optuna.create_study()
    >>> theirs.optimize(lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2, n_trials=20)
    >>> ours = from_optuna(theirs, seed=0)
    >>> ours.best.metrics["value"] == theirs.best_value
    True
    """
    trials = study.get_trials(deepcopy=False)
    finished = [trial for trial in trials if trial.state.is_finished() and trial.params]
    if not finished:
        raise UsageError("the Optuna study has no finished trial: there is nothing to carry over")
    common = finished[0].distributions
    for trial in finished:
        different = set(trial.distributions) ^ set(common)
        if different or trial.distributions != common:
            name = min(different) if different else next(n for n in common if trial.distributions[n] != common[n])
            raise UsageError(
                f"parameter {name!r} is not the same in all trials of the Optuna study (trial {trial.number}); "
                "declare the space in fairway, with when=, and enqueue the trials that matter"
            )
    table, constraints = Table.of(common, scalars=True), constraints_of(finished)
    rules: dict[str, Any] = {name: settings.pop(name, None) for name in ("sampler", "stopper", "terminator")}
    objective, listed = objective_of(study, metric), list(constraints.values())
    loader = Study(table.space, objective, listed, sampler=Random(), stopper=Never(), **settings)
    for trial in finished:
        _carry(loader, trial, table.to_ours(trial.params), metric, constraints)
    settings |= rules | {"storage": loader.log, "seed": loader.seed}
    return Study(table.space, objective, listed, **settings)


def _carry(
    study: Study, trial: FrozenTrial, params: Mapping[str, Value], metric: str, constraints: Mapping[str, Constraint]
) -> None:
    """Repeat a trial of Optuna here; a pruned one becomes a stopped one."""
    study.enqueue(params)
    ours = study.ask()
    if trial.user_attrs:
        ours.note(optuna={name: str(value) for name, value in trial.user_attrs.items()})
    checkpoint = checkpoint_of(trial, list(constraints))
    if checkpoint is None:
        study.tell(ours, failed=f"{trial.state.name.lower()} in Optuna")
        return
    known = {name: value for name, value in zip(constraints, checkpoint.values, strict=True) if value is not None}
    if trial.state == TrialState.PRUNED:
        ours.report({metric: checkpoint.objective, **known}, step=checkpoint.step)
        ours.driver.cut("pruned in Optuna")
        study.tell(ours)
    else:
        study.tell(ours, {metric: checkpoint.objective, **known})


def to_optuna(study: Study, storage: Any = None, name: str | None = None) -> optuna.Study:
    """An Optuna study with all finished trials of ours, their curves and constraints, for its tools and dashboard.

    A constraint's value there is how far it lies beyond its limit; one that was never measured is `UNKNOWN`, far beyond
    it. Stopped trials become pruned ones, with the reason as a user attribute.

    >>> import fairway as fw
    >>> ours = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> ours.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 2}, trials=5)
    >>> theirs = to_optuna(ours)
    >>> theirs.best_value == ours.best.metrics["auc"]
    True
    """
    objective, constraints = study.problem.objective, study.problem.constraints
    direction: Literal["maximize", "minimize"] = "maximize" if objective.sign < 0 else "minimize"
    there = optuna.create_study(storage=storage, study_name=name or study.name, direction=direction)
    curves: dict[int, dict[int, float]] = {}
    for event in study.log.read(0):
        if isinstance(event, Reported):
            pairs = zip(event.step.tolist(), event.objective.tolist(), strict=True)
            curves.setdefault(event.number, {}).update(pairs)
    states = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
    for record in study.trials:
        if record.status == "running":
            continue
        over = {each.metric: excess(each, record.metrics.get(each.metric)) for each in constraints}
        there.add_trial(
            optuna.trial.create_trial(
                state=states[record.status],
                value=None if record.status == "failed" else record.metrics.get(objective.metric),
                params=dict(record.params),
                distributions={key: distribution_of(study.space[key]) for key in record.params},
                intermediate_values=curves.get(record.number, {}),
                user_attrs={**({"reason": record.reason} if record.reason else {}), **record.notes},
                system_attrs={"constraints": list(over.values())} if over else {},
                constraints=over,
            )
        )
    return there
