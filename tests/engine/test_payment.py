"""The one rule for paying: what the trial asks live, and the auditor again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.measurement import Report
from fairway.engine.payment import Pace, is_due, pays
from fairway.engine.verify import verify
from tests.conftest import run_curves

EVERY, FOURTH, END = Pace(10, 1, at_end=False), Pace(10, 4, at_end=False), Pace(10, 10, at_end=True)
reports = st.builds(
    Report,
    step=st.integers(1, 10),
    objective=st.just(0.5),
    loss=st.floats(-1, 1),
    offers=st.just({}),
    checkpoint=st.none(),
    train_ns=st.just(1),
    lazy=st.booleans(),
    broken=st.booleans(),
    last=st.booleans(),
)
paces = st.sampled_from([EVERY, FOURTH, END, Pace(None, None, at_end=True), Pace(None, 1, at_end=False)])


@pytest.mark.parametrize(
    ("pace", "due"), [(EVERY, range(1, 11)), (FOURTH, (4, 8)), (END, ()), (Pace(None, None, at_end=True), ())]
)
def test_a_check_is_due_at_the_multiples_of_the_interval_or_at_the_end_alone(pace, due):
    assert [step for step in range(1, 11) if is_due(pace, step, last=False)] == list(due)
    assert is_due(pace, 7, last=True)


@given(paces, reports, st.floats(-1, 1), st.booleans(), st.booleans())
def test_nothing_is_paid_that_was_not_offered_or_cannot_be_the_best_or_is_known_to_be_broken(
    pace, report, bar, agreed, priced
):
    paid = pays(pace, bar, report, agreed=agreed, priced=priced)
    if (
        not report.lazy
        or report.loss > bar
        or report.broken
        and priced
        or not is_due(pace, report.step, last=report.last)
    ):
        assert not paid
    elif pace.at_end:
        assert paid  # the stopper is not asked where the only check is at the end
    else:
        assert paid == agreed


def test_the_first_price_is_learned_even_where_a_limit_is_broken():
    broken = Report(1, 0.0, 0.0, {}, None, 1, lazy=True, broken=True, last=False)
    assert pays(EVERY, math.inf, broken, agreed=True, priced=False)
    assert not pays(EVERY, math.inf, broken, agreed=True, priced=True)


@pytest.mark.parametrize("stopper", [fw.Pilot(), fw.ACE(interval=3), fw.ACE(interval="end"), fw.Never(skip=False)])
def test_the_auditor_finds_a_payment_that_the_rule_does_not_allow(make_study, stopper, monkeypatch):
    study = make_study(stopper)
    run_curves(study, [[(0.4 + step / 50, {"eod": 0.1}) for step in range(8)] for _ in range(5)])
    assert verify(study.log.read()).faults == []
    monkeypatch.setattr("fairway.engine.payment.pays", lambda *_, **__: False)
    assert any("need not have been" in fault for fault in verify(study.log.read()).faults)
