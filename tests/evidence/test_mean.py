from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

import fairway as fw
from fairway.evidence import Mean
from fairway.evidence.tails import chernoff
from fairway.evidence.variables import Variables

LEVEL = 0.05


@given(st.lists(st.integers(0, 1), min_size=1, max_size=80), st.floats(0.01, 0.99))
def test_zeros_and_ones_get_the_exact_binomial_test(values, limit):
    k, n, evidence = sum(values), len(values), Mean(values)
    at_most, at_least = (stats.binomtest(k, n, limit, alternative=side).pvalue for side in ("less", "greater"))
    assert evidence.p_value(fw.AtMost("error", limit)) == pytest.approx(at_most, rel=1e-9)
    assert evidence.p_value(fw.AtLeast("recall", limit)) == pytest.approx(at_least, rel=1e-9)


def test_the_bound_of_a_share_is_clopper_and_pearsons():
    assert Mean([1] * 3 + [0] * 47).bound(fw.AtMost("error", 0.1), 0.95) == pytest.approx(stats.beta.ppf(0.95, 4, 47))
    assert Mean([1] * 47 + [0] * 3).bound(fw.AtLeast("ok", 0.9), 0.95) == pytest.approx(stats.beta.ppf(0.05, 47, 4))


def test_at_a_limit_of_five_percent_fewer_than_59_rows_can_never_pass():
    few = Mean([0] * 3)
    limit = fw.AtMost("error", 0.05)
    assert few.least_rows(limit, 0.95) == 59
    assert Mean([0] * 59).least_p(limit) <= LEVEL < Mean([0] * 58).least_p(limit) < few.least_p(limit)
    assert few.least_rows(fw.AtMost("error", 0.0), 0.95) is None


@given(st.integers(1, 200), st.floats(0.01, 0.98), st.floats(0.0, 0.99))
def test_with_equal_weights_chernoff_is_the_kullback_leibler_bound(n, limit, share):
    mean = share * limit
    divergence = (mean * math.log(mean / limit) if mean else 0) + (1 - mean) * math.log((1 - mean) / (1 - limit))
    found = chernoff(mean, np.array([1 / n]), np.array([float(n)]), limit)
    assert math.log(found) == pytest.approx(-n * divergence, rel=1e-6, abs=1e-9)


def test_chernoffs_inner_maximum_is_what_an_optimizer_finds():
    weights, limit, rate = np.array([0.4, 0.3, 0.2, 0.1]), 0.3, 5.0

    def loss(means):
        return -np.log1p(means * np.expm1(-rate * weights)).sum()

    found = optimize.minimize(
        loss,
        np.full(4, limit),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda means: weights @ means - limit},
        options={"ftol": 1e-14},
    )
    from fairway.evidence.tails import _log_product

    assert _log_product(rate * weights, weights, np.ones(4), limit) == pytest.approx(-found.fun, rel=1e-6)


@pytest.mark.parametrize("rates", [(0.1, 0.1, 0.1), (0.3, 0.0, 0.0), (0.0, 0.0, 0.3), (0.02, 0.08, 0.2)])
def test_the_mean_over_tests_holds_its_level(rates):
    """p depends on the mean alone, and falls with it: the mean that passes is found once."""
    sizes, rng = (20, 50, 200), np.random.default_rng(0)
    weights = np.repeat([1 / (3 * size) for size in sizes], sizes)
    least, most = 0.0, 0.1
    for _ in range(40):
        middle = (least + most) / 2
        distinct, counts = np.unique(weights, return_counts=True)
        passes = chernoff(middle, distinct, counts.astype(float), 0.1) <= LEVEL
        least, most = (middle, most) if passes else (least, middle)
    means = sum(rng.binomial(n, rate, 20_000) / (3 * n) for n, rate in zip(sizes, rates, strict=True))
    assert np.mean(means <= least) <= LEVEL


def test_rows_of_a_cluster_count_as_one():
    alone, limit = Mean([0, 1, 0, 0] * 10), fw.AtMost("error", 0.5)
    copied = Mean(np.repeat([0, 1, 0, 0] * 10, 3), clusters=np.repeat(np.arange(40), 3))
    assert copied.p_value(limit) == pytest.approx(alone.p_value(limit))
    assert copied.value == alone.value
    assert copied.rows == 120
    assert Mean([0, 1] * 3, clusters=list("abcdef")) == Mean([0, 1] * 3)


def test_clusters_hold_their_level():
    """Copies of the same row in clusters of different sizes; without clusters the level would be twice as high."""
    rng, limit, draws = np.random.default_rng(0), fw.AtMost("error", 0.2), 300
    clusters = np.repeat(np.arange(60), rng.integers(1, 6, 60))
    told, untold = [], []
    for _ in range(draws):
        values = (rng.random(60) < 0.2)[clusters].astype(int)
        told.append(Mean(values, clusters=clusters).p_value(limit) <= LEVEL)
        untold.append(Mean(values).p_value(limit) <= LEVEL)
    assert np.mean(told) <= LEVEL
    assert np.mean(untold) > 2 * LEVEL


def test_the_scale_of_a_loss_does_not_matter():
    values = np.random.default_rng(0).random(80) ** 2
    scaled = Mean(10 * values - 3, low=-3, high=7)
    assert scaled.p_value(fw.AtMost("loss", 2)) == pytest.approx(Mean(values).p_value(fw.AtMost("loss", 0.5)))
    assert scaled.bound(fw.AtMost("loss", 0), 0.9) == pytest.approx(10 * Mean(values).bound(fw.AtMost("l", 0), 0.9) - 3)
    assert scaled.p_value(fw.AtLeast("loss", -2)) == pytest.approx(Mean(1 - values).p_value(fw.AtMost("l", 0.9)))


def test_weights_of_zero_leave_rows_out():
    assert Mean([0, 1, 0, 1], weights=[1, 1, 2, 0]).value == 0.25
    assert Variables.of(np.array([0.0, 1.0]), np.array([1.0, 0.0]), None).values.tolist() == [0.0]


def test_the_mean_over_tests_is_the_failure_rate():
    found = Mean.over_tests({"negation": [0, 1], "names": [0, 0, 0, 0]})
    assert found.value == 0.25
    assert found.cells() == {"negation": {"rows": 2, "mean": 0.5}, "names": {"rows": 4, "mean": 0.0}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mean([]), "values is empty"),
        (lambda: Mean([0.1, math.nan]), "missing or infinite"),
        (lambda: Mean([0.1, 1.5]), "values has 1.5: values between low=0 and high=1"),
        (lambda: Mean([-0.1]), "values has -0.1"),
        (lambda: Mean(["a"]), "a number for each row"),
        (lambda: Mean([0, 1], low=1, high=1), "low below high"),
        (lambda: Mean([0, 1], weights=[1]), "weights has 1 rows where 2 are expected"),
        (lambda: Mean([0, 1], weights=[1, -1]), "numbers of at least 0"),
        (lambda: Mean([0, 1], clusters=[1, None]), "clusters has missing values"),
        (lambda: Mean.over_tests({}), "by its name"),
        (lambda: Mean.over_tests({"a": []}), r"tests\['a'\] is empty"),
        (lambda: Mean([0, 1]).bound(fw.AtMost("e", 0.1), 95), "did you mean 0.95"),
        (lambda: Mean([0, 1]).p_value(0.1), "AtMost"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(make, message):
    with pytest.raises(fw.UsageError, match=message):
        make()
