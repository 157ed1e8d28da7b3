from __future__ import annotations

import gc
import gzip
import json
import math
import pickle
import subprocess
import sys
import threading
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway import constraints
from fairway.constraints import (
    Directional,
    Invariance,
    MinimumFunctionality,
    cost,
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    failure_rate,
    failures,
    group_gap,
    latency,
    load_cases,
    model_size,
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


# Fairness


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


# Cost


class Clock:
    """A model that takes the next of given times to predict, on a clock of its own."""

    def __init__(self, monkeypatch, times):
        self.now, self.calls, self.times = 0.0, [], times
        monkeypatch.setattr(cost, "perf_counter", lambda: self.now)

    def predict(self, rows):
        self.calls.append(rows)
        self.now += self.times[len(self.calls) - 1] if len(self.calls) <= len(self.times) else self.times[-1]


def test_a_latency_is_a_quantile_of_one_call(monkeypatch):
    times = [50.0] * 3 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] * 5  # the warm-up is slow, and does not count
    assert latency(Clock(monkeypatch, times), [0], quantile=0.5) == 3.5
    assert latency(Clock(monkeypatch, times), [0], quantile=1) == 6.0
    assert latency(Clock(monkeypatch, times).predict, [0], quantile=0) == 1.0


def test_a_busy_moment_does_not_count(monkeypatch):
    times = [1.0] * 3 + [1.0] * 6 + [100.0] * 10 + [1.0]
    assert latency(Clock(monkeypatch, times), [0]) == 1.0


@pytest.mark.parametrize(("seconds", "calls"), [(0.001, 30), (100.0, 100)])
def test_calls_go_on_for_so_long_and_are_thirty_at_the_least(monkeypatch, seconds, calls):
    model = Clock(monkeypatch, [1.0])
    latency(model, [0], seconds=seconds)
    assert len(model.calls) == 3 + calls


def test_calls_cycle_through_the_rows(monkeypatch):
    model = Clock(monkeypatch, [1.0])
    latency(model, ["a", "b", "c"], batch=2)
    assert model.calls[:4] == [["a", "b"], ["c", "a"], ["a", "b"], ["c", "a"]]
    model = Clock(monkeypatch, [1.0])
    latency(model, ["a", "b"], batch=5)
    assert model.calls[0] == ["a", "b", "a", "b", "a"]


def test_rows_may_be_arrays_and_frames(monkeypatch):
    pandas = pytest.importorskip("pandas")
    array = np.arange(6).reshape(3, 2)
    for rows in (array, pandas.DataFrame(array, columns=["a", "b"])):
        model = Clock(monkeypatch, [1.0])
        latency(model, rows, batch=2)
        assert type(model.calls[0]) is type(rows)
        assert np.asarray(model.calls[1]).tolist() == [[4, 5], [0, 1]]
        model = Clock(monkeypatch, [1.0])
        latency(model, rows, batch=None)
        assert all(call is rows for call in model.calls)


def test_many_rows_are_not_all_cut(monkeypatch):
    model = Clock(monkeypatch, [1.0])
    latency(model, np.arange(100_000), seconds=300.0)
    assert len({int(call[0]) for call in model.calls}) == 256


def test_garbage_is_not_collected_while_measuring_and_is_again_after_a_failure():
    states = []
    latency(lambda rows: states.append(gc.isenabled()), [0], seconds=0.001)
    assert (states[3:], gc.isenabled()) == ([False] * len(states[3:]), True)

    def breaks(rows):
        if not gc.isenabled():
            raise RuntimeError

    with pytest.raises(RuntimeError):
        latency(breaks, [0])
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("arguments", "more", "says"),
    [
        ((len, []), {}, "rows is empty"),
        ((3, [1]), {}, "model=3: an object with a predict method, or a function of rows, is expected"),
        ((len, [1]), {"quantile": 95}, "quantile=95: a fraction between 0 and 1 is expected; did you mean 0.95?"),
        ((len, [1]), {"batch": 0}, "batch=0: a whole number of at least 1"),
        ((len, [1]), {"seconds": 0}, "seconds=0: a positive number of seconds"),
    ],
)
def test_a_latency_that_cannot_be_measured_is_refused(arguments, more, says):
    with pytest.raises(fw.UsageError, match=says):
        latency(*arguments, **more)


