"""fairway inside Optuna: its samplers, its stoppers as a pruner that knows constraints, its terminators.

Studies can move, too: `from_optuna` continues an Optuna study here, `to_optuna` opens a study of ours in Optuna and its
dashboard. Optuna's convention holds throughout: a constraint is satisfied if its value is at most 0. What was never
measured is unknown, and unknown is never feasible.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fairway.engine.decision import Decision
from fairway.engine.events import Reported
from fairway.engine.measurement import Given
from fairway.engine.trial import Trial
from fairway.errors import MissingDependency, SpaceExhausted, UsageError
from fairway.feasibility import Checkpoint
from fairway.history import Columns, History
from fairway.integrations.bridge import Bridge, as_choice
from fairway.parameters import Choice, Float, Int, Parameter, Value
from fairway.problem import AtMost, Constraint, Maximize, Minimize, Objective, Problem
from fairway.samplers.gp import GP
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.samplers.tpe import CTPE
from fairway.seeds import fresh_seed, stream
from fairway.space import Space
from fairway.stoppers.ace import ACE
from fairway.stoppers.never import Never
from fairway.stoppers.stopper import Stopper
from fairway.study import Study
from fairway.terminators.terminator import Terminator

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.search_space import IntersectionSearchSpace
    from optuna.trial import FrozenTrial, TrialState
except ImportError:
    raise MissingDependency("fairway.integrations.optuna needs Optuna: pip install 'fairway[optuna]'") from None

__all__ = [
    "UNKNOWN",
    "ACEPruner",
    "CTPESampler",
    "FairwayPruner",
    "FairwaySampler",
    "GPSampler",
    "from_optuna",
    "report",
    "terminate_when",
    "to_optuna",
]

UNKNOWN = 1e300
"""What Optuna gets for a constraint that was never measured: no part of Optuna takes such a trial for feasible."""

_PAID = "fairway:paid"  # the user attribute in which a pruner's measurements are kept, by step


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
        table = _Table.of(search_space)
        trials = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        history = _history_of(study, trials, table, self.seed)
        try:
            x = self.sampler.next_point(history, stream(self.seed, trial.number, "sampler"))
        except SpaceExhausted:  # an Optuna study continues, and repeats configurations
            return {}
        return table.to_theirs(table.space.decode(np.nan_to_num(x, nan=0.5)))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        del study
        table = _Table.of({param_name: param_distribution})
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
        verdict = terminator.check(_history_of(study, trials, _Table.of(distributions), seed=0))
        if verdict:
            study.set_user_attr("ended", verdict.reason)
            study.stop()

    return callback


def _varying(search_space: IntersectionSearchSpace, study: optuna.Study) -> dict[str, BaseDistribution]:
    """The parameters that all trials have had so far, and that can take more than one value."""
    return {name: each for name, each in search_space.calculate(study).items() if not each.single()}


class _OptunaBridge(Bridge[int]):
    """A bridge whose trials have Optuna's numbers; it takes in those that ended or ran elsewhere."""

    def __init__(self, study: optuna.Study, constraints: Sequence[Constraint], stopper: Stopper) -> None:
        super().__init__(Problem(_objective_of(study), constraints), stopper=stopper)
        self.lock = threading.RLock()

    def trial(self, study: optuna.Study, number: int, total: int | None = None) -> Trial:
        """Our trial for one of Optuna's; before it begins here, all trials that have ended since are taken in."""
        with self.lock:
            if number not in self.running:
                for theirs in study.get_trials(deepcopy=False):
                    if theirs.number != number and theirs.state.is_finished() and theirs.number not in self.ended:
                        self._take_in(theirs)
                self.begin(number, total=total)
            return self.running[number]

    def _take_in(self, theirs: FrozenTrial) -> None:
        """End a trial that has ended in Optuna; if it ran in another process, report first what it reported there."""
        if theirs.number not in self.running:
            paid: Mapping[str, Mapping[str, float]] = theirs.user_attrs.get(_PAID, {})
            trial = self.begin(theirs.number)
            for step, value in sorted(theirs.intermediate_values.items()):
                if trial.stopped or not math.isfinite(value):
                    break
                metrics = {self.problem.objective.metric: value, **paid.get(str(step), {})}
                trial.report(metrics, step=max(step, trial.last_step + 1))
        failed = theirs.state == TrialState.FAIL
        self.end(theirs.number, failed="failed in Optuna, or reported nothing" if failed else "")


