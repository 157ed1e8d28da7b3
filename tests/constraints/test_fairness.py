from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway import constraints
from fairway.constraints import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    group_gap,
)
from fairway.errors import MissingDependency

RATES = (
    "equalized_odds_difference",
    "equal_opportunity_difference",
    "demographic_parity_difference",
    "equalized_odds_ratio",
    "demographic_parity_ratio",
)
Y = np.array([0, 0, 1, 1, 1, 0])
P = np.array([1, 0, 1, 1, 0, 0])
G = np.array(["a", "b", "a", "b", "a", "a"])


def rows(labels=st.integers(0, 1)):
    """(truth, prediction, group, weight) of rows where each of two or three groups has both labels."""
    some = st.lists(st.tuples(labels, labels, st.integers(0, 2), st.integers(1, 5)), max_size=20)
    both = [(label, prediction, group, 1) for label in (0, 1) for prediction in (0, 1) for group in (0, 1)]
    third = st.sampled_from([[], [(0, 1, 2, 1), (1, 1, 2, 2)]])
    complete = st.builds(lambda some, third: [row for row in some if third or row[2] < 2] + both + third, some, third)
    return complete.flatmap(st.permutations).map(lambda table: np.array(table).T)


@pytest.mark.parametrize("name", RATES)
@settings(max_examples=20)  # Fairlearn takes its time
@given(table=rows(), weighted=st.booleans())
def test_a_measure_is_fairlearns_where_every_group_has_both_labels(name, table, weighted):
    metrics = pytest.importorskip("fairlearn.metrics")
    truth, predicted, group, weight = table
    more = {"sensitive_features": group, "sample_weight": weight if weighted else None}
    ours = getattr(constraints, name)(truth, predicted, **more)
    assert ours == pytest.approx(getattr(metrics, name)(truth, predicted, **more), rel=1e-12)
    assert 0 <= ours <= 1


@pytest.mark.parametrize("name", RATES)
@settings(max_examples=20)  # Fairlearn takes its time
@given(table=rows(), order=st.randoms(use_true_random=False))
def test_a_measure_does_not_depend_on_the_order_of_rows_nor_on_the_names_of_groups(name, table, order):
    measure = getattr(constraints, name)
    truth, predicted, group, weight = table
    shuffled = list(range(len(truth)))
    order.shuffle(shuffled)
    named = np.array(["x", "a", "m"])[group]
    assert measure(truth, predicted, sensitive_features=group, sample_weight=weight) == pytest.approx(
        measure(
            truth[shuffled], predicted[shuffled], sensitive_features=named[shuffled], sample_weight=weight[shuffled]
        )
    )


def test_the_measures_by_hand():
    truth = [0, 0, 1, 1, 0, 0, 1, 1]
    predicted = [1, 0, 1, 1, 0, 0, 1, 0]  # a: fpr 1/2, tpr 1, selected 3/4; b: fpr 0, tpr 1/2, selected 1/4
    got = [getattr(constraints, name)(truth, predicted, sensitive_features=list("aaaabbbb")) for name in RATES]
    assert got == [0.5, 0.5, 0.5, 0.0, pytest.approx(1 / 3)]


def test_labels_may_be_booleans_or_minus_one_and_one():
    plain = equalized_odds_difference(Y, P, sensitive_features=G)
    assert equalized_odds_difference(Y == 1, P == 1, sensitive_features=G) == plain
    assert equalized_odds_difference(2 * Y - 1, 2 * P - 1, sensitive_features=G) == plain
    assert equalized_odds_difference(Y.astype(float)[:, None], list(P), sensitive_features=list(G)) == plain


def test_several_sensitive_columns_make_groups_of_their_combinations():
    pandas = pytest.importorskip("pandas")
    metrics = pytest.importorskip("fairlearn.metrics")
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 2, (2, 200))
    frame = pandas.DataFrame(
        {"sex": rng.choice(["f", "m"], 200), "age": rng.integers(0, 3, 200)}, index=range(200, 400)
    )
    expected = metrics.equalized_odds_difference(truth, predicted, sensitive_features=frame.reset_index(drop=True))
    for given_as in (frame, dict(frame), frame.to_numpy()):
        assert equalized_odds_difference(truth, predicted, sensitive_features=given_as) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("lacks", "undefined"),
    [
        (1, {"equalized_odds_difference", "equalized_odds_ratio", "equal_opportunity_difference"}),
        (0, {"equalized_odds_difference", "equalized_odds_ratio"}),
    ],
)
def test_a_rate_that_a_group_does_not_have_makes_the_measure_nan(lacks, undefined):
    truth = np.where(G == "b", 1 - lacks, Y)
    predicted = np.ones(6, int)
    got = {name: getattr(constraints, name)(truth, predicted, sensitive_features=G) for name in RATES}
    assert {name for name, value in got.items() if math.isnan(value)} == undefined


def test_rows_without_weight_do_not_count_as_a_group():
    weight = np.where((G == "b") & (Y == 1), 0.0, 1.0)
    assert math.isnan(equal_opportunity_difference(Y, P, sensitive_features=G, sample_weight=weight))
    assert math.isnan(demographic_parity_difference(Y, P, sensitive_features=G, sample_weight=np.where(G == "b", 0, 1)))


def test_a_model_that_selects_nobody_has_no_ratio():
    assert math.isnan(constraints.demographic_parity_ratio(Y, 0 * P, sensitive_features=G))
    assert math.isnan(constraints.equalized_odds_ratio(Y, 0 * P, sensitive_features=G))
    assert constraints.equalized_odds_ratio(Y, Y, sensitive_features=G) == 1.0  # no false positive, all positives found


