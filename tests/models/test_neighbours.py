from __future__ import annotations

import numpy as np

import fairway as fw
from fairway.models.neighbours import MOST_COORDINATES, each_level


def test_every_level_of_every_discrete_parameter_is_a_neighbour_and_nothing_is_drawn():
    space = fw.Space({"c": fw.Choice(["a", "b", "c"]), "k": fw.Int(1, 4), "x": fw.Float(0.0, 1.0)})
    rng = np.random.default_rng(0)
    found = each_level(space, np.full((2, 3), 0.5), rng)
    assert len(found) == 2 * (3 + 4)
    assert rng.random() == np.random.default_rng(0).random()


def test_a_wide_space_has_some_of_its_neighbours_as_candidates_and_others_the_next_time():
    space = fw.Space({f"c{i}": fw.Choice([0, 1]) for i in range(600)})
    rng, x = np.random.default_rng(0), np.full((2, 600), 0.25)
    first, second = each_level(space, x, rng), each_level(space, x, rng)
    assert 100 < first.size <= MOST_COORDINATES
    changed = [set(np.flatnonzero((found != 0.25).any(axis=0)).tolist()) for found in (first, second)]
    assert len(changed[0]) > 50
    assert changed[0] != changed[1]
