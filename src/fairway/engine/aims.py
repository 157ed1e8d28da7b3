"""What the next trial aims at, where metrics are tracked: limits on them, swept over the front.

Sampler and stopper then look for the best loss at these limits, as if they were the study's. A limit is drawn between
two neighbours on the front, in proportion to the area that a better checkpoint could add there. One trial in ten aims
at no limit, so that the front's loose end is searched too.

On four settings of `bench/front.py`, 3 seeds each, this did as well as drawing members of the front, and as random
scalarisation (Chebyshev), within the noise; it was better on one, and needs nothing of its own in samplers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.engine.front import rows_on_front
from fairway.history import History

_FREE = 0.1  # the share of trials that aim at no limit


def next_aim(history: History, rng: np.random.Generator) -> dict[str, float]:
    """A limit on each tracked metric; none while there is no front to sweep."""
    places = [i for i, one in enumerate(history.problem.constraints) if not one.has_limit]
    if not places or not len(history.fronts) or rng.random() < _FREE:
        return {}
    tracked = [history.problem.constraints[i] for i in places]
    sign = np.array([one.sign for one in tracked])
    marks = np.column_stack([history.fronts[:, 2], history.fronts[:, 3:][:, places] * sign])
    front = marks[rows_on_front(marks)]
    if len(front) == 1:
        return {}
    # Of several metrics one is swept, among those members that keep the others as some member does.
    aim, swept = front[rng.integers(len(front)), 1:].copy(), int(rng.integers(len(places)))
    others = np.arange(len(places)) != swept
    within = front[(front[:, 1:][:, others] <= aim[others]).all(axis=1)]
    aim[swept] = _between(within[:, [0, 1 + swept]], rng)
    return {one.metric: float(one.sign * limit) for one, limit in zip(tracked, aim, strict=True)}


def _between(marks: NDArray[np.float64], rng: np.random.Generator) -> float:
    """A limit between two neighbours on the front of losses and one metric (n, 2)."""
    loss, value = marks[rows_on_front(marks)].T
    area = (value[:-1] - value[1:]) * (loss[1:] - loss[:-1])
    if not area.sum() > 0.0:
        return float(value[0])
    k = int(rng.choice(len(area), p=area / area.sum()))
    return float(value[k + 1] + rng.random() * (value[k] - value[k + 1]))
