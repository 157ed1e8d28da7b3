"""Speaks up early if a limit cannot be kept as things are: never reported, always NaN, or kept by no trial at all."""

from __future__ import annotations

import logging

from fairway.engine.obstacles import Obstacle, obstacles
from fairway.engine.owner import Owner
from fairway.text import counted

logger = logging.getLogger("fairway")

_FEW, _MANY = 3, 10  # trials after which a limit that says nothing, or that none has kept, is spoken of


class Doubts:
    """What one run has said of its limits; it says each thing once."""

    def __init__(self, owner: Owner, trials: int | None) -> None:
        self._owner, self._said = owner, set[str]()
        self._looks = {min(n, trials or n) for n in (_FEW, _MANY)} if owner.problem.constraints else set()

    def look(self, done: int) -> None:
        """Look at the limits, now that the run has done so many trials."""
        if done not in self._looks or self._owner.best is not None:
            return
        for each in obstacles(self._owner.problem, self._owner.ledger.courses, self._owner.referee.saved):
            metric = each.constraint.metric
            if metric not in self._said and _is_doubtful(each):
                self._said.add(metric)
                logger.warning("nothing is within the limits after %s: %s", counted(done, "trial"), each)


def _is_doubtful(limit: Obstacle) -> bool:
    """Whether nobody reports it, it is always NaN, or many have measured it and none kept it."""
    if not limit.bounds:
        return limit.trials > 0 and not limit.offered
    return limit.kept == 0 and (limit.undefined == len(limit.bounds) or len(limit.bounds) >= _MANY)
