"""ASHA: asynchronous successive halving (Li et al., 2020) in its stopping form, and ACE's geometric variant of it.

Trials are compared at rungs, at steps grace * reduction^k; at each rung all but the best 1/reduction stop. A trial that
does not report at the rung's own step enters with its first later report. With `strata` this is the variant in Appendix
E of the ACE paper: trials are ranked within strata, and constraints are checked at rungs only.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from fairway.checks import checked, flag, whole
from fairway.problem import Problem
from fairway.stoppers.ranks import Strata
from fairway.stoppers.stopper import Stopper, StopperState


@dataclass(frozen=True)
class ASHA(Stopper):
    """Keeps the best 1/`reduction` of trials at each rung; ignores constraints unless `strata` is set.

    The first rung is at step `grace`; no trial trains beyond `max_steps`.

    >>> import fairway as fw
    >>> fw.ASHA(reduction=3, strata=True, interval="adaptive", skip=False).stop_probability
    0.6666666666666667
    """

    reduction: int = field(default=4, metadata=checked(whole, least=2))
    _: KW_ONLY
    grace: int = field(default=1, metadata=checked(whole))
    max_steps: int | None = field(default=None, metadata=checked(whole))
    strata: bool = field(default=False, metadata=checked(flag))

    @property
    def stop_probability(self) -> float:
        return 1 - 1 / self.reduction

    @property
    def longest(self) -> int | None:
        return self.max_steps

    def start(self, problem: Problem) -> StopperState:
        del problem
        return _ASHAState(self)


class _ASHAState(StopperState):
    def __init__(self, config: ASHA) -> None:
        self._config = config
        self._strata = Strata()
        self._next_rung: dict[int, int] = {}  # by trial

    def due(self, number: int, step: int, loss: float, train_ns: int) -> bool:
        del loss, train_ns
        return not self._config.strata or step >= self._next_rung.get(number, self._config.grace)

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        config = self._config
        next_rung = self._next_rung.get(number, config.grace)
        if step < next_rung:
            return None
        while next_rung <= step:
            rung, next_rung = next_rung, next_rung * config.reduction
        self._next_rung[number] = next_rung
        if not config.strata:
            violation = None  # one stratum for all
        n = self._strata.among_worst(config.stop_probability, rung, loss, violation)
        return f"not in the best 1/{config.reduction} of {n} at step {rung}" if n else None

    def finish(self, number: int, *, completed: bool) -> None:
        del completed
        self._next_rung.pop(number, None)
