"""Warns early if a limit looks impossible to meet: never reported, always NaN, or met by no trial at all.

It also warns if no trial reports a tracked metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairway.engine.obstacles import Obstacle, obstacles
from fairway.engine.owner import Owner
from fairway.engine.remeasurement import how_measured
from fairway.logs import logger
from fairway.text import counted

_FEW, _MANY = 3, 10  # trials after which to warn of a limit that is not measured, or that none has met


class Doubts:
    """The warnings of one run about its limits; each is given once."""

    def __init__(self, owner: Owner, trials: int | None) -> None:
        self._owner, self._said, self._said_crowd = owner, set[str](), False
        self._few = _FEW if trials else 1  # under a time limit alone, as many as there was time for
        self._looks = {min(n, trials or n) for n in (_FEW, _MANY)} if owner.problem.constraints else set()

    def hear(self, notes: Mapping[str, Any]) -> None:
        """Warn, once, if a trial's notes say that a limit was measured while others used the machine."""
        for each in self._owner.problem.limits:
            company = notes.get(how_measured(each.metric))
            if company and not self._said_crowd:
                self._said_crowd = True
                then = "the best is measured again, alone, when the run is over"
                if not each.alone:
                    then = f"declare fw.{type(each).__name__}({each.metric!r}, ..., alone=True) and {then}"
                logger.warning("%s was measured %s: it may be longer than it is alone; %s", each.metric, company, then)

    def look(self, done: int) -> None:
        """Check the limits, after the run has done this many trials."""
        if done not in self._looks:
            return
        for metric in self._forgotten():
            self._said.add(metric)
            logger.warning(
                "%s is tracked, and none of %s reported it: report it beside the objective, as a number or a callable",
                metric,
                counted(done, "trial"),
            )
        if self._owner.best is not None:
            return
        for each in obstacles(self._owner.problem, self._owner.ledger.courses, self._owner.referee.saved):
            metric = each.constraint.metric
            if metric not in self._said and _is_doubtful(each):
                self._said.add(metric)
                logger.warning("nothing is within the limits after %s: %s", counted(done, "trial"), each)

    def conclude(self, done: int) -> None:
        """At the end of a run that found nothing feasible, warn what stands in the way, unless that was said."""
        if done < self._few or self._said or self._owner.best is not None or not self._owner.problem.limits:
            return
        found = obstacles(self._owner.problem, self._owner.ledger.courses, self._owner.referee.saved)
        logger.warning("nothing is within the limits after %s: %s", counted(done, "trial"), found[0])

    def _forgotten(self) -> list[str]:
        """The tracked metrics that no trial has measured or offered, without those already warned of."""
        courses, saved = self._owner.ledger.courses, self._owner.referee.saved
        marks = [mark for one in courses for mark in (one.checkpoint, one.peak) if mark is not None]
        unknown = [i for i, n in enumerate(saved) if marks and not n and all(mark.values[i] is None for mark in marks)]
        constraints = [self._owner.problem.constraints[i] for i in unknown]
        return [one.metric for one in constraints if not one.has_limit and one.metric not in self._said]


def _is_doubtful(limit: Obstacle) -> bool:
    """Whether no trial reports a limit's metric, it is always NaN, or many trials measured it and none met it."""
    if not limit.bounds:
        return limit.trials > 0 and not limit.offered
    return limit.kept == 0 and (limit.undefined == len(limit.bounds) or len(limit.bounds) >= _MANY)
