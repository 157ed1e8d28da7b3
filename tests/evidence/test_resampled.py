from __future__ import annotations

import numpy as np

import fairway as fw
from fairway.evidence import Resampled


def test_resamples_that_are_all_the_same_and_a_handful_of_rows_are_no_evidence():
    limit = fw.AtMost("error", 0.1)
    never = Resampled(np.mean, np.zeros(500))
    assert never.p_value(limit) == 1.0
    assert never.bound(limit, 0.95) == np.inf
    few = Resampled(np.mean, np.arange(10) / 1000)
    assert few.p_value(limit) == few.least_p(limit) == 1.0
