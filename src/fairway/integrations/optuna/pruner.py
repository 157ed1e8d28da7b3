"""Our stoppers as an Optuna pruner, and `report`, by which it learns what constraints are worth."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from fairway.engine.decision import Decision
from fairway.engine.measurement import Given
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.integrations.bridge import Bridge
from fairway.integrations.optuna.history import excess, objective_of
from fairway.problem import Constraint, Minimize, Problem
from fairway.stoppers.ace import ACE
from fairway.stoppers.stopper import Stopper

_PAID = "fairway:paid"  # the user attribute in which a pruner's measurements are kept, by step


class _OptunaBridge(Bridge[int]):
    """A bridge whose trials have Optuna's numbers; it takes in those that ended or ran elsewhere."""

    def __init__(self, study: optuna.Study, constraints: Sequence[Constraint], stopper: Stopper) -> None:
        super().__init__(Problem(objective_of(study), constraints), stopper=stopper)
        self.lock = threading.RLock()

    def catch_up(self, trials: Sequence[FrozenTrial]) -> None:
        """End what has ended here; take in what ran elsewhere."""
        for theirs in trials:
            if theirs.state.is_finished() and theirs.number not in self.ended:
                if theirs.number not in self.running:
                    self._take_in(theirs)
                failed = theirs.state == TrialState.FAIL
                self.end(theirs.number, failed="failed in Optuna, or reported nothing" if failed else "")

    def _take_in(self, theirs: FrozenTrial) -> None:
        """Report here what a trial reported elsewhere."""
        paid: Mapping[str, Mapping[str, float]] = theirs.user_attrs.get(_PAID, {})
        trial = self.begin(theirs.number)
        for step, value in sorted(theirs.intermediate_values.items()):
            if trial.stopped or not math.isfinite(value):
                break
            metrics = {self.problem.objective.metric: value, **paid.get(str(step), {})}
            trial.report(metrics, step=max(step, trial.last_step + 1))


class FairwayPruner(BasePruner):
    """Any stopper of ours as an Optuna pruner, told by `report` what constraints are worth.

    >>> import fairway as fw, optuna
    >>> from fairway.integrations.optuna import CTPESampler
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
        """What was said at the last report; one that came by `trial.report` alone is ruled on now."""
        bridge = self.bridge(study)
        with bridge.lock:
            ours = bridge.running.get(trial.number)
            if ours is None:
                ours = self.begin(bridge, study, trial.number)
            step = trial.last_step
            if step is not None and not ours.stopped and max(step, 1) > ours.last_step:
                ours.report({bridge.problem.objective.metric: trial.intermediate_values[step]}, step=max(step, 1))
            return ours.stopped

    def bridge(self, study: optuna.Study) -> _OptunaBridge:
        """The study of ours that stands for one of Optuna's."""
        with self._lock:
            found = self._bridges.get(study.study_name)
            if found is None:
                found = self._bridges[study.study_name] = _OptunaBridge(study, self.constraints, self.stopper)
            return found

    def begin(self, bridge: _OptunaBridge, study: optuna.Study, number: int, total: int | None = None) -> Trial:
        """Begin a trial here, and take in all that has ended since the last one did."""
        bridge.catch_up([each for each in study.get_trials(deepcopy=False) if each.number != number])
        return bridge.begin(number, total=total)


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
    trial plans: where checks are expensive, it lets them wait for the end. What was measured for the best checkpoint so
    far becomes the trial's constraints in Optuna, at most 0 where they are met.
    """
    pruner = trial.study.pruner
    if not isinstance(pruner, FairwayPruner):
        raise UsageError(f"report: the study's pruner is {pruner!r}; give it fairway's, such as ACEPruner([...])")
    bridge = pruner.bridge(trial.study)
    with bridge.lock:
        ours = bridge.running.get(trial.number)
        if ours is None:
            ours = pruner.begin(bridge, trial.study, trial.number, total)
    trial.report(value, step)
    metric = bridge.problem.objective.metric
    decision = ours.report({metric: value, **(constraints or {})}, step=step)
    _write_constraints(trial, bridge, ours)
    return decision


def _write_constraints(trial: optuna.Trial, bridge: _OptunaBridge, ours: Trial) -> None:
    """Keep what was paid for at the last step, and what stands for the trial, where Optuna finds it."""
    limits = bridge.problem.constraints
    if not limits:
        return
    standing = bridge.standing(ours)
    if standing is None:
        return
    measured = {limit.metric: value for limit, value in zip(limits, standing.values, strict=True) if value is not None}
    if measured:
        paid = {**trial.user_attrs.get(_PAID, {}), str(standing.step): measured}
        if paid != trial.user_attrs.get(_PAID):
            trial.set_user_attr(_PAID, paid)
    over = {limit.metric: excess(limit, measured.get(limit.metric)) for limit in limits}
    changed = {name: value for name, value in over.items() if trial.constraints.get(name) != value}
    if changed:  # `set_constraint` takes each only once, and the best checkpoint of a trial changes
        storage = trial.storage
        study = storage.get_study_id_from_name(trial.study.study_name)
        key = storage.get_trial_id_from_study_id_trial_number(study, trial.number)
        for name, value in changed.items():
            storage.set_trial_system_attr(key, f"constraints:{name}", value)
