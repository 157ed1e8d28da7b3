"""Numbers and durations as people say them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.text import duration, goal, number, plus_minus, rounded


@pytest.mark.parametrize(
    ("value", "text"), [(0.87812, "0.8781"), (1e-9, "1e-09"), (12345.6, "12,346"), (1e20, "1e+20")]
)
def test_numbers(value, text):
    assert number(value) == text


def test_durations_never_say_sixty_seconds_as_ten_digits():
    assert [duration(s) for s in (0.0, 0.5, 9.96, 119.0, 121.0, 7300.0, 200_000.0)] == [
        "0 ms",
        "500 ms",
        "10 s",
        "119 s",
        "2 min",
        "2 h",
        "2.3 days",
    ]


@pytest.mark.parametrize(
    ("value", "error", "other", "text"),
    [
        (0.07123, 0.0119, None, "0.071 ± 0.012"),
        (0.07123, 0.00996, None, "0.071 ± 0.010"),
        (5123.0, 214.0, None, "5,123 ± 214"),
        (0.2504, 0.012, 0.25, "0.2504 ± 0.012"),  # or it would seem to be its limit
        (0.24985, 0.02, 0.2499, "0.2498 ± 0.020"),  # or it would seem to be beyond
        (0.0, 0.01, 0.1, "0 ± 0.010"),
        (12.5, 0.0, None, "12.5"),  # exact, such as a size
        (1e-9, 2e-10, None, "1e-09 ± 2e-10"),
        (float("nan"), float("nan"), 0.1, "nan"),
        (0.5, None, None, "0.5"),
    ],
)
def test_an_error_decides_the_digits_that_are_shown(value, error, other, text):
    assert plus_minus(value, error, other) == text


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.floats(-1e6, 1e6))
def test_a_rounded_number_never_changes_sides(value, error, limit):
    shown = float(rounded(value, error, limit).replace(",", ""))
    assert value == limit or (shown >= limit) == (value > limit) or shown == limit


def test_a_limit_names_its_confidence():
    limits = [fw.AtMost("eod", 0.1, confidence=0.9), fw.AtLeast("recall", 0.8, confidence=0.975), fw.AtMost("ms", 9)]
    problem = fw.Problem(fw.Maximize("auc"), limits)
    assert goal(problem) == "maximize auc with eod ≤ 0.1 at 90% and recall ≥ 0.8 at 97.5% and ms ≤ 9"