@given(st.recursive(st.integers() | st.text() | st.binary(), st.lists))
def test_a_size_is_the_length_of_the_pickle(model):
    assert model_size(model) == len(pickle.dumps(model, protocol=5))


def test_large_arrays_count_in_full():
    assert model_size({"weights": np.zeros(10**6)}) == len(pickle.dumps({"weights": np.zeros(10**6)}, protocol=5))
    assert model_size({"weights": np.zeros(10**6)}) > 8 * 10**6


def test_boosters_and_scikit_learn_models_have_a_size_that_grows():
    lightgbm = pytest.importorskip("lightgbm")
    xgboost = pytest.importorskip("xgboost")
    forest = pytest.importorskip("sklearn.ensemble").ExtraTreesClassifier
    x = np.random.default_rng(0).random((200, 3))
    y = (x[:, 0] > 0.5).astype(int)
    quiet = {"verbosity": -1, "num_threads": 1}
    for train in (
        lambda n: lightgbm.train(quiet, lightgbm.Dataset(x, y, params=quiet), n),
        lambda n: xgboost.train({"nthread": 1}, xgboost.DMatrix(x, y), n),
        lambda n: forest(n, random_state=0).fit(x, y),
    ):
        assert 0 < model_size(train(2)) < model_size(train(20))


def test_functions_made_on_the_way_have_a_size():
    assert model_size(lambda rows: rows) > 0


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(fw.UsageError, match="model_size: a lock cannot be pickled: cannot pickle"):
        model_size(threading.Lock())


# Behaviour

WORDS = {"good": 0.9, "bad": 0.1, "very": 0.2, "fine": 0.6, "dull": 0.4}


def positive(texts):
    """The probabilities (n, 2) of a model that adds up words."""
    p = np.clip([sum(WORDS.get(word, 0.0) for word in text.split()) for text in texts], 0.0, 1.0)
    return np.column_stack([1 - p, p])


def labels(texts):
    return positive(texts).argmax(axis=1)


def test_a_minimum_functionality_case_fails_when_its_class_is_not_allowed():
    texts = ["good", "bad", "fine"]
    for allowed, share in (
        (1, 1 / 3),
        ((0, 1), 0.0),
        ([1, 1, 0], 2 / 3),
        ([1, 0, (0, 1)], 0.0),
        (np.array([1, 0, 1]), 0),
    ):
        test = MinimumFunctionality("words", texts, allowed)
        assert failures(positive, [test]) == failures(labels, [test]) == {"words": pytest.approx(share)}
        assert MinimumFunctionality("words", test.inputs, test.labels) == test


def test_an_invariance_case_fails_when_the_class_changes_and_the_confidence_moves():
    groups = [["fine", "dull"], ["fine", "good"], ["good", "fine", "bad"]]  # 0.6 to 0.4; no change of class; 0.9 to 0.1
    for tolerance, share in ((0.0, 2 / 3), (0.25, 1 / 3), (0.85, 0.0)):
        assert failures(positive, [Invariance("same", groups, tolerance)])["same"] == pytest.approx(share)
        assert failures(labels, [Invariance("same", groups, tolerance)])["same"] == pytest.approx(2 / 3)


def test_a_directional_case_fails_when_the_score_moves_against_the_direction():
    groups = [["fine", "fine very"], ["fine", "dull"], ["dull", "dull very", "bad"]]  # +0.2; -0.2; +0.2 and -0.3
    for direction, tolerance, label, failing in (
        ("up", 0.0, -1, 2),
        ("up", 0.25, -1, 1),
        ("up", 0.4, 1, 0),
        ("up", 0.0, 0, 2),
        ("down", 0.0, -1, 2),
        ("down", 0.25, 1, 0),
        ("up", 0.0, "predicted", 2),
        ("down", 0.0, "predicted", 2),
    ):
        test = Directional("moves", groups, direction, tolerance, label)
        assert failures(positive, [test])["moves"] == pytest.approx(failing / 3), test


