from __future__ import annotations

import sys

import numpy as np
import pytest

import fairway as fw
from fairway.engine.identity import Identity
from fairway.errors import MissingDependency
from fairway.testing import MIXED, check_sampler


@pytest.mark.parametrize("sampler", [fw.Random(), fw.BORE(trees=20), fw.Blend(), fw.Blend(threads=1)], ids=str)
def test_it_conforms(sampler):
    check_sampler(sampler, trials=25)


def best_of(sampler, seeds=4, trials=50):
    space = {name: parameter for name, parameter in MIXED.items() if name != "drop"}
    found = []
    for seed in range(seeds):
        study = fw.Study(
            space, fw.Minimize("loss"), [fw.AtMost("c", 0.5)], sampler=sampler, stopper=fw.Never(), seed=seed
        )
        for _ in range(trials):
            trial = study.ask()
            u = study.space.encode(trial.params)
            study.tell(trial, loss=float(((u[:4] - 0.35) ** 2).sum()), c=float(u[0] + (trial.params["size"] == "s")))
        found.append(study.best.metrics["loss"])
    return np.mean(found)


def test_each_is_ahead_of_random_search():
    random = best_of(fw.Random())
    assert best_of(fw.BORE(trees=40)) < random
    assert best_of(fw.Blend()) < random / 2


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


def test_a_blend_comes_back_from_json():
    problem = fw.Problem(fw.Minimize("loss"))
    identity = Identity(fw.Space(MIXED), problem, 0, fw.Blend({"depth": 3}, threads=2), fw.Never(), None)
    assert Identity.from_json(identity.to_json()).sampler == identity.sampler


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=fw.BORE(2), seed=0)
    for loss in (1.0, 2.0):
        study.tell(study.ask(), loss=loss)
    with pytest.raises(MissingDependency, match="pip install scikit-learn"):
        study.ask()
