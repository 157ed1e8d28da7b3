from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.derived import Derived
from fairway.engine.identity import build, plain
from fairway.report.view import View
from fairway.samplers.compass import (
    _capped,
    _continued,
    _improvement,
    _joins,
    _plausible,
    _rows,
    _WithProcesses,
)
from fairway.testing import check_sampler

SPACE = {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0), "kind": fw.Choice(["a", "b", "c"])}


def loss_of(params, step):
    hard = {"a": 0.3, "b": 0.0, "c": 0.1}[params["kind"]]
    return (params["x"] - 0.3) ** 2 + (params["y"] - 0.8) ** 2 + hard + 1.0 / step


def searched(sampler, trials, *, steps=32, seed=0, limits=(), stopper=None):
    study = fw.Study(SPACE, fw.Minimize("loss"), list(limits), sampler=sampler, stopper=stopper, seed=seed)

    def train(trial):
        for step in trial.steps(steps):
            trial.report(loss=loss_of(trial.params, step), **{each.metric: trial.params["x"] for each in limits})

    study.optimize(train, trials=trials, progress=False)
    return study


def test_it_conforms():
    check_sampler(fw.Compass())


def test_inside_a_blend_it_comes_back_from_json():
    blend = fw.Blend(around=fw.Compass(start=7))
    assert build(plain(blend)) == blend


def test_it_is_the_default():
    assert fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss")).sampler == fw.Compass()


@pytest.mark.parametrize("limits", [(), (fw.AtMost("x", 0.4),)], ids=["no limit", "a limit"])
def test_while_nothing_was_stopped_it_is_ctpe(limits):
    one, other = (searched(each, 25, steps=3, limits=limits, stopper=fw.Never()) for each in (fw.Compass(), fw.CTPE()))
    assert [trial.params for trial in one.trials] == [trial.params for trial in other.trials]


def test_after_100_cheap_trials_it_is_ctpe():
    study = searched(fw.CTPE(), 110, steps=8)
    short, long, rng = study.history.first(80), study.history.first(101), np.random.default_rng
    assert short.partial.any()
    assert (fw.Compass().propose(short, rng(0)) != fw.CTPE().propose(short, rng(0))).any()
    np.testing.assert_array_equal(fw.Compass().propose(long, rng(0)), fw.CTPE().propose(long, rng(0)))


def with_running(study):
    """The history that a sampler is shown if it asks for running trials."""
    return replace(study.history, running=study.owner.ledger.running_history(study.owner.journal.unwritten))


def test_it_tries_more_like_a_running_trial_that_is_ahead():
    """The mean distance of its proposals from that trial, if it sees what the trial has reported and if it does not."""
    seen, unseen = [], []
    for seed in range(10):
        study = searched(fw.CTPE(), 15, seed=seed)
        study.enqueue({"x": 0.9, "y": 0.1, "kind": "c"})  # far from the best of the others
        trial = study.ask()
        for step in range(1, 9):
            trial.report(loss=-1.0 + 1.0 / step, step=step)
        history = with_running(study)
        for each, apart in ((history, seen), (replace(history, running=None), unseen)):
            x = fw.Compass().propose(each, np.random.default_rng(seed))
            apart.append(abs(x[0] - 0.9) + abs(x[1] - 0.1))
    assert np.mean(seen) < 0.6 * np.mean(unseen)


def test_where_no_process_joins_it_asks_for_no_running_trials():
    history = searched(fw.CTPE(), 120, steps=8).history
    assert fw.Compass().sees_running(history.first(20))
    assert not fw.Compass().sees_running(history)  # cheap trials
    assert fw.Compass().sees_running(dear(history))


@pytest.mark.parametrize("moved", [16.0, -5.0])
def test_a_constant_added_to_all_losses_changes_nothing(moved):
    history = searched(fw.Random(), 30).history
    _, halfway = history.halfway.T
    other = replace(
        history,
        loss=history.loss + moved,
        lowest=history.lowest + moved,
        halfway=np.stack([history.halfway[:, 0], halfway + moved], axis=1),
        derived=Derived(),
    )
    points = np.random.default_rng(0).random((50, len(history.space)))
    np.testing.assert_allclose(_improvement(other)(points), _improvement(history)(points), rtol=1e-3, atol=1e-3)


def dear(history):
    """The history, if each trial had cost a second."""
    return replace(history, seconds=np.ones(len(history)))


def test_after_100_dear_trials_its_processes_make_every_other_proposal():
    history, rng = dear(searched(fw.CTPE(), 251, steps=8).history), np.random.default_rng
    for n, same in ((250, False), (251, True)):
        proposed = (sampler.propose(history.first(n), rng(0)) for sampler in (fw.Compass(), fw.CTPE()))
        assert np.array_equal(*proposed) == same


