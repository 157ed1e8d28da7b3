from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.events import SAVED, Reported, Told
from fairway.engine.verify import verify
from tests.conftest import run_curves
from tests.engine.logs import acts_up_to, live, stoppers


@given(stoppers, acts_up_to(60), st.integers(1, 3))
def test_every_ruling_of_every_owner_can_be_made_again_from_the_log(stopper, acts, owners):
    log = list(live(stopper, acts, owners).log.read())
    result = verify(log)
    assert result.faults == []
    reports = [event for event in log if isinstance(event, Reported)]
    begun = len({(event.worker, event.number) for event in reports})
    rows = sum(len(event.step) + len(event.payments) for event in reports)
    assert result.rulings == begun + rows + sum(isinstance(event, Told) for event in log)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"verdict": None}, "trial 8, step 1: went on; ruled again: eod 0.9 > 0.25, worst 25% of 8 at step 1"),
        ({"verdict": "because"}, "trial 8, step 1: because; ruled again"),
        ({"interval": 4}, "trial 8 has interval 4 of 4 steps, which should be 1 of 4"),
        ({"objective": np.array([0.1])}, "constraints were paid for, and need not have been"),
        ({"payments": np.zeros((0, 3), np.int64)}, "constraints were paid for without a decision"),
        (
            {"check_ns": np.array([[SAVED]]), "payments": np.zeros((0, 3), np.int64)},
            "constraints were not paid for, and should have been",
        ),
    ],
)
def test_a_log_that_was_tampered_with_is_found_out(make_study, change, fault):
    study = make_study(fw.ACE(interval=1))
    run_curves(study, [[(0.5, {"eod": 0.1})] + [(0.5, {"eod": 0.3})] * 3] + [[(0.9, {"eod": 0.3})] * 4] * 7)
    run_curves(study, [[(0.9, {"eod": 0.9})] * 4, [(0.9, {"eod": 0.9})] * 4])
    log = list(study.log.read())
    assert verify(log).faults == []
    place = next(i for i, event in enumerate(log) if isinstance(event, Reported) and event.verdict)
    log[place] = replace(log[place], **change)
    assert any(fault in found for found in verify(log).faults)


def test_a_stopper_of_the_users_own_cannot_be_verified(make_study):
    class Mine(fw.ACE):
        pass

    study = make_study(Mine())
    with pytest.raises(fw.StorageError, match=r"a stopper of its own, .*\.Mine"):
        verify(study.log.read())
