"""What a check costs as a booster grows: `Predictor` beside a plain `predict`, at rounds 3, 30 and 300.

A check predicts the rows that a limit is judged by, when the round before was checked too. A plain prediction by
XGBoost gets a `DMatrix` that it has not seen; making it is not counted. The bar: a check at round 300 costs less than
1.5 times one at round 3.

python -m bench.speed.boosting
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import lightgbm
import numpy as np
import xgboost

from fairway.demo import credit_table
from fairway.integrations import lightgbm as fairway_lightgbm
from fairway.integrations import xgboost as fairway_xgboost

SHOWN = (3, 30, 300)
ROWS = 10_000
TURNS = 25
X, Y, _ = credit_table(2 * ROWS)
TRAIN, JUDGE = (X[:ROWS], Y[:ROWS]), X[ROWS:]


def with_lightgbm() -> tuple[Any, Callable[[int], Callable[[], Any]]]:
    """A booster, and what makes a plain prediction by some rounds of it."""
    settings = {"objective": "binary", "verbosity": -1, "num_threads": 1}
    booster = lightgbm.train(settings, lightgbm.Dataset(*TRAIN), SHOWN[-1])
    return booster, lambda rounds: partial(booster.predict, JUDGE, num_iteration=rounds, num_threads=1)


def with_xgboost() -> tuple[Any, Callable[[int], Callable[[], Any]]]:
    """The same."""
    settings = {"objective": "binary:logistic", "nthread": 1}
    booster = xgboost.train(settings, xgboost.DMatrix(*TRAIN), SHOWN[-1])
    return booster, lambda rounds: partial(booster.predict, xgboost.DMatrix(JUDGE), iteration_range=(0, rounds))


def milliseconds(call: Callable[[], Any]) -> float:
    """CPU time of a call."""
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


def beside_plain(name: str, booster: Any, plain: Callable[[int], Callable[[], Any]], predict: Any) -> None:
    """Print what both cost at some rounds, measured in turns so that a busy moment hits all of them."""
    times = np.empty((TURNS, len(SHOWN), 2))
    for turn in range(TURNS):
        for i, rounds in enumerate(SHOWN):
            predict(booster, rounds - 1)
            check, other = partial(predict, booster, rounds), plain(rounds)
            times[turn, i] = milliseconds(check), milliseconds(other)
            np.testing.assert_allclose(check(), other(), rtol=1e-6)
    costs = np.median(times, axis=0)
    for rounds, (check_ms, plain_ms), growth in zip(SHOWN, costs, costs / costs[0], strict=True):
        print(
            f"  {name}, round {rounds:3}: {check_ms:5.2f} ms, x {growth[0]:.2f} of round {SHOWN[0]}; plain predict "
            f"{plain_ms:6.2f} ms, x {growth[1]:5.2f}; a check is x {plain_ms / check_ms:.1f} faster"
        )


def main() -> None:
    """Both libraries."""
    print(f"one check of a booster whose every round is checked, {ROWS:,} rows, CPU")
    beside_plain("LightGBM", *with_lightgbm(), fairway_lightgbm.Predictor(JUDGE))
    beside_plain("XGBoost", *with_xgboost(), fairway_xgboost.Predictor(JUDGE))


if __name__ == "__main__":
    main()
