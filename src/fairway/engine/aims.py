"""The limits on tracked metrics that the next trial aims at, chosen to sweep the front.

The sampler and the stopper look for the best loss under these limits, as if they were the study's own. A limit is drawn
between two neighbours on the front, in proportion to the area that a better checkpoint could add there. One trial in
ten aims at no limit, so that the front's loose end is searched too.

On four settings of `bench/front.py`, 3 seeds each, this did as well, within the noise, as drawing members of the front
and as random scalarisation (Chebyshev). It was better on one setting, and samplers need no code of their own for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.engine.front import rows_on_front
from fairway.history import History

_FREE = 0.1  # the share of trials that aim at no limit


def next_aim(history: History, rng: np.random.Generator) -> dict[str, float]:
    """A limit on each tracked metric; empty for one trial in ten, and while the front has fewer than two members."""
    places = [i for i, one in enumerate(history.problem.constraints) if not one.has_limit]
    if not places or not len(history.fronts) or rng.random() < _FREE:
        return {}
    tracked = [history.problem.constraints[i] for i in places]
    sign = np.array([one.sign for one in tracked])
    marks = np.column_stack([history.fronts[:, 2], history.fronts[:, 3:][:, places] * sign])
    front = marks[rows_on_front(marks)]
    if len(front) == 1:
        return {}
    # Of several metrics, one is swept. A random member sets the limits on the others; members beyond them are left out.
    aim, swept = front[rng.integers(len(front)), 1:].copy(), int(rng.integers(len(places)))
    others = np.arange(len(places)) != swept
    within = front[(front[:, 1:][:, others] <= aim[others]).all(axis=1)]
    aim[swept] = _between(within[:, [0, 1 + swept]], rng)
    return {one.metric: float(one.sign * limit) for one, limit in zip(tracked, aim, strict=True)}


def _between(marks: NDArray[np.float64], rng: np.random.Generator) -> float:
    """A limit between two neighbours on the front. `marks`: (n, 2), the loss and one metric."""
    loss, value = marks[rows_on_front(marks)].T
    area = (value[:-1] - value[1:]) * (loss[1:] - loss[:-1])
    if not area.sum() > 0.0:
        return float(value[0])
    k = int(rng.choice(len(area), p=area / area.sum()))
    return float(value[k + 1] + rng.random() * (value[k] - value[k + 1]))
