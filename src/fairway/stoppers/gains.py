"""Can a trial still catch up? Learned from how much other trials gained after the same rung.

Ranks do not ask that. Late rungs are reached by few trials, and the better half of those may be slow learners, far
behind the best with little left to gain. So the largest gain after each rung is kept: by how much the loss of a trial
there exceeded the lowest loss that it reached in all. A trial that is further behind the best than `MARGIN` times that
gain stops. This is asked once three trials were completed and three went on from that rung.

These are maxima and counts, so that replicas agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

MARGIN = 1.5
"""How many times the largest gain a trial may be behind: later trials may gain more than any so far."""

_ENOUGH = 3  # completed trials, and trials that went on from a rung


class Gains:
    """The largest gains of a study's trials, by rung.

    >>> gains = Gains()
    >>> for lowest in (0.25, 0.375, 0.3):  # three trials had a loss of 0.5 at rung 0
    ...     gains.go_on({0: 0.5}, lowest)
    ...     gains.complete()
    >>> gains.most(0)
    0.25
    """

    def __init__(self) -> None:
        self.lowest = math.inf  # loss of any trial
        self._largest: dict[int, float] = {}  # by rung
        self._went_on: dict[int, int] = {}  # trials, by rung
        self._completed = 0

    def go_on(self, losses: Mapping[int, float], lowest: float) -> None:
        """A trial went on from its last rung; `losses` are those at all of its rungs, `lowest` is its lowest so far."""
        if not losses:
            return
        for rung, loss in losses.items():
            self._largest[rung] = max(self._largest.get(rung, 0.0), loss - lowest)
        last = max(losses)
        self._went_on[last] = self._went_on.get(last, 0) + 1

    def complete(self) -> None:
        """A trial was trained to its end."""
        self._completed += 1

    def most(self, rung: int) -> float:
        """The largest gain after a rung; infinite until enough trials have shown theirs."""
        if min(self._completed, self._went_on.get(rung, 0)) < _ENOUGH:
            return math.inf
        return self._largest[rung]
