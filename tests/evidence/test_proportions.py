from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from fairway.evidence import proportions
from fairway.evidence.proportions import Table, exact, line, most_likely, score, score_bound

LEVEL = 0.05
limits = st.tuples(st.just("difference"), st.floats(0.01, 0.9)) | st.tuples(st.just("ratio"), st.floats(0.1, 0.99))


@st.composite
def tables(draw, most=60):
    n1, n2 = draw(st.integers(1, most)), draw(st.integers(1, most))
    return Table(draw(st.integers(0, n1)), n1, draw(st.integers(0, n2)), n2)


def first_rate(comparison, limit, p2):
    return limit + p2 if comparison == "difference" else p2 / limit


def edge(comparison, limit, points=400):
    """Pairs of rates at which the limit is just broken, from one corner to the other."""
    highest = 1 - limit if comparison == "difference" else limit
    p2 = highest * (1 - np.cos(np.linspace(0, np.pi, points))) / 2
    return np.clip(first_rate(comparison, limit, p2), 0, 1), p2


def level(n1, n2, comparison, limit, test=exact):
    """The largest probability of a wrong certificate, by enumeration of all tables."""
    x1, x2 = np.arange(n1 + 1), np.arange(n2 + 1)
    certified = np.zeros((n1 + 1, n2 + 1))
    for i in x1:
        least = bisect_left(x2, True, key=lambda j: test(Table(int(i), n1, int(j), n2), comparison, limit) <= LEVEL)
        certified[i, least:] = 1
        if least > n2:
            break
    p1, p2 = edge(comparison, limit)
    mass1, mass2 = (stats.binom.pmf(x[:, None], n, p) for x, n, p in ((x1, n1, p1), (x2, n2, p2)))
    return float(np.einsum("ik,ij,jk->k", mass1, certified, mass2).max())


def size(n1, n2, comparison, limit, *, parts=24):
    """The probability that the score test calls a broken limit kept, at the worst rates; it should be LEVEL."""
    null, rows, swap = line(comparison, limit), n1 + n2, n1 > n2
    if swap:
        n1, n2, null = n2, n1, proportions._mirrored_line(null)
    low, high = (float(end) for end in proportions._feasible(null))
    first, second = np.arange(n1 + 1), np.arange(n2 + 1)
    z = special.ndtri(LEVEL) * np.sqrt(rows / (rows - 1))
    least = proportions._boundary(first, n1, n2, null, z=-z)
    tail = proportions._Tail(null, n1, n2, first, second, least)
    ends = low + (high - low) * (1 - np.cos(np.linspace(0, np.pi, parts + 1))) / 2
    return max(proportions._highest(tail, *each) for each in pairwise(ends.tolist()))


def test_the_score_test_with_27_and_48_rows_calls_7_4_percent_of_broken_limits_kept():
    assert size(27, 48, "difference", 0.06) == pytest.approx(0.0738, abs=5e-5)
    assert level(27, 48, "difference", 0.06, score) == pytest.approx(0.0738, abs=5e-4)
    assert size(20, 200, "difference", 0.06) == pytest.approx(0.071, abs=5e-4)
    assert size(500, 500, "difference", 0.05) == pytest.approx(0.053, abs=5e-4)


def test_the_score_test_fails_in_large_cells_too_where_rates_are_near_0():
    assert size(5000, 300, "ratio", 0.8) > 0.11


@pytest.mark.parametrize(
    ("n1", "n2", "comparison", "limit"),
    [
        (27, 48, "difference", 0.06),
        (48, 27, "difference", 0.2),
        (10, 10, "difference", 0.3),
        (10, 10, "ratio", 0.4),
        (27, 48, "ratio", 0.8),
        (48, 27, "ratio", 0.6),
        (20, 200, "difference", 0.1),
        (200, 20, "ratio", 0.7),
    ],
)
def test_the_exact_test_holds_its_level_at_all_rates(n1, n2, comparison, limit):
    assert level(n1, n2, comparison, limit) <= LEVEL


@pytest.mark.parametrize(
    ("n1", "n2", "comparison", "limit"),
    [
        (150, 5000, "difference", 0.1),
        (200, 200, "difference", 0.1),
        (300, 5000, "difference", 0.05),
        (5000, 300, "ratio", 0.8),
    ],
)
def test_the_exact_test_holds_its_level_where_cells_are_large_or_unequal(n1, n2, comparison, limit):
    rng, draws = np.random.default_rng(0), 250
    p1, p2 = edge(comparison, limit, 40)
    wrong = []
    for rate1, rate2 in zip(p1[[2, 20, 37]], p2[[2, 20, 37]], strict=True):
        counts = zip(rng.binomial(n1, rate1, draws).tolist(), rng.binomial(n2, rate2, draws).tolist(), strict=True)
        wrong.append(np.mean([exact(Table(x1, n1, x2, n2), comparison, limit) <= LEVEL for x1, x2 in counts]))
    assert max(wrong) <= LEVEL + 3 * np.sqrt(
        LEVEL * (1 - LEVEL) / draws
    )  # three errors, as this looks at several levels
    assert max(wrong) > 0.01


