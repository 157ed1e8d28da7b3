"""How often the tests of `fairway.evidence` certify a limit that is broken, and how often one that is kept.

Each test runs at the edge of its null, where the limit is just broken; at 95% confidence it may certify 5% of the
draws. Power is the share certified at rates that keep the limit. Beside it, statsmodels' score test on the same draws
(its test of a difference has a wrong coefficient in the null's rates, statsmodels issue 10269).

python -m bench.levels --out bench/results/levels.md
"""

from __future__ import annotations

import argparse
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

import fairway as fw
from bench.runs import say, table, versions
from fairway.evidence import Decisions, Mean, Quantile, Resampled
from fairway.evidence.proportions import Comparison, Table, exact, score

LEVEL = 0.05
HEADING = ("test", "rows", "limit", "at the edge", "level", "bar", "holds", "alternative", "power", "statsmodels level",
           "statsmodels power")  # fmt: skip


class Row(NamedTuple):
    """One line of the table; shares certified, at each edge and at the alternative."""

    test: str
    rows: str
    limit: str
    edges: dict[str, float]
    draws: int
    alternative: str
    power: float
    theirs: tuple[float, float] | None = None
    approximate: bool = False

    def cells(self) -> list[str]:
        """As text, in the order of the heading."""
        where, level = max(self.edges.items(), key=lambda edge: edge[1])
        error = math.sqrt(level * (1 - level) / self.draws)
        bar = LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / self.draws)
        return [
            self.test,
            self.rows,
            self.limit,
            where,
            f"{level:.2%} ± {error:.2%}",
            "none" if self.approximate else f"{bar:.2%}",
            "approximate" if self.approximate else "yes" if level <= bar else "**no**",
            self.alternative,
            f"{self.power:.1%}",
            *((f"{share:.1%}" for share in self.theirs) if self.theirs else ("", "")),
        ]


PAIRS: list[tuple[int, int, Comparison, float, float]] = [  # rows, comparison, limit, equal rates of the alternative
    (10, 10, "difference", 0.4, 0.1),
    (27, 48, "difference", 0.06, 0.01),
    (27, 48, "difference", 0.2, 0.3),
    (48, 27, "difference", 0.2, 0.9),
    (20, 200, "difference", 0.1, 0.02),
    (20, 200, "difference", 0.3, 0.5),
    (150, 5000, "difference", 0.1, 0.5),
    (200, 200, "difference", 0.1, 0.5),
    (500, 500, "difference", 0.05, 0.2),
    (300, 5000, "difference", 0.05, 0.8),
    (2000, 2000, "difference", 0.05, 0.5),
    (10, 10, "ratio", 0.4, 0.9),
    (27, 48, "ratio", 0.6, 0.5),
    (20, 200, "ratio", 0.6, 0.7),
    (150, 5000, "ratio", 0.8, 0.5),
    (200, 200, "ratio", 0.8, 0.6),
    (500, 500, "ratio", 0.8, 0.3),
    (5000, 300, "ratio", 0.8, 0.3),
    (2000, 2000, "ratio", 0.8, 0.1),
]


@cache
def least(x1: int, n1: int, n2: int, comparison: Comparison, limit: float) -> int:
    """The fewest positives of group 2 with which a table is certified; more are certified too."""

    def passes(test: Callable[[Table, Comparison, float], float], x2: int) -> bool:
        return x2 > n2 or x2 >= 0 and test(Table(x1, n1, x2, n2), comparison, limit) <= LEVEL

    high = bisect_left(range(n2 + 1), True, key=partial(passes, score))  # the exact test's is close
    low, step = high - 1, 1
    while not passes(exact, high):
        low, high, step = high, high + step, 2 * step
    step = 1
    while passes(exact, low):
        low, high, step = low - step, low, 2 * step
    return low + 1 + bisect_left(range(low + 1, high), True, key=partial(passes, exact))


def certified(
    x1: NDArray[np.int64], n1: int, x2: NDArray[np.int64], n2: int, comparison: Comparison, limit: float
) -> NDArray[np.bool_]:
    """Whether each draw is certified, (draws,)."""
    distinct, place = np.unique(x1, return_inverse=True)
    bound = np.array([least(int(each), n1, n2, comparison, limit) for each in distinct])
    return np.asarray(x2 >= bound[place])


