"""Which candidates are tested, in which order: properties of the order, whatever was measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.certification import Certification, candidates, chance, safety
from fairway.engine.events import Asked, Sealed, Surveyed, Told
from fairway.feasibility import Checkpoint

PROBLEM = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.10)])
LEVEL = 0.05

rows = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.floats(0.5, 1.0), st.floats(0.0, 0.2), st.floats(0.001, 0.05)),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row[:2],
)


def log(measured, *, cuts=True):
    """A log in which trials 0 to 5 have ended and some of their checkpoints were measured after the search."""
    events = []
    for number in range(6):
        peak = Checkpoint(9, 0.5, (None,))
        events += [Asked(number, {}, 0.0, 0), Told(number, "completed", "", 1.0, 0, number, peak, peak)]
    for number, step, auc, eod, error in measured:
        events.append(Surveyed(number, [step], [auc], [[eod]], [[error]], cuts=cuts))
    return events


@given(rows, st.integers(1, 12))
def test_candidates_go_from_safe_to_bold_and_each_step_is_worth_its_risk(measured, at_most):
    found = candidates(PROBLEM, log(measured), at_most=at_most, level=LEVEL)
    assert 1 <= len(found) <= at_most
    safeties = [safety(PROBLEM, one.values, one.errors) for one in found]
    assert safeties == sorted(safeties, reverse=True)
    assert [one.objective for one in found] == sorted(one.objective for one in found)
    assert len({one[:2] for one in found}) == len(found)
    assert {one[:2] for one in found} <= {row[:2] for row in measured}


@given(rows)
def test_nothing_that_is_measured_is_both_better_and_safer_than_a_candidate(measured):
    everything = [(row[2], safety(PROBLEM, [row[3]], [row[4]])) for row in measured]
    for one in candidates(PROBLEM, log(measured), at_most=10, level=LEVEL):
        mine = (one.objective, safety(PROBLEM, one.values, one.errors))
        assert not any(auc > mine[0] and safe > mine[1] for auc, safe in everything)


@given(rows, st.randoms())
def test_the_order_does_not_depend_on_when_a_checkpoint_was_measured(measured, random):
    shuffled = random.sample(measured, len(measured))
    assert candidates(PROBLEM, log(measured), at_most=10, level=LEVEL) == candidates(
        PROBLEM, log(shuffled), at_most=10, level=LEVEL
    )


@given(rows)
def test_a_trial_whose_model_cannot_be_cut_back_gives_one_candidate(measured):
    found = candidates(PROBLEM, log(measured, cuts=False), at_most=10, level=LEVEL)
    assert len({one.number for one in found}) == len(found)


def test_what_is_hopeless_or_needlessly_safe_is_left_out():
    measured = [(0, 1, 0.6, 0.0, 0.001), (0, 2, 0.7, 0.01, 0.001), (0, 3, 0.8, 0.06, 0.01), (0, 4, 0.9, 0.11, 0.01)]
    found = candidates(PROBLEM, log(measured), at_most=10, level=LEVEL)
    assert [one.step for one in found] == [2, 3]


def test_failed_trials_are_no_candidates():
    events = log([(0, 1, 0.7, 0.05, 0.01)])
    events[1] = Told(0, "failed", "out of memory", 1.0, 0, 0)
    assert candidates(PROBLEM, events, at_most=10, level=LEVEL) == []


def test_safety_is_the_least_over_limits_and_exact_values_are_safe_or_not():
    problem = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.10), fw.AtMost("size", 50.0), fw.AtLeast("f1", 0.8)])
    assert safety(problem, [0.07, 20.0, 0.9], [0.01, 0.0, 0.02]) == pytest.approx(3.0)
    assert safety(problem, [0.07, 60.0, 0.9], [0.01, 0.0, 0.02]) == -math.inf
    assert safety(problem, [0.07, math.nan, 0.9], [0.01, 0.0, 0.02]) == -math.inf
    assert safety(problem, [0.07, 20.0, 0.9], [None, None, None]) == pytest.approx(1.25)  # a tenth of the unit


@given(st.floats(-5, 10), st.floats(0, 5))
def test_the_chance_grows_with_safety(value, more):
    assert 0.0 <= chance(value, LEVEL) <= chance(value + more, LEVEL) <= 1.0


def test_a_level_is_shared_by_the_uses_that_were_reserved():
    sealed = Sealed(0, [], 0.95, 4, 10, None, None, 0, 0.0)
    assert Certification(sealed).level == pytest.approx(0.0125)
