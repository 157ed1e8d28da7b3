"""ACE: adaptive constraint-aware early stopping (Algorithm 1 of the paper).

Each report falls into a stratum: valid, invalid or not evaluated. A trial stops if its report is in the worst share of
its stratum, among reports of the same step. Comparing across steps, which Algorithm 1 also permits, would always rank
young trials last.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from fairway.checks import checked, fraction, one_of, whole
from fairway.problem import Problem
from fairway.stoppers.ranks import Strata
from fairway.stoppers.stopper import Interval, Stopper, StopperState


@dataclass(frozen=True)
class ACE(Stopper):
    """Stops the worst `truncation` share of each stratum, and checks constraints only where a check is worth its cost.

    `interval` and `skip` say when constraints are checked: by default, by Theorem 1 and the skip rule. With
    `tolerance="hard"`, a trial stops at its first violated check. No trial stops before step `grace`.

    >>> import fairway as fw
    >>> fw.ACE(truncation=0.5, tolerance="hard")
    ACE(interval='adaptive', skip=True, truncation=0.5, tolerance='hard', grace=1)
    >>> fw.ACE(truncation=25)
    Traceback (most recent call last):
        ...
    fairway.errors.UsageError: truncation=25: a fraction between 0 and 1 is expected; did you mean 0.25?
    """

    truncation: float = field(default=0.25, metadata=checked(fraction))
    _: KW_ONLY
    interval: Interval = "adaptive"
    tolerance: Literal["soft", "hard"] = field(default="soft", metadata=checked(one_of, options=("soft", "hard")))
    grace: int = field(default=1, metadata=checked(whole))

    @property
    def stop_probability(self) -> float:
        return self.truncation

    def start(self, problem: Problem) -> StopperState:
        del problem
        return _ACEState(self)


class _ACEState(StopperState):
    def __init__(self, config: ACE) -> None:
        self._config = config
        self._strata = Strata()

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        del number
        config = self._config
        n = self._strata.among_worst(config.truncation, step, loss, violation)
        if step < config.grace:
            return None
        if violation and config.tolerance == "hard":
            return f"violated at step {step} under hard tolerance"
        return f"worst {config.truncation:.0%} of {n} at step {step}" if n else None
