"""Fresh rows: decisions of any model, evidence for any limit, sentences for what does not fit, and overlap."""

from __future__ import annotations

import copy
import functools
import gc
import math
from typing import ClassVar

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix, csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import fairway as fw
from fairway.constraints import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    group_gap,
    latency,
    model_size,
)
from fairway.demo import credit_table
from fairway.evidence import Decisions, Exact, Mean, Quantile, Resampled
from fairway.hashing import hashes, overlap, pack, unpack

X, Y, GROUP = credit_table(1200)
TRAIN, REST = slice(0, 600), slice(600, 1200)
LIMIT = fw.AtMost("parity", 0.2)


def fresh(rows=X[REST], truth=Y[REST], **more):
    given = {"groups": GROUP[REST], "parity": demographic_parity_difference, **more}
    return fw.FreshRows(rows, truth, **given)


LOGISTIC = LogisticRegression().fit(X[TRAIN], Y[TRAIN])
EXPECTED = LOGISTIC.predict_proba(X[REST])[:, 1] >= 0.5


# Decisions of any model


def test_probabilities_are_compared_with_the_threshold_and_labels_are_taken_as_they_are():
    chances = LOGISTIC.predict_proba(X[REST])
    np.testing.assert_array_equal(fresh().decide(LOGISTIC), EXPECTED)
    np.testing.assert_array_equal(fresh(threshold=0.2).decide(LOGISTIC), chances[:, 1] >= 0.2)
    by_model = fresh(threshold=lambda model: float(model.intercept_[0]) * 0 + 0.3)
    np.testing.assert_array_equal(by_model.decide(LOGISTIC), chances[:, 1] >= 0.3)
    plain = fresh(threshold=0.2)  # for labels there is no threshold
    for said in (EXPECTED, EXPECTED.astype(int), EXPECTED.astype(float), np.where(EXPECTED, 1, -1)):
        np.testing.assert_array_equal(plain.decide(lambda rows, said=said: said), EXPECTED)
        np.testing.assert_array_equal(plain.decide(lambda rows, said=said: said[:, None]), EXPECTED)
        np.testing.assert_array_equal(plain.decide(lambda rows, said=said: said.tolist()), EXPECTED)


def test_a_model_with_a_decision_function_only_gives_its_labels():
    for truth in (Y[TRAIN], np.where(Y[TRAIN], 1, -1), np.where(Y[TRAIN], 1.0, -1.0)):
        model = LinearSVC().fit(X[TRAIN], truth)
        np.testing.assert_array_equal(fresh().decide(model), model.decision_function(X[REST]) > 0)
    scored = fresh(predict=lambda model, rows: model.decision_function(rows), threshold=0.5)
    with pytest.raises(fw.UsageError, match=r"values from -\d.* to \d.*: probabilities or labels are expected; for sc"):
        scored.decide(model)
    scored = fresh(predict=lambda model, rows: model.decision_function(rows), threshold=0.0)
    np.testing.assert_array_equal(scored.decide(model), model.predict(X[REST]) == 1)


def test_boosters_and_their_estimators_decide_by_probability():
    booster = lightgbm.train(
        {"objective": "binary", "verbosity": -1, "num_threads": 1}, lightgbm.Dataset(X[TRAIN], Y[TRAIN]), 9
    )
    np.testing.assert_array_equal(fresh().decide(booster), booster.predict(X[REST]) >= 0.5)
    other = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(X[TRAIN], Y[TRAIN]), 9)
    np.testing.assert_array_equal(fresh().decide(other), other.predict(xgboost.DMatrix(X[REST])) >= 0.5)
    for model in (lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1), xgboost.XGBClassifier(n_jobs=1)):
        model.fit(X[TRAIN], Y[TRAIN])
        np.testing.assert_array_equal(fresh().decide(model), model.predict(X[REST]))


