"""A study looked at through its small events is the study."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.report.view import Curve, View
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, run_curves

aucs = st.floats(0, 1)
curves = st.lists(st.lists(st.tuples(aucs, st.fixed_dictionaries({"eod": aucs})), min_size=1, max_size=9), max_size=9)
stoppers = st.sampled_from([fw.Pilot(), fw.ACE(), fw.ACE(interval=1), fw.ACE(interval="end"), fw.Never(), fw.ASHA()])


@given(curves, stoppers)
def test_a_view_knows_what_the_study_knows(shown, stopper):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], stopper=stopper, seed=0)
    run_curves(study, shown)
    view = View(study)
    assert view.trials == study.trials
    assert view.counts == study.counts
    assert (view.best and (view.best.number, view.best.step)) == (study.best and (study.best.number, study.best.step))
    unlimited, found = study.best_ignoring_limits, view.ledger.best_ignoring_limits
    assert (found and (found[0], found[1].step)) == (unlimited and (unlimited.number, unlimited.step))
    costs = study.costs
    assert sum(course.checks for course in view.courses) == costs.checks
    assert sum(course.saved for course in view.courses) == costs.saved_checks
    assert sum(course.train_ns for course in view.courses) / 1e9 == pytest.approx(costs.training_seconds)
    assert view.ledger.train_saved_ns / 1e9 == pytest.approx(costs.saved_training_seconds)


@given(curves)
def test_a_curve_holds_every_report_and_its_stratum(shown):
    limits = [fw.AtMost("eod", 0.25)]
    study = fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.Never(interval=1, skip=False), seed=0)
    run_curves(study, shown)
    view = View(study)
    found = view.curves(range(len(view.trials)))
    assert len(found) == len(shown)
    for reported, curve in zip(shown, found.values(), strict=True):
        assert curve.objective.tolist() == [auc for auc, _ in reported]
        assert curve.stratum.tolist() == [1 if limit["eod"] <= 0.25 else 2 for _, limit in reported]
        assert (np.diff(curve.seconds) >= 0).all()


def test_a_check_paid_late_belongs_to_the_step_it_was_paid_for():
    limits = [fw.AtMost("eod", 0.25)]
    study = fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.ACE(interval="end"), seed=0)
    run_curves(study, [[(0.5, {"eod": 0.1}), (0.6, {"eod": 0.2}), (0.4, {"eod": 0.3})]])
    (curve,) = View(study).curves([0]).values()
    assert curve.step.tolist() == [1, 2, 3]
    paid = np.flatnonzero(curve.stratum)
    assert len(paid) == 1
    assert curve.step[paid[0]] == study.trials[0].step


def test_a_view_follows_a_study_that_goes_on():
    study = fw.Study(SPACE, fw.Minimize("loss"), seed=0)
    view = View(study)
    assert not view.update()
    study.tell(study.ask(), loss=0.5)
    assert view.update()
    assert [trial.metrics for trial in view.trials] == [{"loss": 0.5}]
    assert not view.update()


@given(st.integers(1, 300), st.integers(2, 60), st.data())
def test_a_thinned_curve_has_its_ends(n, most, data):
    stratum = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    rows = np.arange(n)
    thin = Curve(rows, rows * 1.0, rows.reshape(-1, 1) * 1.0, stratum, rows * 1.0).thinned(most)
    assert len(thin.step) <= most
    assert (thin.step[0], thin.step[-1]) == (0, n - 1)
    assert (np.diff(thin.step) > 0).all()
    assert (stratum[thin.step] == thin.stratum).all()


def test_a_still_view_stays_as_it_was():
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    study.tell(study.ask(), auc=0.5, eod=0.1)
    running = study.ask()
    view = View(study)
    still = view.still()
    before = still.trials, still.counts, len(still.ledger.history()), still.position
    study.tell(running, auc=0.9, eod=0.1)
    study.tell(study.ask(), auc=0.6, eod=0.1)
    assert view.update()
    assert (still.trials, still.counts, len(still.ledger.history()), still.position) == before
    assert (len(view.trials), view.best.number) == (3, 1)


def test_what_is_no_study_says_so():
    with pytest.raises(fw.StorageError, match="'study' is empty: nobody has opened it yet"):
        View(MemoryLog())
    study = fw.Study(SPACE, fw.Minimize("loss"), seed=0)
    with pytest.raises(fw.UsageError, match="has no trial 3; it has 0"):
        View(study).curves([3])
