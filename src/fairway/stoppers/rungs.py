"""Rungs: what trials are compared by there, and which of them can be trusted to foresee a rung three times later.

Early steps may say nothing about later ones: after one round of boosting all learning rates look alike. So a rung is
measured: of the pairs of trials that reached a rung three times later, how many did it order as the later rung did?
Stopping would blur that, because those that come far were chosen by the rung itself. So only *probes* are counted: the
first few trials and then every eighth, which are not stopped before `probed_to`. Until there are enough of them, a
guess counts as six pairs: blind at the first rung, and better at each of the next three.

A rung may order trials by loss or by *heading*: the loss that a trial would have if it fell once more by as much as
since the rung before. Networks that learn slowly and end well are behind by loss and ahead by heading; where curves are
noisy or flatten at once, headings mislead. So both are measured, and the study uses the one that has ordered more pairs
of probes as a later rung did, over all rungs; losses while they are level.

What is learned depends on which trials were seen, not on the order in which their reports arrived.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

_FAR = 3  # times later
_FIRST_PROBES, _EVERY = 6, 8
_MOST = 48  # probes by which a rung is measured: the latest
_GUESS = (0.65, 0.75, 0.775, 0.8)  # the share of pairs in the same order, for the first rungs and all later ones
_WEIGHT = 6  # pairs that the guess counts for


class Rungs:
    """The steps at which trials are compared.

    >>> rungs = Rungs(first=1, spacing=1.5, trust=0.75)
    >>> rungs.step(6), rungs.steps
    (14, [1, 2, 3, 4, 6, 9, 14])
    >>> rungs.is_trusted(0), rungs.is_trusted(1), rungs.by_heading
    (False, True, False)
    """

    def __init__(self, first: int, spacing: float, trust: float) -> None:
        self.steps: list[int] = [first]
        self.probed_to = 0.0  # the step up to which probes are not stopped
        self.by_heading = False  # whether trials are compared by heading, rather than by loss
        self._spacing, self._trust = spacing, trust
        self._by_loss: list[_Order] = [_Order(_GUESS[0])]  # by rung
        self._by_heading: list[_Order] = [_Order(_GUESS[0])]
        self._look()

    def step(self, rung: int) -> int:
        """The step of a rung."""
        while rung >= len(self.steps):
            last = self.steps[-1]
            guess = _GUESS[min(len(self.steps), len(_GUESS) - 1)]
            self.steps.append(max(last + 1, round(last * self._spacing)))
            self._by_loss.append(_Order(guess))
            self._by_heading.append(_Order(guess))
            self._look()
        return self.steps[rung]

    def reached(self, step: int, rung: int) -> int:
        """The last rung up to a step, given an earlier one."""
        while self.step(rung + 1) <= step:
            rung += 1
        return rung

    def is_probe(self, number: int) -> bool:
        """Whether a trial shows how well early rungs order trials."""
        return number < _FIRST_PROBES or number % _EVERY == 0

    def is_trusted(self, rung: int) -> bool:
        """Whether trials may be stopped at a rung."""
        return (self._by_heading if self.by_heading else self._by_loss)[rung].share >= self._trust

    def learn(self, number: int, rung: int, losses: Mapping[int, float]) -> None:
        """A probe has reached a rung: compare it with the other probes at the rungs a third as far."""
        learned = False
        for earlier, before in losses.items():
            if self._later(earlier) == rung:
                self._by_loss[earlier].add(number, before, losses[rung])
                self._by_heading[earlier].add(number, heading(earlier, before, losses), losses[rung])
                learned = True
        if learned:
            self.by_heading = _foreseen(self._by_heading) > _foreseen(self._by_loss)
            self._look()

    def _later(self, rung: int) -> int:
        """The first rung that is three times as far."""
        far, later = _FAR * self.steps[rung], rung + 1
        while self.step(later) < far:
            later += 1
        return later

    def _look(self) -> None:
        trusted = (step for rung, step in enumerate(self.steps) if self.is_trusted(rung))
        self.probed_to = _FAR * next(trusted, math.inf)


def heading(rung: int, loss: float, losses: Mapping[int, float]) -> float:
    """A trial's loss at a rung if it fell once more by as much as since the rung before, given its losses by rung.

    As the loss is, if the one before is unknown.

    >>> heading(3, 0.5, {1: 0.9, 2: 0.75}), heading(3, 0.5, {1: 0.9})
    (0.25, 0.5)
    """
    return loss - (losses.get(rung - 1, loss) - loss)


def _foreseen(orders: Iterable[_Order]) -> int:
    return sum(order.same for order in orders)


class _Order:
    """How often the latest probes came in the same order at two rungs."""

    __slots__ = ("_guess", "_numbers", "_pairs", "same", "share")

    def __init__(self, guess: float) -> None:
        self._guess = self.share = guess
        self._numbers: list[int] = []  # of the probes, sorted
        self._pairs: list[tuple[float, float]] = []  # their losses at both rungs
        self.same = 0  # pairs of probes in the same order count 2, ties 1

    def add(self, number: int, before: float, after: float) -> None:
        place = bisect_left(self._numbers, number)
        if place == 0 and len(self._numbers) == _MOST:
            return  # later ones are known already
        self.same += self._agreeing(before, after)
        self._numbers.insert(place, number)
        self._pairs.insert(place, (before, after))
        if len(self._numbers) > _MOST:
            del self._numbers[0]
            self.same -= self._agreeing(*self._pairs.pop(0))
        n = len(self._pairs)
        self.share = (self.same / 2 + _WEIGHT * self._guess) / (n * (n - 1) / 2 + _WEIGHT)

    def _agreeing(self, before: float, after: float) -> int:
        same = 0
        for one, other in self._pairs:
            product = (one - before) * (other - after)
            same += 2 if product > 0 else product == 0
        return same
