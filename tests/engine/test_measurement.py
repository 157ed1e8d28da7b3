"""From what a user passes to numbers."""

from __future__ import annotations

import numpy as np
import pytest

import fairway as fw
from fairway.engine.measurement import Observation, Spread, is_broken, joined, number

PROBLEM = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25), fw.AtLeast("gain", 0.1)])


@pytest.mark.parametrize("given", [0.5, 1, True, np.float32(0.5), np.array(0.5), fw.Folds([0.4, 0.6])])
def test_whatever_can_be_a_float_is_one(given):
    assert isinstance(number(PROBLEM, "auc", given), float)


@pytest.mark.parametrize("given", ["0.5", b"1", None, [0.1, 0.2], {}, object()])
def test_what_is_no_number_is_refused_with_its_name(given):
    with pytest.raises(fw.UsageError, match=r"metric 'auc' is .*: a number is expected"):
        number(PROBLEM, "auc", given)


def test_metrics_come_by_name_and_once():
    assert joined(PROBLEM, {"auc": 1.0}, {"eod": 0.1}) == {"auc": 1.0, "eod": 0.1}
    with pytest.raises(fw.UsageError, match="'auc' came twice"):
        joined(PROBLEM, {"auc": 1.0}, {"auc": 1.0})
    with pytest.raises(fw.UsageError, match=r"given by name, as in auc=0\.8"):
        joined(PROBLEM, 0.8, {})


def test_only_values_are_known_to_break_a_limit():
    assert is_broken(PROBLEM, {"eod": 0.3})
    assert is_broken(PROBLEM, {"gain": 0.0, "eod": lambda: 0.9})
    assert not is_broken(PROBLEM, {"eod": lambda: 0.9, "gain": 0.2})


def test_the_mean_of_some_folds_is_provisional():
    assert Observation(1, 0.5, -0.5, (), (), 0.0, 1, last=False, spread=Spread(0.1, 2, 5)).provisional
    assert not Observation(1, 0.5, -0.5, (), (), 0.0, 1, last=False, spread=Spread(0.1, 5, 5)).provisional
