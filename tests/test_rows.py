from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.rows import (
    clusters_of,
    count_rows,
    grouped,
    labels,
    missing,
    numbered_groups,
)

KEYS = st.sampled_from([st.integers(-3, 3), st.booleans(), st.text("ab", max_size=2), st.integers(-99, 99)])


@given(keys=KEYS.flatmap(lambda one: st.lists(one, max_size=60)))
def test_groups_are_numbered_as_they_appear_whether_in_an_array_or_in_a_list(keys):
    truth = np.zeros(len(keys), dtype=np.int64)
    listed = grouped(truth, truth, keys, None)
    for stored in (np.array(keys), np.array(keys, dtype=object)):
        number, names, _ = grouped(truth, truth, stored, None)
        assert names == [*dict.fromkeys(keys)]
        assert [type(name) for name in names] == [type(name) for name in listed.names]
        assert [names[i] for i in number] == keys


@pytest.mark.parametrize("dtype", [np.int8, np.int64, float, np.float32, object])
def test_labels_are_read_from_numbers_of_any_type(dtype):
    assert labels(np.array([0, 1, 1], dtype=dtype), "y").tolist() == [0, 1, 1]
    assert labels(np.array([-1, 1, 1], dtype=dtype), "y").tolist() == [0, 1, 1]
    assert labels(np.array([0, 1, 1], dtype=np.uint8), "y").tolist() == [0, 1, 1]


def test_groups_are_refused_by_the_name_of_their_argument():
    for groups, says in (
        (None, "people=None: the group of each row is expected"),
        (["a", None], "people has missing values: give these rows a group of their own"),
        ({"sex": ["a"], "age": []}, "people has columns of different lengths, or none"),
        ({"sex": 3}, r"people\['sex'\] has shape"),
        ("a", r"people has shape \(\): one value per row"),
    ):
        with pytest.raises(fw.UsageError, match=says):
            numbered_groups(groups, "people")
    number, keys = numbered_groups([["f", 1], ["m", 1], ["f", 1]], "people")
    assert (number.tolist(), keys) == ([0, 1, 0], [("f", 1), ("m", 1)])


def test_missing_is_whatever_python_numpy_and_pandas_call_so():
    pandas = pytest.importorskip("pandas")
    for value in (None, math.nan, np.float32("nan"), pandas.NA, pandas.NaT, np.datetime64("NaT")):
        assert missing(value)
    for value in (0, "", "nan", False, np.datetime64("2020-01-01"), np.zeros(3), (math.nan,)):
        assert not missing(value)


def test_a_missing_cluster_is_said_whatever_holds_it():
    pandas = pytest.importorskip("pandas")
    for clusters in (pandas.Series(["a", pandas.NA]), ["a", None], [1.0, math.nan]):
        with pytest.raises(fw.UsageError, match="clusters has missing values: give each such row a cluster of its own"):
            clusters_of(clusters, 2)
    with pytest.raises(fw.UsageError, match="y has missing values: 0 and 1 are expected"):
        labels(pandas.Series([1, pandas.NA]), "y")
    assert clusters_of(["b", "a", "b"], 3).tolist() == [0, 1, 0]
    assert clusters_of(["b", "a", "c"], 3) is None


def test_rows_are_counted_and_none_are_refused():
    assert [count_rows(rows) for rows in ([1, 2], np.zeros((3, 0)), ("a",))] == [2, 3, 1]
    with pytest.raises(fw.UsageError, match=r"^rows is empty: at least one row is expected$"):
        count_rows([])
    with pytest.raises(fw.UsageError, match=r"^truth is a bytes: an array, a DataFrame or a list is expected$"):
        count_rows(b"ab", "truth")
