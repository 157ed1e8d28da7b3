from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.course import Course, with_reports
from fairway.engine.events import ABSENT, SAVED, Reported
from fairway.problem import Problem

PROBLEM = Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.5), fw.AtMost("ms", 5.0)])
PRICE = st.sampled_from([ABSENT, SAVED, 0, 7])


def batch(rows: list[tuple[float, tuple[int, int], tuple[float, float]]], first: int) -> Reported:
    n = len(rows)
    return Reported(
        number=0,
        worker=0,
        seen=0,
        begun=1,
        begun_seen=0,
        total=100,
        interval=1,
        acts=np.arange(first, first + n),
        step=np.arange(first, first + n),
        objective=np.array([objective for objective, _, _ in rows]),
        values=np.array([values for _, _, values in rows]).reshape(n, 2),
        train_ns=np.full(n, 10),
        check_ns=np.array([prices for _, prices, _ in rows], np.int64).reshape(n, 2),
        payments=np.empty((0, 3), np.int64),
        noise=np.empty((0, 4)),
    )


ROW = st.tuples(
    st.floats(0.0, 1.0), st.tuples(PRICE, PRICE), st.tuples(st.floats(0.0, 1.0), st.sampled_from([1.0, 9.0, np.nan]))
)


@given(rows=st.lists(ROW, min_size=17, max_size=60, unique_by=lambda row: row[0]))
def test_a_long_batch_says_what_its_reports_say_one_by_one(rows):
    at_once = with_reports(PROBLEM, Course({}, 0, 0.0), batch(rows, 1))
    course = Course({}, 0, 0.0)
    for step, row in enumerate(rows, 1):
        for name, value in with_reports(PROBLEM, course, batch([row], step)).items():
            setattr(course, name, value)
    for name, value in at_once.items():
        np.testing.assert_equal(value, getattr(course, name), name)


def test_what_is_known_late_in_training_is_a_check_of_all_limits_if_there_was_one():
    """Not a report at which the broken limit was not measured: samplers would never hear of it."""
    rows = [(0.1 * step, (0, 7 if step == 6 else SAVED), (0.3, 9.0)) for step in range(1, 9)]
    assert with_reports(PROBLEM, Course({}, 0, 0.0), batch(rows, 1))["late"].values == (0.3, 9.0)
    rows[5] = (0.6, (0, SAVED), (0.3, 9.0))
    assert with_reports(PROBLEM, Course({}, 0, 0.0), batch(rows, 1))["late"].values == (0.3, None)
