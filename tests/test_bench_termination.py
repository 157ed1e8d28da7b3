"""The replay of automatic termination: when it looks, and where it says that a search would have ended."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from bench.papers import termination

import fairway as fw


def test_a_replay_looks_when_a_study_asks():
    ends = fw.RegretBound(1e-9, start=95)
    study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Random(), terminator=ends, seed=0)
    study.optimize(lambda trial: 1.0 + trial.params["x"] ** 2, trials=112)
    asked = [finished - 1 for finished, verdict in study.verdicts if not np.isnan(verdict.value)]
    assert termination.looks(ends, 112) == asked
    assert asked[:6] == [94, 95, 96, 97, 98, 99]
    assert asked[6] == 101


def test_a_coarser_look_is_never_finer_than_the_study():
    ends = fw.RegretBound("cv")
    assert termination.looks(ends, 100, 20) == [19, 39, 59, 79, 99]
    rows = termination.looks(ends, 900, 2)
    assert all(b - a >= ends.pause(a + 1) for a, b in pairwise(rows))
