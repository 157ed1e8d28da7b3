"""The contract of a stopper: a frozen configuration, and the running state that folds reports and rules on them.

A stopper sees losses (lower is better) and violations (0 valid, positive invalid, None not evaluated), never a study, a
storage or a clock. Folding is independent of the order in which different trials' reports arrive, so replicas agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from fairway.checks import flag, whole
from fairway.errors import UsageError
from fairway.interval import best_interval
from fairway.problem import Problem

Interval: TypeAlias = int | Literal["end", "adaptive"]


class StopperState(ABC):
    """What a stopper remembers of a study. O(log n) a report.

    >>> import fairway as fw
    >>> state = fw.ACE(truncation=0.5).start(fw.Problem(fw.Minimize("loss")))
    >>> state.judge(0, 1, 0.3, 0.0), state.judge(1, 1, 0.7, 0.0)
    (None, 'worst 50% of 2 at step 1')
    """

    @abstractmethod
    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        """Fold one report in; None to go on, or why the trial stops, to be read after what was measured."""

    def judge_folds(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        """The same for the means of some folds, with others to come: they may break a limit, and never meet one yet."""
        return self.judge(number, step, loss, violation or None)

    def due(self, number: int, step: int, loss: float, train_ns: int) -> bool:
        """Whether a constraint may be paid for at this report, which took so long, the interval permitting."""
        del number, step, loss, train_ns
        return True

    def spend(self, number: int, train_ns: int, check_ns: int) -> None:
        """Learn what the report took that is judged next: its training, and the constraints that were paid for."""
        del number, train_ns, check_ns

    def finish(self, number: int, *, completed: bool) -> None:
        """Learn that a trial ended; nothing more comes from it."""
        del number, completed


@dataclass(frozen=True)
class Stopper(ABC):
    """When to stop a trial, and when its constraints are paid for: the base of `Pilot`, `ACE` and the others.

    `interval` is every how many steps: a number, "end" (once, when training ends) or "adaptive" (by their price);
    `skip` pays only while the objective is at least as good as the best feasible one.

    >>> import fairway as fw
    >>> isinstance(fw.ACE(), fw.Stopper), fw.ASHA().interval, fw.ASHA().skip
    (True, 1, True)
    """

    _: KW_ONLY
    interval: Interval = 1
    skip: bool = True

    def __post_init__(self) -> None:
        flag(self.skip, "skip")
        if isinstance(self.interval, str):
            if self.interval not in ("end", "adaptive"):
                raise UsageError(f"interval={self.interval!r}: a whole number, 'end' or 'adaptive' is expected")
        else:
            object.__setattr__(self, "interval", whole(self.interval, "interval"))

    @property
    @abstractmethod
    def stop_probability(self) -> float:
        """The chance that a check ends a trial: p in Theorem 1."""

    def adapted(self, cost_ratio: float | None, total: int) -> int:
        """What "adaptive" comes to in a trial of so many steps: Theorem 1 of ACE; the end while no price is known."""
        return total if cost_ratio is None else best_interval(cost_ratio, self.stop_probability, total)

    @property
    def longest(self) -> int | None:
        """The most steps a trial may take; None: as many as it likes."""
        return None

    @abstractmethod
    def start(self, problem: Problem) -> StopperState:
        """A fresh state for a study of this problem."""