class FairwayPruner(BasePruner):
    """Any stopper of fairway as an Optuna pruner; `report` gives it the constraints.

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
        self._bridges: dict[str, _OptunaBridge] = {}  # by the name of Optuna's study
        self._lock = threading.Lock()

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """The decision of the last report; a report made by `trial.report` alone is decided on now."""
        bridge = self.bridge(study)
        with bridge.lock:
            ours, step = bridge.trial(study, trial.number), trial.last_step
            if step is not None and not ours.stopped and max(step, 1) > ours.last_step:
                ours.report({bridge.problem.objective.metric: trial.intermediate_values[step]}, step=max(step, 1))
            return ours.stopped

    def bridge(self, study: optuna.Study) -> _OptunaBridge:
        """Our study that follows one of Optuna's."""
        with self._lock:
            if study.study_name not in self._bridges:
                self._bridges[study.study_name] = _OptunaBridge(study, self.constraints, self.stopper)
            return self._bridges[study.study_name]


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
    """Report to Optuna and to our pruner; the decision is true if training should stop (`raise optuna.TrialPruned`).

    Constraints given as callables are called, and timed, only when the check is worth its cost. `total` is the number
    of steps the trial plans; knowing it, expensive checks can wait for the end. What was measured for the best
    checkpoint so far becomes the trial's constraints in Optuna, at most 0 if satisfied.
    """
    pruner = trial.study.pruner
    if not isinstance(pruner, FairwayPruner):
        raise UsageError(f"report: the study's pruner is {pruner!r}; give it fairway's, such as ACEPruner([...])")
    bridge = pruner.bridge(trial.study)
    ours = bridge.trial(trial.study, trial.number, total)
    trial.report(value, step)
    decision = ours.report({bridge.problem.objective.metric: value, **(constraints or {})}, step=step)
    _write_constraints(trial, bridge, ours)
    return decision


def _write_constraints(trial: optuna.Trial, bridge: _OptunaBridge, ours: Trial) -> None:
    """Store the checks of the last step, and the constraints of the best checkpoint, as attributes in Optuna."""
    constraints = bridge.problem.constraints
    standing = bridge.standing(ours) if constraints else None
    if standing is None:
        return
    values = {each.metric: value for each, value in zip(constraints, standing.values, strict=True)}
    measured = {name: value for name, value in values.items() if value is not None}
    paid = trial.user_attrs.get(_PAID, {})
    if measured and paid.get(str(standing.step)) != measured:
        trial.set_user_attr(_PAID, {**paid, str(standing.step): measured})
    over = {each.metric: _excess(each, values[each.metric]) for each in constraints}
    changed = {name: value for name, value in over.items() if trial.constraints.get(name) != value}
    if changed:  # `set_constraint` takes each only once, and the best checkpoint of a trial changes
        storage = trial.storage
        study = storage.get_study_id_from_name(trial.study.study_name)
        key = storage.get_trial_id_from_study_id_trial_number(study, trial.number)
        for name, value in changed.items():
            storage.set_trial_system_attr(key, f"constraints:{name}", value)


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
    table, constraints = _Table.of(common, scalars=True), _constraints_of(finished)
    rules: dict[str, Any] = {name: settings.pop(name, None) for name in ("sampler", "stopper", "terminator")}
    objective, listed = _objective_of(study, metric), list(constraints.values())
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
    checkpoint = _checkpoint_of(trial, list(constraints))
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
        over = {each.metric: _excess(each, record.metrics.get(each.metric)) for each in constraints}
        there.add_trial(
            optuna.trial.create_trial(
                state=states[record.status],
                value=None if record.status == "failed" else record.metrics.get(objective.metric),
                params=dict(record.params),
                distributions={key: _distribution_of(study.space[key]) for key in record.params},
                intermediate_values=curves.get(record.number, {}),
                user_attrs={**({"reason": record.reason} if record.reason else {}), **record.notes},
                system_attrs={"constraints": list(over.values())} if over else {},
                constraints=over,
            )
        )
    return there


