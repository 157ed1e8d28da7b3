"""Rows on their way to the log."""

from __future__ import annotations

import pytest

import fairway as fw
from fairway.engine.batch import Batch, drained
from fairway.engine.events import SAVED
from fairway.engine.measurement import Observation, Spread
from fairway.engine.pace import Pace
from fairway.engine.referee import Referee


@pytest.fixture
def referee():
    return Referee(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]), fw.Never(), worker=3)


def observed(step, *, last=False, spread=None, payment=None, value=None):
    price = SAVED if value is None else 5
    return Observation(step, 0.5, -0.5, (value,), (price,), None, 7, last, spread, payment)


def test_rows_become_columns_and_say_who_ruled_on_them(referee):
    batch = Batch(4, referee, now=0)
    batch.begin(Pace(10, 2, at_end=False))
    assert batch.event() is None
    for step in (1, 2):
        referee.acts += 1
        batch.add(observed(step, value=None if step == 1 else 0.1, payment=None if step == 1 else (9, 5)))
    event = batch.event()
    assert (event.number, event.worker, event.total, event.interval) == (4, 3, 10, 2)
    assert event.acts.tolist() == [1, 2]
    assert event.step.tolist() == [1, 2]
    assert event.check_ns.tolist() == [[SAVED], [5]]
    assert event.payments.tolist() == [[1, 9, 5]]
    assert (event.over, event.stop_reason) == (False, None)


def test_folds_and_the_last_step_are_kept(referee):
    batch = Batch(0, referee, now=0)
    batch.add(observed(1, spread=Spread(0.1, 2, 5)))
    batch.add(observed(2, last=True))
    event = batch.event()
    assert event.noise.tolist() == [[0.0, 0.1, 2.0, 5.0]]
    assert event.provisional.tolist() == [True, False]
    assert event.over


def test_what_was_written_is_forgotten_and_the_rest_is_kept(referee):
    full, empty = Batch(0, referee, now=0), Batch(1, referee, now=0)
    full.add(observed(1))
    with drained([full, empty], now=99) as events:
        assert [event.number for event in events] == [0]
    assert full.event() is None
    assert (full.drained_ns, empty.drained_ns) == (99, 99)


def test_rows_that_could_not_be_written_stay(referee):
    batch = Batch(0, referee, now=0)
    batch.add(observed(1))
    with pytest.raises(OSError, match="full"), drained([batch], now=1):
        raise OSError("the disk is full")
    assert batch.event().step.tolist() == [1]
