from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway import feasibility
from fairway.history import COLUMNS
from tests.conftest import SPACE, flush, run_curves


def test_rows_say_failed_infeasible_and_unknown_apart(make_study):
    study = make_study(fw.Never(interval="end"))
    run_curves(study, [[(0.9, {"eod": 0.1})], [(0.95, {"eod": 0.4})], [(0.5, {"eod": 0.4})]])
    study.tell(study.ask(), failed="out of memory")
    history = study.history
    assert history.feasible.tolist() == [True, False, False, False]
    assert history.infeasible.tolist() == [False, True, False, False]
    assert history.unknown.tolist() == [False, False, True, False]
    assert history.failed.tolist() == [False, False, False, True]
    assert history.order.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(history.values[:, 0], [0.1, 0.4, np.nan, np.nan])
    np.testing.assert_array_equal(history.loss, [-0.9, -0.95, -0.5, np.nan])


def test_a_snapshot_never_changes_and_cannot_be_written(make_study):
    study = make_study(fw.Never())
    snapshots = []
    for k in range(200):  # several growths of the buffers
        run_curves(study, [[(k / 200, {"eod": 0.1})]])
        snapshots.append((study.history, study.history.loss.copy(), study.history.x.copy()))
    for k, (history, loss, x) in enumerate(snapshots):
        assert len(history) == k + 1
        np.testing.assert_array_equal(history.loss, loss)
        np.testing.assert_array_equal(history.x, x)
    with pytest.raises(ValueError, match="read-only"):
        history.loss[0] = 1.0


def test_snapshots_share_their_buffers(make_study):
    study = make_study(fw.Never())
    run_curves(study, [[(0.5, {"eod": 0.1})]] * 3)
    assert np.shares_memory(study.history.x, study.history.x)


def test_running_trials_are_pending(make_study):
    study = make_study()
    trials = study.ask(3)
    assert study.history.pending.tolist() == [[trial.params["x"]] for trial in trials]
    study.tell(trials[1], auc=0.5, eod=0.1)
    assert study.history.pending.tolist() == [[trials[0].params["x"]], [trials[2].params["x"]]]
    assert study.history.x.tolist() == [[trials[1].params["x"]]]


CURVE = st.lists(st.tuples(st.integers(0, 8).map(lambda k: k / 8), st.sampled_from([0.1, 0.25, 0.4, None])), max_size=9)


class Seeing(fw.CTPE):
    """c-TPE that is always shown running trials."""

    def sees_running(self, history):
        return True


def report(trial, curve, since=0):
    for step, (auc, eod) in enumerate(curve, since + 1):
        trial.report({"auc": auc} if eod is None else {"auc": auc, "eod": eod}, step=step)


@given(st.lists(CURVE.filter(len), min_size=1, max_size=4), st.lists(CURVE, min_size=1, max_size=3), st.integers(0, 2))
def test_with_its_running_trials_a_snapshot_is_what_it_would_be_if_they_were_stopped_now(ended, running, flushed):
    """Whether or not their reports are in the log yet; trials without a report stay pending."""
    parts = SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]
    study = fw.Study(*parts, sampler=Seeing(), stopper=fw.Never(), seed=0)
    for curve in ended:
        trial = study.ask()
        report(trial, curve)
        study.tell(trial)
    trials = study.ask(len(running))
    for k, (trial, curve) in enumerate(zip(trials, running, strict=True)):
        half = len(curve) // 2
        report(trial, curve[:half])
        if k == flushed:
            flush(study)
        report(trial, curve[half:], since=half)
    found = study.history.with_running()
    silent = [trial for trial, curve in zip(trials, running, strict=True) if not curve]
    assert found.pending.tolist() == [[trial.params["x"]] for trial in silent]
    for trial, curve in zip(trials, running, strict=True):
        if curve:
            trial.driver.cut("stopped now")
            study.tell(trial)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(found, name), getattr(study.history, name), err_msg=name)
    assert found.order.tolist() == study.history.order.tolist()


def test_what_running_trials_have_reported_is_shown_to_samplers_that_ask_for_it(make_study):
    for sampler, shown in ((Seeing(), True), (fw.Blend(around=Seeing()), True), (fw.CTPE(), False)):
        study = make_study(sampler=sampler)
        study.ask().report(auc=0.5, eod=0.1)
        assert (study.history.running is not None) == shown
        assert len(study.history.with_running()) == shown


def test_trials_reported_fold_by_fold_are_not_shown_while_they_run(make_study):
    study = make_study(sampler=Seeing(), constraints=[])
    study.tell(study.ask(), auc=0.5)
    study.ask().report(auc=fw.Folds([0.5, 0.6], of=5))
    assert len(study.history.with_running()) == 1


@pytest.mark.parametrize(
    ("curve", "step", "feasible"),
    [
        ([(0.9, 0.4), (0.7, 0.1), (0.8, 0.2), (0.95, 0.3)], 3, True),  # the best feasible checkpoint
        ([(0.9, 0.4), (0.7, 0.3), (0.8, 0.5)], 2, False),  # else the least violating one
    ],
)
def test_the_row_of_a_trial_is_its_best_feasible_checkpoint_or_the_least_violating(make_study, curve, step, feasible):
    study = make_study(fw.Never(skip=False))
    run_curves(study, [[(auc, {"eod": eod}) for auc, eod in curve]])
    assert (study.trials[0].step, study.trials[0].feasible) == (step, feasible)


def test_the_row_of_a_trial_never_checked_is_its_best_by_objective(make_study):
    study = make_study(fw.Never())
    run_curves(study, [[(0.9, {"eod": 0.1})], [(0.3, {"eod": 0.1}), (0.5, {"eod": 0.1}), (0.4, {"eod": 0.1})]])
    record = study.trials[1]
    assert (record.step, record.feasible, record.metrics) == (2, None, {"auc": 0.5, "eod": None})


def test_a_stopped_trials_row_is_partial(make_study):
    study = make_study(fw.ACE(truncation=0.5), constraints=())
    run_curves(study, [[(0.9, {})] * 3] * 4 + [[(0.1, {})] * 3])
    assert study.history.partial.tolist() == [False] * 4 + [True]
    assert study.trials[4].partial


def test_with_several_limits_the_best_few_are_the_first_of_all():
    limits = [fw.AtMost("eod", 0.5), fw.AtMost("ms", 5.0)]
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), limits, sampler=fw.Random(), seed=0)
    rng = np.random.default_rng(0)
    for number in range(40):
        trial = study.ask()
        measured = {"eod": rng.random()} if number % 3 else {"eod": rng.random(), "ms": 10 * rng.random()}
        if number % 10 == 9:
            study.tell(trial, failed="broken")
        else:
            study.tell(trial, loss=rng.integers(5) / 5, **measured)
        history = study.history
        away = feasibility.distances(study.problem, history.bounds, history.violation)
        assert history.order.tolist() == feasibility.order(history.loss, away).tolist()
        assert history.top(3).tolist() == history.order[:3].tolist()
