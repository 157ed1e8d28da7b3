"""The errors and bounds of the fairness metrics, against draws from known rates."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway import constraints
from fairway.constraints.gaps import Cells, largest_gap, smallest_ratio

DIFFERENCES = ("equalized_odds_difference", "equal_opportunity_difference", "demographic_parity_difference")
RATIOS = ("equalized_odds_ratio", "demographic_parity_ratio")
DRAWS = 1500


def drawn(rates, rows, seed=0, draws=DRAWS):
    """Cells (1, groups) with positives drawn at these rates."""
    rng = np.random.default_rng(seed)
    sizes = np.array(rows, dtype=float)
    for _ in range(draws):
        yield Cells(rng.binomial(rows, rates)[None] / sizes, sizes[None])


def share(held):
    """The share of draws on which a bound held, and its simulation error."""
    mean = float(np.mean(held))
    return mean, math.sqrt(max(mean * (1 - mean), 0.01) / len(held))


def measured(name, table, **more):
    truth, predicted, group, weight = table
    return getattr(constraints, name)(truth, predicted, sensitive_features=group, sample_weight=weight, **more)


@pytest.mark.parametrize(
    ("make", "rates"), [(largest_gap, [0.3, 0.5]), (largest_gap, [0.1, 0.4, 0.7]), (smallest_ratio, [0.4, 0.6])]
)
def test_the_error_is_the_standard_deviation_over_draws(make, rates):
    found = [make(cells, 1) for cells in drawn(rates, [2000] * len(rates), draws=3000)]
    assert np.mean([each.error for each in found]) == pytest.approx(np.std(found), rel=0.04)


@pytest.mark.parametrize("rates", [[0.0, 0.0], [0.02, 0.02], [0.0, 0.3], [0.3, 0.5], [0.5, 0.5], [0.9, 1.0]])
@pytest.mark.parametrize("rows", [5, 20])
def test_the_error_is_not_too_small_in_small_cells(rates, rows):
    found = [largest_gap(cells, 1) for cells in drawn(rates, [rows] * 2)]
    assert np.mean([each.error for each in found]) >= 0.95 * np.std(found)


@pytest.mark.parametrize("rows", [[200, 200], [50, 1000], [1000, 50]])
@pytest.mark.parametrize("rates", [[0.0, 0.5], [0.02, 0.5], [0.5, 1.0], [0.02, 1.0], [0.0, 1.0], [0.3, 0.7]])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_upper_bound_of_a_gap_holds_as_often_as_it_says(rates, rows, confidence):
    held, error = share(
        [largest_gap(cells, 1).upper(confidence) >= rates[1] - rates[0] for cells in drawn(rates, rows)]
    )
    assert held >= confidence - 2 * error


@pytest.mark.parametrize("rates", [[0.0, 0.02, 0.5, 0.5], [0.02, 0.5, 0.5, 1.0], [0.2, 0.5, 0.5, 0.5]])
def test_the_upper_bound_holds_with_four_groups_without_a_correction_for_their_pairs(rates):
    true = rates[-1] - rates[0]
    held, error = share([largest_gap(each, 1).upper(0.9) >= true for each in drawn(rates, [200, 100, 400, 50])])
    assert held >= 0.9 - 2 * error


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("groups", [2, 4])
def test_near_a_gap_of_zero_the_bounds_err_on_the_safe_side(rate, groups):
    cells = [*drawn([rate] * groups, [200] * groups, draws=200)]
    assert all(largest_gap(each, 1).upper(0.95) > 0 for each in cells)
    held, error = share([largest_gap(each, 1).lower(0.95) == 0 for each in cells])
    assert held >= 0.95 - 2 * error


@pytest.mark.parametrize(
    ("rates", "rows"),
    [([0.2, 0.5], [200, 200]), ([0.5, 1.0], [200, 200]), ([0.3, 0.4], [100, 2000]), ([0.02, 0.5], [2000, 500])],
)
def test_the_bounds_of_a_ratio_hold_nearly_as_often_as_they_say(rates, rows):
    found = [smallest_ratio(cells, 1) for cells in drawn(rates, rows)]
    truth = rates[0] / rates[1]
    below, error = share([each.lower(0.9) <= truth + 1e-12 for each in found])
    assert below >= 0.9 - 2 * error
    above, error = share([each.upper(0.9) >= truth - 1e-12 for each in found])
    assert above >= 0.9 - 2 * error


def test_the_bound_counts_a_small_group_whose_gap_is_not_the_value():
    rates, sure = np.array([[0.5, 0.6, 0.55]]), [10_000.0, 10_000.0]
    known, unknown = (largest_gap(Cells(rates, np.array([[*sure, rows]])), 1) for rows in (10_000.0, 20.0))
    assert known == unknown == pytest.approx(0.1)
    assert known.error == unknown.error
    assert known.upper(0.95) < 0.12
    assert unknown.upper(0.95) > 0.25


def test_of_pairs_that_differ_by_rounding_alone_the_least_certain_counts():
    unsure = largest_gap(Cells(np.array([[0.0, 0.5]]), np.array([[200.0, 9.0]])), 1)
    both = largest_gap(Cells(np.array([[0.0, 0.5, math.nextafter(0.5, 1.0)]]), np.array([[200.0, 9.0, 200.0]])), 1)
    assert both.error == unsure.error


def test_by_hand():
    gap = largest_gap(Cells(np.array([[0.1, 0.3]]), np.array([[98.0, 198.0]])), 296)
    low, high = 10.8 / 100, 60.4 / 200  # (98 * 0.1 + 1) / 100, (198 * 0.3 + 1) / 200
    error = math.sqrt(low * (1 - low) / 98 + high * (1 - high) / 198)
    assert (gap, gap.error, gap.rows) == (pytest.approx(0.2), pytest.approx(error), 296)
    assert gap.upper(0.95) == pytest.approx(0.2 + 0.5 / 98 + 0.5 / 198 + 1.6448536 * error)
    assert gap.lower(0.9) == pytest.approx(
        0.2 - 0.5 / 98 - 0.5 / 198 - 1.6448536 * error
    )  # 0.95 for each of two ordered pairs


@pytest.mark.parametrize("name", [*DIFFERENCES, *RATIOS])
@pytest.mark.parametrize(
    "said", [lambda truth, group: truth, lambda truth, group: group, lambda truth, group: truth | 1]
)
def test_a_rate_of_zero_or_one_never_claims_certainty(name, said):
    truth, group = np.array([0, 1] * 20), np.array([0] * 20 + [1] * 20)
    found = getattr(constraints, name)(truth, said(truth, group), sensitive_features=group)
    assert found.error > 0.01
    assert found.upper(0.9) > found or found == 1
    assert found.lower(0.9) < found or found == 0


ROW = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3), st.integers(1, 5))
EACH = [(label, 1, group, 1) for label in (0, 1) for group in range(4)]
TABLES = st.lists(ROW, max_size=40).map(lambda some: np.array(some + EACH).T)
CONFIDENCES = st.floats(0.001, 0.9999)


@pytest.mark.parametrize("name", [*DIFFERENCES, *RATIOS])
@settings(max_examples=50)
@given(table=TABLES, confidences=st.tuples(CONFIDENCES, CONFIDENCES))
def test_the_bounds_enclose_the_value_and_widen_with_the_confidence(name, table, confidences):
    found = measured(name, table)
    less, more = sorted(confidences)
    assert 0 <= found.lower(more) <= found.lower(less) <= found <= found.upper(less) <= found.upper(more) <= 1
    assert 0 < found.error < 2
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.error, again.rows, repr(again)) == (found, found.error, found.rows, repr(found))
    assert (again.upper(more), again.lower(more)) == (found.upper(more), found.lower(more))


@pytest.mark.parametrize("name", [*DIFFERENCES, *RATIOS])
@settings(max_examples=30)
@given(table=TABLES, weight=st.sampled_from([1.0, 7.0, 1e-200, 1e200]), order=st.randoms(use_true_random=False))
def test_equal_weights_and_the_order_of_rows_change_nothing(name, table, weight, order):
    truth, predicted, group, _ = table
    plain = measured(name, (truth, predicted, group, None))
    shuffled = [*range(len(truth))]
    order.shuffle(shuffled)
    weighted = measured(name, (*(each[shuffled] for each in (truth, predicted, group)), np.full(len(truth), weight)))
    assert weighted == pytest.approx(plain)
    assert (weighted.error, weighted.rows) == (pytest.approx(plain.error), plain.rows)
    assert weighted.upper(0.9) == pytest.approx(plain.upper(0.9))


@settings(max_examples=50)
@given(table=TABLES, weights=st.lists(st.floats(0.01, 10), min_size=48, max_size=48) | st.none())
def test_the_value_is_that_of_the_rates_to_the_last_bit(table, weights):
    truth, said, group, _ = table
    every = np.ones(len(truth)) if weights is None else np.array(weights)[: len(truth)]
    rates = [
        np.bincount(group, each * said) / np.bincount(group, each)
        for each in (every * (truth == 1), every * (truth == 0))
    ]
    given_weights = None if weights is None else every
    found = [measured(name, (truth, said, group, given_weights)) for name in ("equalized_odds_difference", RATIOS[0])]
    assert found == [max(each.max() - each.min() for each in rates), min(each.min() / each.max() for each in rates)]


def test_unequal_weights_leave_fewer_effective_rows():
    rng = np.random.default_rng(0)
    truth, said, group = rng.integers(0, 2, (3, 2000))
    weights = np.where(rng.random(2000) < 0.1, 10.0, 0.1)  # a tenth of the rows has nearly all the weight
    plain, heavy = (measured("demographic_parity_difference", (truth, said, group, each)) for each in (None, weights))
    assert heavy.error == pytest.approx(plain.error * math.sqrt(10), rel=0.1)


def test_what_is_undefined_has_no_error():
    undefined = constraints.equalized_odds_difference([1, 1, 0], [1, 1, 0], sensitive_features=["a", "b", "b"])
    assert math.isnan(undefined)
    assert math.isnan(undefined.error)
    assert math.isnan(undefined.upper(0.95))
    for name in (*DIFFERENCES, *RATIOS):
        assert math.isnan(getattr(constraints, name)([], [], sensitive_features=[]))
        assert math.isnan(
            getattr(constraints, name)([0, 1], [1, 1], sensitive_features=["a", "b"], sample_weight=[0, 0])
        )
