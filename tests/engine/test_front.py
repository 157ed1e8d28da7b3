"""The front of objective and tracked metrics: which checkpoints are on it, and what it says of a limit."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.aims import next_aim
from fairway.engine.front import Front, Mark, rows_on_front

number = st.integers(0, 5).map(float)
marks = st.lists(st.tuples(number, number, number), max_size=30)


def front_of(points):
    front = Front()
    for loss, *values, k in points:
        front.add(Mark(loss, tuple(values), k, step=1))
    return front


@given(marks, st.randoms(use_true_random=False))
def test_a_front_does_not_depend_on_the_order_in_which_checkpoints_came(points, random):
    numbered = [(*point, k) for k, point in enumerate(points)]
    shuffled = random.sample(numbered, len(numbered))
    assert front_of(numbered).marks == front_of(shuffled).marks


@given(marks)
def test_nothing_on_a_front_is_beaten_and_all_else_is(points):
    table = np.array(points).reshape(-1, 3)
    front = {tuple(table[row]) for row in rows_on_front(table)}
    beaten = {one for one in points if any(all(np.less_equal(other, one)) and other != one for other in points)}
    assert front == {*points} - beaten
    assert front == {(mark.loss, *mark.values) for mark in front_of([(*one, k) for k, one in enumerate(points)]).marks}


@given(marks, number, number)
def test_the_best_at_limits_is_the_best_of_all_checkpoints_that_keep_them(points, one, other):
    known = [loss for loss, a, b in points if a <= one and b <= other]
    assert front_of([(*point, k) for k, point in enumerate(points)]).best((one, other)) == min(known, default=math.inf)


def tracked(points, *metrics):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [*metrics], sampler=fw.Random(), seed=0)
    for point in points:
        study.tell(study.ask(), dict(zip(study.problem.metrics, point, strict=True)))
    return study


def test_aims_lie_between_the_ends_of_the_front_on_every_tracked_metric():
    points = [(0.9, 30.0, 0.5), (0.8, 20.0, 0.6), (0.7, 10.0, 0.7), (0.6, 25.0, 0.1)]
    study = tracked(points, fw.Track("ms"), fw.Track("recall", larger=True))
    aims = [next_aim(study.history, np.random.default_rng(k)) for k in range(200)]
    assert all(10.0 <= aim["ms"] <= 30.0 and 0.5 <= aim["recall"] <= 0.7 for aim in aims if aim)
    assert 0 < aims.count({}) < 60
    assert len({aim["ms"] for aim in aims if aim}) > 50


def test_aims_are_drawn_where_a_checkpoint_could_add_most():
    study = tracked([(0.90, 100.0), (0.89, 99.0), (0.50, 0.0)], fw.Track("ms"))
    aims = [next_aim(study.history, np.random.default_rng(k)).get("ms", 0.0) for k in range(100)]
    assert sum(ms < 99.0 for ms in aims) > 90


def test_there_is_no_aim_before_there_is_a_front():
    assert next_aim(tracked([], fw.Track("ms")).history, np.random.default_rng(0)) == {}
    assert next_aim(tracked([(0.9, 5.0), (0.8, 6.0)], fw.Track("ms")).history, np.random.default_rng(1)) == {}
