"""The contract of a stopper: a frozen configuration, and a running state that records reports and decides on them.

A stopper sees losses (lower is better) and violations (0 valid, positive invalid, None not evaluated), never a study, a
storage or a clock. Its state must not depend on the order in which different trials' reports arrive, so that every
worker's replica of it decides the same. `fairway.testing.check_stopper` tests your own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Literal, TypeAlias

from fairway.checks import check_fields, checked, flag, whole
from fairway.errors import UsageError
from fairway.interval import best_interval
from fairway.problem import Problem

Interval: TypeAlias = int | Literal["end", "adaptive"]


class StopperState(ABC):
    """What a stopper remembers of one study; takes O(log n) time per report.

    >>> import fairway as fw
    >>> state = fw.ACE(truncation=0.5).start(fw.Problem(fw.Minimize("loss")))
    >>> state.judge(0, 1, 0.3, 0.0), state.judge(1, 1, 0.7, 0.0)
    (None, 'worst 50% of 2 at step 1')
    """

    @abstractmethod
    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        """Record one report; None to continue, or the reason to stop, which is shown after the measured values."""

    def judge_folds(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        """`judge` for a mean over some of the folds: it can violate a constraint, but not satisfy one yet."""
        return self.judge(number, step, loss, violation or None)

    def due(self, number: int, step: int, loss: float, train_ns: int) -> bool:
        """Whether to check constraints at this report, whose training cost `train_ns`, if the interval allows it."""
        del number, step, loss, train_ns
        return True

    def place(self, number: int, place: tuple[float, ...], best: float) -> None:
        """Record a trial's place and the best loss known there; called before `due` and `judge` if metrics are tracked.

        `place` holds the tracked metrics, lower is better: those of the trial's last check, or else what it aims at.
        """
        del number, place, best

    def spend(self, number: int, train_ns: int, check_ns: int) -> None:
        """Record what the next report to be judged cost: its training, and the constraints checked.

        With an adaptive interval these are nanoseconds. Otherwise nothing reads the clock: every step costs the same,
        and a check its constraint's `cost` in steps, or nothing.
        """
        del number, train_ns, check_ns

    def finish(self, number: int, *, completed: bool) -> None:
        """Forget a trial that has ended; it reports no more."""
        del number, completed


@dataclass(frozen=True)
class Stopper(ABC):
    """Decides when a trial stops and when its constraints are checked: the base of `Pilot`, `ACE` and the others.

    `interval` is the number of steps between checks, or "end" (one check, after training) or "adaptive" (by cost). With
    `skip`, constraints are checked only while the objective is at least as good as the best feasible one.

    >>> import fairway as fw
    >>> isinstance(fw.ACE(), fw.Stopper), fw.ASHA().interval, fw.ASHA().skip
    (True, 1, True)
    """

    frugal: ClassVar[bool] = False
    """Whether checks are bought by value: a limit that training never changes is checked once a trial, first, and the
    last step of a trial is checked whatever `due` says."""

    _: KW_ONLY
    interval: Interval = 1
    skip: bool = field(default=True, metadata=checked(flag))

    def __post_init__(self) -> None:
        check_fields(self)
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
        """What "adaptive" means for a trial of `total` steps: Theorem 1 of ACE, or `total` until costs are known."""
        return total if cost_ratio is None else best_interval(cost_ratio, self.stop_probability, total)

    @property
    def longest(self) -> int | None:
        """The most steps that a trial may take; None for no limit."""
        return None

    @abstractmethod
    def start(self, problem: Problem) -> StopperState:
        """A fresh state for a study of this problem."""
