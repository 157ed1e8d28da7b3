from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.samplers.compass import _continued, _features, _improvement, _is_asked
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


def test_it_is_the_default():
    assert fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss")).sampler == fw.Compass()


@pytest.mark.parametrize("limits", [(), (fw.AtMost("x", 0.4),)], ids=["no limit", "a limit"])
def test_while_nothing_was_stopped_it_is_ctpe(limits):
    one, other = (searched(each, 25, steps=3, limits=limits, stopper=fw.Never()) for each in (fw.Compass(), fw.CTPE()))
    assert [trial.params for trial in one.trials] == [trial.params for trial in other.trials]


def test_after_100_trials_it_is_ctpe():
    study = searched(fw.CTPE(), 110, steps=8)
    short, long, rng = study.history.first(80), study.history.first(101), np.random.default_rng
    assert short.partial.any()
    assert (fw.Compass().propose(short, rng(0)) != fw.CTPE().propose(short, rng(0))).any()
    np.testing.assert_array_equal(fw.Compass().propose(long, rng(0)), fw.CTPE().propose(long, rng(0)))


def test_a_process_is_not_asked_in_a_space_of_many_features():
    history = searched(fw.CTPE(), 20).history
    assert _features(history.space) == 5
    assert _is_asked(history)
    many = fw.Space({"kind": fw.Choice([f"option {i}" for i in range(100_000)])})
    assert not _is_asked(replace(history, space=many))


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


@pytest.mark.parametrize(
    "losses", [[1.0] * 12, [1e300, -1e300] * 6, [0.0, *[1e-320] * 11]], ids=["equal", "huge", "tiny"]
)
def test_odd_losses_are_survived(losses):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), stopper=fw.HalfAt(1), seed=0)
    waiting = iter(losses)

    def train(trial):
        level = next(waiting)
        for _ in trial.steps(4):
            trial.report(loss=level)

    study.optimize(train, trials=len(losses), progress=False)
    assert 0.0 <= study.ask().params["x"] <= 1.0


def continued(study, losses_of):
    """The definition of `_continued`, from whole curves and in loops."""
    history, low = study.history, {}
    for row, number in enumerate(history.number):
        curve = [losses_of(study.trials[number].params, step) for step in range(1, history.reached[row] + 1)]
        low[row] = np.minimum.accumulate(curve)
    octave = {row: int(np.log2(len(curve))) for row, curve in low.items()}
    slopes = {}
    for each in set(octave.values()):
        early = 2 ** (each - 1) - 1
        if each > 1:
            falls = [(c[-1] - c[early - 1]) / np.log2(len(c) / early) for r, c in low.items() if octave[r] == each]
            slopes[each] = np.median(falls)

    def change(a, b):
        if a >= b:
            return 0.0
        here = int(a)
        slope = slopes[min(sorted(slopes), key=lambda each: abs(each - here - 1))]
        end = min(here + 1, b)
        return slope * (end - a) + change(end, b)

    longest = np.log2(max(len(curve) for curve in low.values()))
    return [low[row][-1] + change(np.log2(len(low[row])), longest) for row in range(len(history))]


@given(seed=st.integers(0, 2**16), steps=st.integers(4, 40))
def test_losses_are_continued_by_the_falls_of_those_that_went_further(seed, steps):
    study = searched(fw.Random(), 12, seed=seed, steps=steps)
    np.testing.assert_allclose(_continued(study.history), continued(study, loss_of))


def test_without_a_longer_trial_losses_stay():
    history = searched(fw.Random(), 8, steps=3).history
    assert np.isnan(history.halfway).all()
    np.testing.assert_array_equal(_continued(history), history.lowest)


def test_means_over_folds_are_not_continued():
    space = {"x": fw.Float(0.0, 1.0)}
    study = fw.Study(space, fw.Minimize("loss"), sampler=fw.Random(), stopper=fw.Pilot(), seed=0)

    def train(trial):
        for k in trial.steps(8):
            trial.report(loss=fw.Folds([trial.params["x"] + fold for fold in range(k)], of=8))

    study.optimize(train, trials=12, progress=False)
    assert study.history.partial.any()
    np.testing.assert_array_equal(_continued(study.history), study.history.lowest)


def test_the_improvement_is_largest_where_trials_are_good():
    history = searched(fw.Random(), 40).history
    improvement = _improvement(history)
    good, bad = history.space.encode({"x": 0.3, "y": 0.8, "kind": "b"}), np.array([0.9, 0.1, 0.1])
    assert improvement(good[None])[0] > improvement(bad[None])[0] + 2.0
