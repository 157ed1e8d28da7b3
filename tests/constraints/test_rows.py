from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.constraints.rows import grouped, labels

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
