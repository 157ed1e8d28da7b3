"""The replay of automatic termination: when it looks, and where it says that a search would have ended."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from bench.papers import termination
from bench.papers.termination_runs import START, Replay

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


def make_replay(loss, folds=(-0.1, 0.0, 0.1)):
    """A search whose test errors are its losses, and whose evaluations take a second each from row `START` on."""
    reported = iter([each + np.asarray(folds) * k for k, each in enumerate(loss)])  # ever noisier
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("error"), sampler=fw.Random(), seed=0)
    study.optimize(lambda trial: fw.Folds(next(reported)), trials=len(loss))
    rows = np.arange(len(loss))
    nothing = np.full(len(loss), np.nan)
    test, seconds = np.minimum.accumulate(loss), np.cumsum(rows >= START, dtype=float)
    return Replay("RF", "some", 0, study.history, test, seconds, nothing, nothing, nothing)


def test_a_stop_after_the_20th_evaluation_saves_all_the_time_that_counts():
    replay = make_replay(np.linspace(2.0, 1.0, 60))
    ryc, rtc = replay.scores(START - 1)
    assert rtc == 1.0
    assert ryc < 0.0
    assert replay.scores(59) == (0.0, 0.0)


def test_the_authors_code_keeps_the_noise_of_the_incumbent_before_its_first_bound():
    replay = make_replay(np.linspace(2.0, 1.0, 60))
    kept, own = replay.history.noise[START - 1], replay.history.noise[START + 10]
    bound = np.full(60, np.nan)
    bound[START + 10] = (kept + own) / 2
    assert termination._by_noise(replay, bound, 1.0) == START + 10
    assert termination._by_noise(replay, bound, 1.0, fixed=True) == 59


def test_a_few_large_losses_show_beside_a_median_of_nothing():
    scores = np.array([[0.0, 0.5]] * 8 + [[-0.5, 1.0], [-0.04, 0.1]])
    cells = dict(zip(termination.COLUMNS[:3], termination._cells(scores), strict=False))
    assert cells == {"RYC": "-0.0540", "its median": "+0.0000", "lost over 5%": "10%"}
