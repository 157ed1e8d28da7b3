from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.terminators.regret import RegretBound
from fairway.testing import check_terminator
from tests.conftest import make_recording

LINE = {"x": fw.Float(0.0, 1.0)}


class Straight(RegretBound):
    """With no bend of the inputs."""

    _WARP: ClassVar[bool] = False


def history(x, loss, limits=(), values=None, *, noise=math.nan, partial=None):
    """A snapshot of a study whose trials had these points of the unit cube and these outcomes."""
    x = np.asarray(x, float).reshape(len(loss), -1)
    space = {f"x{k}": fw.Float(0.0, 1.0) for k in range(x.shape[1])}
    limits = [fw.AtMost(f"c{k}", limit) for k, limit in enumerate(limits)]
    study = fw.Study(space, fw.Minimize("loss"), limits, sampler=fw.Random(), stopper=fw.Never(), seed=0)
    values = np.zeros((len(loss), 0)) if values is None else np.asarray(values, float).reshape(len(loss), -1)
    for point, each, row in zip(x, loss, values, strict=True):
        study.enqueue(study.space.decode(point))
        trial = study.ask()
        trial.report({"loss": float(each), **{f"c{k}": float(value) for k, value in enumerate(row)}})
        study.tell(trial)
    found = study.history
    partial = found.partial if partial is None else np.asarray(partial, bool)
    return replace(found, noise=np.full(len(loss), noise), folds=np.full(len(loss), 10), partial=partial)


def random_points(n, d, seed=0):
    return np.random.default_rng(seed).random((n, d))


def bowl(x):
    return ((x - 0.4) ** 2).sum(axis=1) + 0.1


@pytest.mark.parametrize("threshold", [0.01, "cv"])
def test_it_conforms(threshold):
    check_terminator(fw.RegretBound(threshold))


def test_it_agrees_with_scikit_learns_process():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    from fairway.models.transform import Transform
    from fairway.terminators.surrogate import Surrogate

    x = random_points(48, 1)
    loss = np.sin(6 * x[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=48)
    seen = history(x, loss)
    terminator = Straight(0.01, log=False)
    rows = seen.order[:24]  # the better half
    ours = Surrogate(seen, rows, rows).objective
    length, amplitude, noise, _ = np.exp(ours.theta)
    kernel = ConstantKernel(amplitude, "fixed") * Matern(length, "fixed", nu=2.5)
    theirs = GaussianProcessRegressor(kernel, alpha=noise + 1e-10, optimizer=None)
    move = Transform(seen.loss[rows])
    theirs.fit(seen.x[rows], move(seen.loss[rows]))
    beta = 2 * math.log(1 * 48**2 * math.pi**2 / (6 * 0.1)) / 5
    mean, deviation = theirs.predict(seen.x[rows], return_std=True)
    grid_mean, grid_deviation = theirs.predict(np.linspace(0, 1, 20001)[:, None], return_std=True)
    upper = (mean + math.sqrt(beta) * deviation).min()
    lower = (grid_mean - math.sqrt(beta) * grid_deviation).min()
    assert terminator.bound(seen) == pytest.approx((upper - lower) * loss[rows].std(), rel=1e-3)


def test_it_is_in_the_unit_of_the_metric():
    x = random_points(60, 2)
    small, large = (fw.RegretBound(1.0).bound(history(x, scale * bowl(x))) for scale in (1.0, 1000.0))
    assert large == pytest.approx(1000 * small, rel=0.05)


def test_it_shrinks_as_the_search_closes_in_and_is_above_what_is_left():
    x = random_points(30, 2)
    near = 0.4 + 0.02 * np.random.default_rng(1).normal(size=(60, 2))
    x = np.concatenate([x, np.clip(near, 0, 1)])
    whole = history(x, bowl(x))
    bounds = [fw.RegretBound(0.01).bound(whole.first(n)) for n in (20, 30, 90)]
    regrets = [bowl(x)[:n].min() - 0.1 for n in (20, 30, 90)]
    assert bounds[2] < min(bounds[:2]) / 3
    assert all(bound >= regret for bound, regret in zip(bounds, regrets, strict=True))


def test_the_number_of_trials_hardly_matters_to_its_width():
    terminator = fw.RegretBound(0.01)
    assert terminator.width(9, 100) == pytest.approx(2.384, abs=0.001)  # sqrt(2 log(9e4 pi^2 / 0.6) / 5)
    assert terminator.width(9, 50) / terminator.width(9, 100) == pytest.approx(0.94, abs=0.01)


# Thresholds


def test_a_sentence_says_what_was_compared():
    x = random_points(74, 1)
    verdict = fw.RegretBound("cv").check(history(x, bowl(x), noise=0.05))
    assert verdict
    assert verdict.value < verdict.threshold == 0.05
    assert verdict.reason.startswith("regret bound ")
    assert verdict.reason.endswith(" < 0.05, the noise of 10-fold cross-validation, after 74 trials")
    twice = fw.RegretBound("cv", factor=2.0).check(history(x, bowl(x), noise=0.05))
    assert twice.threshold == 0.1
    assert "2 times the noise" in twice.reason
    assert not fw.RegretBound(1e-12).check(history(x, bowl(x)))


@pytest.mark.parametrize(("noise", "why"), [(math.nan, "report its objective as fw.Folds"), (0.0, "the same")])
def test_without_noise_it_goes_on_and_says_why(noise, why):
    x = random_points(30, 1)
    verdict = fw.RegretBound("cv").check(history(x, bowl(x), noise=noise))
    assert not verdict
    assert why in verdict.reason
    assert math.isfinite(verdict.value)


def test_folds_of_any_number_feed_it():
    study = fw.Study(LINE, fw.Minimize("error"), sampler=fw.Random(), terminator=fw.RegretBound("cv", start=2), seed=0)
    for k in range(8):
        trial = study.ask()
        values = np.linspace(-0.01, 0.01, 3 + k) + (trial.params["x"] - 0.5) ** 2 + 1.0
        study.tell(trial, error=fw.Folds(values, test_size=10, train_size=40))
    best = study.history.order[0]
    k = 3 + best
    noise = math.sqrt(1 / k + 0.25) * np.std(np.linspace(-0.01, 0.01, k))
    assert (study.history.folds[best], study.history.noise[best]) == (k, pytest.approx(noise))
    finished, verdict = study.verdicts[-1]
    assert finished == 8
    assert verdict.threshold == pytest.approx(noise)
    assert f"{k}-fold" in verdict.reason


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: fw.RegretBound(0), "a positive number"),
        (lambda: fw.RegretBound(-1.0), "a positive number"),
        (lambda: fw.RegretBound(math.nan), "a positive number"),
        (lambda: fw.RegretBound("folds"), "or 'cv'"),
        (lambda: fw.RegretBound(np.array([0.1, 0.2])), "a positive number"),
        (lambda: fw.RegretBound(0.1, factor=2.0), "with threshold='cv'"),
        (lambda: fw.RegretBound("cv", factor=0), "factor=0"),
        (lambda: fw.RegretBound("cv", top=0.0), "top=0.0"),
        (lambda: fw.RegretBound("cv", top=50), "did you mean 0.5"),
        (lambda: fw.RegretBound("cv", start=1), "start=1"),
        (lambda: fw.RegretBound("cv", delta=1.5), "delta=1.5"),
    ],
)
def test_bad_settings_are_refused(make, why):
    with pytest.raises(fw.UsageError, match=why):
        make()


