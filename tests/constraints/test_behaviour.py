from __future__ import annotations

import math
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.constraints import (
    Directional,
    Invariance,
    MinimumFunctionality,
    failed_cases,
    failure_rate,
    failures,
)

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


def test_the_failed_cases_are_those_that_the_shares_count():
    suite = [MinimumFunctionality("words", ["good", "bad", "good"], 1), Invariance("same", [["good", "bad"]])]
    assert failed_cases(labels, suite) == {"words": [False, True, False], "same": [True]}
    assert failures(labels, suite) == {"words": 1 / 3, "same": 1.0}


def test_the_error_of_a_failure_rate_by_hand():
    suite = [MinimumFunctionality("few", ["good"] * 2, 0), MinimumFunctionality("many", ["good"] * 8, 1)]
    rate = failure_rate(labels, suite)
    assert (rate, rate.rows) == (0.5, 10)
    assert rate.error == pytest.approx(math.sqrt(0.75 * 0.25 / 2 + 0.1 * 0.9 / 8) / 2)
    assert rate.upper(0.95) == pytest.approx(0.5 + 1.6448536 * rate.error)


def test_the_error_of_a_failure_rate_is_the_standard_deviation_over_suites():
    rng, chances, sizes = np.random.default_rng(0), (0.1, 0.5, 0.3), (400, 300, 500)
    rates = []
    for _ in range(300):
        fails = [rng.random(size) < chance for chance, size in zip(chances, sizes, strict=True)]
        suite = [MinimumFunctionality(str(t), each.astype(int).tolist(), 0) for t, each in enumerate(fails)]
        rates.append(failure_rate(lambda inputs: inputs, suite))
    assert np.mean([rate.error for rate in rates]) == pytest.approx(np.std(rates), rel=0.1)


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


@pytest.mark.parametrize("said", [[None] * 2, [1j, 2j], [{"label": "x"}] * 2])
def test_what_is_no_label_is_not_judged(said):
    with pytest.raises(fw.UsageError, match="labels or class probabilities are expected"):
        failure_rate(lambda texts: said, [Invariance("names", [["a", "b"]])])


def test_labels_of_another_kind_are_said():
    suite = [MinimumFunctionality("words", ["good", "bad"], [1, 0])]
    with pytest.raises(fw.UsageError, match="labels like 1 are expected, but predict returned '1'"):
        failure_rate(lambda texts: ["1", "0"], suite)
    assert MinimumFunctionality("words", ["good", "bad"], range(2)).labels == ((0,), (1,))