def test_the_failure_rate_is_the_mean_over_tests_and_not_over_cases():
    suite = [MinimumFunctionality("few", ["good"], 0), MinimumFunctionality("many", ["good"] * 9, 1)]
    assert failures(labels, suite) == {"few": 1.0, "many": 0.0}
    assert failure_rate(labels, suite) == 0.5


def test_predict_is_called_once_with_each_text_once():
    calls = []

    def predict(texts):
        calls.append(texts)
        return positive(texts)

    failures(predict, [MinimumFunctionality("a", ["good", "bad", "good"], 1), Invariance("b", [["bad", "fine"]])])
    assert calls == [["good", "bad", "fine"]]


def test_inputs_may_be_rows_of_numbers():
    suite = [Invariance("noise", [[np.array([1.0, 0.0]), np.array([1.0, 0.1])], [np.zeros(2), np.ones(2)]])]
    assert failure_rate(lambda rows: (np.array(rows)[:, 0] > 0.5).astype(int), suite) == 0.5


def test_labels_may_be_texts():
    suite = [MinimumFunctionality("words", ["good", "bad"], "pos"), Invariance("same", [["good", "bad"]])]
    assert failures(lambda texts: np.where(labels(texts) == 1, "pos", "neg"), suite) == {"words": 0.5, "same": 1.0}


TEXTS = st.text("abc", min_size=1, max_size=3)
GROUPS = st.lists(st.lists(TEXTS, min_size=2, max_size=4), min_size=1, max_size=6)
SUITES = st.lists(
    st.one_of(
        st.builds(MinimumFunctionality, st.text(min_size=1), st.lists(TEXTS, min_size=1), st.integers(0, 2)),
        st.builds(Invariance, st.text(min_size=1), GROUPS, st.floats(0, 1)),
        st.builds(
            Directional,
            st.text(min_size=1),
            GROUPS,
            st.sampled_from(["up", "down"]),
            st.floats(0, 1),
            st.sampled_from([-1, 0, 1, 2, "predicted"]),
        ),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda test: test.name,
)


def three_classes(texts):
    raw = np.array([[crc32(f"{text} {k}".encode()) % 97 + 1.0 for k in range(3)] for text in texts])
    return raw / raw.sum(axis=1, keepdims=True)


@given(suite=SUITES, order=st.randoms(use_true_random=False))
def test_a_failure_rate_is_a_share_whatever_the_order_of_the_tests(suite, order):
    rate = failure_rate(three_classes, suite)
    shuffled = order.sample(suite, len(suite))
    assert 0 <= rate <= 1
    assert failure_rate(three_classes, shuffled) == pytest.approx(rate)
    assert failures(three_classes, shuffled) == failures(three_classes, suite)


@given(groups=GROUPS, tolerance=st.floats(0, 1))
def test_a_larger_tolerance_never_fails_more(groups, tolerance):
    for make in (Invariance, lambda name, groups, tolerance: Directional(name, groups, "up", tolerance)):
        strict, loose = (failure_rate(three_classes, [make("t", groups, least)]) for least in (0.0, tolerance))
        assert strict >= loose


@given(groups=GROUPS)
def test_a_model_that_says_one_thing_is_invariant_and_moves_nowhere(groups):
    suite = [Invariance("same", groups), Directional("up", groups, "up"), Directional("down", groups, "down")]
    assert failure_rate(lambda texts: np.full((len(texts), 2), 0.5), suite) == 0.0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MinimumFunctionality("", ["a"], 1), "name='': a non-empty string is expected"),
        (lambda: MinimumFunctionality("t", [], 1), "t: inputs is empty: at least one case is expected"),
        (lambda: MinimumFunctionality("t", "good", 1), "t: inputs='good': a list is expected"),
        (
            lambda: MinimumFunctionality("t", ["a", "b"], [1]),
            "t: 2 inputs have 1 labels; one for each is expected",
        ),
        (lambda: MinimumFunctionality("t", ["a"], [()]), "t: a case has no allowed label"),
        (lambda: MinimumFunctionality("t", ["a"], None), "t: a case has no allowed label"),
        (lambda: Invariance("t", []), "t: groups is empty"),
        (lambda: Invariance("t", ["good", "fine"]), "t: a group='good': a list is expected"),
        (lambda: Invariance("t", [["good"]]), "t: 'good' is alone in its group: an original and its variants"),
        (lambda: Invariance("t", [["a", "b"]], -1), "t: tolerance=-1: a number of at least 0 is expected"),
        (lambda: Directional("t", [["a", "b"]], "left"), "t: direction='left': 'up' or 'down' is expected"),
        (lambda: Directional("t", [["a", "b"]], "up", label=-2), "t: label=-2: a whole number of at least 0"),
        (lambda: Directional("t", [["a", "b"]], "up", math.nan), "t: tolerance=nan"),
    ],
)
def test_a_test_that_says_nothing_is_refused(make, says):
    with pytest.raises(fw.UsageError, match=says):
        make()


