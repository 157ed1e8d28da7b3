from __future__ import annotations

import pytest

import fairway as fw
from tests.stoppers.free import free_study, run


def test_median_stops_what_is_behind_the_others_running_means():
    study = free_study(fw.Median(min_trials=3, grace=2))
    curves = [[0.2, 0.4, 0.6], [0.4, 0.6, 0.8], [0.6, 0.8, 1.0]]  # running means at step 2: 0.3, 0.5, 0.7
    assert not any(any(trial) for trial in run(study, curves))
    assert run(study, [[0.1, 0.49, 0.9]]) == [[False, True]]
    assert study.trials[-1].reason == "auc 0.49, behind the median of 3 at step 2"
    assert run(study, [[0.1, 0.51, 0.9]]) == [[False, False, False]]


def test_median_waits_for_enough_trials():
    study = free_study(fw.Median(min_trials=3))
    assert run(study, [[0.9, 0.9], [0.9, 0.9], [0.1, 0.1]])[-1] == [False, False]


def test_a_bad_configuration_gets_one_clear_sentence():
    with pytest.raises(fw.UsageError, match="min_trials=0"):
        fw.Median(min_trials=0)
