from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import fairway as fw
from fairway.models.parzen import Axes, Kernel, Parzen
from fairway.testing import MIXED, check_sampler

KERNEL = Kernel(bandwidth=1.059, floor=0.01, stay=0.8)


@pytest.mark.parametrize(
    "sampler",
    [fw.TPE(), fw.CTPE(), fw.CTPE(naive=True), fw.CTPE(relative=False), fw.CTPE(feasible_split=False)],
    ids=str,
)
def test_it_conforms(sampler):
    check_sampler(sampler)


def density(axes, points, x):
    return np.exp(Parzen(axes, points, KERNEL).log_density(x, axes.one_hot(x)))


def test_a_density_integrates_to_one():
    rng = np.random.default_rng(0)
    axes = Axes(fw.Space({"x": fw.Float(0.0, 1.0)}))
    for n in (0, 1, 5, 40):
        points = rng.random((n, 1)) ** 3
        u = np.linspace(0.0, 1.0, 20_001)
        assert integrate.trapezoid(density(axes, points, u[:, None]), u) == pytest.approx(1.0, abs=1e-4)


def test_masses_of_a_discrete_space_add_up_to_one():
    space = fw.Space({"a": fw.Int(1, 5), "n": fw.Int(1, 40, log=True), "c": fw.Choice(["u", "v", "w"])})
    axes, everything = Axes(space), space.grid(10_000)
    points = space.snap(np.random.default_rng(0).random((12, 3)))
    assert density(axes, points, everything).sum() == pytest.approx(1.0, abs=1e-5)


def test_a_kernel_is_scipys_truncated_normal():
    space = fw.Space({"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)})
    axes, rng = Axes(space), np.random.default_rng(1)
    points, x = rng.random((7, 2)), rng.random((5, 2))
    estimate = Parzen(axes, points, KERNEL)
    expected = np.ones((5, 1))  # the prior
    kernels = np.ones((5, 7))
    for j in range(2):
        h = estimate._h[j]
        low, high = -points[:, j] / h, (1 - points[:, j]) / h
        kernels *= stats.truncnorm.pdf(x[:, j, None], low, high, loc=points[:, j], scale=h)
    expected = np.concatenate([kernels, expected], axis=1).mean(axis=1)
    assert density(axes, points, x) == pytest.approx(expected, rel=1e-5)


def test_the_bandwidth_is_that_of_the_rule():
    points = np.random.default_rng(2).random((30, 3)) ** 2
    values = np.concatenate([points, np.full((1, 3), 0.5)])
    spread = np.minimum(stats.iqr(values, axis=0) / 1.34, values.std(axis=0))
    axes = Axes(fw.Space({name: fw.Float(0.0, 1.0) for name in "abc"}))
    assert Parzen(axes, points, KERNEL)._h == pytest.approx(1.059 * spread * 31 ** (-1 / 5))


def test_draws_follow_the_density():
    space = fw.Space({"c": fw.Choice(["u", "v", "w"]), "k": fw.Int(1, 4), "x": fw.Float(0.0, 1.0)})
    axes, rng = Axes(space), np.random.default_rng(3)
    points = space.snap(rng.random((6, 3)))
    estimate = Parzen(axes, points, KERNEL)
    drawn = estimate.sample(20_000, rng)
    for j, cells in ((0, 3), (1, 4)):
        first = int(axes.one_hot_offset[j])
        table = np.exp(estimate._tables[first : first + cells])
        expected = (table.sum(axis=1) + 1 / cells) / 7
        observed = np.bincount(axes.cell(drawn, np.array([j]))[:, 0], minlength=cells) / len(drawn)
        assert observed == pytest.approx(expected, abs=0.015)
    h, centres = estimate._h[2], points[:, 2]

    def cumulative(u):
        kernels = stats.truncnorm.cdf(u[:, None], -centres / h, (1 - centres) / h, loc=centres, scale=h)
        return (kernels.sum(axis=1) + u) / 7

    assert stats.kstest(drawn[:, 2], cumulative).pvalue > 0.001


def test_inactive_parameters_have_no_say():
    axes = Axes(fw.Space(MIXED))
    space = axes.space
    rng = np.random.default_rng(4)
    points, x = space.snap(rng.random((20, 7))), space.snap(rng.random((30, 7)))
    assert np.isnan(points).any()
    assert np.isfinite(density(axes, points, x)).all()
    without = fw.Space({name: parameter for name, parameter in MIXED.items() if name != "drop"})
    inactive = np.isnan(x[:, -1])
    same = density(Axes(without), points[:, :-1], x[inactive, :-1])
    assert density(axes, points, x[inactive]) == pytest.approx(same, rel=1e-5)


def run(sampler, limits, trials=40, seed=0):
    study = fw.Study(MIXED, fw.Minimize("loss"), limits, sampler=sampler, stopper=fw.Never(), seed=seed)
    for _ in range(trials):
        trial = study.ask()
        u = np.nan_to_num(study.space.encode(trial.params), nan=0.5)
        constraints = {limit.metric: float(u[0]) for limit in limits}
        study.tell(trial, {"loss": float(((u - 0.7) ** 2).sum()), **constraints})
    return study


@given(st.integers(0, 50))
def test_constraints_that_always_hold_change_nothing(seed):
    free, held, plain = (
        run(sampler, limits, 15, seed)
        for sampler, limits in (
            (fw.CTPE(), []),
            (fw.CTPE(), [fw.AtMost("c", 2.0), fw.AtLeast("d", -1.0)]),
            (fw.TPE(), []),
        )
    )
    params = [[trial.params for trial in study.trials] for study in (free, held, plain)]
    assert params[0] == params[1] == params[2]


def test_it_seeks_what_is_feasible():
    shares = {}
    for sampler in (fw.Random(), fw.TPE(), fw.CTPE()):
        studies = [run(sampler, [fw.AtMost("c", 0.15)], 60, seed) for seed in range(4)]
        shares[type(sampler)] = np.mean([study.history.feasible[20:].mean() for study in studies])
    assert shares[fw.CTPE] > 2 * max(shares[fw.Random], shares[fw.TPE])


def factors(sampler, losses, values, limit=1.0):
    """The factors for trials at x = 0.005, 0.015, ..., with these losses and constraint values (None: unknown)."""
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtMost("c", limit)], sampler=sampler, seed=0)
    for k, (loss, value) in enumerate(zip(losses, values, strict=True)):
        study.enqueue({"x": (k + 0.5) / 100})
        given = {} if value is None else {"c": value}
        study.tell(study.ask(), {"loss": loss, **given})
    found = list(sampler._factors(study.history))
    return [(sorted((factor.good[:, 0] * 100 - 0.5).round().astype(int).tolist()), factor.gamma) for factor in found]