def test_rows_may_be_a_frame_sparse_or_texts():
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    frame["kind"] = pd.Categorical(np.where(X[:, 0] > 0, "a", "b"))
    data = xgboost.DMatrix(frame[TRAIN], Y[TRAIN], enable_categorical=True)
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, data, 5)
    said = booster.predict(xgboost.DMatrix(frame[REST], enable_categorical=True))
    assert fresh(frame[REST], speed=latency)(booster)["speed"].rows == 300
    np.testing.assert_array_equal(fresh(frame[REST]).decide(booster), said >= 0.5)
    for sparse in (csr_matrix(X[REST]), coo_matrix(X[REST])):
        rows = fresh(sparse, speed=latency)
        np.testing.assert_array_equal(rows.decide(LOGISTIC), EXPECTED)
        assert isinstance(rows(LOGISTIC)["speed"], Quantile)
    texts = ["good film" if y else "bad film" for y in Y[REST]]
    model = make_pipeline(CountVectorizer(), MultinomialNB()).fit(texts, Y[REST])
    rows = fresh(texts, speed=latency)
    np.testing.assert_array_equal(rows.decide(model), Y[REST])
    assert rows(model)["speed"].value > 0
    assert len(rows) == 600


# Evidence for any limit


def test_fairness_metrics_are_tested_exactly_with_weights_and_clusters_passed_on():
    for metric in (demographic_parity_difference, equal_opportunity_difference, equalized_odds_difference):
        found = fresh(gap=metric)(LOGISTIC)["gap"]
        assert found == Decisions(metric, Y[REST], EXPECTED, GROUP[REST])
        assert float(metric(Y[REST], EXPECTED, sensitive_features=GROUP[REST])) == found.value
    weights, person = np.linspace(1, 2, 600), np.arange(600) // 2
    weighted = fresh(weights=weights, clusters=person)(LOGISTIC)["parity"]
    columns = (Y[REST], EXPECTED, GROUP[REST])
    assert weighted == Decisions(demographic_parity_difference, *columns, weights=weights, clusters=person)
    assert weighted.p_value(LIMIT) > fresh()(LOGISTIC)["parity"].p_value(LIMIT)


def test_several_columns_of_groups_are_combined():
    sex, age = GROUP[REST], np.where(X[REST, 2] > 0, "old", "young")
    for groups in ({"sex": sex, "age": age}, pd.DataFrame({"sex": sex, "age": age})):
        found = fresh(groups=groups, own=lambda truth, decision, groups: float(len(set(groups))))(LOGISTIC)
        assert sorted(found["parity"].groups) == ["0 & old", "0 & young", "1 & old", "1 & young"]
        assert found["own"].value == 4.0


def test_sizes_are_exact_and_latencies_are_quantiles():
    found = fw.FreshRows(X[REST], Y[REST], bytes=model_size, seconds=latency)(LOGISTIC)  # nothing is decided for them
    assert found["bytes"] == Exact(float(model_size(LOGISTIC)))
    assert found["bytes"].p_value(fw.AtMost("bytes", 10)) == 1.0
    assert isinstance(found["seconds"], Quantile)
    assert found["seconds"].quantile == 0.95
    assert found["seconds"].p_value(fw.AtMost("seconds", 60.0)) < 0.001
    median = functools.partial(latency, quantile=0.5, batch=None)
    assert fw.FreshRows(X[REST], Y[REST], seconds=median)(LOGISTIC)["seconds"].quantile == 0.5
    own = fresh(seconds=latency, predict=lambda model, rows: model["model"].predict(rows))({"model": LOGISTIC})
    assert own["seconds"].value > 0


def test_calls_are_timed_as_latency_times_them():
    states = []
    predict = lambda model, rows: states.append((gc.isenabled(), len(rows)))
    rows = fw.FreshRows(X[REST], Y[REST], predict=predict, seconds=functools.partial(latency, batch=7))
    assert rows(None)["seconds"].rows == 300
    assert states == [(True, 7)] * 3 + [(False, 7)] * 300  # those that warm up do not count
    for metric, own, sentence in (
        (latency, lambda model, rows: iter(rows), "which has computed nothing yet"),
        (functools.partial(latency, batch=0), predict, "batch=0: a whole number of at least 1"),
        (functools.partial(latency, quantile=95), predict, "did you mean 0.95"),
    ):
        with pytest.raises(fw.UsageError, match=sentence):
            fw.FreshRows(X[REST], Y[REST], predict=own, seconds=metric)(None)
    assert isinstance(fw.FreshRows(X[REST], Y[REST], bytes=model_size)({"no": "predict"})["bytes"], Exact)