MFT = MinimumFunctionality("words", ["good", "bad"], [1, 0])


@pytest.mark.parametrize(
    ("said", "suite", "says"),
    [
        ([1, 0], [], "cases is empty: a suite of at least one test is expected"),
        ([1, 0], ["words"], "cases has 'words': MinimumFunctionality, Invariance or Directional is expected"),
        ([1, 0], [MFT, MFT], "two tests are named 'words'"),
        ([1], [MFT], r"predict returned shape \(1,\) for 2 inputs: \(2,\) or \(2, classes\) is expected"),
        (1, [MFT], r"predict returned shape \(\) for 2 inputs"),
        ([[0.1, 0.9], [math.nan, 0.1]], [MFT], "predict returned NaN or infinity"),
        ([0.1, 0.9], [MFT], "predict returned fractions: labels, or class probabilities"),
        ([[0.1], [0.9]], [MFT], "probabilities of at least two classes are expected"),
        ([1, 0], [Directional("up", [["good", "bad"]], "up")], "up: a Directional test needs class probabilities"),
        (
            [[0, 1], [1, 0]],
            [Directional("t", [["a", "b"]], "up", label=2)],
            "t: label=2, but predict returned 2 classes",
        ),
        (
            [[0, 1], [1, 0]],
            [MinimumFunctionality("t", ["a", "b"], 2)],
            "t: label 2 is expected, but predict returned probabilities of 2 classes, 0 to 1",
        ),
    ],
)
def test_an_answer_that_cannot_be_judged_is_refused(said, suite, says):
    with pytest.raises(fw.UsageError, match=says):
        failure_rate(lambda texts: said, suite)


FILE = [
    {"name": "words", "type": "MFT", "labels": [1, 0, 1], "data": ["good", "bad", "fine"], "run_idxs": [2, 0]},
    {"name": "either", "type": "MFT", "labels": [[0, 1], 1], "data": ["dull", "good"]},
    {"name": "not bad", "type": "MFT", "labels": None, "data": ["fine", "good"], "run_idxs": None},
    {"name": "names", "type": "INV", "labels": None, "data": [["a", "b"], ["c"], ["d", "e"]], "run_idxs": [0, 1]},
    {"name": "praise", "type": "DIR", "labels": None, "data": [["a", "b"]], "run_idxs": [0]},
]


def test_a_suite_is_read_from_a_file_with_its_subset(tmp_path):
    plain, zipped = tmp_path / "suite.json", tmp_path / "suite.json.gz"
    plain.write_text(json.dumps(FILE))
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    expected = [
        MinimumFunctionality("words", ["fine", "good"], [1, 1]),
        MinimumFunctionality("either", ["dull", "good"], [(0, 1), 1]),
        Invariance("names", [["a", "b"]], 0.1),
    ]
    assert load_cases(plain) == load_cases(str(zipped)) == expected
    expect = {"not bad": {"labels": (1, 2)}, "praise": {"direction": "up", "label": "predicted"}}
    more = load_cases(plain, expect={**expect, "names": {"tolerance": 0.3}})
    assert more[2:] == [
        MinimumFunctionality("not bad", ["fine", "good"], (1, 2)),
        Invariance("names", [["a", "b"]], 0.3),
        Directional("praise", [["a", "b"]], "up", 0.0, "predicted"),
    ]


