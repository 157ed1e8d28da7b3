"""The contract of a sampler: a query over history that proposes the next point of the unit cube.

A sampler is a frozen configuration. It keeps nothing between calls: a proposal depends only on the history and on the
generator it is given, which is seeded by study, trial number and purpose. So a resumed study continues as if it had
never been interrupted. `fairway.testing.check_sampler` tests your own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairway.checks import check_fields
from fairway.errors import SpaceExhausted, UsageError
from fairway.history import History

_DRAWS = 64  # random points to try before a finite space is enumerated
_ENUMERABLE = 100_000  # configurations; in a larger space the draws find a new one
_TRIES = 4096  # random points among which a configuration with the given coordinates is looked for
_SAME = 1e-12  # a smaller difference in squared distance is rounding


@dataclass(frozen=True)
class Sampler(ABC):
    """Proposes the next configuration: the base of all samplers.

    >>> import fairway as fw, numpy as np
    >>> class Middle(fw.Sampler):
    ...     def propose(self, history, rng):
    ...         return np.full(len(history.space), 0.5)
    >>> fw.Study({"x": fw.Int(1, 9)}, fw.Minimize("loss"), sampler=Middle(), seed=0).ask().params
    {'x': 5}
    """

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def propose(self, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
        """The next point of the unit cube, shape (d,); coordinates of inactive parameters are ignored."""

    def sees_running(self, history: History) -> bool:
        """Whether this history is to say, in `History.running`, what running trials have reported; by default not."""
        del history
        return False

    def next_point(self, history: History, rng: np.random.Generator) -> NDArray[np.float64]:
        """The proposal as `Space.encode` returns it; no configuration is proposed twice."""
        space = history.space
        x = self.propose(history, rng)
        x = history.candidates(np.where(np.isnan(x), 0.5, x)[None])  # `nan_to_num` takes five times as long
        if len(x) and history.is_new(x)[0]:
            return np.asarray(x[0])
        drawn = history.candidates(rng.random((_DRAWS, len(space))))
        everything = space.grid(_ENUMERABLE) if history.given is None else with_given(history)
        for points in (drawn,) if everything is None else (drawn, everything):
            new = np.flatnonzero(history.is_new(points))
            if new.size:
                return np.asarray(points[rng.choice(new) if points is everything else new[0]])
        if everything is None:
            return np.asarray(x[0])
        if history.given is not None:  # what the user asked for is run again
            return np.asarray(everything[0])
        raise SpaceExhausted(f"all {len(everything)} configurations of the space were tried")

    def next_recorded(self, history: History, candidates: NDArray[np.float64], rng: np.random.Generator) -> int:
        """The index of the recorded point, of (k, d), to run next; if coordinates are given, one nearest to them.

        If a given coordinate is inactive (NaN) in a recorded point, it counts as a distance of 1.
        """
        if history.given is None:
            return self.choose(history, candidates, rng)
        there = ~np.isnan(history.given)
        apart = (np.nan_to_num(candidates[:, there] - history.given[there], nan=1.0) ** 2).sum(axis=1)
        nearest = np.flatnonzero(apart <= apart.min() + _SAME)
        return int(nearest[self.choose(replace(history, given=None), candidates[nearest], rng)])

    def choose(self, history: History, candidates: NDArray[np.float64], rng: np.random.Generator) -> int:
        """The index of the recorded point, of (k, d), to run next: by default the one nearest to the proposal.

        If a coordinate is inactive (NaN) in only one of the two points, it counts as a distance of 1.
        """
        x = history.space.snap(np.nan_to_num(self.propose(history, rng), nan=0.5)[None])[0]
        apart = np.where(np.isnan(candidates) & np.isnan(x), 0.0, np.abs(candidates - x))
        return int(np.argmin((np.nan_to_num(apart, nan=1.0) ** 2).sum(axis=1)))


def with_given(history: History) -> NDArray[np.float64]:
    """Random points (k, d) with the given coordinates, the same at every call; at least one."""
    points = history.candidates(np.random.default_rng(0).random((_TRIES, len(history.space))))
    if not len(points):
        raise UsageError(
            f"none of {_TRIES:,} random configurations has these parameters together: give more of them, those in the "
            "conditions (when=) too"
        )
    return points
