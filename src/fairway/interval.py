"""How often to check a constraint: the expected cost of a trial and Theorem 1 of ACE (sections 3.2 and 3.3).

| here | paper | |
| --- | --- | --- |
| interval | beta | training iterations between checks |
| cost_ratio | r = C1 / C2 | cost of one check over the cost of one iteration |
| stop_probability | p | probability that a check ends the trial |
| total_steps | T | iterations of a whole trial |

Costs are in units of C2, one iteration. With q = 1 - p, (1 - q^z) / p is the expected number of checks until a trial is
stopped or has had z of them.
"""

from __future__ import annotations

import math

from fairway.checks import at_least_zero, fraction, number
from fairway.errors import UsageError

_CANCELS = 1e-4  # below this p T, cancellation in the closed form exceeds the truncation error of the series


def expected_cost(
    interval: float, total_steps: float, *, cost_ratio: float, stop_probability: float, relaxed: bool = False
) -> float:
    """The expected cost of a trial by Eq. (1), or with `relaxed` by Eq. (2), where T / beta may be fractional.

    >>> from fairway.interval import expected_cost
    >>> expected_cost(4, 16, cost_ratio=8.0, stop_probability=0.5)
    22.5
    >>> expected_cost(4, 16, cost_ratio=8.0, stop_probability=0.5, relaxed=True)
    22.5
    """
    r, p, total, beta = cost_ratio, stop_probability, total_steps, interval
    at_least_zero(r, "cost_ratio")
    _check(p, total)
    if math.isinf(r):
        raise UsageError("cost_ratio=inf: a finite number is expected")
    if not 1 <= beta <= total:
        raise UsageError(f"interval={interval}: a number from 1 to total_steps={total_steps} is expected")
    if relaxed:
        return (r + beta) * _expected_checks(p, total / beta)
    z = math.ceil(total / beta)
    survives = 0.0 if p == 1.0 else math.exp(z * math.log1p(-p))  # q^z
    # The sum of Eq. (1): sum over k of q^(k-1) p k = (1 - q^z) / p - z q^z.
    return survives * (r * z + total) + (r + beta) * (_expected_checks(p, z) - z * survives)


def threshold(stop_probability: float, total_steps: float) -> float:
    """The cost ratio at which both intervals of Theorem 1 cost the same: (pT + q^T - 1) / (q - q^T).

    >>> from fairway.interval import threshold
    >>> round(threshold(0.5, 16), 2)
    14.0
    """
    p, total = stop_probability, total_steps
    _check(p, total)
    if total == 1 or p == 0.0:
        return 0.0
    if p == 1.0:
        return math.inf
    if p * total < _CANCELS:  # the series of the numerator: p^2 T (T - 1) / 2 * (1 - p (T - 2) / 3 + ...)
        above = p * p * total * (total - 1) / 2 * (1 - p * (total - 2) / 3)
    else:
        above = p * total + math.expm1(total * math.log1p(-p))
    below = -(1 - p) * math.expm1((total - 1) * math.log1p(-p))
    return above / below


def best_interval(cost_ratio: float, stop_probability: float, total_steps: int) -> int:
    """The cheapest interval by Theorem 1: always either 1 or `total_steps`.

    >>> from fairway.interval import best_interval
    >>> best_interval(20, 0.5, 21), best_interval(20, 0.5, 22)
    (21, 1)
    """
    at_least_zero(cost_ratio, "cost_ratio")
    return 1 if cost_ratio <= threshold(stop_probability, total_steps) else total_steps


def _expected_checks(p: float, z: float) -> float:
    """(1 - (1 - p)^z) / p, and its limits at p = 0 and p = 1."""
    if p == 0.0:
        return z
    return 1.0 if p == 1.0 else -math.expm1(z * math.log1p(-p)) / p


def _check(stop_probability: float, total_steps: float) -> None:
    fraction(stop_probability, "stop_probability", ends=(0, 1))
    number(total_steps, "total_steps", what="a finite number of at least 1", within=lambda t: 1 <= t < math.inf)
