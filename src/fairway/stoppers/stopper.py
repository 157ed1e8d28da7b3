"""The contract of a stopper: a frozen configuration, and the running state that folds reports and rules on them.

A stopper sees losses (lower is better) and violations (0 valid, positive invalid, None not evaluated), never a study, a
storage or a clock. Folding is independent of the order in which different trials' reports arrive, so replicas agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fairway.errors import UsageError
from fairway.problem import Problem

Interval: TypeAlias = int | Literal["end", "adaptive"]


class StopperState(ABC):
    """What a stopper remembers of a study. O(log n) a report."""

    @abstractmethod
    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        """Fold one report in; None to go on, or why the trial stops, to be read after what was measured."""

    def due(self, number: int, step: int) -> bool:
        """Whether a constraint may be paid for at this report, the interval permitting."""
        del number, step
        return True

    def finish(self, number: int, *, completed: bool) -> None:
        """Learn that a trial ended; nothing more comes from it."""
        del number, completed


@dataclass(frozen=True)
class Stopper(ABC):
    """When to stop a trial, and when its constraints are paid for.

    `interval` is every how many steps: a number, "end" (once, when training ends) or "adaptive" (Theorem 1 of ACE);
    `skip` pays only while the objective is at least as good as the best feasible one.
    """

    def __post_init__(self) -> None:
        interval = self.interval
        if interval not in ("end", "adaptive") and not (_is_count(interval)):
            raise UsageError(f"interval={interval!r}: a whole number of at least 1, 'end' or 'adaptive' is expected")

    @property
    @abstractmethod
    def interval(self) -> Interval: ...

    @property
    @abstractmethod
    def skip(self) -> bool: ...

    @property
    @abstractmethod
    def stop_probability(self) -> float:
        """The chance that a check ends a trial: p in Theorem 1."""

    @abstractmethod
    def start(self, problem: Problem) -> StopperState:
        """A fresh state for a study of this problem."""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_count(stopper: Stopper, name: str) -> None:
    """Refuse a field that is no whole number of at least 1."""
    value = getattr(stopper, name)
    if not _is_count(value):
        raise UsageError(f"{name}={value!r}: a whole number of at least 1 is expected")


def check_fraction(stopper: Stopper, name: str) -> None:
    """Refuse a field that is no fraction strictly between 0 and 1."""
    value = getattr(stopper, name)
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 < value < 1:
        hint = f"; did you mean {value / 100:g}?" if isinstance(value, float | int) and 1 < value < 100 else ""  # noqa: PLR2004
        raise UsageError(f"{name}={value!r}: a fraction between 0 and 1 is expected{hint}")
