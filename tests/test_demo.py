from __future__ import annotations

import re

import numpy as np
import pytest

import fairway as fw
from fairway.demo import LIMIT, Credit, auc, credit_table, main


@pytest.fixture(scope="module")
def credit():
    return Credit()


def test_auc_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    truth, scores = rng.integers(0, 2, 200), rng.integers(0, 20, 200) / 20  # with ties
    wins = [(one > other) + (one == other) / 2 for one in scores[truth == 1] for other in scores[truth == 0]]
    assert auc(truth, scores) == pytest.approx(np.mean(wins))


def test_the_group_is_not_among_the_features():
    features, _, group = credit_table()
    assert np.abs([np.corrcoef(column, group)[0, 1] for column in features.T]).max() < 0.05


def test_default_settings_break_the_limit(credit):
    booster = credit.booster({}, rounds=100)
    assert credit.eod(booster) > 1.2 * LIMIT


def test_heavier_rows_of_the_group_that_the_score_fails_make_a_trained_model_fair_at_a_price(credit):
    light, even, heavy = (credit.booster({"group_weight": weight}, rounds=100) for weight in (0.05, 1.0, 20.0))
    assert credit.eod(light) > credit.eod(even) > LIMIT > credit.eod(heavy)
    assert 0.8 < credit.auc(heavy) < credit.auc(even)


def test_without_a_weight_all_rows_count_once(credit):
    plain, even = credit.booster({}, rounds=3), credit.booster({"group_weight": 1.0}, rounds=3)
    assert np.array_equal(plain.predict(credit.judge[0]), even.predict(credit.judge[0]))


def test_a_trial_that_finds_no_split_reports_a_model_that_ranks_nobody(credit):
    study = fw.Study({"min_gain_to_split": fw.Float(1e8, 1e9)}, fw.Maximize("auc"), fw.AtMost("eod", LIMIT), seed=0)
    study.optimize(credit.objective, trials=1, progress=False)
    assert (study.counts["failed"], study.best.step, study.best.objective) == (0, 1, 0.5)


def test_the_demo_ends_with_a_feasible_model_and_says_what_was_saved(capsys):
    main(seconds=600.0, trials=12)
    out = capsys.readouterr().out
    within = next(line for line in out.splitlines() if "best within the limit" in line)
    assert "yes" in within
    assert "no, by" in next(line for line in out.splitlines() if "LightGBM's defaults" in line)
    assert "fairness checks paid" in out
    said = " ".join(out.split())
    tally = re.search(r"12 trials in \d+ s: (none|\d+) ran to the end of 200 rounds, (\d+) were stopped early", said)
    assert tally is not None
    assert (0 if tally[1] == "none" else int(tally[1])) + int(tally[2]) == 12
    assert "s of training by stopping" in out
    first = next(line for line in out.splitlines() if "passed" in line or "failed" in line)
    assert [" ± " in first, " 9,000 " in first] == [True, True], first
