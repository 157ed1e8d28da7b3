"""The median stopping rule (Golovin et al., 2017), which ignores constraints."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from fairway.checks import checked, whole
from fairway.problem import Problem
from fairway.stoppers.ranks import Ranks
from fairway.stoppers.stopper import Stopper, StopperState


@dataclass(frozen=True)
class Median(Stopper):
    """Stops a trial whose best loss is worse than the median of the other trials' mean losses up to that step.

    The original rule compares with completed trials only. Here every trial that has reached the step counts, so the
    rule applies from the start; it needs `min_trials` of them, and stops nothing before step `grace`.

    >>> import fairway as fw
    >>> fw.Median(grace=10)
    Median(interval=1, skip=True, grace=10, min_trials=5)
    """

    grace: int = field(default=1, metadata=checked(whole))
    min_trials: int = field(default=5, metadata=checked(whole))
    stop_probability = 0.5

    def start(self, problem: Problem) -> StopperState:
        del problem
        return _MedianState(self)


class _MedianState(StopperState):
    def __init__(self, config: Median) -> None:
        self._config = config
        self._means: defaultdict[int, Ranks] = defaultdict(Ranks)  # by step
        self._running: dict[int, tuple[float, int, float, int]] = {}  # by trial: sum, count, best loss, last step

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        del violation
        total, count, best, last = self._running.get(number, (0.0, 0, loss, 0))
        if step <= last:  # a late check of an earlier report
            return None
        total, count, best = total + loss, count + 1, min(best, loss)
        self._running[number] = (total, count, best, step)
        means = self._means[step]
        others = len(means)
        better = others - means.rank(best)
        means.add(total / count)
        if step < self._config.grace or others < self._config.min_trials or 2 * better <= others:
            return None
        return f"behind the median of {others} at step {step}"

    def finish(self, number: int, *, completed: bool) -> None:
        del completed
        self._running.pop(number, None)
