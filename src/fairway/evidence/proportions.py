"""Tests of two proportions: is a linear contrast of two rates below its limit?

A gap or a ratio between two groups breaks its limit where a p1 - b p2 >= d (a *line* of the unit square, and what lies
beyond it):

| limit | a | b | d | broken where |
| --- | --- | --- | --- | --- |
| difference at most d | 1 | 1 | d | p1 - p2 >= d |
| ratio at least r | r | 1 | 0 | p2 / p1 <= r |

The score test (Miettinen and Nurminen, 1985; Farrington and Manning, 1990) compares with a normal variable

    Z = (a x1/n1 - b x2/n2 - d) / sqrt(a^2 P1 (1 - P1) / n1 + b^2 P2 (1 - P2) / n2),

where (P1, P2) is the most likely pair of rates on the line. It does not hold its level: 7.4% instead of 5% with 27 and
48 rows and a limit of 0.06, and 11.6% with 5,000 and 300 rows and a ratio of 0.8, if rates are near 0. Certificates
therefore rest on `exact`, which takes milliseconds. It orders the tables (x1, x2) by their 95% score bound T, the limit
at which Z = -1.645, and reports the largest probability of a table at least as good as the one observed:

    p = gamma + max over P2 in C of P(T(X1, X2) <= T(x1, x2); P1 = (d + b P2) / a, P2),

C a 1 - gamma confidence interval of the nuisance rate P2 (Berger and Boos, 1994). Since the order does not depend on
the limit, and the sets of rates that break a limit are nested, p is monotone in the limit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array: TypeAlias = NDArray[np.float64]
Comparison: TypeAlias = Literal["difference", "ratio"]

GAMMA = 1e-5
"""The share of the level spent on the nuisance rate's interval, and the smallest p-value of `exact`."""

_Z = 1.6448536269514722  # of 95%
_TIE = 1e-7  # of two values of Z; more ties can only make p larger
_POINTS = 65  # where the tail probability is computed first
_PEAKS = 4  # local maxima that are refined
_ROUNDS = 3  # of refinement, each by a factor of 5
_TINY = 1e-300
_NEAR = 1e-3  # a longer step of Newton is from a double root, and leads away
_FEW = 12  # rows of a cell
_MANY = 20  # times as many rows as in the other cell


class Table(NamedTuple):
    """Positive decisions x among n rows, in two groups."""

    x1: int
    n1: int
    x2: int
    n2: int


class _Line(NamedTuple):
    """a p1 - b p2 = d; each a float, or an array with one entry per line."""

    a: Any
    b: Any
    d: Any


def line(comparison: Comparison, limit: Any) -> _Line:
    """The rates at which the difference p1 - p2, or the ratio p2 / p1, equals its limit."""
    limit = np.asarray(limit, float)
    one = np.ones_like(limit)
    return _Line(one, one, limit) if comparison == "difference" else _Line(limit, one, 0 * limit)


def settled(comparison: Comparison, limit: float) -> float | None:
    """The p-value where it needs no rows: 0 if no rates break the limit, 1 if equal rates do."""
    if comparison == "difference" and limit >= 1 or comparison == "ratio" and limit <= 0:
        return 0.0
    if comparison == "difference" and limit <= 0 or comparison == "ratio" and limit >= 1:
        return 1.0
    return None


def exact(table: Table, comparison: Comparison, limit: float) -> float:
    """The p-value of "p1 - p2 is at least the limit", or of "p2 / p1 is at most the limit"; see the module."""
    sure = settled(comparison, limit)
    return _exact(table, comparison, float(limit)) if sure is None else sure


@lru_cache(maxsize=1 << 16)
def _exact(table: Table, comparison: Comparison, limit: float) -> float:
    bound = score_bound(table, comparison)
    if np.isnan(bound):
        return 1.0
    order, null = line(comparison, bound), line(comparison, limit)
    if table.n1 > table.n2:
        table, order, null = _mirrored(table), _mirrored_line(order), _mirrored_line(null)
    rates = _interval(table.x2, table.n2)
    low, high = _feasible(null)
    low, high = max(rates[0], float(low)), min(rates[1], float(high))
    if low > high:
        return GAMMA
    low1, high1 = _first_rate(null, np.array([low, high])).tolist()
    first = _window(low1, high1, table.n1)
    second = _window(low, high, table.n2)
    least = _boundary(first, table.n1, table.n2, order)
    least[first == table.x1] = np.minimum(least[first == table.x1], table.x2)
    least = np.minimum.accumulate(least[::-1])[::-1]  # Barnard's convexity: fewer positives in group 1 are no worse
    tail = _Tail(null, table.n1, table.n2, first, second, least)
    return min(GAMMA + _highest(tail, low, high), 1.0)


