"""Where a user's code raised, in few and harmless letters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.runners.evaluate import traced


def error_of(file: str, source: str) -> BaseException:
    try:
        exec(compile(source, file, "exec"), {})
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_no_name_of_a_file_moves_a_cursor_or_begins_a_line(file):
    error = error_of(f"{file}.py", "1 / 0")
    assert len(traced(error).splitlines()) == 2  # of this file, and of that one
    assert all(line.isprintable() for line in traced(error).split("\n"))


def test_a_deep_recursion_is_told_in_its_last_lines():
    error = error_of("deep.py", "def f(n):\n    return 1 / n + f(n - 1)\nf(500)")
    lines = traced(error).splitlines()
    assert lines == ["deep.py, line 2, in f"] * 8


def test_a_long_line_is_cut():
    assert len(traced(error_of("x" * 5000, "1 / 0")).splitlines()[-1]) == 300