def test_of_many_trials_it_learns_from_the_best_trained_and_the_latest():
    history = searched(fw.CTPE(), 250, steps=8).history
    rows = _rows(history)
    assert len(rows) == 100
    assert history.best_first[0] in rows
    assert rows[-50:].tolist() == [*range(200, 250)]
    others = np.setdiff1d(np.arange(250), rows)
    assert history.reached[rows[:50]].mean() > history.reached[others].mean() + 1
    assert _rows(history.first(60)).tolist() == [*range(60)]


def test_no_process_joins_in_a_space_of_many_features():
    history = searched(fw.CTPE(), 20).history
    assert _joins(history)
    many = fw.Space({"kind": fw.Choice([f"option {i}" for i in range(100_000)])})
    assert not _joins(replace(history, space=many))


def test_beside_stopping_it_finds_better_trials_than_ctpe():
    """The best loss after 25 trials, without what training leaves of it, in the mean over seeds."""
    found = {}
    for sampler in (fw.Compass(), fw.CTPE()):
        found[type(sampler)] = np.mean([searched(sampler, 25, seed=seed).best.objective - 1 / 32 for seed in range(8)])
    assert found[fw.Compass] < 0.6 * found[fw.CTPE]


def test_what_is_given_stays():
    study = searched(fw.Compass(), 20)
    study.enqueue({"kind": "a", "x": 0.9})
    params = study.ask().params
    assert (params["kind"], params["x"]) == ("a", 0.9)


@pytest.mark.parametrize("begin", [1.0, 1e300, 1.7e308, -1e-320], ids=str)
@pytest.mark.parametrize("end", [1.0, -1e300, -1.7e308, 0.0], ids=str)
def test_odd_losses_are_survived(begin, end):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), stopper=fw.HalfAt(4, after=2), seed=0)

    def train(trial):
        for step in trial.steps(8):
            trial.report(loss=1.001 * max(begin, 1.0) if trial.number % 2 else end if step == 8 else begin)

    study.optimize(train, trials=14, progress=False)
    assert study.history.partial.any()
    assert 0.0 <= study.ask().params["x"] <= 1.0
    assert np.isfinite(_continued(study.history)).all()


def test_bad_losses_are_capped_unless_the_best_is_common():
    assert _capped(np.array([0.0, 1.0, 2.0, 9.0, 0.5])).tolist() == [0.0, 1.0, 2.0, 3.0, 0.5]
    assert _capped(np.array([0.0, 0.0, 0.0, 1.0])).tolist() == [0.0, 0.0, 0.0, 1.0]


def continued(study, reported):
    """The definition of `_continued`, from whole curves and in loops."""
    history, curves = study.history, []
    for number, reached in zip(history.number, history.reached, strict=True):
        steps = [step for step in reported if step <= reached]
        curves.append({step: loss_of(study.trials[number].params, step) for step in steps})
    octaves = [int(np.log2(max(curve))) for curve in curves]
    falls = {}
    for octave, curve in zip(octaves, curves, strict=True):
        early = [step for step in curve if int(np.log2(step)) < octave - 1]
        if early:
            fall = min(curve.values()) - min(curve[step] for step in early)
            falls.setdefault(octave, []).append(fall / np.log2(max(curve) / max(early)))
    slopes = {octave: np.median(some) for octave, some in falls.items()}
    apart = {octave: np.abs(np.array(some) - slopes[octave]) for octave, some in falls.items()}
    pooled = [each for some in apart.values() for each in some if len(some) > 1]
    pooled = np.median(pooled or [abs(fall) for some in falls.values() for fall in some] or [0.0])
    spread = {o: (np.median(some) * (len(some) - 1) + 3 * pooled) / (len(some) + 2) for o, some in apart.items()}

    def change(a, b, by_octave):
        if a >= b or not by_octave:
            return 0.0
        slope = by_octave[min(sorted(by_octave), key=lambda each: abs(each - int(a) - 1))]
        end = min(int(a) + 1, b)
        return slope * (end - a) + change(end, b, by_octave)

    longest = np.log2(max(max(curve) for curve in curves))
    ends = [np.log2(max(curve)) for curve in curves]
    losses = [min(curve.values()) + change(end, longest, slopes) for curve, end in zip(curves, ends, strict=True)]
    return losses, [3 * change(end, longest, spread) for end in ends]


@given(seed=st.integers(0, 2**16), reported=st.sets(st.integers(1, 60), min_size=3, max_size=30).map(sorted))
def test_losses_are_continued_by_the_falls_of_those_that_went_further(seed, reported):
    study = fw.Study(SPACE, fw.Minimize("loss"), sampler=fw.Random(), seed=seed)

    def train(trial):
        for step in reported:
            if trial.report(step=step, loss=loss_of(trial.params, step)):
                break

    study.optimize(train, trials=12, progress=False)
    for found, expected in zip(_continued(study.history), continued(study, reported), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def grown(limit, trials, seed):
    """A search whose objective and limited metric both grow with x: trials beyond the limit are the best."""
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("acc"), [fw.AtMost("gap", limit)], seed=seed)
    study.optimize(grow, trials=trials, progress=False)
    return study


