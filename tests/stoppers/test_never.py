from __future__ import annotations

import pytest
from hypothesis import given

import fairway as fw
from tests.stoppers.free import curves, free_study, run


@given(curves)
def test_never_never_stops(curves):
    assert not any(any(trial) for trial in run(free_study(fw.Never()), curves))


def test_a_bad_configuration_gets_one_clear_sentence():
    with pytest.raises(fw.UsageError, match=r"interval=1\.5"):
        fw.Never(interval=1.5)