def test_any_other_metric_is_bootstrapped_with_what_it_takes():
    def largest_error(truth, decision, groups):
        return max(float((truth != decision)[groups == which].mean()) for which in (0, 1))

    found = fresh(wrong=lambda t, d: float((t != d).mean()), f1=f1_score, worst=largest_error)(LOGISTIC)
    assert {type(found[name]) for name in ("wrong", "f1", "worst")} == {Resampled}
    assert found["wrong"].value == (Y[REST] != EXPECTED).mean()
    assert found["f1"].value == f1_score(Y[REST], EXPECTED)
    assert found["worst"].value == largest_error(Y[REST], EXPECTED, GROUP[REST])
    alone = fw.FreshRows(X[REST], Y[REST], wrong=lambda truth, decision: float((truth != decision).mean()))
    assert alone(LOGISTIC)["wrong"].value == found["wrong"].value
    weights = np.where(Y[REST], 3.0, 1.0)
    weighted = fw.FreshRows(X[REST], Y[REST], weights=weights, accuracy=accuracy_score)(LOGISTIC)["accuracy"]
    assert weighted.value == accuracy_score(Y[REST], EXPECTED, sample_weight=weights)
    person = np.arange(600) // 300
    clustered = fw.FreshRows(X[REST], Y[REST], clusters=person, accuracy=accuracy_score)(LOGISTIC)["accuracy"]
    assert len(set(clustered.to_json()["resampled"])) <= 3  # two people are drawn


def test_a_metric_may_return_evidence_itself():
    found = fw.FreshRows(X[REST], Y[REST], wrong=lambda truth, decision: Mean(truth != decision))(LOGISTIC)
    assert found == {"wrong": Mean(Y[REST] != EXPECTED)}
    assert not found["wrong"].approximate


def test_a_study_certifies_several_limits_on_fresh_rows():
    def train(trial):
        model = LogisticRegression(**trial.params).fit(X[TRAIN], Y[TRAIN])
        said = model.predict(X[TRAIN])
        gap = demographic_parity_difference(Y[TRAIN], said, sensitive_features=GROUP[TRAIN])
        trial.report(accuracy=(said == Y[TRAIN]).mean(), parity=gap, bytes=model_size(model))
        return model

    limits = [fw.AtMost("parity", 0.3), fw.AtMost("bytes", 5000)]
    study = fw.Study({"C": fw.Float(1e-3, 10.0, log=True)}, fw.Maximize("accuracy"), limits, seed=0)
    study.optimize(train, trials=8)
    study.searched_by(X[TRAIN], groups=GROUP[TRAIN])
    study.searched_by(X[TRAIN], groups=GROUP[TRAIN])  # a script that ran twice
    with pytest.raises(fw.UsageError, match="600 of 600 fresh rows are rows that the search trained or judged by"):
        study.certify(fresh(X[TRAIN], Y[TRAIN], groups=GROUP[TRAIN], bytes=model_size), train)
    certificate = study.certify(fresh(bytes=model_size), train)
    assert certificate.certified
    assert certificate.overlap == 0
    assert certificate.matches(certificate.model.predict(X[REST]))