class _Table(NamedTuple):
    """A search space of Optuna as ours; with `scalars`, options that are JSON scalars stay, others become indices."""

    space: Space
    distributions: Mapping[str, BaseDistribution]
    indexed: Collection[str]  # categories whose options are known here by their index

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution], *, scalars: bool = False) -> _Table:
        kept = {
            name: scalars and as_choice(each.choices)
            for name, each in distributions.items()
            if isinstance(each, CategoricalDistribution)
        }
        space = Space({name: kept.get(name) or _parameter(name, each) for name, each in distributions.items()})
        return cls(space, distributions, {name for name, choice in kept.items() if not choice})

    def to_ours(self, params: Mapping[str, Any]) -> dict[str, Value]:
        return {
            name: int(each.to_internal_repr(params[name])) if name in self.indexed else params[name]
            for name, each in self.distributions.items()
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


def _distribution_of(parameter: Parameter) -> BaseDistribution:
    """A parameter of ours as Optuna's."""
    if isinstance(parameter, Choice):
        return CategoricalDistribution(parameter.options)
    assert isinstance(parameter, Float | Int)
    kind: Any = FloatDistribution if isinstance(parameter, Float) else IntDistribution
    distribution: BaseDistribution = kind(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    return distribution


def _objective_of(study: optuna.Study, metric: str = "value") -> Objective:
    """An Optuna study's objective under a name of ours."""
    if len(study.directions) != 1:
        raise UsageError(f"the Optuna study has {len(study.directions)} objectives; fairway takes one, and constraints")
    return (Maximize if study.direction == optuna.study.StudyDirection.MAXIMIZE else Minimize)(metric)


def _measured(trial: FrozenTrial) -> dict[str, float]:
    """A trial's constraints by name; if it has none by name, those of the older format, by position."""
    everything = trial.constraints
    named = {name: value for name, value in everything.items() if f"constraints:{name}" in trial.system_attrs}
    return {name: float(value) for name, value in (named or everything).items() if value != UNKNOWN}


def _constraints_of(trials: Sequence[FrozenTrial]) -> dict[str, Constraint]:
    """Every constraint that any trial has; each limit is 0."""
    names = sorted({name for each in trials for name in _measured(each)})
    return {name: AtMost(name, 0.0, scale=1.0) for name in names}


def _checkpoint_of(trial: FrozenTrial, names: Sequence[str]) -> Checkpoint | None:
    """What stands for a finished trial: its value, or the last one that a pruned trial reported."""
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = trial.intermediate_values[max(trial.intermediate_values)]
    if value is None or not math.isfinite(value):
        return None
    known = _measured(trial)
    return Checkpoint(max(trial.last_step or 0, 1), float(value), tuple(known.get(name) for name in names))


def _history_of(study: optuna.Study, trials: Sequence[FrozenTrial], table: _Table, seed: int) -> History:
    """The columns that our samplers and terminators see, from trials that have the table's parameters."""
    constraints = _constraints_of(trials)
    columns = Columns(table.space, Problem(_objective_of(study), list(constraints.values())), seed)
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
        columns.append(trial.number, x, _checkpoint_of(trial, list(constraints)), seconds, partial=partial)
    return columns.snapshot(pending)


def _excess(constraint: Constraint, value: float | None) -> float:
    """How far a value lies beyond the limit, as Optuna expects it; NaN and infinity count as measured and violated."""
    if value is None:
        return UNKNOWN
    over = constraint.sign * (value - constraint.threshold)
    return over if math.isfinite(over) else UNKNOWN / 2
