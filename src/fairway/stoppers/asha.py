"""ASHA: asynchronous successive halving (Li et al., 2020), in its stopping form, and its geometric variant of ACE.

Trials are compared at rungs, at steps grace * reduction^k; at each rung all but the best 1/reduction stop. A trial that
does not report at a rung's own step enters the rung with its first report past it. With `strata` this is the variant of
the ACE paper's Appendix E: ranks within strata, and constraints paid for at rungs only.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairway.errors import UsageError
from fairway.problem import Problem
from fairway.ranks import DUST, Ranks
from fairway.stoppers.stopper import Interval, Stopper, StopperState, check_count
from fairway.stoppers.strata import Strata


@dataclass(frozen=True)
class ASHA(Stopper):
    """Keeps the best 1/`reduction` at each rung; blind to constraints unless `strata` is set.

    >>> import fairway as fw
    >>> fw.ASHA(reduction=3, strata=True, interval="adaptive", skip=False).stop_probability
    0.6666666666666667
    """

    reduction: int = 4
    grace: int = 1
    max_steps: int | None = None
    strata: bool = False
    interval: Interval = 1
    skip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "reduction")
        check_count(self, "grace")
        if self.reduction == 1:
            raise UsageError("reduction=1: at least 2 is expected, or nothing would ever stop")
        if self.max_steps is not None:
            check_count(self, "max_steps")

    @property
    def stop_probability(self) -> float:
        """A rung ends all but one in `reduction`."""
        return 1 - 1 / self.reduction

    def start(self, problem: Problem) -> StopperState:
        """A fresh state."""
        del problem
        return _ASHAState(self)


class _ASHAState(StopperState):
    __slots__ = ("_config", "_next", "_ranks", "_strata")

    def __init__(self, config: ASHA) -> None:
        self._config = config
        self._strata = Strata()
        self._ranks: dict[int, Ranks] = {}
        self._next: dict[int, int] = {}  # by trial: the rung it has not reached yet

    def due(self, number: int, step: int) -> bool:
        return not self._config.strata or step >= self._next.get(number, self._config.grace)

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        config = self._config
        if config.max_steps is not None and step >= config.max_steps:
            return f"max_steps={config.max_steps} reached"
        upper = self._next.get(number, config.grace)
        if step < upper:
            return None
        while upper <= step:
            rung, upper = upper, upper * config.reduction
        self._next[number] = upper
        n = self._place(rung, loss, violation)
        return f"not in the best 1/{config.reduction} of {n} at step {rung}" if n else None

    def _place(self, rung: int, loss: float, violation: float | None) -> int:
        share = self._config.stop_probability
        if self._config.strata:
            return self._strata.among_worst(share, rung, loss, violation)
        ranks = self._ranks.setdefault(rung, Ranks())
        rank, n = ranks.add(loss), len(ranks)
        return n if rank <= share * n + DUST else 0

    def finish(self, number: int, *, completed: bool) -> None:
        del completed
        self._next.pop(number, None)