# Sentences


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"truth": Y[:5]}, "truth has 5 rows where 600 are expected"),
        ({"groups": GROUP[:5]}, "groups has 5 rows where 600 are expected"),
        ({"groups": [None, *GROUP[601:]]}, "groups has missing values: give these rows a group of their own"),
        ({"groups": ["all"] * 600}, "group has only 'all': at least two groups are expected"),
        ({"weights": [1.0]}, "weights has 1 rows where 600 are expected"),
        ({"weights": [-1.0] * 600}, "weights has negative values"),
        ({"weights": [math.nan] * 600}, "weights has missing or infinite values"),
        ({"clusters": [1]}, "clusters has 1 rows where 600 are expected"),
        ({"clusters": [None] * 600}, "clusters has missing values"),
        ({"truth": LOGISTIC.predict_proba(X[REST])[:, 1]}, "truth has values between 0 and 1: labels are expected"),
        ({"truth": np.where(Y[REST], "yes", "no")}, "truth has the labels 'no', 'yes': 0 and 1 are expected, as in"),
        ({"truth": np.where(Y[REST], 1.0, math.nan)}, "truth has missing values: 0 and 1 are expected"),
        ({"truth": np.column_stack([Y[REST], Y[REST]])}, r"truth has shape \(600, 2\): one value per row is expected"),
        ({"rows": "a text"}, "rows is a str: an array, a DataFrame or a list is expected"),
        ({"rows": {"x": 1}}, "rows is a dict: an array, a DataFrame or a list is expected"),
        ({"rows": np.float64(3)}, "rows is a float64: an array, a DataFrame or a list is expected"),
        ({"rows": []}, "rows is empty: at least one row is expected"),
        ({"groups": None}, "parity compares groups: pass groups=, the group of each row"),
        ({"parity": 0.1}, "parity=0.1: a metric, such as equalized_odds_difference, is expected"),
        ({"threshold": "half"}, "threshold='half': a finite number, or a function of the model, is expected"),
        ({"predict": "proba"}, "predict='proba': a function of a model and rows is expected"),
        (
            {"weights": np.linspace(1, 2, 600), "own": lambda truth, decision: 0.0},
            "weights were given, but the metric of own takes no sample_weight",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_that_do_not_fit_together_are_refused_at_once(more, sentence):
    with pytest.raises(fw.UsageError, match=f"^FreshRows: {sentence}"):
        fresh(**more)


def test_a_metric_of_ones_own_that_needs_groups_and_a_missing_limit_are_said():
    for metric in (functools.partial(group_gap, accuracy_score), lambda truth, decision, groups: 0.0):
        with pytest.raises(fw.UsageError, match="own compares groups: pass groups="):
            fw.FreshRows(X[REST], Y[REST], own=metric)
    with pytest.raises(fw.UsageError, match="no metric was given; name one for each limit, as in eod="):
        fw.FreshRows(X[REST], Y[REST], groups=GROUP[REST])


class Odd:
    """A model that returns what it was given."""

    classes_: ClassVar = [0, 1]

    def __init__(self, said):
        self.said = said

    def predict(self, rows):
        return self.said


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Odd(np.zeros(5)), r"the model returned shape \(5,\) for 600 rows: one probability or label each is expected"),
        (Odd(np.zeros((600, 3))), r"the model returned shape \(600, 3\) for 600 rows"),
        (Odd(np.full(600, math.nan)), "the model returned NaN for some rows: probabilities or labels are expected"),
        (Odd(np.where(Y[REST], "yes", "no")), "predictions has the labels 'no', 'yes': 0 and 1 are exp"),
        (Odd(np.arange(600) % 3), "predictions has the labels '?0'?, '?1'?, '?2'?"),
        (Odd(np.linspace(-3, 3, 600)), "the model returned values from -3 to 3: probabilities or labels are expected"),
        ({"weights": [1]}, "the model is a dict without predict: give FreshRows predict=lambda model, rows: ..."),
        (None, "the model is a NoneType without predict"),
    ],
)
def test_what_is_no_decision_is_said(model, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        fresh().decide(model)


def test_a_threshold_that_is_no_number_is_said():
    with pytest.raises(fw.UsageError, match="threshold returned None: a finite number is expected"):
        fresh(threshold=lambda model: None).decide(LOGISTIC)


# Hashes

NUMBERS = st.one_of(st.integers(-5, 5), st.floats(allow_infinity=True), st.booleans())


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_equal_numbers_hash_equally_whatever_holds_them(rows):
    table = np.array([[float(a), float(b)] for a, b in rows])
    expected = hashes(table)
    ways = [
        rows,
        [list(row) for row in rows],
        [np.array(row, dtype=float) for row in rows],
        table.astype(object),
        np.asfortranarray(table),
        pd.DataFrame(table),
        pd.DataFrame({"a": pd.Series([a for a, _ in rows], dtype=object), "b": table[:, 1]}),
        csr_matrix(table),
        table.reshape(-1, 1, 2),
    ]
    for way in ways:
        np.testing.assert_array_equal(hashes(way), expected)
    np.testing.assert_array_equal(unpack(pack(expected)), expected)


@given(st.lists(st.tuples(st.integers(-3, 3), st.text(max_size=3), st.none() | st.floats(0, 1)), min_size=1))
def test_mixed_rows_hash_equally_whatever_holds_them_and_others_differ(rows):
    expected = hashes([list(row) for row in rows])
    np.testing.assert_array_equal(hashes(rows), expected)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"]).astype({"c": float})
    np.testing.assert_array_equal(hashes(frame), expected)
    np.testing.assert_array_equal(hashes(frame.astype({"a": "Int64", "b": "category"})), expected)
    np.testing.assert_array_equal(hashes(frame.to_numpy()), expected)
    assert len(set(expected.tolist())) == len(set(rows))


@given(st.lists(st.text(max_size=5), min_size=1))
def test_texts_hash_equally_whatever_holds_them(texts):
    expected = hashes(texts)
    for way in (pd.Series(texts, dtype=object), np.array(texts, dtype=object), [[text] for text in texts]):
        np.testing.assert_array_equal(hashes(way), expected)
    assert len(set(expected.tolist())) == len(set(texts))


def test_texts_that_look_like_numbers_are_texts_and_rows_may_differ_in_length():
    assert (hashes(["1", "2"]) == hashes(np.array(["1", "2"]))).all()
    assert (hashes(["1", "2"]) != hashes([1, 2])).all()
    assert len(set(hashes([[1, 2], [1], [1, 2, 0]]).tolist())) == 3
    assert (hashes([{"a": 1, "b": "x"}]) == hashes([{"b": "x", "a": 1.0}])).all()
    assert hashes(csr_matrix((7, 3_000_000))).shape == (7,)  # a few rows at a time
    with pytest.raises(fw.UsageError, match="rows is a str"):
        hashes("rows")


# Who has seen them


@given(
    seed=st.integers(0, 10**6),
    values=st.integers(2, 3000),
    share=st.floats(0.1, 0.5),
    n=st.integers(200, 2000),
    even=st.booleans(),
)
def test_a_random_split_of_a_table_with_duplicates_is_not_refused(seed, values, share, n, even):
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, values, n) if even else np.minimum(rng.geometric(1.0 / values**0.5, n), 10**6)
    table, places = hashes(drawn), rng.permutation(n)
    fresh_rows, others = np.split(table[places], [int(share * n)])
    found, refused = overlap(fresh_rows, others)
    assert not refused
    assert found == sum(value in set(others.tolist()) for value in fresh_rows.tolist())


