from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.interval import best_interval, expected_cost, threshold

ratios = st.floats(0.0, 1e6)
chances = st.floats(0.0, 1.0)


def by_the_sum(beta, total, r, p):
    """Eq. (1) term by term."""
    z = math.ceil(total / beta)
    stopped = sum((1 - p) ** (k - 1) * p * (r * k + k * beta) for k in range(1, z + 1))
    return (1 - p) ** z * (r * z + total) + stopped


def test_the_papers_examples():
    assert threshold(0.5, 16) == pytest.approx(14.0, abs=1e-3)
    assert [best_interval(20, 0.5, total) for total in (2, 4, 8, 16, 21)] == [2, 4, 8, 16, 21]
    assert best_interval(20, 0.5, 22) == 1
    assert [best_interval(r, 0.5, 16) for r in (0.0625, 8, 13.99)] == [1, 1, 1]
    assert [best_interval(r, 0.5, 16) for r in (14.01, 16, 1024)] == [16, 16, 16]


@given(st.integers(1, 40), st.integers(1, 40), ratios, st.floats(1e-3, 1.0))
def test_equation_1_is_its_sum(beta, more, r, p):
    total = beta + more - 1
    got = expected_cost(beta, total, cost_ratio=r, stop_probability=p)
    assert got == pytest.approx(by_the_sum(beta, total, r, p), rel=1e-9)


@given(st.integers(1, 1000), st.integers(1, 1000), ratios, chances)
def test_equation_1_equals_equation_2_where_the_interval_divides_the_total(beta, z, r, p):
    exact = expected_cost(beta, beta * z, cost_ratio=r, stop_probability=p)
    relaxed = expected_cost(beta, beta * z, cost_ratio=r, stop_probability=p, relaxed=True)
    assert exact == pytest.approx(relaxed, rel=1e-9)


def test_no_interior_interval_beats_both_ends():
    for p in (0.01, 0.03, 0.13, 0.25, 0.5, 0.75, 0.99):
        for r in (0.0, 0.04, 1.94, 14.0, 24.0, 1000.0):
            for total in (2, 3, 16, 100, 2048):
                costs = [
                    expected_cost(beta, total, cost_ratio=r, stop_probability=p, relaxed=True)
                    for beta in np.linspace(1, total, 60)
                ]
                assert min(costs[1:-1]) >= min(costs[0], costs[-1]) * (1 - 1e-12)
                cheapest = 1 if costs[0] < costs[-1] else total
                if abs(costs[0] - costs[-1]) > 1e-9 * costs[0]:
                    assert best_interval(r, p, total) == cheapest


@given(chances, st.floats(0.0, 1e300), st.integers(1, 10**300))
def test_extremes_neither_overflow_nor_divide_by_zero(p, r, total):
    assert best_interval(r, p, total) in (1, total)
    assert threshold(p, total) >= 0.0
    if total < 10**15:
        assert math.isfinite(expected_cost(1, total, cost_ratio=min(r, 1e200), stop_probability=p))


def test_the_edges():
    assert best_interval(5.0, 0.25, 1) == 1
    assert best_interval(0.0, 0.0, 100) == 1
    assert best_interval(1e-9, 0.0, 100) == 100  # nothing ever stops: checking on the way only costs
    assert best_interval(1e9, 1.0, 2) == 1  # the first check always stops
    assert threshold(1e-12, 1000) == pytest.approx(1e-12 * 1000 / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: best_interval(-1.0, 0.5, 10), "cost_ratio=-1.0"),
        (lambda: best_interval(1.0, 25, 10), "did you mean 0.25?"),
        (lambda: best_interval(1.0, 0.5, 0), "total_steps=0"),
        (lambda: best_interval(math.nan, 0.5, 3), "cost_ratio=nan"),
        (lambda: best_interval("2", 0.5, 10), "cost_ratio='2'"),
        (lambda: expected_cost(1, math.inf, cost_ratio=1.0, stop_probability=0.5), "total_steps=inf"),
        (lambda: expected_cost(1, 9, cost_ratio=math.inf, stop_probability=0.5), "a finite number is expected"),
        (lambda: expected_cost(11, 10, cost_ratio=1.0, stop_probability=0.5), "interval=11"),
    ],
)
def test_bad_numbers_get_one_clear_sentence(call, sentence):
    with pytest.raises(fw.UsageError, match=sentence.replace("?", r"\?")):
        call()
