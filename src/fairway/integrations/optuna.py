"""fairway inside Optuna: its samplers, its stoppers as a pruner that knows constraints, its terminators.

And studies carried across: `from_optuna` goes on here with a study that began there, `to_optuna` opens a study of ours
in Optuna and its dashboard. Optuna's convention holds throughout: a constraint is met where its value is at most 0.
What was never measured is unknown, and unknown is never feasible.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairway.errors import MissingDependency, SpaceExhausted, UsageError
from fairway.events import Reported
from fairway.feasibility import Checkpoint
from fairway.history import Columns, History
from fairway.problem import AtMost, Constraint, Maximize, Minimize, Objective, Problem
from fairway.samplers.gp import GP
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.samplers.tpe import CTPE
from fairway.seeds import fresh_seed, stream
from fairway.space import Choice, Float, Int, Parameter, Space, Value
from fairway.stoppers.ace import ACE
from fairway.stoppers.never import Never
from fairway.stoppers.stopper import Stopper
from fairway.study import Study
from fairway.terminators.terminator import Terminator
from fairway.trial import Decision, Given, Trial

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.search_space import IntersectionSearchSpace
    from optuna.trial import FrozenTrial, TrialState
except ImportError:
    raise MissingDependency("fairway.integrations.optuna needs Optuna: pip install 'optuna>=5'") from None

UNKNOWN = 1e300
"""What stands in Optuna for a constraint that was never measured: nothing there takes such a trial for feasible."""

_PAID = "fairway:paid"  # the user attribute in which a pruner's measurements are kept, by step


# Spaces and histories


class _Table(NamedTuple):
    """A search space of Optuna as ours; options of categories are told apart by their index, whatever they are."""

    space: Space
    distributions: Mapping[str, BaseDistribution]

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution]) -> _Table:
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


def _objective(study: optuna.Study, metric: str = "value") -> Objective:
    if len(study.directions) != 1:
        raise UsageError(f"the Optuna study has {len(study.directions)} objectives; fairway takes one, and limits")
    maximize = study.direction == optuna.study.StudyDirection.MAXIMIZE
    return Maximize(metric) if maximize else Minimize(metric)


def _measured(trial: FrozenTrial) -> dict[str, float]:
    """A trial's constraints by name; those of the older format, by their place, where there are no others."""
    everything = trial.constraints
    named = {name: value for name, value in everything.items() if f"constraints:{name}" in trial.system_attrs}
    return {name: float(value) for name, value in (named or everything).items() if value != UNKNOWN}


def _constraints(trials: Sequence[FrozenTrial]) -> dict[str, Constraint]:
    """Every constraint that any trial has, met at 0."""
    return {
        name: AtMost(name, 0.0, scale=1.0) for name in sorted({name for each in trials for name in _measured(each)})
    }


def _checkpoint(trial: FrozenTrial, names: Sequence[str]) -> Checkpoint | None:
    """What stands for a finished trial: its value, or the last one that a pruned trial reported."""
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
    if value is None or not math.isfinite(value):
        return None
    known = _measured(trial)
    return Checkpoint(max(trial.last_step or 0, 1), float(value), tuple(known.get(name) for name in names))


def _history(study: optuna.Study, trials: Sequence[FrozenTrial], table: _Table, seed: int) -> History:
    """The columns that our samplers and terminators see, from trials that have the table's parameters."""
    constraints = _constraints(trials)
    problem = Problem(_objective(study), list(constraints.values()))
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
        columns.append(trial.number, x, _checkpoint(trial, list(constraints)), seconds, partial=partial)
    return columns.snapshot(pending)


# Samplers


