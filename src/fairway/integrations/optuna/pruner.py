"""Our stoppers as an Optuna pruner, and `report`, which gives it the constraints."""

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
from fairway.integrations.optuna.table import (
    excess,
    objective_of,
)
from fairway.measured import Measured
from fairway.problem import Constraint, Minimize, Problem
from fairway.stoppers.ace import ACE
from fairway.stoppers.stopper import Stopper

_PAID = "fairway:paid"  # the user attribute in which a pruner's measurements are kept, by step


class _OptunaBridge(Bridge[int]):
    """A bridge whose trials have Optuna's numbers; it takes in those that ended or ran elsewhere."""

    def __init__(self, study: optuna.Study, constraints: Sequence[Constraint], stopper: Stopper) -> None:
        super().__init__(Problem(objective_of(study), constraints), stopper=stopper)
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
            paid: Mapping[str, Mapping[str, float | Sequence[float]]] = theirs.user_attrs.get(_PAID, {})
            trial = self.begin(theirs.number)
            for step, value in sorted(theirs.intermediate_values.items()):
                if trial.stopped or not math.isfinite(value):
                    break
                checks = {name: _read(one) for name, one in paid.get(str(step), {}).items()}
                metrics = {self.problem.objective.metric: value, **checks}
                trial.report(metrics, step=max(step, trial.last_step + 1))
        failed = theirs.state == TrialState.FAIL
        self.end(theirs.number, failed="failed in Optuna, or reported nothing" if failed else "")


class FairwayPruner(BasePruner):
    """Any stopper of fairway as an Optuna pruner; `report` gives it the constraints.

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
    errors = standing.errors or (None,) * len(constraints)
    known = {each.metric: pair for each, *pair in zip(constraints, standing.values, errors, strict=True)}
    measured = {name: v if error is None else [v, error] for name, (v, error) in known.items() if v is not None}
    paid = trial.user_attrs.get(_PAID, {})
    if measured and paid.get(str(standing.step)) != measured:
        trial.set_user_attr(_PAID, {**paid, str(standing.step): measured})
    over = {each.metric: excess(each, *known[each.metric]) for each in constraints}
    changed = {name: value for name, value in over.items() if trial.constraints.get(name) != value}
    if changed:  # `set_constraint` takes each only once, and the best checkpoint of a trial changes
        storage = trial.storage
        study = storage.get_study_id_from_name(trial.study.study_name)
        key = storage.get_trial_id_from_study_id_trial_number(study, trial.number)
        for name, value in changed.items():
            storage.set_trial_system_attr(key, f"constraints:{name}", value)


def _read(paid: float | Sequence[float]) -> float:
    """A check as it was kept: a value, or a value and its error."""
    return Measured(*paid) if isinstance(paid, Sequence) else paid