def test_the_good_group_holds_enough_feasible_points():
    losses, values = range(20), [2.0] * 6 + [0.5] + [2.0] * 8 + [0.5] * 5
    objective, constraint = factors(fw.CTPE(), losses, values)
    assert objective == (list(range(16)), 16 / 20)  # two feasible ones: the 7th and the 16th
    assert constraint == ([6, 15, 16, 17, 18, 19], 6 / 20)
    objective, _ = factors(fw.CTPE(feasible_split=False), losses, values)
    assert objective == ([0, 1], 2 / 20)


def test_with_too_few_feasible_points_the_objective_has_no_say():
    (constraint,) = factors(fw.CTPE(), range(20), [2.0] * 19 + [0.5])
    assert constraint == ([19], 1 / 20)


def test_while_nothing_is_feasible_the_least_violating_point_is_good():
    (constraint,) = factors(fw.CTPE(), range(20), [3.0] * 7 + [1.5] + [3.0] * 12)
    assert constraint == ([7], 1 / 20)


def test_unknown_rows_are_left_out_of_a_constraint_and_count_for_the_objective_as_much_as_others_are_feasible():
    values = [None] * 10 + [0.5, 2.0] * 5
    objective, constraint = factors(fw.CTPE(), range(20), values)
    assert objective == ([0, 1, 2, 3], 4 / 20)  # half of those known are feasible, and two are wanted
    assert constraint == ([10, 12, 14, 16, 18], 5 / 10)
    (objective,) = factors(fw.CTPE(), range(20), [None] * 20)
    assert objective == ([0, 1, 2, 3], 4 / 20)


def test_limits_that_are_paid_for_only_above_the_best_do_not_silence_the_objective():
    """Two feasible ones, one of them poor, and many worse than the best whose limits nobody paid for."""
    losses, values = [1, 2, 3, 4, 5, *range(6, 100), 500], [2.0] * 4 + [0.5] + [None] * 94 + [0.5]
    (good, _), _ = factors(fw.CTPE(), losses, values)
    assert max(good) < 20


def test_a_constraint_that_is_no_number_is_violated():
    (_, constraint) = factors(fw.CTPE(), range(20), [float("nan")] * 5 + [0.5] * 15)
    assert constraint == (list(range(5, 20)), 15 / 20)