@pytest.mark.parametrize(
    ("text", "expect", "says"),
    [
        ("{", None, "JSON is expected"),
        ('{"name": "a"}', None, "a list of tests, each with a name, a type and a list of data, is expected"),
        ('[{"name": "a", "type": "MFT"}]', None, "a list of tests, each with a name, a type and a list of data"),
        (
            '[{"name": "a", "type": "XYZ", "data": [["a", "b"]]}]',
            None,
            "a: type='XYZ': 'MFT', 'INV' or 'DIR' is expected",
        ),
        ('[{"name": "a", "type": "MFT", "data": ["a"]}]', None, "no test states what it expects; pass expect="),
        (
            '[{"name": "a", "type": "MFT", "data": ["a"]}]',
            {"b": {}},
            "expect names 'b', but no test in .* has that name",
        ),
    ],
)
def test_a_file_that_is_no_suite_is_refused(tmp_path, text, expect, says):
    path = tmp_path / "suite.json"
    path.write_text(text)
    with pytest.raises(fw.UsageError, match=says):
        load_cases(path, expect=expect)


# What looks like a number and is none


@pytest.mark.parametrize("groups", [["a", "a", "b", "b", math.nan, math.nan], [["a", 1]] * 5 + [["a", math.nan]]])
def test_missing_groups_in_lists_are_missing_too(groups):
    with pytest.raises(fw.UsageError, match="sensitive_features has missing values"):
        constraints.demographic_parity_difference(Y, P, sensitive_features=groups)
    with pytest.raises(fw.UsageError, match="sensitive_features is masked"):
        constraints.demographic_parity_difference(Y, P, sensitive_features=np.ma.array(G, mask=[1, 0, 0, 0, 0, 0]))


@pytest.mark.parametrize("said", [[None] * 2, [1j, 2j], [{"label": "x"}] * 2])
def test_what_is_no_label_is_not_judged(said):
    with pytest.raises(fw.UsageError, match="labels or class probabilities are expected"):
        failure_rate(lambda texts: said, [Invariance("names", [["a", "b"]])])


def test_labels_of_another_kind_are_said():
    suite = [MinimumFunctionality("words", ["good", "bad"], [1, 0])]
    with pytest.raises(fw.UsageError, match="labels like 1 are expected, but predict returned '1'"):
        failure_rate(lambda texts: ["1", "0"], suite)
    assert MinimumFunctionality("words", ["good", "bad"], range(2)).labels == ((0,), (1,))


def test_an_expectation_that_is_misspelt_or_too_short_is_said(tmp_path):
    path = tmp_path / "suite.json"
    words = {"name": "b", "type": "MFT", "labels": 1, "data": ["x"]}
    path.write_text(json.dumps([{"name": "a", "type": "DIR", "data": [["x", "y"]]}, words]))
    with pytest.raises(fw.UsageError, match="expect has the key 'directon': only labels, direction, tolerance"):
        load_cases(path, expect={"a": {"directon": "up"}})
    with pytest.raises(fw.UsageError, match="expect is incomplete for 'a'"):
        load_cases(path, expect={"a": {"tolerance": 0.1}})


def test_a_prediction_that_was_not_made_has_no_latency():
    with pytest.raises(fw.UsageError, match="predict returned a generator, which has computed nothing yet"):
        latency(lambda rows: (row for row in rows), ["x"])
    for rows in ((row for row in "xy"), {1, 2}, {0: 1}, np.array(3.0)):
        with pytest.raises(fw.UsageError, match="an array, a DataFrame or a list is expected"):
            latency(len, rows)
