"""No stopping: every trial runs to completion."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.problem import Problem
from fairway.stoppers.stopper import Stopper, StopperState


@dataclass(frozen=True)
class Never(Stopper):
    """Never stops a trial; `interval` and `skip` still say when constraints are checked.

    >>> import fairway as fw
    >>> fw.Never(interval="end")
    Never(interval='end', skip=True)
    """

    stop_probability = 0.0

    def start(self, problem: Problem) -> StopperState:
        del problem
        return _NeverState()


class _NeverState(StopperState):
    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        del number, step, loss, violation
        return None
