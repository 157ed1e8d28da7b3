from __future__ import annotations

import re

import numpy as np
import pytest

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


def test_the_demo_ends_with_a_feasible_model_and_says_what_was_saved(capsys):
    main(seconds=600.0, trials=12)
    out = capsys.readouterr().out
    within = next(line for line in out.splitlines() if "best within the limit" in line)
    assert "yes" in within
    assert "no, by" in next(line for line in out.splitlines() if "LightGBM's defaults" in line)
    assert "fairness checks paid" in out
    said = " ".join(out.split())
    tally = re.search(r"12 trials in \d+ s: (none|\d+) ran to the end of 400 rounds, (\d+) were stopped early", said)
    assert tally is not None
    assert (0 if tally[1] == "none" else int(tally[1])) + int(tally[2]) == 12
    assert "s of training by stopping" in out
    first = next(line for line in out.splitlines() if "passed" in line or "failed" in line)
    assert [" ± " in first, " 9,000 " in first] == [True, True], first