def theirs(
    x1: NDArray[np.int64], n1: int, x2: NDArray[np.int64], n2: int, comparison: Comparison, limit: float
) -> NDArray[np.bool_]:
    """Whether statsmodels' score test certifies each draw; one that it cannot compute is not certified."""
    test: Any = import_module("statsmodels.stats.proportion").score_test_proportions_2indep
    with np.errstate(all="ignore"):
        if comparison == "difference":
            z = test(x1, n1, x2, n2, value=limit, compare="diff", return_results=False)[0]
        else:
            z = -test(x2, n2, x1, n1, value=limit, compare="ratio", return_results=False)[0]
    return np.asarray(special.ndtr(np.asarray(z, float)) <= LEVEL)


def pair(n1: int, n2: int, comparison: Comparison, limit: float, rate: float, draws: int) -> Row:
    """Two groups: a gap or a ratio at its limit, with rates near 0, in the middle and near 1."""
    rng, highest = np.random.default_rng(0), 1 - limit if comparison == "difference" else limit
    edges, other = {}, []
    for share in (0.02, 0.1, 0.5, 0.9, 0.98):
        p2 = share * highest
        p1 = p2 + limit if comparison == "difference" else p2 / limit
        x1, x2 = rng.binomial(n1, p1, draws), rng.binomial(n2, p2, draws)
        edges[f"{p1:.3f}, {p2:.3f}"] = float(certified(x1, n1, x2, n2, comparison, limit).mean())
        other.append(float(theirs(x1, n1, x2, n2, comparison, limit).mean()))
    x1, x2 = rng.binomial(n1, rate, draws), rng.binomial(n2, rate, draws)
    power = certified(x1, n1, x2, n2, comparison, limit).mean()
    beside = max(other), float(theirs(x1, n1, x2, n2, comparison, limit).mean())
    at = f"both {rate:g}"
    return Row(comparison, f"{n1:,} and {n2:,}", f"{limit:g}", edges, draws, at, float(power), beside)


def odds(rows: Sequence[int], limit: float, draws: int) -> Row:
    """Equalized odds of several groups, the same number of rows with each label: the union of all contrasts."""
    rng, groups = np.random.default_rng(0), len(rows)

    def passed(rates: NDArray[np.float64]) -> float:
        """Of rates (2, groups) for the two labels."""
        every = np.ones(draws, bool)
        for each in rates:
            counts = [rng.binomial(n, rate, draws) for n, rate in zip(rows, each, strict=True)]
            for i, j in permutations(range(groups), 2):
                every &= certified(counts[i], rows[i], counts[j], rows[j], "difference", limit)
        return float(every.mean())

    even = np.full((2, groups), [[0.7], [0.2]])
    one, all_ = even.copy(), even.copy()
    one[0, 0] += limit
    all_[:, 0] += limit
    edges = {"one gap": passed(one), "both gaps": passed(all_)}
    name = f"equalized odds, {groups} groups"
    return Row(name, ", ".join(f"{n:,}" for n in rows), f"{limit:g}", edges, draws, "no gap", passed(even))


def share(n: int, limit: float, alternative: float, draws: int) -> Row:
    """An error rate: the exact binomial test."""
    rng = np.random.default_rng(0)

    @cache
    def passes(wrong: int) -> bool:
        return Mean([1] * wrong + [0] * (n - wrong)).p_value(fw.AtMost("error", limit)) <= LEVEL

    level, power = (
        float(np.mean([passes(int(wrong)) for wrong in rng.binomial(n, rate, draws)])) for rate in (limit, alternative)
    )
    return Row("share", f"{n:,}", f"{limit:g}", {f"{limit:g}": level}, draws, f"{alternative:g}", power)


def macro_average(sizes: Sequence[int], limit: float, draws: int) -> Row:
    """A failure rate: the mean over behavioural tests of different sizes."""
    rng = np.random.default_rng(0)

    @cache
    def passes(*failing: int) -> bool:
        tests = {str(i): [1] * k + [0] * (n - k) for i, (k, n) in enumerate(zip(failing, sizes, strict=True))}
        return Mean.over_tests(tests).p_value(fw.AtMost("failures", limit)) <= LEVEL

    def passed(rates: Sequence[float]) -> float:
        counts = np.array([rng.binomial(n, rate, draws) for n, rate in zip(sizes, rates, strict=True)])
        return float(np.mean([passes(*each) for each in counts.T.tolist()]))

    few, many = [len(sizes) * limit, *[0.0] * (len(sizes) - 1)], [limit] * len(sizes)
    edges = {"all in the smallest": passed(few), "even": passed(many), "all in the largest": passed(few[::-1])}
    rows = ", ".join(map(str, sizes))
    return Row("mean over tests", rows, f"{limit:g}", edges, draws, "0.02 each", passed([0.02] * len(sizes)))


