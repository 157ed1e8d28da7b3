"""When constraints are paid for: what the trial asks live, and the auditor again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.measurement import Report
from fairway.engine.pace import Pace
from fairway.engine.referee import Referee
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


class Asked:
    """A referee whose stopper agrees or not, and notes whether it was asked."""

    def __init__(self, *, agrees=True, bar=1.0, priced=True):
        self.referee, self.times = Referee(fw.Problem(fw.Minimize("loss"), [fw.AtMost("eod", 0.1)]), fw.Never()), 0
        self.referee.bar, self.referee.check_rounds, self.referee.state.due = bar, int(priced), self.due
        self.agrees = agrees

    def due(self, *_):
        self.times += 1
        return self.agrees


@pytest.mark.parametrize(
    ("pace", "allowed"), [(EVERY, range(1, 11)), (FOURTH, (4, 8)), (END, ()), (Pace(None, None, at_end=True), ())]
)
def test_a_pace_allows_checks_at_the_multiples_of_the_interval_or_at_the_end_alone(pace, allowed):
    assert [step for step in range(1, 11) if pace.allows(step, last=False)] == list(allowed)
    assert pace.allows(7, last=True)


@given(paces, reports, st.floats(-1, 1), st.booleans(), st.booleans())
def test_nothing_is_paid_that_was_not_offered_or_cannot_be_the_best_or_is_known_to_be_broken(
    pace, report, bar, agrees, priced
):
    asked = Asked(agrees=agrees, bar=bar, priced=priced)
    paid = asked.referee.pays(0, pace, report)
    possible = report.lazy and report.loss <= bar and not (report.broken and priced)
    if not possible or not pace.allows(report.step, last=report.last):
        assert (paid, asked.times) == (False, 0)
    elif pace.at_end:
        assert (paid, asked.times) == (True, 0)  # the stopper is not asked where the only check is at the end
    else:
        assert (paid, asked.times) == (agrees, 1)


def test_the_first_price_is_learned_even_where_a_limit_is_broken():
    broken = Report(1, 0.0, 0.0, {}, None, 1, lazy=True, broken=True, last=False)
    assert Asked(priced=False).referee.pays(0, EVERY, broken)
    assert not Asked(priced=True).referee.pays(0, EVERY, broken)


@pytest.mark.parametrize("stopper", [fw.Pilot(), fw.ACE(interval=3), fw.ACE(interval="end"), fw.Never(skip=False)])
def test_the_auditor_finds_a_payment_that_the_rule_does_not_allow(make_study, stopper, monkeypatch):
    study = make_study(stopper)
    run_curves(study, [[(0.4 + step / 50, {"eod": 0.1}) for step in range(8)] for _ in range(5)])
    assert verify(study.log.read()).faults == []
    monkeypatch.setattr(Referee, "pays", lambda *_: False)
    assert any("need not have been" in fault for fault in verify(study.log.read()).faults)