def least(n1: int, n2: int, comparison: Comparison, limit: float) -> float:
    """The smallest p-value that the two groups can give each other, the larger of both directions.

    Equal rates of 0 for a difference, or of 1 for a ratio, are the easiest to certify, except in cells of a few rows,
    where all tables are searched: for each x1, one direction's p falls in x2 and the other's rises.
    """
    n1, n2 = min(n1, n2), max(n1, n2)
    if n1 <= _FEW:
        n2 = min(n2, _MANY * n1)  # more rows of one group make no difference

    def ways(x1: int, x2: int) -> tuple[float, float]:
        there, back = Table(x1, n1, x2, n2), Table(x2, n2, x1, n1)
        return exact(there, comparison, limit), exact(back, comparison, limit)

    best = max(ways(0, 0) if comparison == "difference" else ways(n1, n2))
    half = n1 // 2 if comparison == "difference" else n1  # 0 and 1 may be swapped in a difference
    for x1 in range(half + 1) if n1 <= _FEW and settled(comparison, limit) is None else ():
        low, high = 0, n2
        while low < high:
            middle = (low + high) // 2
            falls, rises = ways(x1, middle)
            best = min(best, max(falls, rises))
            low, high = (low, middle) if falls <= rises else (middle + 1, high)
        best = min(best, max(ways(x1, low)))
    return best


def score(table: Table, comparison: Comparison, limit: float) -> float:
    """The p-value of the score test; it is what other packages compute, and certificates do not rest on it.

    The variance has Miettinen and Nurminen's factor N / (N - 1).
    """
    rows = table.n1 + table.n2
    z = statistic(*table, line(comparison, limit))
    return float(special.ndtr(z * np.sqrt((rows - 1) / rows)))


def statistic(x1: Any, n1: int, x2: Any, n2: int, on: _Line) -> Array:
    """Z of tables (n,), or of one table on lines (n,); infinite where the most likely rates leave no variance."""
    p1, p2 = most_likely(x1, n1, x2, n2, on)
    variance = on.a**2 * p1 * (1 - p1) / n1 + on.b**2 * p2 * (1 - p2) / n2
    distance = on.a * x1 / n1 - on.b * x2 / n2 - on.d
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(variance > 0, distance / np.sqrt(variance), np.where(distance < -_TIE, -np.inf, np.inf))
    return np.asarray(z)


def most_likely(x1: Any, n1: int, x2: Any, n2: int, on: _Line) -> tuple[Array, Array]:
    """The most likely rates on a line, (n,) each.

    With p1 = (d + b p) / a, the derivative of the log-likelihood in p = p2 has the sign of the cubic
    (b/a) (x1 - n1 p1) p (1 - p) + (x2 - n2 p) p1 (1 - p1), whose leading coefficient is positive. It is at least 0 at
    the lower end of the feasible p and at most 0 at the upper end, so the most likely p is the middle of three real
    roots: Viete's cosine, then two steps of Newton.
    """
    s, t = on.b / on.a, on.d / on.a  # p1 = t + s p
    n1, n2 = float(n1), float(n2)  # type: ignore[assignment]
    x1, x2 = np.asarray(x1, float), np.asarray(x2, float)
    e = x1 - n1 * t
    c3 = s * s * (n1 + n2)
    c2 = -s * (e + s * n1) - x2 * s * s - n2 * s * (1 - 2 * t)
    c1 = s * e + x2 * s * (1 - 2 * t) - n2 * t * (1 - t)
    c0 = x2 * t * (1 - t)
    low, high = _feasible(on)
    middle = c2 / (3 * c3)
    k = np.maximum(middle**2 - c1 / (3 * c3), 0)
    half = middle**3 - (c2 * c1 / c3 / 6 - c0 / 2) / c3
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = np.clip(np.where(k > 0, -half / k**1.5, 0), -1, 1)
        p = np.clip(2 * np.sqrt(k) * np.cos((np.arccos(cosine) - 2 * np.pi) / 3) - middle, low, high)
        for _ in range(2):
            slope = (3 * c3 * p + 2 * c2) * p + c1
            step = (((c3 * p + c2) * p + c1) * p + c0) / slope
            p = np.where(np.abs(step) < _NEAR, np.clip(p - step, low, high), p)
    return np.clip(t + s * p, 0, 1), p


@lru_cache(maxsize=1 << 16)
def score_bound(table: Table, comparison: Comparison) -> float:
    """The limit at which Z = -1.645: the 95% score bound; NaN if every limit is further.

    Limits are searched on t in (0, 1), which orders them from strict to loose: 2 t - 1 for a difference, (1 - t) / t
    for a ratio. Each round divides the interval by 32.
    """
    low, high = 0.0, 1.0
    for _ in range(9):
        t = np.linspace(low, high, 33)
        inner = np.clip(t, 1e-12, 1 - 1e-12)
        limits = 2 * inner - 1 if comparison == "difference" else (1 - inner) / inner
        kept = np.flatnonzero(statistic(*table, line(comparison, limits)) <= -_Z)
        if not len(kept):
            return np.nan
        first = int(kept[0])
        bound = float(limits[first])
        low, high = float(t[max(first - 1, 0)]), float(t[first])
    return bound


