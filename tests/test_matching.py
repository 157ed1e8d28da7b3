from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairway.matching import Matches

CODES = st.lists(st.integers(0, 40).map(lambda cell: (cell + 0.5) / 41), max_size=30)


@given(wanted=st.lists(st.tuples(st.integers(0, 2), CODES), max_size=6), seed=st.integers(0, 99))
def test_a_point_matches_where_its_coordinate_is_one_of_the_codes(wanted, seed):
    cells = np.random.default_rng(seed).integers(0, 41, (15, 3))
    points = (cells + 0.5) / 41
    points[cells == 7] = np.nan
    found = Matches(wanted).of(points)
    assert found.shape == (len(wanted), 15)
    for (at, codes), row in zip(wanted, found, strict=True):
        assert row.tolist() == [any(abs(u - code) < 1e-9 for code in codes) for u in points[:, at]]
