from __future__ import annotations

import sys

import pytest

import fairway as fw
from fairway.errors import MissingDependency
from fairway.testing import check_sampler
from tests.samplers.searches import best_of


def test_it_conforms():
    check_sampler(fw.BORE(trees=20), trials=25)


def test_it_is_ahead_of_random_search():
    assert best_of(fw.BORE(trees=20)) < best_of(fw.Random())


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=fw.BORE(2), seed=0)
    for loss in (1.0, 2.0):
        study.tell(study.ask(), loss=loss)
    with pytest.raises(MissingDependency, match="pip install scikit-learn"):
        study.ask()
