"""Will an infeasible trial recover? Learned from all trials, and weighed against starting a new one.

Training from step s to step t while infeasible counts as log2(t / s) doublings; D is their sum over all trials, R the
number of recoveries, and the next doubling succeeds with probability (R + 1) / (D + 1). It costs what the trial has
cost so far, c. New trials cost C in total and I of them became feasible. An infeasible trial stops when a new one
promises `persistence` times more:

    persistence * (R + 1) / (D + 1) < c * max(I, 1) / C

This rule treats all infeasible trials alike. It does not stop a trial that shows hope of its own: one whose violation
reached a new low in the later half of its steps, and which at its last rung was among those nearest to their limits.

The trial's own checks say when to check it again: while its violation falls, it is not checked for half of the steps
after which the violation would be gone at that pace.

These are counts, a minimum and integer sums, so that replicas agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_DOUBLING = 1 << 20  # doublings are summed as integer multiples of 1 / _DOUBLING, without rounding


@dataclass(slots=True)
class Violations:
    """What the checks of one running trial have shown."""

    cost: int = 0  # training and checks
    violation: float = 0.0  # at the last check
    least: float = math.inf  # violation at any check
    fell_at: int = 0  # the step of the last check that found less violation than all before it; 0 if none did
    near: bool = False  # at its last rung it violated nothing, or less than most that did
    checked_at: int = 0  # the step of the last check; 0 if there was none
    next_check: float = 0.0  # the step before which it is not checked again
    violated_since: int = 0  # step; 0 if the last check was valid
    counted_to: int = 0  # the step up to which its doublings are in D
    was_feasible: bool = False


class Recoveries:
    """What the checks of all of a study's trials have shown.

    >>> recoveries, trial = Recoveries(persistence=7.0, constrained=True), Violations()
    >>> recoveries.spend(trial, 5)
    >>> recoveries.learn(trial, step=1, loss=0.3, violation=0.2)
    >>> recoveries.best_feasible, trial.violated_since, recoveries.why_hopeless(trial)
    (inf, 1, None)
    """

    def __init__(self, persistence: float, *, constrained: bool) -> None:
        self.best_feasible = math.inf if constrained else -math.inf  # loss; -inf without limits
        self.cost = 0  # C
        self._persistence, self._constrained = persistence, constrained
        self._ever_feasible = 0  # I
        self._recoveries = 0  # R
        self._doublings = 0  # D * _DOUBLING

    def spend(self, trial: Violations, cost: int) -> None:
        """Add to the cost of a trial."""
        trial.cost += cost
        self.cost += cost

    def learn(self, trial: Violations, step: int, loss: float, violation: float | None) -> None:
        """Learn from a trial's report; its violation is None if it was not checked."""
        if not self._constrained:
            return
        if violation is not None:
            trial.next_check = _next_check(trial, step, violation)
            if violation < trial.least:
                trial.least, trial.fell_at = violation, step if trial.checked_at else 0
            trial.violation, trial.checked_at = violation, step
        if violation == 0.0:
            self._recoveries += trial.violated_since > 0
            self._ever_feasible += not trial.was_feasible
            self.best_feasible = min(self.best_feasible, loss)
            trial.violated_since, trial.was_feasible = 0, True
        elif violation and not trial.violated_since:
            trial.violated_since = trial.counted_to = step
        if trial.violated_since and step > trial.counted_to:
            self._doublings += round(math.log2(step / trial.counted_to) * _DOUBLING)
            trial.counted_to = step

    def why_hopeless(self, trial: Violations) -> str | None:
        """The reason to stop an infeasible trial that shows no hope, by the inequality above; None to continue."""
        if not trial.violated_since or (trial.near and _fell_lately(trial)):
            return None
        promise = self._persistence * (self._recoveries + 1) * self.cost * _DOUBLING
        if promise >= max(self._ever_feasible, 1) * trial.cost * (self._doublings + _DOUBLING):
            return None
        share = f"{self._recoveries} of {self._doublings / _DOUBLING:.0f}"
        return f"violated since step {trial.violated_since}; trials recovered in {share} doublings of training"


def _fell_lately(trial: Violations) -> bool:
    """Whether the violation reached a new low in the later half of the steps up to the last check."""
    return 0 < trial.checked_at <= 2 * trial.fell_at


def _next_check(trial: Violations, step: int, violation: float) -> float:
    """The step halfway to where a falling violation would be 0, at most twice the current step; 0 if it does not fall.

    >>> _next_check(Violations(violation=0.4, checked_at=10), 12, 0.3)
    15.0
    """
    fallen = trial.violation - violation
    if not violation or not fallen > 0.0:  # feasible, not checked before, not falling, or not a number
        return 0.0
    return step + min(violation / fallen * (step - trial.checked_at) / 2, step)
