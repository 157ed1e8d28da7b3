"""A limit with a confidence: the bound of each value, and not the value, is compared with it, everywhere."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway import feasibility
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import Reported
from fairway.engine.measurement import Observation
from fairway.engine.referee import Referee
from fairway.engine.verify import verify

LIMIT = fw.AtMost("eod", 0.10, confidence=0.9)


def study(constraint=LIMIT, **settings):
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [constraint], seed=0, **settings)


def reported(each, value, **named):
    trial = each.ask()
    trial.report(auc=value, **named)
    each.tell(trial)
    return each.trials[trial.number]


@pytest.mark.filterwarnings("ignore:eod is known to")
@given(st.floats(0, 0.2), st.floats(0, 0.1))
def test_a_checkpoint_is_feasible_when_its_bound_is_within_the_limit(value, error):
    record = reported(study(), 0.7, eod=fw.Measured(value, error=error))
    assert record.feasible == (value + 1.2815515655446004 * error <= 0.10)
    assert record.metrics["eod"] == value
    assert record.errors["eod"] == pytest.approx(error)


def test_a_lower_limit_subtracts_the_margin():
    limit = fw.AtLeast("recall", 0.9, confidence=0.9)
    assert reported(study(limit), 0.7, recall=fw.Measured(0.95, error=0.02)).feasible
    assert not reported(study(limit), 0.7, recall=fw.Measured(0.91, error=0.02)).feasible


def test_a_bound_of_its_own_decides():
    gap = fw.Measured(0.05, error=0.001, upper=lambda confidence: 0.05 + confidence / 10)
    record = reported(study(), 0.7, eod=gap)
    assert not record.feasible
    assert 0.05 + LIMIT.z * record.errors["eod"] == pytest.approx(0.14)


def test_without_a_confidence_the_value_decides_and_the_error_is_kept():
    record = reported(study(fw.AtMost("eod", 0.10)), 0.7, eod=fw.Measured(0.099, error=0.05))
    assert record.feasible
    assert record.errors == {"eod": 0.05}


@pytest.mark.parametrize("plain", [0.05, np.float64(0.05), 1])
def test_a_plain_number_under_a_confidence_is_refused_with_a_sentence(plain):
    with pytest.raises(fw.UsageError, match=r"has confidence=0\.9: return fw\.Measured\(value, error=\.\.\.\)"):
        reported(study(), 0.7, eod=plain)
    with pytest.raises(fw.UsageError, match="has confidence"):
        reported(study(), 0.7, eod=lambda: plain)


def test_nan_is_violated_whatever_the_confidence():
    assert reported(study(), 0.7, eod=fw.Measured(math.nan, math.nan)).feasible is False
    assert reported(study(), 0.7, eod=math.nan).feasible is False


def test_folds_bring_their_noise_as_the_error():
    folds = fw.Folds([0.05, 0.07, 0.06])
    record = reported(study(), 0.7, eod=folds)
    assert record.errors["eod"] == pytest.approx(folds.noise)
    assert record.feasible == (folds.mean + LIMIT.z * folds.noise <= 0.10)


@pytest.mark.parametrize("confidence", [95, 0.0, 1.0, 0.3, "high", math.nan])
def test_a_confidence_is_a_fraction_of_at_least_a_half(confidence):
    with pytest.raises(fw.UsageError, match="confidence"):
        fw.AtMost("eod", 0.1, confidence=confidence)


def test_where_no_value_could_pass_the_first_check_says_how_many_rows_it_takes():
    each = study()
    with pytest.warns(UserWarning, match=r"known to ± 0\.128 at 90% confidence.*about 329 rows, not 200,"):
        reported(each, 0.7, eod=lambda: fw.Measured(0.0, error=0.1, rows=200))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reported(each, 0.8, eod=lambda: fw.Measured(0.0, error=0.1, rows=200))


def test_values_that_are_told_are_warned_of_too_and_once():
    each = study()
    with pytest.warns(UserWarning, match="no model can pass on these rows"):
        reported(each, 0.7, eod=fw.Measured(0.0, error=0.1, rows=200))
    reported(each, 0.8, eod=fw.Measured(0.0, error=0.1, rows=200))


def test_one_fold_has_no_error_and_is_refused():
    with pytest.raises(fw.UsageError, match="is one fold, which has no error"):
        reported(study(), 0.7, eod=fw.Folds([0.05]))


def test_stopper_sampler_best_and_log_see_one_number(tmp_path):
    def train(trial):
        for step in trial.steps(8):
            gap = 0.05 + 0.1 * trial.params["x"] + 0.002 * step
            trial.report(auc=trial.params["x"] + step / 100, eod=lambda gap=gap: fw.Measured(gap, error=0.01))

    each = study(storage=f"sqlite:///{tmp_path}/study.db", stopper=fw.ACE())
    each.optimize(train, trials=60)
    best, history = each.best, each.history
    assert best.metrics["eod"] + LIMIT.z * best.errors["eod"] <= 0.10
    assert best.metrics["eod"] > 0.07  # it went as near as the margin allows
    np.testing.assert_array_equal(history.feasible, history.bounds[:, 0] <= 0.10)
    np.testing.assert_allclose(history.bounds, history.values + LIMIT.z * 0.01)
    events = each.log.read(0)
    assert not verify(events).faults
    for event in events:
        if isinstance(event, Reported):
            again = from_json(to_json(event))
            np.testing.assert_array_equal(again.error_table(), event.error_table())
    again = study(storage=f"sqlite:///{tmp_path}/study.db")
    assert again.best == best
    frame = again.to_frame()
    assert (frame["error.eod"].notna() == frame["metric.eod"].notna()).all()


def test_a_reason_says_the_bound_and_what_it_is_made_of():
    row = Observation(1, 0.7, -0.7, (0.09,), (1,), 0.28, 1, last=False, errors=(0.03,))
    reason = Referee(study().problem, fw.Never()).reason(row, "why")
    assert reason == "eod 0.1284 (0.09 + margin) > 0.1, why"


def test_a_bound_is_derived_in_one_place_for_numbers_and_columns():
    problem = fw.Problem(fw.Minimize("loss"), [LIMIT, fw.AtLeast("recall", 0.9), fw.AtLeast("f1", 0.9, confidence=0.8)])
    values, errors = np.array([[0.08, 0.95, 0.93]]), np.array([[0.01, np.nan, 0.02]])
    single = [feasibility.bound(*column) for column in zip(problem.constraints, values[0], errors[0], strict=True)]
    np.testing.assert_array_equal(feasibility.bounds(problem, values, errors)[0], single)