def test_too_little_to_judge_by():
    terminator = fw.RegretBound(100.0)
    x = random_points(19, 1)
    assert terminator.check(history(x[:1], bowl(x[:1]))).reason == "1 of the 20 completed trials that a verdict needs"
    assert not terminator.check(history(x, bowl(x)))
    assert terminator.check(history(np.append(x, 0.5), np.append(bowl(x), 0.2)))
    same = terminator.check(history(random_points(25, 1), np.ones(25)))
    assert not same
    assert "have the same" in same.reason
    floor = history(random_points(60, 2), np.where(np.arange(60) < 36, 1.0, 2.0))
    assert fw.RegretBound(1e-6).bound(floor) > 0.01  # the better half is all the same: all are fitted
    stopped = history(random_points(60, 1), np.where(np.arange(60) < 36, 1.0, 2.0), partial=np.arange(60) >= 36)
    assert not fw.RegretBound(1e9).check(stopped)


def test_a_loss_that_may_fall_below_zero_needs_to_be_said():
    x = random_points(40, 1)
    loss = 0.5 + 0.02 * np.abs(np.random.default_rng(0).normal(size=40)) - 0.49 * x[:, 0]
    seen = history(x[x[:, 0] < 0.9], loss[x[:, 0] < 0.9])
    assert fw.RegretBound(0.1).bound(seen) <= 1.2 * seen.loss.min()  # the upper bound is a little above the best
    shifted = history(x[x[:, 0] < 0.9], loss[x[:, 0] < 0.9] - 10.0)
    assert fw.RegretBound(0.1, log=False).bound(seen) == pytest.approx(fw.RegretBound(0.1).bound(shifted), rel=0.01)


# Constraints


def test_limits_that_always_hold_change_nothing():
    x = random_points(40, 2)
    free, held = history(x, bowl(x)), history(x, bowl(x), [1.0, 2.0], x)
    assert fw.RegretBound(0.1).bound(held) == fw.RegretBound(0.1).bound(free)


