from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway import feasibility
from fairway.feasibility import Checkpoint

PROBLEM = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25), fw.AtLeast("recall", 0.8), fw.AtMost("ms", 0.0)])
measured = st.one_of(st.none(), st.floats(-10, 10), st.just(math.nan), st.just(math.inf))
checkpoints = st.builds(
    Checkpoint,
    st.integers(1, 99),
    st.floats(0, 1),
    st.tuples(measured, measured, measured),
    folds=st.just(1),
    of=st.just(1),
    errors=st.just(()),
)


def test_violation_is_the_sum_of_excess_over_scale():
    assert feasibility.violation(PROBLEM.constraints, (0.5, 0.6, 3.0)) == pytest.approx(0.25 / 0.25 + 0.2 / 0.8 + 3.0)
    scaled = fw.Problem(fw.Minimize("loss"), [fw.AtMost("ms", 10.0, scale=5.0)])
    assert feasibility.violation(scaled.constraints, (20.0,)) == 2.0


def test_a_value_on_the_limit_holds_and_zero_is_a_value():
    assert feasibility.violation(PROBLEM.constraints, (0.25, 0.8, 0.0)) == 0.0
    assert feasibility.violation(PROBLEM.constraints, (0.0, 0.8, 0.0)) == 0.0


def test_unknown_infeasible_and_feasible_are_three_things():
    assert feasibility.violation(PROBLEM.constraints, (0.1, None, 0.0)) is None
    assert feasibility.violation(PROBLEM.constraints, (0.1, None, 1.0)) == 1.0
    assert feasibility.violation(PROBLEM.constraints, (0.1, 0.9, 0.0)) == 0.0
    assert feasibility.violation(PROBLEM.constraints, (math.nan, 0.9, 0.0)) == math.inf


@given(st.lists(checkpoints, min_size=1, max_size=20))
def test_columns_agree_with_single_checkpoints(rows):
    values = np.array([row.values for row in rows], float)
    paid = np.array([[value is not None for value in row.values] for row in rows])
    loss = np.array([-row.objective for row in rows])
    amounts = feasibility.violations(PROBLEM, values, paid, np.full_like(values, np.nan))
    single = [feasibility.violation(PROBLEM.constraints, row.values) for row in rows]
    np.testing.assert_allclose(amounts, [math.nan if amount is None else amount for amount in single])
    best = rows[feasibility.first_standing(PROBLEM, loss, amounts, paid)]
    assert feasibility.standing(PROBLEM, best)[:5] == min(feasibility.standing(PROBLEM, row)[:5] for row in rows)


def test_of_checkpoints_that_violate_the_one_stands_where_most_was_measured():
    far, partly = Checkpoint(1, 0.5, (0.5, 0.1, 9.0)), Checkpoint(2, 0.9, (0.26, None, None))
    assert min(far, partly, key=lambda one: feasibility.standing(PROBLEM, one)) is far


def test_the_order_puts_feasible_before_infeasible_before_unknown_before_failed():
    loss = np.array([np.nan, 0.1, 0.2, 0.9, 0.5, 0.1])
    violation = np.array([np.nan, np.nan, 0.7, 0.0, 0.0, 0.7])
    assert feasibility.order(loss, violation).tolist() == [4, 3, 5, 2, 1, 0]


def test_without_constraints_everything_is_feasible():
    assert feasibility.violation((), ()) == 0.0
    nothing = np.empty((3, 0))
    amounts = feasibility.violations(fw.Problem(fw.Minimize("m")), nothing, nothing.astype(bool), nothing)
    assert amounts.tolist() == [0] * 3


def test_what_is_beyond_a_threshold_is_violated_even_where_numbers_end():
    tiny = fw.Problem(fw.Minimize("m"), [fw.AtMost("a", 0.0, scale=1e10)])
    huge = fw.Problem(fw.Minimize("m"), [fw.AtMost("a", -1e308)])
    for problem, value in ((tiny, 1e-320), (huge, 1.7e308)):
        assert feasibility.violation(problem.constraints, (value,)) > 0
        assert feasibility.violations(problem, np.array([[value]]), np.array([[True]]), np.array([[np.nan]]))[0] > 0


SOME = st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf])


@given(rows=st.lists(st.tuples(SOME | st.just(math.nan), SOME | st.just(math.nan)), max_size=40), k=st.integers(0, 45))
def test_the_best_few_are_the_first_of_the_order(rows, k):
    loss, violation = np.array(rows, np.float64).reshape(-1, 2).T
    everything = feasibility.order(loss, violation)
    assert feasibility.order(loss, violation, k).tolist() == everything[:k].tolist()
