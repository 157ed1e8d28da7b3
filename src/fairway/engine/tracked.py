"""What a referee knows about tracked metrics: what trials aim at, where they are, and the front.

A trial's place is what its last check measured or, before that, what it aims at. The stopper compares it with trials
near that place. A check is paid for if the checkpoint would be on the front at that place; if training has doubled
since the last check, to learn the new place; and at the last step, whatever its loss.

What is known depends on which reports were seen, not on the order in which different trials' reports arrived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from fairway.engine.front import Front, Mark
from fairway.engine.measurement import Observation
from fairway.problem import Problem

_AGAIN = 2  # at this many times the step of the last check, the place is unknown again


class Place(NamedTuple):
    """A trial's tracked metrics, times their signs, and the step at which they were measured."""

    values: tuple[float, ...]
    step: int


class Tracked:
    """Aims, places and the front of a study.

    >>> import fairway as fw
    >>> problem, tracked = fw.Problem(fw.Minimize("loss"), [fw.Track("ms")]), Tracked()
    >>> tracked.aims[0] = {"ms": 20.0}
    >>> tracked.learn(problem, 0, Observation(1, 0.5, 0.5, [15.0], [7], 0.0, 9, last=False))
    >>> tracked.place(problem, 0), tracked.bar(0, step=1)
    ((15.0,), 0.5)
    """

    def __init__(self) -> None:
        self.aims: dict[int, Mapping[str, float]] = {}  # limits on tracked metrics, by trial
        self.places: dict[int, Place] = {}  # of running trials
        self.front = Front()

    def place(self, problem: Problem, number: int) -> tuple[float, ...]:
        """A trial's place: what its last check measured, or else what it aims at."""
        place = self.places.get(number)
        return self._aim(problem, number) if place is None else place.values

    def bar(self, number: int, step: int) -> float:
        """The loss with which a trial would be on the front at a step; infinity if its place is not known."""
        return math.inf if self.is_lost(number, step) else self.front.best(self.places[number].values)

    def is_lost(self, number: int, step: int) -> bool:
        """Whether a trial's place is unknown: it was never checked, or its training has doubled since."""
        place = self.places.get(number)
        return place is None or step >= _AGAIN * place.step

    def learn(self, problem: Problem, number: int, row: Observation) -> None:
        """Learn from a report, if it measured every tracked metric."""
        columns = zip(problem.constraints, row.values, strict=True)
        values = [math.nan if value is None else one.sign * value for one, value in columns if not one.has_limit]
        if any(map(math.isnan, values)) or row.provisional:
            return
        self.places[number] = Place(tuple(values), row.step)
        if row.violation == 0.0:
            self.front.add(Mark(row.loss, tuple(values), number, row.step))

    def finish(self, number: int) -> None:
        """Forget the place of a trial that has ended."""
        self.places.pop(number, None)

    def _aim(self, problem: Problem, number: int) -> tuple[float, ...]:
        """What a trial aims at, times the signs; infinity means no limit."""
        aim = self.aims.get(number, {})
        return tuple(one.sign * aim.get(one.metric, one.threshold) for one in problem.tracked)