def test_it_never_repeats_one_configuration_for_ever():
    """As a port of c-TPE does on a space of few points when nothing is feasible."""
    space = {name: fw.Choice(list(range(5))) for name in "abcdef"}
    study = fw.Study(space, fw.Minimize("loss"), [fw.AtMost("c", 0.5)], stopper=fw.Never(), seed=0)
    for _ in range(80):
        trial = study.ask()
        study.tell(trial, loss=1.0, c=1.0 + sum(trial.params.values()))
    assert len({str(trial.params) for trial in study.trials}) == 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"start": 0}, "start=0"),
        ({"gamma": 0.0}, "gamma=0"),
        ({"growth": "log"}, "growth='log': 'sqrt' or 'linear' is expected"),
        ({"stay": 1.5}, "stay=1.5"),
        ({"naive": 1}, "naive=1"),
    ],
)
def test_wrong_settings_are_refused(arguments, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        fw.CTPE(**arguments)


def test_a_run_ends_where_the_space_does():
    study = fw.Study({"a": fw.Int(1, 3), "b": fw.Choice(["x", "y"])}, fw.Minimize("loss"), seed=0)
    study.optimize(lambda trial: float(trial.params["a"]), trials=100)
    assert (len(study.trials), study.ended) == (6, "all 6 configurations of the space were tried")


def test_failed_rows_are_a_factor_of_their_own_and_partial_ones_enter_with_what_they_showed():
    sampler = fw.CTPE()
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=sampler, seed=0)
    for k in range(20):
        study.enqueue({"x": (k + 0.5) / 100})
        trial = study.ask()
        if k == 3:
            study.tell(trial, failed="made to fail")
            continue
        trial.report(loss=float(20 - k))
        trial.driver.cut("made to stop" if k >= 18 else "")
        study.tell(trial)
    assert study.history.partial.sum() == 2
    factor, failures = sampler._factors(study.history)
    assert sorted(factor.good[:, 0]) == pytest.approx([0.185, 0.195])
    assert len(factor.good) + len(factor.bad) == 19
    assert (len(failures.good), failures.bad[:, 0], failures.gamma) == (19, pytest.approx([0.035]), 0.95)


def test_running_trials_are_taken_for_bad_ones():
    study = run(fw.CTPE(), [], 20)
    study.ask(3)
    (factor,) = fw.CTPE()._factors(study.history)
    assert np.array_equal(factor.bad[-3:], study.history.pending, equal_nan=True)


def starting_from(studies, losses):
    """A study on x that starts from others, which had losses 0, 1, ..., 99 at 0, 0.01, ...; its own are near x = 1."""
    parts = {"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss")
    olds = [fw.Study(*parts, stopper=fw.Never(), seed=seed) for seed in range(studies)]
    for old, k in itertools.product(olds, range(100)):
        old.enqueue({"x": k / 100})
        old.tell(old.ask(), loss=float(k))
    study = fw.Study(*parts, stopper=fw.Never(), seed=9)
    for k, loss in enumerate(losses):
        study.enqueue({"x": 1 - k / 10_000})
        study.tell(study.ask(), loss=float(loss))
    return replace(study.history, earlier=tuple(old.history for old in olds))


@pytest.mark.parametrize(
    ("studies", "own", "good", "bad"),
    [(1, 2, 3, 18), (1, 20, 3, 10), (1, 180, 2, 2), (1, 800, 0, 0), (2, 2, 6, 18), (3, 2, 9, 18)],
)
def test_rows_of_earlier_studies_join_the_groups_of_the_objective_fewer_with_each_own_trial(studies, own, good, bad):
    history = starting_from(studies, range(own))
    (alone,), (joined,) = (fw.CTPE()._factors(one) for one in (replace(history, earlier=()), history))
    assert np.array_equal(joined.good[: len(alone.good)], alone.good)
    assert np.array_equal(joined.bad[: len(alone.bad)], alone.bad)
    more = joined.good[len(alone.good) :, 0], joined.bad[len(alone.bad) :, 0]
    assert [len(points) for points in more] == [good, bad]
    assert all(points < 0.03 for points in more[0])  # the best of the earlier ones, by their own losses
    assert all(points >= 0.03 for points in more[1])
    assert joined.gamma == alone.gamma


def test_an_earlier_study_says_where_to_look():
    candidates, rng, history = np.linspace(0.0, 0.9, 91)[:, None], np.random.default_rng(0), starting_from(1, range(12))
    assert candidates[fw.CTPE().choose(history, candidates, rng)] < 0.05
    assert candidates[fw.CTPE().choose(replace(history, earlier=()), candidates, rng)] > 0.5


def test_an_earlier_study_that_knows_less_than_half_of_the_parameters_does_not_count():
    space = {name: fw.Float(0.0, 1.0) for name in "abc"}
    old = fw.Study({"a": space["a"]}, fw.Minimize("loss"), stopper=fw.Never(), seed=0)
    old.optimize(lambda trial: trial.params["a"], trials=30, progress=False)
    proposed = []
    for start_from in ([], [old]):
        study = fw.Study(space, fw.Minimize("loss"), stopper=fw.Never(), seed=1, start_from=start_from)
        study.optimize(lambda trial: trial.params["b"], trials=15, progress=False)
        proposed.append([trial.params for trial in study.trials])
    assert proposed[0] == proposed[1]