def test_nan_is_never_feasible():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.5)], seed=0)
    nan = equalized_odds_difference([1, 1, 0], [1, 1, 0], sensitive_features=["a", "b", "b"])
    study.optimize(lambda trial: {"auc": 0.9, "eod": nan}, trials=2)
    assert study.best is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"y_pred": [0.2, 0.9, 0.1, 0.4, 0.5, 1.0]},
            "y_pred has values between 0 and 1: labels are expected, as in probabilities >= 0.5",
        ),
        (
            {"y_pred": ["no", "yes"] * 3},
            "y_pred has the labels 'no', 'yes': 0 and 1 are expected, as in y_pred == 'yes'",
        ),
        ({"y_true": [0, 1, 2, 3, 4, 5]}, "y_true has the labels 0, 1, 2, ...: 0 and 1 are expected"),
        ({"y_true": [0, 1, 0, 1, 0, math.nan]}, "y_true has missing values: 0 and 1 are expected"),
        ({"y_pred": [0, 1]}, "y_pred has 2 rows and y_true has 6: equal lengths are expected"),
        ({"y_pred": np.zeros((6, 2))}, r"y_pred has shape \(6, 2\): one value per row is expected"),
        ({"sensitive_features": None}, "sensitive_features=None: the group of each row is expected"),
        ({"sensitive_features": "sex"}, r"sensitive_features has shape \(\): one value per row"),
        ({"sensitive_features": ["a"]}, "sensitive_features has 1 rows and y_true has 6"),
        ({"sensitive_features": ["a", "b", None, "a", "b", "a"]}, "sensitive_features has missing values"),
        ({"sensitive_features": [0, 1, math.nan, 1, 0, 0]}, "sensitive_features has missing values"),
        ({"sensitive_features": {"a": [1, 2], "b": [1]}}, "sensitive_features has columns of different lengths"),
        ({"sensitive_features": {}}, "sensitive_features has columns of different lengths, or none"),
        ({"sample_weight": [1, 2]}, "sample_weight has 2 rows"),
        ({"sample_weight": [1, 1, 1, 1, 1, -1]}, "sample_weight has negative or non-finite values"),
    ],
)
@pytest.mark.parametrize("name", RATES)
def test_what_would_give_a_wrong_number_is_refused_with_a_sentence(name, changes, says):
    arguments = {"y_true": Y, "y_pred": P, "sensitive_features": G, **changes}
    with pytest.raises(fw.UsageError, match=says):
        getattr(constraints, name)(arguments.pop("y_true"), arguments.pop("y_pred"), **arguments)


def test_pandas_missing_values_are_seen():
    pandas = pytest.importorskip("pandas")
    groups = pandas.Series(["a", "b", pandas.NA, "a", "b", "a"], dtype="string")
    with pytest.raises(fw.UsageError, match="missing values"):
        equalized_odds_difference(Y, P, sensitive_features=groups)


@settings(max_examples=20)  # Fairlearn takes its time
@given(table=rows())
def test_the_gap_of_the_selection_rate_is_demographic_parity(table):
    truth, predicted, group, weight = table
    selected = lambda _, predicted, sample_weight=None: np.average(predicted, weights=sample_weight)
    for more in ({}, {"sample_weight": weight}):
        assert group_gap(selected, truth, predicted, sensitive_features=group, **more) == pytest.approx(
            demographic_parity_difference(truth, predicted, sensitive_features=group, **more)
        )


def test_the_gap_of_a_metric_that_is_undefined_in_a_group_is_nan():
    gap = group_gap(lambda truth, _: math.nan if truth.sum() > 2 else 1.0, Y, P, sensitive_features=[0, 1, 0, 0, 0, 1])
    assert math.isnan(gap)


def test_a_gap_refuses_what_is_no_metric():
    with pytest.raises(fw.UsageError, match=r"metric='auc': a function of \(y_true, y_pred\) is expected"):
        group_gap("auc", Y, P, sensitive_features=G)
    with pytest.raises(fw.UsageError, match="metric returned None: one number is expected"):
        group_gap(lambda truth, predicted: None, Y, P, sensitive_features=G)


def test_without_fairlearn_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "fairlearn.metrics", None)
    with pytest.raises(MissingDependency, match=r"group_gap needs Fairlearn: pip install 'fairway\[fairlearn\]'"):
        constraints.group_gap(max, Y, P, sensitive_features=G)
    assert constraints.equalized_odds_difference(Y, P, sensitive_features=G) >= 0  # the others need nothing


@pytest.mark.parametrize("name", RATES)
def test_one_group_alone_is_undefined(name):
    assert math.isnan(getattr(constraints, name)(Y, P, sensitive_features=["a"] * len(Y)))
    assert math.isnan(constraints.group_gap(lambda truth, said: 0.0, Y, P, sensitive_features=["a"] * len(Y)))


def test_importing_constraints_loads_nothing_optional():
    code = "import sys, fairway.constraints; print({'fairlearn', 'sklearn', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize("groups", [["a", "a", "b", "b", math.nan, math.nan], [["a", 1]] * 5 + [["a", math.nan]]])
def test_missing_groups_in_lists_are_missing_too(groups):
    with pytest.raises(fw.UsageError, match="sensitive_features has missing values"):
        constraints.demographic_parity_difference(Y, P, sensitive_features=groups)
    with pytest.raises(fw.UsageError, match="sensitive_features is masked"):
        constraints.demographic_parity_difference(Y, P, sensitive_features=np.ma.array(G, mask=[1, 0, 0, 0, 0, 0]))
