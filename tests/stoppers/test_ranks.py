from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairway.stoppers import ranks
from fairway.stoppers.ranks import Neighbours, PairRanks, Ranks

keys = st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False), st.just(math.inf))


@given(st.lists(keys, max_size=200))
def test_rank_equals_sort(losses):
    structure, seen = Ranks(), []
    for loss in losses:
        assert structure.rank(loss) == sum(other >= loss for other in seen)
        seen.append(loss)
        assert structure.add(loss) == sum(other >= loss for other in seen)
        assert len(structure) == len(seen)


@given(st.lists(st.tuples(keys, keys), max_size=200))
def test_rank_of_pairs_equals_sort(pairs):
    structure, seen = PairRanks(), []
    for pair in pairs:
        seen.append(pair)
        assert structure.add(*pair) == sum(other >= pair for other in seen)
        assert len(structure) == len(seen)


def test_ranks_hold_across_merges(monkeypatch):
    monkeypatch.setattr(ranks, "_RECENT", 16)
    rng = np.random.default_rng(0)
    singles, pairs, seen = Ranks(), PairRanks(), []
    for value, tie in zip(rng.integers(0, 50, 3000).tolist(), rng.integers(0, 5, 3000).tolist(), strict=True):
        seen.append((value, tie))
        assert pairs.add(value, tie) == sum(other >= (value, tie) for other in seen)
        assert singles.add(value) == sum(other[0] >= value for other in seen)


@given(st.lists(st.tuples(st.integers(0, 9).map(float), keys), max_size=60))
def test_a_rank_among_neighbours_is_one_among_the_nearest_places(pairs):
    structure, seen = Neighbours(), []
    for place, loss in pairs:
        seen.append((place, loss))
        rank, n = structure.add((place,), loss)
        same = [other for at, other in seen if at == place]
        assert max(min(6, len(seen)), len(seen) // 3, len(same)) <= n <= len(seen)
        assert sum(other >= loss for other in same) <= rank <= sum(other >= loss for _, other in seen)
