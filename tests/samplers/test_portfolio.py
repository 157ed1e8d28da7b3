from __future__ import annotations

import numpy as np

import fairway as fw
from fairway.samplers.portfolio import portfolio

SPACE = {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)}


def told(points, losses):
    study = fw.Study(SPACE, fw.Minimize("loss"), seed=0)
    for (x, y), loss in zip(points, losses, strict=True):
        study.enqueue({"x": x, "y": y})
        trial = study.ask()
        study.tell(trial, loss=loss) if loss is not None else study.tell(trial, failed="made to")
    return study.history


def test_the_best_comes_last_and_before_it_the_furthest_of_the_best_tenth():
    rng = np.random.default_rng(0)
    good = [(0.5, 0.5), (0.51, 0.5), (0.9, 0.9), (0.1, 0.5), (0.5, 0.52)]
    points = good + [tuple(point) for point in rng.random((45, 2))]
    losses = [0.0, 0.1, 0.2, 0.3, 0.4, *(1.0 + k for k in range(45))]
    chosen = [tuple(x) for x in portfolio([told(points, losses)], 3)]
    assert chosen == [(0.1, 0.5), (0.9, 0.9), (0.5, 0.5)]


def test_failed_trials_are_left_out_and_fewer_are_no_error():
    assert portfolio([told([(0.1, 0.1)], [None])]) == []
    assert [tuple(x) for x in portfolio([told([(0.1, 0.1), (0.2, 0.2)], [None, 1.0])])] == [(0.2, 0.2)]
    assert portfolio([]) == []


def test_studies_take_turns_and_the_same_point_comes_once():
    one = told([(0.1, 0.1), (0.9, 0.9)], [0.0, 1.0])
    other = told([(0.1, 0.1), (0.2, 0.8)], [0.0, 1.0])
    assert [tuple(x) for x in portfolio([one, other])] == [(0.2, 0.8), (0.9, 0.9), (0.1, 0.1)]
