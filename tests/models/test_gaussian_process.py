"""The Gaussian process against scikit-learn's, and its derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import fairway as fw
from fairway.models.acquisition import log_expected_improvement, log_probability_below, lower_confidence_bound
from fairway.models.gaussian_process import Features, GaussianProcess, fit, negative_log_likelihood
from fairway.models.transform import Transform, likeliest
from fairway.testing import MIXED

D = 4


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    features = Features(fw.Space({f"x{k}": fw.Float(0.0, 1.0) for k in range(D)}))
    x = rng.random((40, D))
    y = np.sin(4 * x[:, 0]) + x[:, 1] ** 2 + 0.1 * rng.normal(size=len(x))
    theta = np.concatenate([np.log(rng.uniform(0.3, 2.0, D)), [0.3, -4.0, 0.0]])
    return features, features(x), (y - y.mean()) / y.std(), theta, rng


def peer(theta):
    lengths, (amplitude, noise, _) = np.exp(theta[:D]), np.exp(theta[D:])
    return ConstantKernel(amplitude) * Matern(lengths, (0.03, 30.0), nu=2.5) + WhiteKernel(noise)


@pytest.mark.parametrize("doubted", [0.0, 0.5])
def test_likelihood_gradient_and_predictions_are_scikit_learns(problem, doubted):
    features, z, y, theta, rng = problem
    doubt = doubted * rng.random(len(y))
    theirs = GaussianProcessRegressor(peer(theta), optimizer=None, alpha=1e-10 + doubt).fit(z, y)
    likelihood, gradient = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    value, slope = negative_log_likelihood(theta, features, z, y, doubt)
    assert -value == pytest.approx(likelihood, abs=1e-6)
    assert -slope[:-1] == pytest.approx(np.concatenate([gradient[1 : D + 1], gradient[:1], gradient[-1:]]), abs=1e-6)
    ours = GaussianProcess(features, z, y, theta, doubt)
    assert ours.log_likelihood == pytest.approx(likelihood, abs=1e-6)
    probes = rng.random((9, D))
    mean, deviation = ours.predict(probes)
    their_mean, their_deviation = theirs.predict(probes, return_std=True)
    assert mean == pytest.approx(their_mean, abs=1e-6)
    assert deviation == pytest.approx(np.sqrt(their_deviation**2 - np.exp(theta[D + 1])), abs=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_is_at_least_as_likely_as_scikit_learns(problem):
    features, z, y, _, _ = problem
    begin = np.log([0.7] * D + [1.0, 0.01, 1.0])
    theirs = GaussianProcessRegressor(peer(begin), alpha=1e-10).fit(z, y)
    ours = fit(features, z, y, prior=False, steps=200)
    assert ours.log_likelihood >= theirs.log_marginal_likelihood_value_ - 1e-4


def test_gradients_of_predictions_are_those_of_differences(problem):
    features, z, y, theta, rng = problem
    process, point, small = GaussianProcess(features, z, y, theta), rng.random(D), 1e-6
    mean, deviation, by_mean, by_deviation = process.predict_with_gradient(point)
    assert (mean, deviation) == pytest.approx(tuple(float(part[0]) for part in process.predict(point[None])), abs=1e-9)
    for j in range(D):
        step = small * np.eye(D)[j]
        up, down = process.predict((point + step)[None]), process.predict((point - step)[None])
        assert by_mean[j] == pytest.approx((up[0] - down[0])[0] / (2 * small), abs=1e-5)
        assert by_deviation[j] == pytest.approx((up[1] - down[1])[0] / (2 * small), abs=1e-5)


def warped(theta, seed=3):
    return np.concatenate([theta, np.random.default_rng(seed).normal(0.0, 0.4, 2 * D)])


def test_gradients_with_a_warp_are_those_of_differences(problem):
    features, z, y, theta, rng = problem
    theta, small, doubt = warped(theta), 1e-6, rng.random(len(y))
    _, gradient = negative_log_likelihood(theta, features, z, y, doubt)
    for k in range(len(theta)):
        step = small * np.eye(len(theta))[k]
        up, down = (negative_log_likelihood(theta + sign * step, features, z, y, doubt)[0] for sign in (1, -1))
        assert gradient[k] == pytest.approx((up - down) / (2 * small), rel=1e-4, abs=1e-4)
    process, point = GaussianProcess(features, z, y, theta), rng.uniform(0.1, 0.9, D)
    _, _, by_mean, by_deviation = process.predict_with_gradient(point)
    for j in range(D):
        step = small * np.eye(D)[j]
        up, down = process.predict((point + step)[None]), process.predict((point - step)[None])
        assert by_mean[j] == pytest.approx((up[0] - down[0])[0] / (2 * small), abs=1e-5)
        assert by_deviation[j] == pytest.approx((up[1] - down[1])[0] / (2 * small), abs=1e-5)


def test_a_warp_explains_what_happens_at_an_edge_of_the_range():
    rng = np.random.default_rng(0)
    features = Features(fw.Space({"x": fw.Float(0.0, 1.0)}))
    x = rng.random((40, 1))
    y = np.sin(12 * x[:, 0] ** 4)
    y = (y - y.mean()) / y.std()
    plain, bent = (fit(features, features(x), y, warp=warp) for warp in (False, True))
    assert bent.log_likelihood > plain.log_likelihood + 5


@pytest.mark.parametrize("scatter", [0.0, 1.0])
def test_values_are_doubted_as_far_as_they_scatter(problem, scatter):
    """Half of the values are doubtful, and scatter or do not."""
    features, z, y, _, rng = problem
    doubt = np.where(np.arange(len(y)) % 2, 1.0, 0.0)
    seen = y + scatter * doubt * rng.normal(size=len(y))
    process, plain = fit(features, z, seen, doubt, scaled=True), fit(features, z, seen)
    errors = [np.abs(each.predict(z)[0] - y).mean() for each in (process, plain)]
    if scatter:
        assert process.log_likelihood > plain.log_likelihood + 3
        assert process.factor > 0.2
        assert errors[0] < 0.8 * errors[1]
    else:
        assert process.factor < 0.1
        assert errors[0] < 1.3 * errors[1]


def test_what_it_believes_of_running_points_leaves_its_mean_as_it_is(problem):
    features, z, y, theta, rng = problem
    process, pending = GaussianProcess(features, z, y, theta), rng.random((3, D))
    joined = process.joined_by(pending)
    probes = rng.random((20, D))
    assert joined.predict(probes)[0] == pytest.approx(process.predict(probes)[0], abs=1e-4)
    assert (joined.predict(pending)[1] < process.predict(pending)[1]).all()


def test_two_options_are_one_unit_apart_and_numbers_their_distance():
    space = fw.Space(MIXED)
    features = Features(space)
    one = dict(space.decode(np.full(7, 0.2)))
    other = {**one, "booster": "goss"}
    a, b = (features(space.encode(params)[None])[0] for params in (one, other))
    assert ((a - b) ** 2).sum() == pytest.approx(1.0)
    assert ((features(space.encode({**one, "depth": 12})[None])[0] - a) ** 2).sum() == pytest.approx((9 / 12) ** 2)


@pytest.mark.parametrize("z", [-500.0, -60.0, -8.0, -1.0, 0.0, 2.0, 15.0, 40.0])
def test_gradients_of_acquisitions_are_those_of_differences(z):
    mean, deviation, small = np.array([-z]), np.array([1.0]), 1e-6 * max(1.0, abs(z))
    functions = [
        lambda m, s: log_expected_improvement(m, s, 0.0),
        lambda m, s: log_probability_below(m, s, 0.0),
        lambda m, s: lower_confidence_bound(m, s, 2.0),
    ]
    for function in functions:
        _, by_mean, by_deviation = function(mean, deviation)
        by_mean_again = (function(mean + small, deviation)[0] - function(mean - small, deviation)[0]) / (2 * small)
        by_deviation_again = (function(mean, deviation + 1e-6)[0] - function(mean, deviation - 1e-6)[0]) / 2e-6
        assert by_mean == pytest.approx(by_mean_again, rel=1e-3, abs=1e-6)
        assert by_deviation == pytest.approx(by_deviation_again, rel=1e-3, abs=1e-4)


def test_a_loss_over_orders_of_magnitude_is_taken_by_its_logarithm(problem):
    features, z, y, _, _ = problem
    assert likeliest(features, z, np.exp(4 * y)).power == 0.0
    assert likeliest(features, z, 5.0 + y).power >= 0.5
    assert likeliest(features, z, y).power == 1.0


@pytest.mark.parametrize(
    "values", [[1.0, 1.0, 1.0], [0.0], [-3.0, 1e300, 2.0], [np.inf, 1.0, 2.0, 5.0], [5e-324, 1.0, 2.0]]
)
def test_a_transform_is_increasing_and_finite_whatever_comes(values):
    values = np.array(values)
    moved = Transform(values)(values)
    assert np.isfinite(moved).all()
    assert (np.diff(moved[np.argsort(values)]) >= 0).all()
