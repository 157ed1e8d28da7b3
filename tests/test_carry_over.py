"""The bench of earlier studies: how related two recordings are, and what counts as a configuration's best."""

from __future__ import annotations

import numpy as np
import pytest
from bench import carry_over
from bench.carry_over import Pair

import fairway as fw
from tests.test_bench import save


@pytest.fixture
def folder(tmp_path):
    """Three recordings, in one of which the best rates are the worst, and one of another space."""
    rng = np.random.default_rng(0)
    (tmp_path / "curves").mkdir()

    def record(name, parameters, accuracy):
        config = rng.random((200, len(parameters)))
        recorded = fw.Recording(
            space=fw.Space({each: fw.Float(0.0, 1.0) for each in parameters}),
            config=config,
            total_steps=np.full(200, 2),
            offset=np.arange(0, 401, 2),
            seconds=np.ones(400),
            metrics={"accuracy": np.repeat(accuracy(config[:, 0]), 2) * np.tile([0.5, 1.0], 200)},
        )
        save(recorded, tmp_path / "curves" / f"{name}.npz")

    record("one", ("rate", "depth"), lambda rate: rate)
    record("alike", ("rate", "depth"), np.sqrt)
    record("reversed", ("rate", "depth"), lambda rate: 1 - rate)
    record("other", ("width",), lambda width: width)
    return str(tmp_path)


def test_recordings_are_related_if_what_is_best_in_one_is_best_in_the_other(folder):
    stands = {name: carry_over.standing(Pair(name, "one", ""), folder) for name in ("alike", "reversed", "other")}
    assert stands["alike"] > 0.9
    assert stands["reversed"] < 0.1
    assert stands["other"] is None


def test_a_value_may_stand_for_a_parameter_that_the_earlier_recording_lacks(folder):
    assert carry_over.standing(Pair("other", "one", "", lacked={"rate": 1.0, "depth": 0.5}), folder) > 0.9
    assert carry_over.standing(Pair("other", "one", "", lacked={"rate": 0.0, "depth": 0.5}), folder) < 0.1


def test_a_configuration_that_is_never_feasible_counts_as_chance():
    metrics = {"auc": np.array([0.6, 0.9, 0.7, 0.8]), "eod": np.array([0.1, 0.3, 0.2, 0.4])}
    two = fw.Recording(
        space=fw.Space({"depth": fw.Int(1, 9)}),
        config=np.array([[1.0], [2.0]]),
        total_steps=np.array([2, 2]),
        offset=np.array([0, 2, 4]),
        seconds=np.ones(4),
        metrics=metrics,
    )
    limit = carry_over.problem(two)[1][0].threshold  # the median of both ends
    assert 0.3 <= limit < 0.4
    assert carry_over.bests(two).tolist() == [0.9, 0.7]
    metrics["eod"][2] = 0.5
    assert carry_over.bests(two).tolist() == [0.9, 0.5]


def test_the_regret_after_some_seconds_is_that_of_the_best_report_checked_by_then():
    course = [(0.0, 500.0), (1.0, 40.0), (5.0, 10.0)]
    assert [carry_over.regret_at(course, seconds) for seconds in (0.5, 1.0, 4.9, 5.0, 9.0)] == [500, 40, 40, 10, 10]


def test_a_search_has_the_regret_of_its_best_report_while_the_trial_still_runs(folder):
    course = carry_over.run(carry_over.Job(Pair("one", "alike", ""), carry_over.SCRATCH, 0, folder))[1]
    seconds, regrets = zip(*course, strict=True)
    most = carry_over.bests(carry_over.recording("alike", folder)).max()
    assert regrets[0] == 1000 * most
    assert list(seconds) == sorted(seconds)
    assert list(regrets) == sorted(regrets, reverse=True)
    assert seconds[1] == pytest.approx(1.0)  # after the first step of the first trial


def test_the_mean_over_pairs_counts_a_seed_once(monkeypatch):
    pairs = [Pair("a", "c", ""), Pair("b", "c", ""), Pair("d", "c", "", chosen_on=True), Pair("e", "c", "")]
    monkeypatch.setattr(carry_over, "PAIRS", pairs)
    stands = dict(zip((pair.label for pair in pairs), (0.9, 0.6, 0.7, None), strict=True))
    scratch = np.random.default_rng(0).normal(size=(8, 3, 2))
    noise = np.where(np.arange(8) % 2, 4.0, -4.0)[:, None, None]  # of the seeds, opposite in the first two pairs
    change = {"a": -1.0 + noise, "b": -3.0 - noise, "d": -5.0, "e": 1.0}
    regret = {}
    for pair in pairs:
        regret[pair.label, carry_over.SCRATCH] = scratch
        regret[pair.label, carry_over.START_FROM] = scratch + change[pair.earlier]
    rows = [line.strip("| ").split(" | ") for line in carry_over._over_pairs(regret, stands)[5:]]
    assert [row[:3] for row in rows] == [
        ["related, judged on", "2", "**-2.0 ± 0.0**"],
        ["related, all", "3", "**-3.0 ± 0.0**"],
        ["not related, judged on", "1", "**+1.0 ± 0.0**"],
        ["not related, all", "1", "**+1.0 ± 0.0**"],
    ]