def grow(trial):
    for step in trial.steps(5):
        trial.report(acc=trial.params["x"] * step / 5, gap=trial.params["x"])


@pytest.mark.parametrize("seed", range(3))
def test_after_a_tighter_limit_it_searches_near_that_limit(seed):
    study = grown(0.9, 20, seed)
    study.set_limit(gap=0.3)
    study.optimize(grow, trials=40, progress=False)
    later = [trial.params["x"] for trial in study.trials[20:]]
    assert sum(x < 0.01 for x in later) <= 12  # it was more than 30, where no trial is any good
    assert study.best.objective > 0.299


@pytest.mark.parametrize("seed", range(4))
def test_under_limits_no_stopped_trial_seems_better_than_half_of_the_completed_ones(seed):
    study = grown(0.9, 30, seed)
    study.set_limit(gap=0.5)
    study.optimize(grow, trials=5, progress=False)
    for trial in study.ask(2):
        trial.report(acc=0.1, gap=0.1)
    history = with_running(study).with_running()
    rows = np.flatnonzero(~history.failed)
    within, stopped, lowest = history.late[rows, 0] <= 0.5, history.partial[rows].copy(), history.lowest[rows]
    stopped[-2:] = False  # they run, and may become anything
    completed = ~history.partial[rows]
    free = _continued(history)[0][rows]
    found = _plausible(history, rows, free, within)
    for i in range(len(rows)):
        alike = [lowest[j] for j in range(len(rows)) if within[j] == within[i] and completed[j]]
        held = stopped[i] and alike
        assert found[i] == (max(free[i], min(lowest[i], np.median(alike))) if held else free[i])
    assert (found > free).any()


def test_without_limits_losses_are_continued_freely():
    history = searched(fw.Random(), 40).history
    rows = np.flatnonzero(~history.failed)
    free = _continued(history)[0][rows]
    np.testing.assert_array_equal(_plausible(history, rows, free, np.ones(len(rows), np.bool_)), free)


def test_where_metrics_are_tracked_losses_are_not_continued():
    """A checkpoint that is best under a trial's aim need not be the last one."""
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.Track("ms")], stopper=fw.HalfAt(4, after=2), seed=0
    )

    def train(trial):
        for step in trial.steps(32):
            trial.report(loss=trial.params["x"] + 1 / step, ms=step * trial.params["x"])

    study.optimize(train, trials=12, progress=False)
    history = study.history.aimed({"ms": 2.0})
    np.testing.assert_array_equal(_continued(history), [history.lowest, np.zeros(len(history))])


def test_readers_know_a_loss_of_0_halfway(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("acc"), stopper=fw.Never(), storage=url, name="a", seed=0)

    def train(trial):
        for step in trial.steps(16):
            trial.report(acc=0.0 if step < 8 else trial.params["x"])

    study.optimize(train, trials=3, progress=False)
    read = View.read(url, "a").ledger.history().halfway
    np.testing.assert_array_equal(read, study.history.halfway)
    assert read.tolist() == [[7.0, 0.0]] * 3


def test_without_a_longer_trial_losses_stay():
    history = searched(fw.Random(), 8, steps=3).history
    assert np.isnan(history.halfway).all()
    np.testing.assert_array_equal(_continued(history), [history.lowest, np.zeros(len(history))])


def test_means_over_folds_are_not_continued():
    space = {"x": fw.Float(0.0, 1.0)}
    study = fw.Study(space, fw.Minimize("loss"), sampler=fw.Random(), stopper=fw.Pilot(), seed=0)

    def train(trial):
        for k in trial.steps(8):
            trial.report(loss=fw.Folds([trial.params["x"] + fold for fold in range(k)], of=8))

    study.optimize(train, trials=12, progress=False)
    assert study.history.partial.any()
    np.testing.assert_array_equal(_continued(study.history), [study.history.lowest, np.zeros(len(study.history))])


def test_the_improvement_is_largest_where_trials_are_good():
    history = searched(fw.Random(), 40).history
    improvement = _improvement(history)
    good, bad = history.space.encode({"x": 0.3, "y": 0.8, "kind": "b"}), np.array([0.9, 0.1, 0.1])
    assert improvement(good[None])[0] > improvement(bad[None])[0] + 2.0


def test_where_its_processes_join_each_limit_counts_once():
    history = searched(fw.Random(), 20, limits=[fw.AtMost("x", 0.4)], stopper=fw.ASHA()).history
    assert _joins(history)
    assert len([*fw.CTPE()._factors(history)]) == 2  # the objective's and the limit's
    assert len([*_WithProcesses()._factors(history)]) == 1


def test_where_the_objective_has_no_factor_those_of_the_limits_stay():
    history = searched(fw.Random(), 20, limits=[fw.AtMost("x", 0.4)], stopper=fw.ASHA()).history
    everything_is_good = _WithProcesses(gamma=1.0, growth="linear")
    assert _joins(history)
    assert len([*everything_is_good._factors(history)]) == 1
