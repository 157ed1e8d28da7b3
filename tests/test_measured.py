from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw

FINITE = st.floats(-1e6, 1e6)
ERRORS = st.floats(0, 1e6)
CONFIDENCES = st.floats(0.001, 0.999)


def twice(confidence):
    return 2 * confidence


def test_a_measured_value_is_a_number():
    gap = fw.Measured(0.08, error=0.01, rows=2000)
    assert gap == 0.08
    assert gap < 0.1
    assert type(gap + 1) is type(round(gap, 1)) is float
    assert (gap.error, gap.rows) == (0.01, 2000)
    assert repr(gap) == "Measured(0.08, error=0.01)"
    assert f"{gap:.3f}" == "0.080"


@given(value=FINITE, error=ERRORS, confidences=st.tuples(CONFIDENCES, CONFIDENCES))
def test_without_bounds_of_its_own_they_are_normal_and_grow_with_the_confidence(value, error, confidences):
    measured = fw.Measured(value, error)
    less, more = sorted(confidences)
    assert measured.upper(less) <= measured.upper(more)
    assert measured.lower(less) >= measured.lower(more)
    assert measured.upper(0.5) == measured.lower(0.5) == value
    assert measured.upper(0.95) - value == pytest.approx(1.6448536 * error, rel=1e-6, abs=1e-9 * abs(value))


@given(value=FINITE, error=st.floats(0, 1e3), factor=st.floats(1e-3, 1e3))
def test_in_another_unit_it_keeps_its_error_and_its_bounds(value, error, factor):
    measured = fw.Measured(value, error, rows=7, upper=twice)
    for scaled in (factor * measured, measured * factor, measured / (1 / factor)):
        assert (float(scaled), scaled.error) == (pytest.approx(factor * value), pytest.approx(factor * error))
        assert scaled.upper(0.75) == pytest.approx(1.5 * factor)
        assert scaled.lower(0.75) == pytest.approx(factor * measured.lower(0.75))
        assert scaled.rows == 7
    assert type(-1 * measured) is type(measured * measured) is type(0 * measured) is float


def test_bounds_of_its_own_are_asked():
    measured = fw.Measured(0.5, 0.1, upper=twice, lower=math.sqrt)
    assert (measured.upper(0.9), measured.lower(0.25)) == (1.8, 0.5)


@given(value=FINITE, error=ERRORS, rows=st.none() | st.integers(1, 10**9))
def test_pickling_keeps_everything(value, error, rows):
    measured = fw.Measured(value, error, rows=rows, upper=twice)
    again = pickle.loads(pickle.dumps(measured))
    assert (type(again), again, again.error, again.rows) == (fw.Measured, value, error, rows)
    assert again.upper(0.75) == 1.5
    assert again.lower(0.75) == measured.lower(0.75)


def test_an_undefined_value_has_an_undefined_error():
    undefined = fw.Measured(math.nan, math.nan)
    assert math.isnan(undefined.upper(0.9))
    assert math.isnan(undefined.lower(0.9))


def test_numbers_of_numpy_become_plain_ones():
    measured = fw.Measured(np.float32(0.5), np.float64(0.25), rows=np.int64(3))
    assert (type(measured.error), type(measured.rows)) == (float, int)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: fw.Measured("0.1", 0.1), r"Measured\('0.1'\): a number is expected"),
        (lambda: fw.Measured(True, 0.1), r"Measured\(True\): a number is expected"),
        (lambda: fw.Measured(0.1, -0.1), r"Measured\(0.1, error=-0.1\): a finite number of at least 0 is expected"),
        (lambda: fw.Measured(0.1, math.nan), "error=nan"),
        (lambda: fw.Measured(0.1, math.inf), "error=inf"),
        (lambda: fw.Measured(math.nan, math.inf), "error=inf"),
        (lambda: fw.Measured(0.1, "small"), "error='small'"),
        (lambda: fw.Measured(0.1, 0.1, rows=0), "rows=0: a whole number of at least 1"),
        (lambda: fw.Measured(0.1, 0.1, upper=0.3), "Measured: upper=0.3: a function of the confidence is expected"),
        (lambda: fw.Measured(0.1, 0.1, lower="0"), "Measured: lower='0': a function of the confidence is expected"),
        (lambda: fw.Measured(0.1, 0.1).upper(95), "confidence=95: a fraction .*; did you mean 0.95?"),
        (lambda: fw.Measured(0.1, 0.1).lower(1.0), "confidence=1.0: a fraction between 0 and 1"),
        (lambda: fw.Measured(0.1, 0.1, upper=twice).upper(95), "confidence=95: a fraction .*; did you mean 0.95?"),
        (lambda: fw.Measured(0.1, 0.1, lower=twice).lower(0), "confidence=0: a fraction between 0 and 1"),
    ],
)
def test_what_is_no_measurement_is_refused(make, says):
    with pytest.raises(fw.UsageError, match=says):
        make()
