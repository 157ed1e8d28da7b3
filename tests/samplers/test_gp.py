from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

import fairway as fw
from fairway.models.gaussian_process import Features
from fairway.samplers.gp import _lacking, best_and_latest, limit_terms
from fairway.samplers.initial import initial_point
from fairway.testing import MIXED, check_sampler


@pytest.mark.parametrize(
    "sampler",
    [
        fw.GP(),
        fw.GP.cikm2021(),
        fw.GP(5, initial="latin", acquisition="pi"),
        fw.GP(initial="random", acquisition="ucb", warp=True),
    ],
    ids=str,
)
def test_it_conforms(sampler):
    check_sampler(sampler, trials=16)


def branin(trial):
    x, y = trial.params["x"], trial.params["y"]
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (y - b * x * x + c * x - 6) ** 2 + 10 * (1 - t) * math.cos(x) + 10


BRANIN = {"x": fw.Float(-5.0, 10.0), "y": fw.Float(0.0, 15.0)}


def test_it_finds_the_minimum_of_branin():
    found = []
    for seed in range(3):
        study = fw.Study(BRANIN, fw.Minimize("loss"), sampler=fw.GP(), seed=seed)
        study.optimize(branin, trials=35)
        found.append(study.best.metrics["loss"])
    assert max(found) < 0.397887 + 0.01


def test_it_finds_the_best_feasible_point():
    """Branin under a disc that excludes two of its three minima (Gardner et al., 2014)."""

    def evaluate(trial):
        x, y = trial.params["x"], trial.params["y"]
        return {"loss": branin(trial), "disc": (x - 2.5) ** 2 + (y - 7.5) ** 2}

    for seed in range(2):
        study = fw.Study(BRANIN, fw.Minimize("loss"), [fw.AtMost("disc", 50.0)], sampler=fw.GP(), seed=seed)
        study.optimize(evaluate, trials=38)
        assert study.best.metrics["loss"] < 0.397887 + 0.05  # at (pi, 2.275), inside the disc


def test_it_is_ahead_of_random_search_on_a_mixed_space():
    def loss(trial):
        params = dict(trial.params)
        u = fw.Space(MIXED).encode(params)[:4]
        return float(((u - 0.35) ** 2).sum() + (params["booster"] != "goss") + (params["size"] != "m"))

    best = {}
    for sampler in (fw.Random(), fw.GP()):
        losses = []
        for seed in range(3):
            study = fw.Study(MIXED, fw.Minimize("loss"), sampler=sampler, seed=seed)
            study.optimize(loss, trials=25)
            losses.append(study.best.metrics["loss"])
        best[type(sampler)] = np.mean(losses)
    assert best[fw.GP] < best[fw.Random] / 3


def history_of(losses, partial):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), stopper=fw.HalfAt(step=1, after=1), seed=0)
    for loss, stop in zip(losses, partial, strict=True):
        trial = study.ask()
        trial.report(loss=loss)
        trial.driver.cut("made to stop" if stop else "")
        trial.driver.batch.stop_reason = ""
        study.tell(trial)
    return study.history


def test_a_stopped_trial_is_taken_for_the_median():
    history = history_of([1.0, 2.0, 3.0, 0.5, 9.0, 0.7], [False, False, False, True, True, True])
    rows = np.arange(6)
    assert fw.GP()._imputed(history, rows).tolist() == [1.0, 2.0, 3.0, 0.5, 2.0, 2.0]  # the best one is known
    assert fw.GP(impute=False)._imputed(history, rows).tolist() == [1.0, 2.0, 3.0, 0.5, 9.0, 0.7]


def test_of_many_trials_the_better_and_the_later_are_used():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    for k in range(60):
        study.tell(study.ask(), loss=float(k))
    rows = best_and_latest(study.history.best_first, most=20)
    assert rows.tolist() == [*range(10), *range(50, 60)]


@pytest.mark.parametrize("design", ["random", "sobol", "latin", "furthest"])
def test_a_design_is_the_same_for_the_same_seed_and_fills_the_cube(design):
    def points(seed):
        study = fw.Study({"a": fw.Float(0.0, 1.0), "b": fw.Float(0.0, 1.0)}, fw.Minimize("m"), seed=seed)
        for _ in range(16):
            x = initial_point(design, 16, study.history, np.random.default_rng(len(study.trials) + 100 * seed))
            study.enqueue(study.space.decode(x))
            study.tell(study.ask(), m=0.0)
        return study.history.x

    one, same, other = points(1), points(1), points(2)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    if design in ("sobol", "latin"):
        assert sorted((one[:, 0] * 16).astype(int)) == list(range(16))  # one in each sixteenth
    if design == "furthest":
        apart = np.sqrt(((one[:, None] - one) ** 2).sum(axis=2) + 9 * np.eye(16)).min()
        assert apart > 0.15


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"initial": "grid"}, "initial='grid': 'random', 'sobol', 'latin' or 'furthest' is expected"),
        ({"acquisition": "kg"}, "acquisition='kg'"),
        ({"random_share": 1.0}, "random_share=1.0"),
        ({"start": 1}, "start=1"),
    ],
)
def test_wrong_settings_are_refused(arguments, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        fw.GP(**arguments)


def test_integrals_agree():
    """log EI against numerical integration."""
    from fairway.models.acquisition import log_expected_improvement, log_probability_below

    for mean, deviation, best in ((0.3, 0.5, 0.1), (2.0, 0.4, 0.0), (-1.0, 1.5, 0.2)):
        gain, _ = integrate.quad(lambda f: (best - f) * stats.norm.pdf(f, mean, deviation), -12, best)  # noqa: B023
        assert log_expected_improvement(np.array([mean]), np.array([deviation]), best)[0] == pytest.approx(
            math.log(gain)
        )
        share = stats.norm.logcdf(best, mean, deviation)
        assert log_probability_below(np.array([mean]), np.array([deviation]), best)[0] == pytest.approx(share)


@pytest.mark.parametrize("grows", [True, False])
def test_a_limit_after_little_training_counts_as_far_as_it_says_something_of_a_later_one(grows):
    """A gap that grows with training is kept by all at step 1; one that never changes is known there."""
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtMost("gap", 0.5)], stopper=fw.Never(), seed=0
    )
    for k in range(40):
        trial = study.ask()
        x, early = trial.params["x"], k % 2 == 1
        for step in (1,) if early else (1, 2, 4, 8, 16):
            trial.report(step=step, loss=x, gap=0.1 if grows and step < 8 else x)
        trial.driver.cut("stopped early" if early else "")
        study.tell(trial)
    features = Features(study.space)
    (term,) = limit_terms(features, study.history, study.history.best_first)
    (kept, broken), deviations = term.process.predict(features(np.array([[0.2], [0.9]])))
    assert broken - kept > 1.0
    assert max(deviations) < 0.5
    assert (term.process.factor > 0.01) == grows


def test_under_an_aim_no_limit_is_doubted():
    """There, trials that violate count as trained for one step, which they were not."""
    parts = {"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.Track("ms")]
    study = fw.Study(*parts, stopper=fw.Never(), seed=0)

    def train(trial):
        for step in trial.steps(32):
            trial.report(loss=1 - trial.params["x"], ms=trial.params["x"] + 1 / step)

    study.optimize(train, trials=12, progress=False)
    assert (study.history.aimed({"ms": 0.5}).reached == 1).any()
    assert not _lacking(study.history.aimed({"ms": 0.5})).any()
