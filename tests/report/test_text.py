"""Numbers and durations as people say them."""

from __future__ import annotations

import pytest

from fairway.text import duration, number


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