class FairwaySampler(BaseSampler):
    """Any sampler of ours as an Optuna sampler; constraints are those that trials set with `trial.set_constraint`.

    Parameters that only some trials have are sampled at random, as all are until there are trials to learn from.

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
        """Take another seed: Optuna asks for it in each of several processes."""
        self.seed = fresh_seed()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all trials have had so far."""
        del trial
        space = self._search_space.calculate(study)
        return {name: each for name, each in space.items() if not each.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """What our sampler proposes."""
        if not search_space:
            return {}
        table = _Table.of(search_space)
        trials = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        history = _history(study, trials, table, self.seed)
        try:
            x = self.sampler.next_point(history, stream(self.seed, trial.number, "sampler"))
        except SpaceExhausted:  # an Optuna study goes on, with what was tried before
            return {}
        return table.to_theirs(table.space.decode(np.nan_to_num(x, nan=0.5)))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """One parameter at random."""
        del study
        table = _Table.of({param_name: param_distribution})
        x = stream(self.seed, trial.number, f"sampler {param_name}").random(1)
        return table.to_theirs(table.space.decode(x))[param_name]


def CTPESampler(*, seed: int | None = None, **settings: Any) -> FairwaySampler:  # noqa: N802 - named as its peers there
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


# A pruner


class _Mirror:
    """An Optuna study as one of ours, trial for trial, so that its reports are ruled on as ours are."""

    def __init__(self, study: optuna.Study, constraints: Sequence[Constraint], stopper: Stopper) -> None:
        space = {"number": Int(0, 2**31)}
        self.study = Study(space, _objective(study), constraints, sampler=Random(), stopper=stopper, seed=0)
        self.trials: dict[int, Trial] = {}  # by Optuna's number, those running here
        self._mirrored: set[int] = set()  # the numbers of those that have a trial of ours
        self.lock = threading.RLock()

    def begin(self, number: int, total: int | None = None) -> Trial:
        """Our trial that stands for one of Optuna's."""
        self._mirrored.add(number)
        self.study.enqueue({"number": number})
        trial = self.trials[number] = self.study.ask()
        if total is not None:
            trial.steps(total)
        return trial

    def catch_up(self, trials: Sequence[FrozenTrial]) -> None:
        """End what has ended here; take in what ran elsewhere."""
        for theirs in trials:
            ours = self.trials.get(theirs.number)
            if ours is not None and theirs.state.is_finished():
                del self.trials[theirs.number]
                self._end(ours, theirs)
            elif theirs.state.is_finished() and theirs.number not in self._mirrored:
                self._replay(theirs)

    def _replay(self, theirs: FrozenTrial) -> None:
        paid: Mapping[str, Mapping[str, float]] = theirs.user_attrs.get(_PAID, {})
        trial = self.begin(theirs.number)
        objective = self.study.problem.objective.metric
        for step, value in sorted(theirs.intermediate_values.items()):
            if trial.stopped or not math.isfinite(value):
                break
            trial.report({objective: value, **paid.get(str(step), {})}, step=max(step, trial._last + 1))
        del self.trials[theirs.number]
        self._end(trial, theirs)

    def _end(self, ours: Trial, theirs: FrozenTrial) -> None:
        if theirs.state == TrialState.FAIL or not ours._last:
            self.study.tell(ours, failed="failed in Optuna, or reported nothing")
        else:
            self.study.tell(ours)


class FairwayPruner(BasePruner):
    """Any stopper of ours as an Optuna pruner, told by `report` what constraints are worth.

    >>> import fairway as fw, optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> pruner = FairwayPruner(fw.ACE(), [fw.AtMost("eod", 0.25)])
    >>> study = optuna.create_study(direction="maximize", pruner=pruner, sampler=CTPESampler(seed=0))
    >>> def objective(trial):
    ...     rate = trial.suggest_float("rate", 0.0, 1.0)
    ...     for step in range(1, 11):
    ...         if report(trial, rate * step / 10, step, {"eod": lambda: rate / 2}, total=10):
    ...             raise optuna.TrialPruned
    ...     return rate
    >>> study.optimize(objective, n_trials=40)
    >>> study.best_params["rate"] <= 0.5
    True
    """

    def __init__(self, stopper: Stopper, constraints: Sequence[Constraint] | Constraint = ()) -> None:
        if not isinstance(stopper, Stopper):
            raise UsageError(f"FairwayPruner({stopper!r}): a stopper of fairway is expected")
        self.stopper = stopper
        self.constraints = Problem(Minimize("value"), constraints).constraints  # type: ignore[arg-type]
        self._mirrors: dict[int, _Mirror] = {}  # by Optuna's study
        self._lock = threading.Lock()

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """What was said at the last report; one that came by `trial.report` alone is ruled on now."""
        mirror = self.mirror(study)
        with mirror.lock:
            ours = mirror.trials.get(trial.number)
            if ours is None:
                ours = self.begin(mirror, study, trial.number)
            step = trial.last_step
            if step is not None and not ours.stopped and max(step, 1) > ours._last:
                ours.report({mirror.study.problem.objective.metric: trial.intermediate_values[step]}, step=max(step, 1))
            return ours.stopped

    def mirror(self, study: optuna.Study) -> _Mirror:
        """The study of ours that stands for one of Optuna's."""
        with self._lock:
            found = self._mirrors.get(study._study_id)
            if found is None:
                found = self._mirrors[study._study_id] = _Mirror(study, self.constraints, self.stopper)
            return found

    def begin(self, mirror: _Mirror, study: optuna.Study, number: int, total: int | None = None) -> Trial:
        """Mirror a trial that begins here, and all that has ended since the last one did."""
        mirror.catch_up([each for each in study.get_trials(deepcopy=False) if each.number != number])
        return mirror.begin(number, total)


def ACEPruner(constraints: Sequence[Constraint] | Constraint = (), **settings: Any) -> FairwayPruner:  # noqa: N802
    """ACE as an Optuna pruner under constraints; `settings` are those of `fw.ACE`.

    >>> import fairway as fw
    >>> ACEPruner([fw.AtMost("eod", 0.25)], truncation=0.5).stopper.truncation
    0.5
    """
    return FairwayPruner(ACE(**settings), constraints)


def report(
    trial: optuna.Trial,
    value: float,
    step: int,
    constraints: Mapping[str, Given] | None = None,
    *,
    total: int | None = None,
) -> Decision:
    """Report to Optuna and to the pruner of ours; true where training should stop (`raise optuna.TrialPruned`).

    Constraints given as callables are called, and timed, only when they are worth it. `total` is how many steps the
    trial means to take: where checks are dear, it lets them wait for the end. What was measured for the best checkpoint
    so far becomes the trial's constraints in Optuna, at most 0 where they are met.
    """
    pruner = trial.study.pruner
    if not isinstance(pruner, FairwayPruner):
        raise UsageError(f"report: the study's pruner is {pruner!r}; give it fairway's, such as ACEPruner([...])")
    mirror = pruner.mirror(trial.study)
    with mirror.lock:
        ours = mirror.trials.get(trial.number)
        if ours is None:
            ours = pruner.begin(mirror, trial.study, trial.number, total)
    trial.report(value, step)
    metric = mirror.study.problem.objective.metric
    decision = ours.report({metric: value, **(constraints or {})}, step=step)
    _write_constraints(trial, mirror, ours)
    return decision


def _write_constraints(trial: optuna.Trial, mirror: _Mirror, ours: Trial) -> None:
    """Keep what was paid for at the last step, and what stands for the trial, where Optuna finds it."""
    limits = mirror.study.problem.constraints
    if not limits:
        return
    ours._flush()
    with mirror.study._owner.lock:
        standing = mirror.study._owner.ledger.courses[ours.number].checkpoint
    if standing is None:
        return
    storage, number = trial.study._storage, trial._trial_id
    measured = {limit.metric: value for limit, value in zip(limits, standing.values, strict=True) if value is not None}
    if measured:
        paid = {**trial.user_attrs.get(_PAID, {}), str(standing.step): measured}
        if paid != trial.user_attrs.get(_PAID):
            trial.set_user_attr(_PAID, paid)
    for limit in limits:
        value = measured.get(limit.metric)
        over = UNKNOWN if value is None else limit.sign * (value - limit.threshold)
        over = over if math.isfinite(over) else UNKNOWN / 2  # measured as NaN or infinite: broken
        if trial.constraints.get(limit.metric) != over:
            storage.set_trial_system_attr(number, f"constraints:{limit.metric}", over)
            trial._cached_frozen_trial.system_attrs[f"constraints:{limit.metric}"] = over


# A terminator


def terminate_when(terminator: Terminator) -> Callable[[optuna.Study, FrozenTrial], None]:
    """A callback that stops an Optuna study when our terminator says so; the reason is its user attribute "ended".

    >>> import fairway as fw, optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=CTPESampler(seed=0))
    >>> objective = lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2
    >>> study.optimize(objective, n_trials=500, callbacks=[terminate_when(fw.Plateau(20))])
    >>> study.user_attrs["ended"]
    'nothing better for 20 trials, after 32 trials'
    """
    if not isinstance(terminator, Terminator):
        raise UsageError(f"terminate_when({terminator!r}): a terminator of fairway is expected")
    search_space = IntersectionSearchSpace(include_pruned=True)
    last = 0

    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        nonlocal last
        del trial
        distributions = {name: each for name, each in search_space.calculate(study).items() if not each.single()}
        trials = study.get_trials(deepcopy=False)
        finished = sum(each.state.is_finished() for each in trials)
        if not distributions or last and finished < last + terminator.pause(last):
            return
        last = finished
        verdict = terminator.check(_history(study, trials, _Table.of(distributions), seed=0))
        if verdict:
            study.set_user_attr("ended", verdict.reason)
            study.stop()

    return callback


# Carrying studies across


def from_optuna(study: optuna.Study, *, metric: str = "value", **settings: Any) -> Study:
    """A study of ours that has run what an Optuna study has run; `settings` are those of `fw.Study`.

    Options of categories become their index where they are no JSON scalars. Parameters that only some of its trials
    have are refused: fairway declares a space, with `when=`, before it searches.

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
    table = _Table.of(common)
    options = {name: _options(each) for name, each in common.items()}
    space = Space(
        {
            name: Choice(options[name]) if options[name] is not None else parameter  # type: ignore[arg-type]
            for name, parameter in table.space.items()
        }
    )
    constraints = _constraints(finished)
    sampler, stopper = settings.pop("sampler", None), settings.pop("stopper", None)
    terminator = settings.pop("terminator", None)
    loader = Study(
        space, _objective(study, metric), list(constraints.values()), sampler=Random(), stopper=Never(), **settings
    )
    for trial in finished:
        params = {
            name: trial.params[name] if options[name] is not None else value
            for name, value in table.to_ours(trial.params).items()
        }
        _carry(loader, trial, params, metric, constraints)
    more = {**settings, "storage": loader.log, "seed": loader.seed}
    return Study(
        space,
        loader.problem.objective,
        loader.problem.constraints,
        sampler=sampler,
        stopper=stopper,
        terminator=terminator,
        **more,
    )


def _options(distribution: BaseDistribution) -> list[Value] | None:
    """The options of a category, if they are JSON scalars that can be told apart."""
    if not isinstance(distribution, CategoricalDistribution):
        return None
    try:
        return list(Choice(list(distribution.choices)).options)
    except UsageError:
        return None


def _carry(
    study: Study, trial: FrozenTrial, params: Mapping[str, Value], metric: str, constraints: Mapping[str, Constraint]
) -> None:
    """Run a trial that Optuna has run; one that was pruned is told as stopped."""
    study.enqueue(params)
    ours = study.ask()
    if trial.user_attrs:
        ours.note(optuna={name: str(value) for name, value in trial.user_attrs.items()})
    checkpoint = _checkpoint(trial, list(constraints))
    if checkpoint is None:
        study.tell(ours, failed=f"{trial.state.name.lower()} in Optuna")
        return
    known = {name: value for name, value in zip(constraints, checkpoint.values, strict=True) if value is not None}
    if trial.state == TrialState.PRUNED:
        ours.report({metric: checkpoint.objective, **known}, step=checkpoint.step)
        ours._cut = "pruned in Optuna"
        study.tell(ours)
    else:
        study.tell(ours, {metric: checkpoint.objective, **known})


def to_optuna(study: Study, storage: Any = None, name: str | None = None) -> optuna.Study:
    """An Optuna study with all finished trials of ours, their curves and constraints, for its tools and dashboard.

    A constraint's value there is how far it lies beyond its limit; one that was never measured is `UNKNOWN`, far beyond
    it. Stopped trials are pruned ones, with the reason among their user attributes.

    >>> import fairway as fw
    >>> ours = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> ours.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 2}, trials=5)
    >>> theirs = to_optuna(ours)
    >>> theirs.best_value == ours.best.metrics["auc"]
    True
    """
    kinds = optuna.study.StudyDirection
    direction = kinds.MAXIMIZE if study.problem.objective.sign < 0 else kinds.MINIMIZE
    there = optuna.create_study(storage=storage, study_name=name or study.name, direction=direction)
    curves: dict[int, dict[int, float]] = {}
    for event in study.log.read(0):
        if isinstance(event, Reported):
            pairs = zip(event.step.tolist(), event.objective.tolist(), strict=True)
            curves.setdefault(event.number, {}).update(pairs)
    states = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
    limits = study.problem.constraints
    for record in study.trials:
        if record.status == "running":
            continue
        over = [_excess(limit, record.metrics.get(limit.metric)) for limit in limits]
        value = record.metrics.get(study.problem.objective.metric)
        attributes = {"reason": record.reason, **dict(record.notes)} if record.reason else dict(record.notes)
        there.add_trial(
            optuna.trial.create_trial(
                state=states[record.status],
                value=None if record.status == "failed" else value,
                params=dict(record.params),
                distributions={key: _distribution(study.space[key]) for key in record.params},
                intermediate_values=curves.get(record.number, {}),
                user_attrs=attributes,
                system_attrs={"constraints": over} if limits else {},
                constraints=dict(zip((limit.metric for limit in limits), over, strict=True)),
            )
        )
    return there


def _excess(limit: Constraint, value: float | None) -> float:
    if value is None:
        return UNKNOWN
    over = limit.sign * (value - limit.threshold)
    return over if math.isfinite(over) else UNKNOWN / 2


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Float):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    if isinstance(parameter, Int):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    assert isinstance(parameter, Choice)
    return CategoricalDistribution(parameter.options)