@pytest.mark.parametrize("comparison", ["difference", "ratio"])
@pytest.mark.parametrize(("n1", "n2"), [(3, 5), (6, 4)])
def test_the_exact_test_is_what_enumeration_of_all_tables_gives(n1, n2, comparison):
    every = [Table(x1, n1, x2, n2) for x1, x2 in product(range(n1 + 1), range(n2 + 1))]
    bounds = np.array([score_bound(table, comparison) for table in every])
    goodness = np.where(np.isnan(bounds), -np.inf, -bounds if comparison == "difference" else bounds)
    limit = 0.35
    p1, p2 = edge(comparison, limit, 20_001)
    mass = np.array([stats.binom.pmf(t.x1, n1, p1) * stats.binom.pmf(t.x2, n2, p2) for t in every])
    for table, at_least in zip(every, goodness, strict=True):
        x, n, rate = (table.x1, n1, p1) if n1 > n2 else (table.x2, n2, p2)  # the nuisance rate is the larger cell's
        low = stats.beta.ppf(proportions.GAMMA / 2, x, n - x + 1) if x else 0
        high = stats.beta.ppf(1 - proportions.GAMMA / 2, x + 1, n - x) if x < n else 1
        inside = (low <= rate) & (rate <= high)
        p = 1.0 if at_least == -np.inf else mass[goodness >= at_least - 1e-7][:, inside].sum(0).max(initial=0)
        assert exact(table, comparison, limit) == pytest.approx(min(1, p + proportions.GAMMA), abs=2e-4)


@given(tables(), limits)
def test_the_most_likely_rates_are_those_an_optimizer_finds(table, limit):
    def loss(p2):
        p1 = np.clip(first_rate(*limit, p2), 0, 1)
        return -(
            special.xlogy(table.x1, p1)
            + special.xlog1py(table.n1 - table.x1, -p1)
            + special.xlogy(table.x2, p2)
            + special.xlog1py(table.n2 - table.x2, -p2)
        )

    p1, p2 = most_likely(*table, line(*limit))
    assert p1 == pytest.approx(min(first_rate(*limit, p2), 1), abs=1e-12)
    highest = 1 - limit[1] if limit[0] == "difference" else limit[1]
    found = optimize.minimize_scalar(loss, bounds=(0, highest), method="bounded", options={"xatol": 1e-12})
    assert loss(p2) <= min(found.fun, loss(0.0), loss(highest)) + 1e-6


@given(tables(300), limits)
def test_the_score_test_is_statsmodels(table, limit):
    """Its difference test has a wrong coefficient (statsmodels #10269), so only its variance formula is used there."""
    theirs = pytest.importorskip("statsmodels.stats.proportion")
    x1, n1, x2, n2 = table
    if limit[0] == "ratio":
        if 0 < x1 < n1 and 0 < x2 < n2:
            found = theirs.test_proportions_2indep(
                x2, n2, x1, n1, value=limit[1], method="score", compare="ratio", alternative="larger"
            )
            assert score(table, *limit) == pytest.approx(found.pvalue, rel=1e-6, abs=1e-12)
        return
    p1, p2 = most_likely(*table, line(*limit))
    variance = (p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2) * (n1 + n2) / (n1 + n2 - 1)
    assert score(table, *limit) == pytest.approx(stats.norm.cdf((x1 / n1 - x2 / n2 - limit[1]) / variance**0.5))


@given(tables(40), limits, st.floats(0, 1))
def test_the_exact_p_value_falls_as_the_limit_is_loosened(table, limit, share):
    comparison, strict = limit
    loose = strict + share * (1 - strict) if comparison == "difference" else strict * (1 - share)
    assert exact(table, comparison, loose) <= exact(table, comparison, strict) + 1e-4  # a grid finds the maximum


@given(tables(), limits)
@example(Table(5, 17, 1, 1), ("ratio", 0.5))  # at a ratio of 3 the cubic has a double root
def test_fewer_positives_in_the_first_group_or_more_in_the_second_are_no_worse(table, limit):
    x1, n1, x2, n2 = table
    p = score_bound(table, limit[0])
    better = [Table(x1 - 1, n1, x2, n2)] * (x1 > 0) + [Table(x1, n1, x2 + 1, n2)] * (x2 < n2)
    for each in better:
        other = score_bound(each, limit[0])
        assert np.isnan(p) or (other <= p + 1e-9 if limit[0] == "difference" else other >= p - 1e-9)


@settings(max_examples=25)
@given(tables(), limits)
def test_the_maximum_over_the_nuisance_rate_is_that_of_a_dense_grid(table, limit):
    mirrored = table.n1 > table.n2
    p = exact(table, *limit)
    if p in {1.0, proportions.GAMMA}:
        return
    on, order = line(*limit), line(limit[0], score_bound(table, limit[0]))
    if mirrored:
        table, on, order = (
            proportions._mirrored(table),
            proportions._mirrored_line(on),
            proportions._mirrored_line(order),
        )
    interval = proportions._interval(table.x2, table.n2)
    feasible = proportions._feasible(on)
    p2 = np.linspace(max(interval[0], feasible[0]), min(interval[1], feasible[1]), 3001)
    first, second = np.arange(table.n1 + 1), np.arange(table.n2 + 1)
    least = proportions._boundary(first, table.n1, table.n2, order)
    dense = proportions._Tail(on, table.n1, table.n2, first, second, least).at(p2).max()
    assert dense + proportions.GAMMA <= p + 1e-4


def test_a_table_of_millions_of_rows_is_tested_too():
    p = exact(Table(500_000, 1_000_000, 999_000, 2_000_000), "difference", 0.0015)
    assert p == pytest.approx(score(Table(500_000, 1_000_000, 999_000, 2_000_000), "difference", 0.0015), rel=0.02)
