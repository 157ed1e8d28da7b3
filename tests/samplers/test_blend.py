from __future__ import annotations

import numpy as np
import pytest

import fairway as fw
from fairway.testing import MIXED, check_sampler
from tests.samplers.searches import best_of


@pytest.mark.parametrize("sampler", [fw.Blend(), fw.Blend(threads=1)], ids=str)
def test_it_conforms(sampler):
    check_sampler(sampler, trials=25)


def test_it_is_far_ahead_of_random_search():
    assert best_of(fw.Blend()) < best_of(fw.Random()) / 2


def test_a_blend_begins_where_it_is_told_to():
    study = fw.Study(MIXED, fw.Minimize("loss"), sampler=fw.Blend(dict(fw.Space(MIXED).decode(np.zeros(7)))), seed=0)
    first, second = study.ask(2)
    assert first.params["depth"] == 1
    assert first.params != second.params


def test_a_local_search_goes_the_other_way_and_shortens_its_step():
    study = fw.Study({"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    for x, y, loss in ((0.5, 0.5, 0.0), (0.6, 0.5, 1.0)):
        study.enqueue({"x": x, "y": y})
        study.tell(study.ask(), loss=loss)
    blend, rng = fw.Blend(), np.random.default_rng(0)
    assert blend._local(study.history, 0, rng) == pytest.approx([0.4, 0.5])
    steps = []
    for k in range(12):
        steps.append(np.linalg.norm(blend._local(study.history, 0, rng) - 0.5))
        study.enqueue({"x": 0.5 + 0.01 * (k + 1), "y": 0.52})
        study.tell(study.ask(), loss=1.0)
    assert max(steps[-4:]) < max(steps[:4])
