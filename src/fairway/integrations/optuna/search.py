"""Our samplers and terminators in an Optuna study, and whole studies carried there and back."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from fairway.checks import short
from fairway.engine.events import Reported
from fairway.errors import SpaceExhausted, UsageError
from fairway.integrations.optuna.conditions import inferred
from fairway.integrations.optuna.table import (
    Table,
    checkpoint_of,
    constraints_of,
    distributions_of,
    excess,
    history_of,
    objective_of,
)
from fairway.parameters import Value
from fairway.problem import Constraint
from fairway.samplers.gp import GP
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.samplers.tpe import CTPE
from fairway.seeds import fresh_seed, stream
from fairway.space import Declared, Space
from fairway.stoppers.never import Never
from fairway.study import Study
from fairway.terminators.terminator import Terminator
from fairway.text import counted


class FairwaySampler(BaseSampler):
    """Any sampler of fairway as an Optuna sampler; constraints are those that trials set with `trial.set_constraint`.

    Parameters that only some trials have are sampled at random; so are all others until there are finished trials.

    >>> import fairway as fw, optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=FairwaySampler(fw.TPE(), seed=0))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2, n_trials=40)
    >>> abs(study.best_params["x"]) < 0.05
    True
    """

    def __init__(self, sampler: Sampler, *, seed: int | None = None) -> None:
        if not isinstance(sampler, Sampler):
            raise UsageError(f"FairwaySampler({sampler!r}): a sampler of fairway is expected")
        self.sampler = sampler
        self.seed = fresh_seed() if seed is None else seed
        self._search_space = IntersectionSearchSpace(include_pruned=True)

    def reseed_rng(self) -> None:
        self.seed = fresh_seed()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        del trial
        return _varying(self._search_space, study)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        table = Table.of(search_space)
        trials = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        history = history_of(study, trials, table, self.seed)
        try:
            x = self.sampler.next_point(history, stream(self.seed, trial.number, "sampler"))
        except SpaceExhausted:  # an Optuna study continues, and repeats configurations
            return {}
        return table.to_theirs(table.space.decode(np.nan_to_num(x, nan=0.5)))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        del study
        table = Table.of({param_name: param_distribution})
        x = stream(self.seed, trial.number, f"sampler {param_name}").random(1)
        return table.to_theirs(table.space.decode(x))[param_name]


def CTPESampler(*, seed: int | None = None, **settings: Any) -> FairwaySampler:  # noqa: N802 - named like Optuna's
    """c-TPE as an Optuna sampler; `settings` are those of `fw.CTPE`.

    >>> CTPESampler(seed=0, start=5).sampler.start
    5
    """
    return FairwaySampler(CTPE(**settings), seed=seed)


def GPSampler(*, seed: int | None = None, **settings: Any) -> FairwaySampler:  # noqa: N802
    """The constrained Gaussian process as an Optuna sampler; `settings` are those of `fw.GP`.

    >>> GPSampler(seed=0, start=5).sampler.start
    5
    """
    return FairwaySampler(GP(**settings), seed=seed)


def terminate_when(terminator: Terminator) -> Callable[[optuna.Study, FrozenTrial], None]:
    """A callback that stops an Optuna study when our terminator says so; the user attribute "ended" says why.

    >>> import fairway as fw, optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=CTPESampler(seed=0))
    >>> objective = lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2
    >>> study.optimize(objective, n_trials=500, callbacks=[terminate_when(fw.Plateau(20))])
    >>> study.user_attrs["ended"]
    'nothing better for 20 trials, after 37 trials'
    """
    if not isinstance(terminator, Terminator):
        raise UsageError(f"terminate_when({terminator!r}): a terminator of fairway is expected")
    search_space, last = IntersectionSearchSpace(include_pruned=True), 0

    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        nonlocal last
        del trial
        distributions, trials = _varying(search_space, study), study.get_trials(deepcopy=False)
        finished = sum(each.state.is_finished() for each in trials)
        if not distributions or last and finished < last + terminator.pause(last):
            return
        last = finished
        verdict = terminator.check(history_of(study, trials, Table.of(distributions), seed=0))
        if verdict:
            study.set_user_attr("ended", verdict.reason)
            study.stop()

    return callback


def _varying(search_space: IntersectionSearchSpace, study: optuna.Study) -> dict[str, BaseDistribution]:
    """The parameters that all trials have had so far, and that can take more than one value."""
    return {name: each for name, each in search_space.calculate(study).items() if not each.single()}


def from_optuna(
    study: optuna.Study,
    *,
    metric: str = "value",
    space: Declared | None = None,
    constraints: Sequence[Constraint] | None = None,
    **settings: Any,
) -> Study:
    """A study of ours with the finished trials of an Optuna study; `settings` are those of `fw.Study`.

    Options of categories that are not JSON scalars become their index. If some parameters are not in all of its trials,
    or have another range in some, the conditions (`when=`) are found in the trials; if the trials do not determine
    them, or suggest the wrong ones, declare the `space`, which each trial must fit. Trials that failed before all their
    parameters were suggested are left out, with a warning. Curves keep their steps, so that `rebuild` ends at the right
    one; if Optuna's began at 0, each is one more here.

    Optuna knows how far a trial is beyond a limit, but not the limit. So each limit is 0 here, and new trials must
    report that distance too. To use the real limits instead, pass `constraints=[fw.AtMost("eod", 0.25)]`.

    >>> import fairway as fw, optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> theirs = optuna.create_study()
    >>> theirs.optimize(lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2, n_trials=20)
    >>> ours = from_optuna(theirs, seed=0)
    >>> ours.best.metrics["value"] == theirs.best_value
    True
    """
    if not isinstance(study, optuna.Study):
        raise UsageError(
            f"from_optuna({short(study)}): an optuna.Study is expected; open a stored one with "
            "optuna.load_study(study_name=..., storage=...)"
        )
    trials = study.get_trials(deepcopy=False)
    finished = [trial for trial in trials if trial.state.is_finished() and trial.params]
    if not finished:
        raise UsageError("the Optuna study has no finished trial: there is nothing to carry over")
    with_value = [trial for trial in finished if checkpoint_of(trial, ()) is not None] or finished
    table = inferred(with_value) if space is None else _declared(space, with_value)
    finished = _fitting(table, finished)
    limits = _limits(constraints_of(finished), constraints)
    rules: dict[str, Any] = {name: settings.pop(name, None) for name in ("sampler", "stopper", "terminator")}
    objective, listed = objective_of(study, metric), list(limits.values())
    loader = Study(table.space, objective, listed, sampler=Random(), stopper=Never(), **settings)
    if loader.owner.ledger.courses:
        known = f"the study {loader.name!r} in this storage has {len(loader.owner.ledger.courses)} trials already"
        raise UsageError(f"from_optuna: {known}; continue it with fw.load_study(url, name), or give another name")
    shift = int(any(0 in trial.intermediate_values for trial in finished))  # here steps start at 1
    for trial in finished:
        _carry(loader, trial, table.to_ours(trial.params), metric, limits, shift)
    settings |= rules | {"storage": loader.log, "seed": loader.seed}
    return Study(table.space, objective, listed, **settings)


def _limits(found: Mapping[str, Constraint], given: Sequence[Constraint] | None) -> dict[str, Constraint]:
    """The constraints of the trials, with the limits that the user gave."""
    limits = dict(found)
    for one in given or ():
        if not isinstance(one, Constraint) or one.metric not in found:
            known = ", ".join(found) or "none"
            raise UsageError(f"from_optuna(constraints=[{one!r}]): no trial has that constraint; they have: {known}")
        limits[one.metric] = one
    return limits


def _declared(declared: Declared, finished: Sequence[FrozenTrial]) -> Table:
    """A space that the user declared, which every trial must fit."""
    space = Space(declared)
    for trial in finished:
        try:
            space.check(trial.params)
        except UsageError as error:
            raise UsageError(f"trial {trial.number} of the Optuna study does not fit the space: {error}") from None
    return Table(space, {name: each for trial in finished for name, each in trial.distributions.items()}, ())


def _fitting(table: Table, finished: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that fit the space; warns of the others, which ended before all their parameters were suggested."""

    def fits(trial: FrozenTrial) -> bool:
        try:
            table.space.check(table.to_ours(trial.params))
        except UsageError:
            return False
        return trial.params.keys() <= table.distributions.keys()

    fitting = [trial for trial in finished if fits(trial)]
    if len(fitting) < len(finished):
        first = next(trial.number for trial in finished if not fits(trial))
        what = f"{counted(len(finished) - len(fitting), 'trial')} (the first: {first})"
        warnings.warn(f"from_optuna leaves out {what}: without all parameters, and nothing was measured", stacklevel=3)
    return fitting


