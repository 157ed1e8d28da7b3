"""The default stopper of the first version, so that its logs can be shown, verified and resumed.

At rungs, steps grace * reduction^k, all but the best 1/reduction of the trials stop, ranked by objective alone; a trial
at least as good as the best feasible checkpoint continues. Until something feasible is found, infeasible trials are
ranked by violation and all others continue. Whether an infeasible trial will recover is estimated as in
`fairway.stoppers.recoveries`. After a check, the next one waits until training has cost `wait` times as much as that
check.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from fairway.checks import at_least_zero, checked, number, positive, whole
from fairway.problem import Problem
from fairway.stoppers.ranks import DUST, PairRanks, Ranks
from fairway.stoppers.recoveries import Recoveries, Violations
from fairway.stoppers.stopper import Interval, Stopper, StopperState


@dataclass(frozen=True)
class EarlierPilot(Stopper):
    """The default stopper of the first version, then called `Pilot`."""

    _: KW_ONLY
    interval: Interval = "adaptive"
    reduction: float = field(
        default=1.75, metadata=checked(number, what="a number above 1", within=lambda reduction: reduction > 1)
    )
    persistence: float = field(default=7.0, metadata=checked(positive))
    wait: float = field(default=0.25, metadata=checked(at_least_zero))
    grace: int = field(default=1, metadata=checked(whole))

    @property
    def stop_probability(self) -> float:
        return 1 - 1 / self.reduction

    def adapted(self, cost_ratio: float | None, total: int) -> int:
        """1: any step may be checked, and `due` weighs the cost."""
        del cost_ratio, total
        return 1

    def start(self, problem: Problem) -> StopperState:
        return _State(self, constrained=bool(problem.constraints))


@dataclass(slots=True)
class _Course(Violations):
    """One running trial."""

    next_rung: int = 1
    training_since_check: int = 0
    check_cost: int = 0  # of the last check


class _State(StopperState):
    def __init__(self, config: EarlierPilot, *, constrained: bool) -> None:
        self._config = config
        self._limits = Recoveries(config.persistence, constrained=constrained)
        self._trials: defaultdict[int, _Course] = defaultdict(partial(_Course, next_rung=config.grace))
        self._rungs: defaultdict[int, Ranks] = defaultdict(Ranks)
        self._infeasible: defaultdict[int, PairRanks] = defaultdict(PairRanks)  # by rung: violation, then loss

    def due(self, number: int, step: int, loss: float, train_ns: int) -> bool:
        del step
        if self._config.skip and loss >= self._limits.best_feasible:
            return False
        course = self._trials.get(number)
        if course is None:
            return True
        return course.training_since_check + train_ns >= self._config.wait * course.check_cost

    def spend(self, number: int, train_ns: int, check_ns: int) -> None:
        course = self._trials[number]
        self._limits.spend(course, train_ns + check_ns)
        course.training_since_check += train_ns
        if check_ns:
            course.training_since_check, course.check_cost = 0, check_ns

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        course = self._trials[number]
        self._limits.learn(course, step, loss, violation)
        searching = self._limits.best_feasible == math.inf
        behind = self._is_behind(course, step, loss, by_violation=searching) if step >= course.next_rung else None
        return self._limits.why_hopeless(course) or behind

    def judge_folds(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        course = self._trials[number]
        course.violation = violation or 0.0
        return self._is_behind(course, step, loss, by_violation=True) if step >= course.next_rung else None

    def _is_behind(self, course: _Course, step: int, loss: float, *, by_violation: bool) -> str | None:
        """Enter the rung that was reached; why the trial stops there, or None."""
        config, rung = self._config, course.next_rung
        while course.next_rung <= step:
            rung = course.next_rung
            course.next_rung = max(rung + 1, round(rung * config.reduction))
        ranks = self._rungs[rung]
        rank, n = ranks.add(loss), len(ranks)
        if course.violation:  # ranked even if unused now: another replica may hear of the first feasible trial later
            infeasible = self._infeasible[rung]
            place, m = infeasible.add(course.violation, loss), len(infeasible)
            if by_violation and m - place >= self._kept(m):
                return f"not in the least violating 1/{config.reduction:g} of {m} at step {rung}"
        if loss <= self._limits.best_feasible or n - rank < self._kept(n):
            return None
        return f"not in the best 1/{config.reduction:g} of {n} at step {rung}"

    def _kept(self, n: int) -> int:
        """How many of n trials continue."""
        return max(1, math.floor(n / self._config.reduction + DUST))

    def finish(self, number: int, *, completed: bool) -> None:
        del completed
        self._trials.pop(number, None)