def _boundary(first: NDArray[np.int64], n1: int, n2: int, order: _Line, *, z: float = _Z) -> NDArray[np.int64]:
    """The least x2 with which each x1 (n,) is in the region Z <= -z; n2 + 1 where there is none. By bisection."""
    low, high = np.full(len(first), -1), np.full(len(first), n2 + 1)
    while (high - low > 1).any():
        middle = np.clip((low + high) // 2, 0, n2)
        inside = statistic(first, n1, middle, n2, order) <= -z + _TIE
        open_ = high - low > 1
        high, low = np.where(open_ & inside, middle, high), np.where(open_ & ~inside, middle, low)
    return high


class _Tail(NamedTuple):
    """The probability of a region {X2 >= least[X1]} on a line of rates."""

    null: _Line
    n1: int
    n2: int
    first: NDArray[np.int64]  # (m1,), the x1 that have any probability
    second: NDArray[np.int64]  # (m2,), the x2 that have
    least: NDArray[np.int64]  # (m1,)

    def at(self, p2: Array) -> Array:
        """The probability at each rate of group 2, (k,)."""
        mass1 = _binomial(self.first, self.n1, _first_rate(self.null, p2))
        mass2 = _binomial(self.second, self.n2, p2)
        above = np.zeros((len(p2), len(self.second) + 1))  # P(X2 >= second[j]), then 0
        above[:, :-1] = mass2[:, ::-1].cumsum(1)[:, ::-1]
        places = np.clip(self.least - self.second[0], 0, len(self.second))
        return np.asarray((mass1 * above[:, places]).sum(1))


def _highest(tail: _Tail, low: float, high: float) -> float:
    """The largest tail probability for a rate in [low, high]: a grid, then the neighbourhoods of its highest peaks."""
    angle = np.linspace(np.arcsin(np.sqrt(low)), np.arcsin(np.sqrt(high)), _POINTS)  # rates vary equally on this scale
    found = tail.at(np.sin(angle) ** 2)
    padded = np.concatenate([[-1.0], found, [-1.0]])
    peaks = np.flatnonzero((found >= padded[:-2]) & (found >= padded[2:]))
    centres = angle[peaks[np.argsort(-found[peaks], kind="stable")[:_PEAKS]]]
    highest, step = float(found.max()), float(angle[1] - angle[0])
    for _ in range(_ROUNDS if step > 0 else 0):
        near = np.clip(centres[:, None] + step * np.linspace(-0.8, 0.8, 9), angle[0], angle[-1])
        found = tail.at(np.sin(near.ravel()) ** 2).reshape(near.shape)
        centres = near[np.arange(len(near)), found.argmax(1)]
        highest, step = max(highest, float(found.max())), step / 5
    return highest


def _binomial(x: NDArray[np.int64], n: int, p: Array) -> Array:
    """P(X = x) for X ~ Binomial(n, p), (k, m) for rates (k,) and counts (m,)."""
    choose = special.gammaln(n + 1) - special.gammaln(x + 1) - special.gammaln(n - x + 1)
    p = np.clip(p, _TINY, 1 - 1e-16)[:, None]
    return np.asarray(np.exp(choose + x * np.log(p) + (n - x) * np.log1p(-p)))


def _window(low: float, high: float, n: int) -> NDArray[np.int64]:
    """The counts that have a probability above 1e-15 at some rate in [low, high]."""
    at_ends = np.array([low, high])
    mean, spread = n * at_ends, 8 * np.sqrt(n * at_ends * (1 - at_ends)) + 35
    if low < 0.5 < high:  # noqa: PLR2004 - where the spread is largest
        spread = np.maximum(spread, 4 * np.sqrt(n))
    return np.arange(max(0, int(mean[0] - spread[0])), min(n, int(mean[1] + spread[1]) + 1) + 1)


def _interval(x: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a rate, with confidence 1 - GAMMA."""
    low = float(special.betaincinv(x, n - x + 1, GAMMA / 2)) if x else 0.0
    return low, float(special.betaincinv(x + 1, n - x, 1 - GAMMA / 2)) if x < n else 1.0


def _feasible(on: _Line) -> tuple[Any, Any]:
    """The rates of group 2 for which group 1 has a rate too."""
    return np.maximum(0.0, -on.d / on.b), np.minimum(1.0, (on.a - on.d) / on.b)


def _first_rate(on: _Line, p2: Array) -> Array:
    return np.asarray(np.clip((on.d + on.b * p2) / on.a, 0.0, 1.0))


def _mirrored(table: Table) -> Table:
    """Negative decisions with the groups swapped: the same contrast, and the larger group second."""
    return Table(table.n2 - table.x2, table.n2, table.n1 - table.x1, table.n1)


def _mirrored_line(on: _Line) -> _Line:
    return _Line(on.b, on.a, on.d - on.a + on.b)