def _carry(
    study: Study,
    trial: FrozenTrial,
    params: Mapping[str, Value],
    metric: str,
    constraints: Mapping[str, Constraint],
    shift: int,
) -> None:
    """Repeat a trial of Optuna here, with its curve; a pruned one becomes a stopped one."""
    study.enqueue(params)
    ours = study.ask()
    if trial.user_attrs:
        ours.note(optuna={name: str(value) for name, value in trial.user_attrs.items()})
    checkpoint = checkpoint_of(trial, list(constraints))
    if checkpoint is None:
        study.tell(ours, failed=f"{trial.state.name.lower()} in Optuna")
        return
    pairs = zip(constraints.values(), checkpoint.values, strict=True)
    known = {one.metric: one.threshold + one.sign * value for one, value in pairs if value is not None}
    curve = {step + shift: value for step, value in sorted(trial.intermediate_values.items()) if math.isfinite(value)}
    same = [step for step, value in curve.items() if value == checkpoint.objective]
    end = same[0] if same else max(curve, default=1)  # where its value was measured
    for step, value in ({**curve, end: checkpoint.objective}).items():
        ours.report({metric: value, **(known if step == end else {})}, step=step)
    if trial.state == TrialState.PRUNED:
        ours.driver.cut("pruned in Optuna")
    study.tell(ours)


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
    distributions = distributions_of(study.space)
    curves: dict[int, dict[int, float]] = {}
    for event in study.log.read(0):
        if isinstance(event, Reported):
            pairs = zip(event.step.tolist(), event.objective.tolist(), strict=True)
            curves.setdefault(event.number, {}).update(pairs)
    states = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
    for record in study.trials:
        if record.status == "running":
            continue
        over = {
            each.metric: excess(each, record.metrics.get(each.metric), record.errors.get(each.metric))
            for each in constraints
        }
        there.add_trial(
            optuna.trial.create_trial(
                state=states[record.status],
                value=None if record.status == "failed" else record.metrics.get(objective.metric),
                params=dict(record.params),
                distributions={name: distributions[key] for name, key in study.space.active(record.params).items()},
                intermediate_values=curves.get(record.number, {}),
                user_attrs={**({"reason": record.reason} if record.reason else {}), **record.notes},
                system_attrs={"constraints": list(over.values())} if over else {},
                constraints=over,
            )
        )
    return there
