"""The stopping rule of the CIKM 2021 contest's winners (section 4.2): one comparison, at one step."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.checks import checked, whole
from fairway.problem import Problem
from fairway.stoppers.ranks import Ranks
from fairway.stoppers.stopper import Stopper, StopperState


@dataclass(frozen=True)
class HalfAt(Stopper):
    """Stops a trial at `step` if it is not in the better half there, once `after` trials have completed.

    >>> import fairway as fw
    >>> fw.HalfAt(7, after=40)
    HalfAt(interval=1, skip=True, step=7, after=40)
    """

    step: int = field(default=7, metadata=checked(whole))
    after: int = field(default=40, metadata=checked(whole, least=0))
    stop_probability = 0.5

    def start(self, problem: Problem) -> StopperState:
        del problem
        return _HalfAtState(self)


class _HalfAtState(StopperState):
    def __init__(self, config: HalfAt) -> None:
        self._config = config
        self._ranks = Ranks()
        self._completed = 0
        self._compared: set[int] = set()  # running trials

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        del violation
        if step < self._config.step or number in self._compared:
            return None
        self._compared.add(number)
        rank, n = self._ranks.add(loss), len(self._ranks)
        if self._completed < self._config.after or rank > n / 2:
            return None
        return f"not in the better half of {n} at step {self._config.step}"

    def finish(self, number: int, *, completed: bool) -> None:
        self._compared.discard(number)
        self._completed += completed
