"""A study looked at through its small events is the study."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine import snapshot
from fairway.engine.course import Course
from fairway.engine.ledger import Ledger
from fairway.history import History
from fairway.report.charts.curves import one_curve
from fairway.report.view import Curve, View
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush, run_curves

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


class Story(NamedTuple):
    """What happens to one trial: what it reports at each step, and how it ends."""

    curve: list[tuple[float, float, float]]  # auc, eod and ms of each step, or of each fold
    by_fold: bool
    ending: str


stories = st.builds(
    Story,
    st.lists(st.tuples(aucs, aucs, aucs), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from(["told", "told", "failed", "timeout", "running"]),
)


def live_through(study, story):
    """Run one trial, checks offered as callables; it may be stopped on the way."""
    trial = study.ask()
    n = len(story.curve)
    for step in trial.steps(n):
        auc, eod, ms = story.curve[step - 1]
        if story.by_fold:
            auc = fw.Folds([auc for auc, _, _ in story.curve[:step]], of=n)
        trial.report(auc=auc, eod=lambda eod=eod: eod, ms=lambda ms=ms: ms)
        if step == n - 1 and story.ending != "told":
            break
    if story.ending == "failed":
        study.tell(trial, failed="out of memory")
    elif story.ending == "timeout":
        study.owner.close(trial, "stopped", "the timeout of 1 s has passed")
    elif story.ending == "told":
        study.tell(trial)


@given(st.lists(stories, max_size=12), stoppers, st.integers(0, 12))
def test_a_view_equals_a_full_fold_of_the_log(told, stopper, looked):
    limits = [fw.AtMost("eod", 0.5), fw.AtLeast("ms", 0.3)]
    study = fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=stopper, terminator=fw.Plateau(3), seed=0)
    view = View(study)
    for i, story in enumerate(told):
        live_through(study, story)
        if i == looked:  # an update in the middle ends in the same place
            study.owner.journal.flush()
            view.update()
    flush(study)
    view.update()
    whole = Ledger(view.space, view.problem, study.seed)
    for event in study.log.read():
        whole.replay(event)
    for found in (view.ledger, View(study).ledger):
        for name in ("counts", "last_stop", "last_failure", "best_ignoring_limits", "train_saved_ns", "verdicts"):
            np.testing.assert_equal(getattr(found, name), getattr(whole, name), name)
        for one, other in zip(found.courses, whole.courses, strict=True):
            ended = {"stop_reason", "last_step"} if other.status != "running" else set()  # of no use after its end
            for name in set(Course.__slots__) - ended:
                np.testing.assert_equal(getattr(one, name), getattr(other, name), name)
        mine, theirs = found.history(), whole.history()
        for field in fields(History):
            if field.name not in ("space", "problem", "means", "derived"):
                np.testing.assert_array_equal(getattr(mine, field.name), getattr(theirs, field.name), field.name)
    assert view.trials == [whole.record(number) for number in range(len(whole.courses))] == study.trials
    assert (view.best and (view.best.number, view.best.step)) == (study.best and (study.best.number, study.best.step))
    np.testing.assert_array_equal(view.ledger.history().loss, study.history.loss)


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


def test_a_curve_has_the_errors_of_its_values():
    limits = [fw.AtMost("eod", 0.25, confidence=0.9), fw.AtMost("ms", 9.0)]
    study = fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.Never(interval=1, skip=False), seed=0)
    trial = study.ask()
    for _ in trial.steps(2):
        trial.report(auc=0.5, eod=fw.Measured(0.24, error=0.02), ms=8.0)
    study.tell(trial)
    (curve,) = View(study).curves([0]).values()
    np.testing.assert_allclose(curve.errors, [[0.02, np.nan]] * 2)
    assert curve.stratum.tolist() == [2, 2]  # its bound is beyond
    (chart,) = one_curve(View(study), 0)
    stands = [mark for panel in chart.panels for mark in panel.marks if getattr(mark, "name", "") == "best checkpoint"]
    assert [mark.error for mark in stands] == [None, pytest.approx(0.02), None]
    assert stands[1].hover == ["step 1\neod 0.240 ± 0.020"]


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
    thin = Curve(rows, rows * 1.0, rows.reshape(-1, 1) * 1.0, stratum, rows * 1.0, rows.reshape(-1, 1) * 0.1).thinned(
        most
    )
    assert len(thin.step) <= most
    assert (thin.step[0], thin.step[-1]) == (0, n - 1)
    assert (np.diff(thin.step) > 0).all()
    assert (stratum[thin.step] == thin.stratum).all()


def test_a_view_of_a_database_knows_what_running_trials_have_reported(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url, name="credit", seed=0)
    study.tell(study.ask(), auc=0.5, eod=0.1)
    view, trial = View.read(url, "credit"), study.ask()
    for step in trial.steps(10):
        trial.report(auc=0.5 + step / 10, eod=0.1)
        if step == 3:
            break
    study.owner.journal.flush()
    assert view.update()
    assert view.trials == View.read(url, "credit").trials == study.trials
    assert (view.best.number, view.best.step, view.counts["running"]) == (1, 3, 1)
    assert not view.update()
    study.tell(trial)
    assert view.update()
    assert view.trials == study.trials


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


def test_pictures_drawn_at_the_same_time_show_the_same_trials(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0, storage=url)
    for k in range(400):
        study.tell(study.ask(), auc=0.5, eod=0.1)
        if k == 300:
            owner = study.owner
            assert snapshot.keep(study.log, owner.journal.position, owner.ledger, owner.referee)
    view, start = View.read(url, "study"), threading.Barrier(8)

    def numbers(still):
        start.wait()
        return still.ledger.history().number.tolist()

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(numbers, [view.still() for _ in range(8)]):
            assert found == [*range(400)]


def test_what_is_no_study_says_so():
    with pytest.raises(fw.StorageError, match="'study' is empty: nobody has opened it yet"):
        View(MemoryLog())
    study = fw.Study(SPACE, fw.Minimize("loss"), seed=0)
    with pytest.raises(fw.UsageError, match="has no trial 3; it has 0"):
        View(study).curves([3])
