"""The contract of a terminator: a query over history that says whether going on can still pay.

A terminator is a frozen configuration. It keeps nothing between calls and sees no clock: the same history gets the same
verdict, whoever asks, so that `fairway verify` can ask again. Under constraints the best trial is the best feasible
one; while there is none, no terminator ends the search by its own rule, and each says so.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.checks import is_finite, positive
from fairway.errors import UsageError
from fairway.history import History


class Verdict(NamedTuple):
    """What a terminator says: whether to stop, why in a sentence, and the numbers that it compared.

    It is true where the search should stop. `value` and `threshold` are NaN while there is nothing to compare.
    """

    stop: bool
    reason: str
    value: float = math.nan
    threshold: float = math.nan

    def __bool__(self) -> bool:
        return self.stop


@dataclass(frozen=True)
class Terminator(ABC):
    """Stop the whole search? The base of all terminators.

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

    @abstractmethod
    def check(self, history: History) -> Verdict:
        """Whether to stop, after what has finished so far; running trials must not matter."""

    def pause(self, finished: int) -> int:
        """How many more trials finish before it is asked again, after a verdict on so many."""
        del finished
        return 1


@dataclass(frozen=True)
class _Joined(Terminator):
    parts: tuple[Terminator, ...]

    def pause(self, finished: int) -> int:
        """As the first of them that wants to be asked."""
        return min(part.pause(finished) for part in self.parts)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        for part in self.parts:
            if not isinstance(part, Terminator):
                raise UsageError(f"{part!r}: a terminator is expected")
        if not self.parts:
            raise UsageError("at least one terminator is expected")


@dataclass(frozen=True)
class AnyOf(_Joined):
    """What `any_of` makes."""

    def check(self, history: History) -> Verdict:
        """The first verdict to stop; else the first verdict, with the reasons of all that were asked.

        One that is dear is asked at every multiple of its pause.
        """
        n = len(history)
        due = [part for part in self.parts if n % part.pause(n) == 0]
        verdicts = [part.check(history) for part in due]
        if not verdicts:
            return Verdict(False, f"not asked after {trials(n)}")
        reasons = "; ".join(verdict.reason for verdict in verdicts)
        return next((verdict for verdict in verdicts if verdict), verdicts[0]._replace(reason=reasons))


@dataclass(frozen=True)
class AllOf(_Joined):
    """What `all_of` makes."""

    def check(self, history: History) -> Verdict:
        """The first verdict to go on, those that are dear asked last; else the first, with the reasons of all."""
        said: dict[int, Verdict] = {}
        for i in sorted(range(len(self.parts)), key=lambda i: self.parts[i].pause(len(history))):
            said[i] = self.parts[i].check(history)
            if not said[i]:
                return said[i]
        verdicts = [said[i] for i in range(len(self.parts))]
        return verdicts[0]._replace(reason="; ".join(verdict.reason for verdict in verdicts))


def any_of(*terminators: Terminator) -> Terminator:
    """Stop as soon as one of them says so.

    >>> import fairway as fw
    >>> ends = fw.any_of(fw.Target(0.001), fw.Plateau(30))
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=ends, seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=500)
    >>> study.ended
    'loss 0.0007192 reached 0.001 after 6 trials'
    """
    return AnyOf(terminators)


def all_of(*terminators: Terminator) -> Terminator:
    """Stop when all of them say so.

    >>> import fairway as fw
    >>> ends = fw.all_of(fw.Target(0.01), fw.Plateau(5))
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=ends, seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=500)
    >>> study.ended.startswith("loss")
    True
    """
    return AllOf(terminators)


def best_feasible(history: History) -> int | None:
    """The row of the best feasible trial."""
    best = int(history.order[0]) if len(history) else -1
    return best if best >= 0 and history.feasible[best] else None


def usable(history: History) -> NDArray[np.intp]:
    """The rows that show what their configuration comes to, from best to worst: completed ones, and the best feasible.

    A trial that was stopped might have come to more than it showed, unless all that was missing are folds. The best
    feasible checkpoint is known for what it is, whatever became of its trial.
    """
    order = history.order[: int(np.count_nonzero(~history.failed))]
    best = best_feasible(history)
    keep = (~history.partial | history.provisional)[order] | (order == (-1 if best is None else best))
    return np.asarray(order[keep])


def not_yet(history: History, start: int) -> Verdict | None:
    """Why there is nothing to judge by yet, if that is so."""
    finished = int(np.count_nonzero(~history.failed & ~history.partial))
    if finished < start:
        return Verdict(False, f"{finished} of the {start} completed trials that a verdict needs")
    if best_feasible(history) is None:
        return Verdict(False, f"nothing is feasible after {trials(len(history))}")
    seen = history.loss[usable(history)]
    if seen.min() == seen.max():
        return Verdict(False, f"all {trials(finished)} came out the same: that says nothing of the others")
    return None


def finite(value: float, name: str) -> float:
    """A threshold as a plain float, if it is a positive and finite number."""
    if not is_finite(value):
        raise UsageError(f"{name}={value!r}: a positive, finite number is expected")
    return positive(value, name)


def spaced(finished: int) -> int:
    """The pause of a rule that fits processes: 2% of the trials, so that checks cost little however many there are."""
    return max(1, finished // 50)


def trials(n: int) -> str:
    """A number of trials, in words."""
    return "1 trial" if n == 1 else f"{n} trials"


def compared(value: float, threshold: float) -> str:
    """Two numbers with the sign between them."""
    one, other = apart(value, threshold, 2)
    return f"{one} {'<' if value < threshold else '>='} {other}"


def apart(value: float, threshold: float, least: int) -> tuple[str, str]:
    """Two numbers in as few digits as tell them apart, but at least so many."""
    for digits in range(least, 18):
        one, other = f"{value:.{digits}g}", f"{threshold:.{digits}g}"
        if one != other:
            break
    return one, other
