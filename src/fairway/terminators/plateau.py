"""Two rules without a model: stop after a number of trials without improvement, or at a target value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fairway.checks import checked, number, whole
from fairway.history import History
from fairway.terminators.terminator import Terminator, Verdict, apart, best_feasible, trials


@dataclass(frozen=True)
class Plateau(Terminator):
    """Stops when `patience` trials in a row have not improved on the best feasible one (Conv-i in the literature).

    Stopped trials count; failed ones do not.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=fw.Plateau(20), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=500)
    >>> study.ended
    'nothing better for 20 trials, after 38 trials'
    """

    patience: int = field(metadata=checked(whole))

    def check(self, history: History) -> Verdict:
        best = best_feasible(history)
        if best is None:
            return Verdict(False, f"nothing is feasible after {trials(len(history))}")
        since = int(np.count_nonzero(~history.failed[best + 1 :]))
        reason = f"nothing better for {trials(since)}, after {trials(len(history))}"
        return Verdict(since >= self.patience, reason, float(since), float(self.patience))


@dataclass(frozen=True)
class Target(Terminator):
    """Stops when the best feasible trial is as good as `value`, in the objective's own unit.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), terminator=fw.Target(0.9), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=500)
    >>> study.ended
    'auc 0.9596 reached 0.9 after 11 trials'
    """

    value: float = field(metadata=checked(number, what="a finite number", within=math.isfinite))

    def check(self, history: History) -> Verdict:
        best, objective = best_feasible(history), history.problem.objective
        if best is None:
            return Verdict(False, f"nothing is feasible after {trials(len(history))}")
        found = objective.sign * float(history.loss[best])
        reached = bool(history.loss[best] <= objective.sign * self.value)
        how = "reached" if reached else "has not reached"
        shown, wanted = apart(found, self.value, 4)
        reason = f"{objective.metric} {shown} {how} {wanted} after {trials(len(history))}"
        return Verdict(reached, reason, found, float(self.value))
