"""The contract of a terminator: a query over history that says whether to end the search.

A terminator is a frozen configuration. It keeps nothing between calls and sees no clock: the same history always gets
the same verdict, so `fairway verify` can repeat it. Under constraints the best trial is the best feasible one; until
there is one, no terminator ends the search. `fairway.testing.check_terminator` tests your own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.checks import check_fields
from fairway.errors import UsageError
from fairway.history import History


class Verdict(NamedTuple):
    """What a terminator returns: whether to stop, a sentence that says why, and the numbers compared.

    A verdict is true if the search should stop. `value` and `threshold` are NaN if nothing was compared.

    >>> import fairway as fw
    >>> bool(fw.Verdict(stop=True, reason="the budget is spent"))
    True
    """

    stop: bool
    reason: str
    value: float = math.nan
    threshold: float = math.nan

    def __bool__(self) -> bool:
        return self.stop


@dataclass(frozen=True)
class Terminator(ABC):
    """Decides whether the whole search ends: the base of all terminators.

    >>> import fairway as fw
    >>> from fairway.terminators.terminator import Verdict
    >>> class Enough(fw.Terminator):
    ...     def check(self, history):
    ...         return Verdict(len(history) >= 5, f"{len(history)} trials")
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), terminator=Enough(), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=100)
    >>> study.ended
    '5 trials'
    """

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def check(self, history: History) -> Verdict:
        """The verdict on the finished trials; running trials must not affect it."""

    def pause(self, finished: int) -> int:
        """How many more trials finish before the next check, after a verdict on `finished` trials."""
        del finished
        return 1


@dataclass(frozen=True)
class ModelBased(Terminator):
    """Fits Gaussian processes, once `start` trials have completed and one is feasible.

    It pauses for 2% of the trials, which bounds its share of the run time.
    """

    @property
    @abstractmethod
    def start(self) -> int:
        """The least number of completed trials."""

    @abstractmethod
    def judge(self, history: History) -> Verdict:
        """The verdict if there is enough data; `check` says what is missing otherwise."""

    def check(self, history: History) -> Verdict:
        finished = int(np.count_nonzero(~history.failed & ~history.partial))
        if finished < self.start:
            return Verdict(False, f"{finished} of the {self.start} completed trials that a verdict needs")
        if best_feasible(history) is None:
            return Verdict(False, f"nothing is feasible after {trials(len(history))}")
        seen = history.loss[usable(history)]
        if seen.min() == seen.max():
            return Verdict(False, f"all {trials(finished)} have the same loss, which says nothing about the others")
        return self.judge(history)

    def pause(self, finished: int) -> int:
        return max(1, finished // 50)


@dataclass(frozen=True)
class _Joined(Terminator):
    parts: tuple[Terminator, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        for part in self.parts:
            if not isinstance(part, Terminator):
                raise UsageError(f"{part!r}: a terminator is expected")
        if not self.parts:
            raise UsageError("at least one terminator is expected")

    def pause(self, finished: int) -> int:
        return min(part.pause(finished) for part in self.parts)


@dataclass(frozen=True)
class AnyOf(_Joined):
    """What `any_of` returns."""

    def check(self, history: History) -> Verdict:
        """The first verdict to stop; otherwise the first verdict, with the reasons of all.

        Each part is checked only when the number of trials is a multiple of its pause.
        """
        n = len(history)
        due = [part for part in self.parts if n % part.pause(n) == 0]
        verdicts = [part.check(history) for part in due]
        if not verdicts:
            return Verdict(False, f"not checked after {trials(n)}")
        reasons = "; ".join(verdict.reason for verdict in verdicts)
        return next((verdict for verdict in verdicts if verdict), verdicts[0]._replace(reason=reasons))


@dataclass(frozen=True)
class AllOf(_Joined):
    """What `all_of` returns."""

    def check(self, history: History) -> Verdict:
        """The first verdict to continue, expensive parts checked last; otherwise the first, with the reasons of all."""
        verdicts: dict[int, Verdict] = {}
        for i in sorted(range(len(self.parts)), key=lambda i: self.parts[i].pause(len(history))):
            verdicts[i] = self.parts[i].check(history)
            if not verdicts[i]:
                return verdicts[i]
        reason = "; ".join(verdicts[i].reason for i in range(len(self.parts)))
        return verdicts[0]._replace(reason=reason)


def any_of(*terminators: Terminator) -> Terminator:
    """A terminator that stops as soon as one of `terminators` does.

    >>> import fairway as fw
    >>> ends = fw.any_of(fw.Target(0.001), fw.Plateau(30))
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=ends, seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=500)
    >>> study.ended
    'loss 0.0007192 reached 0.001 after 6 trials'
    """
    return AnyOf(terminators)


def all_of(*terminators: Terminator) -> Terminator:
    """A terminator that stops when all `terminators` do.

    >>> import fairway as fw
    >>> ends = fw.all_of(fw.Target(0.01), fw.Plateau(5))
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=ends, seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=500)
    >>> study.ended.startswith("loss")
    True
    """
    return AllOf(terminators)


def best_feasible(history: History) -> int | None:
    """The row of the best feasible trial, or None."""
    best = int(history.top(1)[0]) if len(history) else -1
    return best if best >= 0 and history.feasible[best] else None


def usable(history: History) -> NDArray[np.intp]:
    """The rows whose loss is final, from best to worst: completed trials, and the best feasible one.

    A stopped trial might have improved, unless only folds were missing. The best feasible checkpoint counts even if
    its trial was stopped.
    """
    order, best = history.best_first, best_feasible(history)
    keep = (~history.partial | history.provisional)[order] | (order == (-1 if best is None else best))
    return np.asarray(order[keep])


def trials(n: int) -> str:
    """The phrase "1 trial" or "{n} trials"."""
    return "1 trial" if n == 1 else f"{n} trials"


def compared(value: float, threshold: float) -> str:
    """The comparison as text, such as "0.012 >= 0.01"."""
    left, right = apart(value, threshold, 2)
    return f"{left} {'<' if value < threshold else '>='} {right}"


def apart(value: float, threshold: float, least: int) -> tuple[str, str]:
    """Both numbers as text, in the fewest digits, at least `least`, that show them as different."""
    for digits in range(least, 18):
        left, right = f"{value:.{digits}g}", f"{threshold:.{digits}g}"
        if left != right:
            break
    return left, right
