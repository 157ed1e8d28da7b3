from __future__ import annotations

import pytest

import fairway as fw


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fw.Problem(fw.Maximize("a"), [fw.AtMost("a", 1.0)]), "two metrics are named 'a'"),
        (
            lambda: fw.Problem(fw.Maximize("a"), [fw.AtMost("b", 1.0), fw.AtLeast("b", 0.0)]),
            "two metrics are named 'b'",
        ),
        (lambda: fw.Problem("auc"), r"Minimize\('metric'\) or Maximize\('metric'\) is expected"),
        (lambda: fw.Problem(fw.Maximize("a"), ["eod"]), r"AtMost\('metric', limit\)"),
        (lambda: fw.Maximize(""), "the name of a metric"),
        (lambda: fw.AtMost("b", float("nan")), "a finite threshold"),
        (lambda: fw.AtMost("b", "0.25"), "a finite threshold"),
        (lambda: fw.AtMost("b", 0.25, scale=0.0), "a positive number"),
        (lambda: fw.AtMost("b", 0.25, scale="1"), "a positive number"),
        (lambda: fw.AtMost("b", 10**400), "a finite threshold"),
        (
            lambda: fw.AtMost("b", 0.25, cost=0.0),
            r"AtMost\('b'\): cost=0.0: a positive, finite number",
        ),
        (lambda: fw.AtMost("b", 0.25, cost="5"), "cost='5': a positive, finite number of training steps"),
        (lambda: fw.AtMost("b", 0.25, cost=float("inf")), "cost=inf: a positive, finite number of training steps"),
        (lambda: fw.AtMost("b", 0.25, cost=True), "cost=True: a positive, finite number of training steps"),
        (lambda: fw.AtMost("step", 1.0), "the name is reserved"),
        (lambda: fw.Maximize("failed"), "the name is reserved"),
        (lambda: fw.Problem([fw.Maximize("a"), fw.Maximize("b")]), "is expected; of further metrics give limits"),
        (lambda: fw.Problem(fw.Maximize("a"), None), "a list of AtMost"),
        (lambda: fw.Problem(fw.Maximize("a"), 5), "a list of AtMost"),
    ],
)
def test_a_bad_problem_gets_one_clear_sentence(make, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        make()


def test_one_constraint_needs_no_list():
    assert fw.Problem(fw.Maximize("a"), fw.AtMost("b", 1.0)).metrics == ("a", "b")


def test_problems_print_compare_and_hash():
    one, other = (fw.Problem(fw.Maximize("a"), [fw.AtMost("b", 1.0)]) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert "AtMost(metric='b', threshold=1.0" in repr(one)
