from __future__ import annotations

import pytest

import fairway as fw
from tests.stoppers.free import free_study, run


def test_half_at_compares_once_and_only_after_enough_completed():
    study = free_study(fw.HalfAt(step=2, after=3))
    assert not any(any(trial) for trial in run(study, [[0.5, value, 0.5] for value in (0.9, 0.8, 0.1)]))
    assert run(study, [[0.9, 0.2, 0.9]]) == [[False, True]]
    assert "not in the better half of 4 at step 2" in study.trials[-1].reason
    assert run(study, [[0.1, 0.85, 0.1]]) == [[False, False, False]]


def test_a_bad_configuration_gets_one_clear_sentence():
    with pytest.raises(fw.UsageError, match="step=True"):
        fw.HalfAt(step=True)