def test_only_where_limits_may_hold_is_there_anything_to_gain():
    x = random_points(80, 1)
    loss = 1.5 - x[:, 0]  # the best is at 1, and what is over 0.3 is out of bounds
    limited = history(x, loss, [0.3], x)
    free = history(x, loss)
    best = loss[x[:, 0] <= 0.3].min()
    unbounded = best - loss.min()
    assert fw.RegretBound(0.1).bound(limited) < unbounded / 2
    assert fw.RegretBound(0.1).check(limited)
    assert fw.RegretBound(0.1).bound(free) < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_the_lower_bound_is_found_along_the_edge_of_what_limits_allow(seed):
    """As low as a dense search of the same processes finds it, where the best lies beyond the limit."""
    from fairway.terminators.surrogate import Surrogate

    x = random_points(120, 5, seed)
    seen = history(x, ((x - 0.9) ** 2).sum(axis=1) + 0.1, [0.5], x.mean(axis=1))
    terminator = Straight(0.1)
    rows, width = seen.order[:60], terminator.width(5, 120)
    surrogate = Surrogate(seen, rows, seen.order, power=0.0)
    dense = np.random.default_rng(7).random((40_000, 5))
    dense = dense[surrogate.is_plausible(dense, width)]
    mean, deviation = surrogate.objective.predict(surrogate.features(dense))
    there, spread = surrogate.feasible
    ends = np.array([(there + width * spread).min(), (mean - width * deviation).min()])
    upper, lower = surrogate.transform.inverse(ends)
    assert terminator.bound(seen) >= upper - lower


def test_nothing_feasible_is_no_reason_to_stop():
    x = random_points(40, 1)
    verdict = fw.RegretBound(1e9).check(history(x, bowl(x), [-1.0], x))
    assert not verdict
    assert verdict.reason == "nothing is feasible after 40 trials"


# Stopped trials


@given(seed=st.integers(0, 50), n=st.integers(40, 70), share=st.floats(0.1, 0.4), worse=st.floats(0.0, 2.0))
@settings(max_examples=15)
def test_stopped_trials_never_bring_the_end_on(seed, n, share, worse):
    """With trials that showed less than they would have come to, the bound is no less than had they never been."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    partial = rng.random(n) < share
    partial[int(np.argmin(bowl(x)))] = False
    shown = bowl(x) + np.where(partial, worse * rng.random(n), 0.0)
    both = history(x, shown, partial=partial)
    without = history(x[~partial], shown[~partial])
    assert fw.RegretBound(0.1).bound(both) >= 0.8 * fw.RegretBound(0.1).bound(without)  # other random candidates


def test_stopped_trials_that_broke_a_limit_do_not_rule_their_region_out():
    x = np.concatenate(
        [np.random.default_rng(0).random((22, 1)) * 0.3, 0.3 + 0.7 * np.random.default_rng(1).random((58, 1))]
    )
    loss, eod = 1.5 - x[:, 0], np.where(x[:, 0] > 0.3, 0.9, 0.1)
    seen = history(x, loss, [0.5], eod, partial=x[:, 0] > 0.3)
    alone = fw.RegretBound(0.1).bound(history(x[:22], loss[:22], [0.5], eod[:22]))
    assert alone > 0.3
    assert fw.RegretBound(0.1).bound(seen) >= 0.8 * alone


def test_a_stopped_trial_counts_for_nothing_towards_the_start():
    x = random_points(30, 1)
    verdict = fw.RegretBound(100.0).check(history(x, bowl(x), partial=np.arange(30) >= 12))
    assert verdict.reason == "12 of the 20 completed trials that a verdict needs"


def test_the_best_feasible_checkpoint_counts_whatever_became_of_its_trial():
    x = random_points(40, 1)
    best = int(np.argmin(bowl(x)))
    stopped = history(x, bowl(x), partial=np.arange(40) == best)
    assert fw.RegretBound(0.1).bound(stopped) == fw.RegretBound(0.1).bound(history(x, bowl(x)))


class Trusting(RegretBound):
    """Takes stopped trials for what they showed, as if they had come to no more."""

    def check(self, history):
        return super().check(replace(history, partial=np.zeros(len(history), bool)))


def test_on_recorded_curves_stopped_trials_put_the_end_off():
    trials = {}
    for terminator in (Trusting(0.1), fw.RegretBound(0.1)):
        for seed in (1, 3):
            recording = make_recording(300, seed)
            study = fw.Study(
                recording.space,
                fw.Maximize("auc"),
                [fw.AtMost("eod", 0.3)],
                sampler=fw.Random(),
                stopper=fw.ASHA(),
                terminator=terminator,
                seed=seed,
            )
            ended = fw.simulate(study, recording, workers=2, budget=200.0).ended
            trials[terminator, seed] = len(study.trials) if ended.startswith("regret bound") else 300
    for seed in (1, 3):
        assert trials[Trusting(0.1), seed] < trials[fw.RegretBound(0.1), seed]
    assert trials[fw.RegretBound(0.1), 1] < 300  # but it ends