@given(seed=st.integers(0, 10**6), m=st.integers(1, 4))
def test_a_table_of_which_every_row_is_there_several_times_is_not_refused(seed, m):
    rng = np.random.default_rng(seed)
    table = rng.permutation(np.repeat(np.arange(600 // m, dtype=np.uint64), m))
    assert not overlap(table[:150], table[150:])[1]


@given(seed=st.integers(0, 10**6), copied=st.floats(0.5, 1.0), n=st.integers(200, 1000), twins=st.floats(0, 0.25))
def test_rows_of_which_half_are_copied_are_refused(seed, copied, n, twins):
    rng = np.random.default_rng(seed)
    others = rng.permutation(3 * n).astype(np.uint64)
    doubled = int(twins * len(others) / 2)
    others[:doubled] = others[-doubled:] if doubled else others[:0]  # some equal ones among themselves
    fresh_rows = np.arange(10**6, 10**6 + n, dtype=np.uint64)
    places = rng.permutation(n)[: math.ceil(copied * n)]
    fresh_rows[places] = rng.choice(others, len(places), replace=False)
    assert overlap(fresh_rows, others) == (len(places), True)


def test_even_a_few_rows_that_are_all_copied_are_refused():
    rows = hashes(np.arange(5))
    assert overlap(rows, copy.copy(rows)) == (5, True)
    assert overlap(rows, hashes(np.arange(5, 10))) == (0, False)


def test_groups_of_different_kinds_are_not_taken_for_one_another():
    n = 1200
    groups = np.array([1, "1", "b"] * (n // 3), dtype=object)
    decided = np.zeros(n, int)
    decided[0::3] = 1
    fresh = fw.FreshRows(
        np.arange(n).reshape(-1, 1),
        np.arange(n) % 2,
        groups=groups,
        predict=lambda model, rows: decided,
        parity=demographic_parity_difference,
    )
    evidence = fresh("model")["parity"]
    assert evidence.value == 1.0
    assert len(evidence.groups) == 3


@pytest.mark.parametrize("threshold", [math.nan, math.inf])
def test_a_threshold_is_finite(threshold):
    rows = np.random.default_rng(0).random((40, 1))
    with pytest.raises(fw.UsageError, match="a finite number"):
        fw.FreshRows(rows, rows[:, 0] > 0.5, threshold=threshold, error=lambda truth, decided: 0.1)
    fresh = fw.FreshRows(rows, rows[:, 0] > 0.5, threshold=lambda model: threshold, error=lambda truth, decided: 0.1)
    with pytest.raises(fw.UsageError, match="a finite number"):
        fresh(lambda given: given[:, 0])


def test_the_same_rows_are_the_same_even_if_all_have_twins():
    rows = hashes(["yes", "no"] * 100)
    assert overlap(rows, rows)[1]
    assert overlap(hashes([[i] for i in range(50)]), hashes([[i] for i in range(26, 76)]))[1]