def clustered(clusters: int, limit: float, draws: int) -> Row:
    """An error rate whose rows come in clusters of 1 to 5 copies."""
    rng = np.random.default_rng(0)
    sizes = np.arange(clusters) % 5 + 1
    ids = np.repeat(np.arange(clusters), sizes)

    @cache
    def passes(rows: int) -> bool:
        """The p-value depends on the number of failing rows only, whatever clusters they come from."""
        values = np.arange(len(ids)) < rows
        return Mean(values.astype(float), clusters=ids).p_value(fw.AtMost("error", limit)) <= LEVEL

    def passed(rate: float) -> float:
        failing = (rng.random((draws, clusters)) < rate) @ sizes
        return float(np.mean([passes(int(rows)) for rows in failing]))

    rows = f"{len(ids)} in {clusters} clusters"
    return Row("clustered mean", rows, f"{limit:g}", {f"{limit:g}": passed(limit)}, draws, "0.05", passed(0.05))


def weighted(rows: int, limit: float, draws: int) -> Row:
    """A gap between two groups of rows with weights from 1 to 3."""
    rng = np.random.default_rng(0)
    group, weights = np.arange(rows) % 2, 1 + (np.arange(rows) // 2) % 3

    def passed(rates: Sequence[float]) -> float:
        certain = []
        for _ in range(draws):
            said = (rng.random(rows) < np.array(rates)[group]).astype(int)
            found = Decisions("demographic_parity_difference", said, said, group, weights=weights)
            certain.append(found.p_value(fw.AtMost("gap", limit)) <= LEVEL)
        return float(np.mean(certain))

    edges = {"0.5, 0.5 + limit": passed([0.5, 0.5 + limit])}
    return Row("weighted difference", f"{rows:,}", f"{limit:g}", edges, draws, "both 0.5", passed([0.5, 0.5]))


def times(n: int, quantile: float, draws: int) -> Row:
    """A quantile of exponential times."""
    rng, limit = np.random.default_rng(0), -math.log(1 - quantile)

    def passed(scale: float) -> float:
        drawn = scale * rng.exponential(size=(draws, n))
        return float(np.mean([Quantile(each, quantile).p_value(fw.AtMost("time", limit)) <= LEVEL for each in drawn]))

    return Row(f"{quantile:.0%} quantile", f"{n:,}", "its own", {"exponential": passed(1.0)}, draws, "faster by 30%",
               passed(0.7))  # fmt: skip


def bootstrap(n: int, draws: int) -> Row:
    """The mean of a skewed loss without a bound, which has no exact test."""
    rng = np.random.default_rng(0)

    def passed(scale: float) -> float:
        drawn = scale * rng.exponential(size=(draws, n))
        found = [Resampled(np.mean, each, seed=i, resamples=499) for i, each in enumerate(drawn)]
        return float(np.mean([each.p_value(fw.AtMost("loss", 1.0)) <= LEVEL for each in found]))

    edges = {"exponential": passed(1.0)}
    return Row("bootstrap of a mean", f"{n:,}", "1", edges, draws, "mean 0.7", passed(0.7), approximate=True)


def jobs(draws: int) -> list[Callable[[], Row]]:
    return [
        *(partial(pair, *each, draws) for each in PAIRS),
        lambda: odds((60, 60), 0.3, draws),
        lambda: odds((400, 1600), 0.1, draws),
        lambda: odds((60, 90, 150), 0.3, draws),
        lambda: share(100, 0.1, 0.04, draws),
        lambda: share(1000, 0.02, 0.01, draws),
        lambda: macro_average((20, 50, 200), 0.1, draws),
        lambda: clustered(100, 0.15, draws),
        lambda: weighted(1000, 0.15, max(1, draws // 10)),
        lambda: times(100, 0.9, draws),
        lambda: times(200, 0.95, draws),
        lambda: bootstrap(100, max(1, draws // 20)),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--out", type=Path, help="write the table to this file, too")
    given = parser.parse_args(arguments)
    rows, todo = [], jobs(given.draws)
    for i, job in enumerate(todo, 1):
        rows.append(job())
        say(f"{i} of {len(todo)}: {rows[-1].test}, {rows[-1].rows} rows")
    text = "\n".join([
        "# Levels and power of the tests, at 95% confidence",
        "",
        f"`python -m bench.levels --draws {given.draws}`; {', '.join(map(' '.join, versions().items()))}",
        "",
        *table(HEADING, [row.cells() for row in rows]),
        "",
        "The level is the largest of several edges of the null, and the bar is 5% plus two simulation errors. The",
        "statsmodels level is the largest over the same edges. The bootstrap is approximate and has no bar.",
        "",
    ])  # fmt: skip
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
