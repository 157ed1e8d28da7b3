from __future__ import annotations

import numpy as np
import pytest

import fairway as fw
from fairway import feasibility
from tests.conftest import run_curves


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
