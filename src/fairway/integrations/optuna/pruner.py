"""Our stoppers as an Optuna pruner, and `report`, by which it learns what constraints are worth."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from fairway.engine.trial import Decision, Given, Trial
from fairway.errors import UsageError
from fairway.integrations.optuna.history import excess, objective_of
from fairway.problem import Constraint, Minimize, Problem
from fairway.samplers.random import Random
from fairway.space import Int
from fairway.stoppers.ace import ACE
from fairway.stoppers.stopper import Stopper
from fairway.study import Study

_PAID = "fairway:paid"  # the user attribute in which a pruner's measurements are kept, by step


class _Mirror:
    """An Optuna study as one of ours, trial for trial, so that its reports are ruled on as ours are."""

    def __init__(self, study: optuna.Study, constraints: Sequence[Constraint], stopper: Stopper) -> None:
        space = {"number": Int(0, 2**31)}
        self.study = Study(space, objective_of(study), constraints, sampler=Random(), stopper=stopper, seed=0)
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
    with mirror.study.owner.lock:
        standing = mirror.study.owner.ledger.courses[ours.number].checkpoint
    if standing is None:
        return
    storage, number = trial.study._storage, trial._trial_id
    measured = {limit.metric: value for limit, value in zip(limits, standing.values, strict=True) if value is not None}
    if measured:
        paid = {**trial.user_attrs.get(_PAID, {}), str(standing.step): measured}
        if paid != trial.user_attrs.get(_PAID):
            trial.set_user_attr(_PAID, paid)
    for limit in limits:
        over = excess(limit, measured.get(limit.metric))
        if trial.constraints.get(limit.metric) != over:
            storage.set_trial_system_attr(number, f"constraints:{limit.metric}", over)
            trial._cached_frozen_trial.system_attrs[f"constraints:{limit.metric}"] = over
