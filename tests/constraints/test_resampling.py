from __future__ import annotations

import math
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.constraints import bootstrap, demographic_parity_difference, group_gap

X = np.random.default_rng(0).normal(size=400)


def mean(values):
    return float(np.mean(values))


def test_the_error_of_a_mean_is_the_textbooks():
    found = bootstrap(mean, X, resamples=1000)
    assert (found, found.rows) == (X.mean(), 400)
    assert found.error == pytest.approx(X.std() / 20, rel=0.05)
    assert found.upper(0.95) == pytest.approx(found + 1.645 * found.error, rel=0.1)


def test_it_agrees_with_the_error_that_a_fairness_metric_has_itself():
    rng = np.random.default_rng(0)
    truth, group = rng.integers(0, 2, (2, 2000))
    said = rng.random(2000) < 0.2 + 0.3 * group
    exact = demographic_parity_difference(truth, said, sensitive_features=group)
    found = bootstrap(demographic_parity_difference, truth, said, sensitive_features=group)
    assert found == exact
    assert found.error == pytest.approx(exact.error, rel=0.15)
    assert found.upper(0.95) == pytest.approx(exact.upper(0.95), abs=0.01)


def test_a_gap_of_any_metric_gets_an_error():
    pytest.importorskip("fairlearn")
    group = np.array(["a", "b"] * 200)
    gap = partial(group_gap, lambda y, p: abs(y - p).mean())
    found = bootstrap(gap, X, np.where(group == "a", X, X + 1), sensitive_features=group, resamples=20)
    assert found == pytest.approx(1.0)
    assert found.error == pytest.approx(0, abs=1e-12)


def test_columns_may_be_arrays_lists_series_and_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": X, "y": 2 * X}, index=range(400, 800))

    def paired(array, listed, series, table, *, named, absent):
        assert absent is None
        assert type(listed) is list
        assert table.columns.tolist() == ["x", "y"]
        assert np.array_equal(array, listed)
        assert np.array_equal(array, series)
        assert np.array_equal(array, table["x"])
        assert np.array_equal(array[:, None], named)
        return array.mean()

    found = bootstrap(paired, X, X.tolist(), frame["x"], frame, named=X[:, None], absent=None)
    assert (found, found.error) == (X.mean(), bootstrap(mean, X).error)


def test_clusters_are_resampled_whole():
    people = np.arange(400) // 8
    same = np.repeat(X[:50], 8)  # eight equal rows of each person
    by_person = bootstrap(mean, same, clusters=people, resamples=1000)
    assert by_person.error == pytest.approx(X[:50].std() / math.sqrt(50), rel=0.06)
    assert bootstrap(mean, same).error < 0.5 * by_person.error


def test_the_seed_decides():
    assert bootstrap(mean, X, seed=1).error == bootstrap(mean, X, seed=1).error != bootstrap(mean, X, seed=2).error


@settings(max_examples=30)
@given(
    values=st.lists(st.floats(-100, 100), min_size=2, max_size=30),
    confidences=st.tuples(st.floats(0.001, 0.9999), st.floats(0.001, 0.9999)),
)
def test_the_bounds_enclose_the_value_and_widen_with_the_confidence(values, confidences):
    found = bootstrap(np.median, values, resamples=20)
    less, more = sorted(confidences)
    assert found.lower(more) <= found.lower(less) <= found <= found.upper(less) <= found.upper(more)
    assert pickle.loads(pickle.dumps(found)).upper(more) == found.upper(more)


def test_a_confidence_beyond_the_resamples_uses_the_normal_bound():
    found = bootstrap(mean, X, resamples=20)
    assert found.upper(0.9999) >= found + 3.7 * found.error
    assert found.lower(0.9999) <= found - 3.7 * found.error


def test_a_few_undefined_resamples_are_left_out_and_many_are_refused():
    calls = []

    def sometimes(values, *, every):
        calls.append(1)
        if len(calls) % every == 0:
            return 1 / 0 if len(calls) % (2 * every) else math.nan
        return float(np.mean(values))

    few = partial(sometimes, every=25)
    assert bootstrap(few, X, resamples=100).error == pytest.approx(0.05, rel=0.3)
    calls.clear()
    with pytest.raises(
        fw.UsageError, match="the metric is undefined on 10 of 100 resamples, so its error is not known"
    ):
        bootstrap(partial(sometimes, every=10), X, resamples=100)


def test_a_metric_that_is_undefined_on_the_rows_themselves_is_nan():
    found = bootstrap(lambda values: math.nan, X)
    assert math.isnan(found)
    assert math.isnan(found.error)


@pytest.mark.parametrize(
    ("arguments", "more", "says"),
    [
        (("auc", X), {}, "bootstrap: metric='auc': a function of the columns is expected"),
        ((mean,), {}, "bootstrap: there are no columns"),
        ((mean, X, X[:3]), {}, "different numbers of rows: column 1 has 400, column 2 has 3"),
        ((mean, X), {"group": X[:3]}, "column 1 has 400, group has 3"),
        ((mean, 3.0), {}, "column 1 is a float: an array, a DataFrame or a list"),
        ((mean, "abc"), {}, "column 1 is a str: an array"),
        ((mean, X), {"pos_label": 1}, "pos_label is a int: an array.*; fix other arguments with functools.partial"),
        ((mean, X[:1]), {}, "the columns have 1 rows: at least 2 are expected"),
        ((lambda values: None, X), {}, "metric returned None: one number is expected"),
        ((lambda values: values, X), {}, "metric returned array.*: one number is expected"),
        ((lambda values: math.inf, X), {}, "metric returned inf: a finite number is expected"),
        ((mean, X), {"resamples": 19}, "resamples=19: a whole number of at least 20"),
        ((mean, X), {"seed": -1}, "seed=-1: a whole number of at least 0"),
        ((mean, X), {"clusters": [1, 2]}, "clusters has 2 rows where 400 are expected"),
        ((mean, X), {"clusters": [None] * 400}, "clusters has missing values"),
        ((mean, X), {"clusters": [1] * 400}, "clusters names one cluster: at least 2 are expected"),
    ],
)
def test_what_cannot_be_resampled_is_refused(arguments, more, says):
    with pytest.raises(fw.UsageError, match=says):
        bootstrap(*arguments, **more)
