"""What a check costs as a booster grows: `Predictor` beside a plain `predict`, at rounds 3, 30 and 300.

Every round is checked: the rows that a limit is judged by are predicted. A plain prediction by XGBoost gets a `DMatrix`
that it has not seen; making it is not counted. The bar: a check at round 300 costs less than twice one at round 3.

python -m bench.speed.boosting
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairway.demo import credit_table

SHOWN = (3, 30, 300)
ROWS = 10_000
REPEATS = 15
X, Y, _ = credit_table(2 * ROWS)
TRAIN, JUDGE = (X[:ROWS], Y[:ROWS]), X[ROWS:]
Training = Iterator[tuple[Any, Sequence[Callable[[], Any]]]]


def lightgbm() -> Training:
    """The booster after each round, and a plain prediction by it."""
    import lightgbm  # noqa: PLC0415 - optional

    settings = {"objective": "binary", "verbosity": -1, "num_threads": 1}
    booster = lightgbm.Booster(settings, lightgbm.Dataset(*TRAIN))
    for _ in range(SHOWN[-1]):
        booster.update()
        yield booster, [partial(booster.predict, JUDGE, num_threads=1)] * REPEATS


def xgboost() -> Training:
    """The booster after each round, and a plain prediction by it."""
    import xgboost  # noqa: PLC0415 - optional

    data = xgboost.DMatrix(*TRAIN)
    booster = xgboost.Booster({"objective": "binary:logistic", "nthread": 1}, [data])
    for k in range(1, SHOWN[-1] + 1):
        booster.update(data, k)
        unseen = [xgboost.DMatrix(JUDGE) for _ in range(REPEATS)] if k in SHOWN else []
        yield booster, [partial(booster.predict, rows) for rows in unseen]


def milliseconds(calls: Sequence[Callable[[], Any]]) -> float:
    """CPU time of the fastest call, since the pace of a shared machine drifts."""
    times = []
    for call in calls:
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return 1000 * min(times)


def beside_plain(name: str, training: Training, predictor: Callable[[Any], Any]) -> None:
    """Print what both cost at some rounds, and their growth."""
    predictors = [predictor(JUDGE) for _ in range(REPEATS)]
    costs = []
    for k, (booster, plain) in enumerate(training, start=1):
        ours = milliseconds([partial(each, booster) for each in predictors])
        if k in SHOWN:
            costs.append((ours, milliseconds(plain)))
            np.testing.assert_allclose(predictors[0](booster), plain[0](), rtol=1e-6)
            (mine, theirs), growth = costs[-1], [now / then for now, then in zip(costs[-1], costs[0], strict=True)]
            print(
                f"  {name}, round {k:3}: {mine:5.2f} ms, x {growth[0]:.2f} of round {SHOWN[0]}; plain predict "
                f"{theirs:6.2f} ms, x {growth[1]:5.2f}; a check is x {theirs / mine:.1f} faster"
            )


def main() -> None:
    """Both libraries."""
    from fairway.integrations import lightgbm as fairway_lightgbm  # noqa: PLC0415 - optional
    from fairway.integrations import xgboost as fairway_xgboost  # noqa: PLC0415

    print(f"one check of a booster at every round, {ROWS:,} rows, CPU")
    beside_plain("LightGBM", lightgbm(), fairway_lightgbm.Predictor)
    beside_plain("XGBoost", xgboost(), fairway_xgboost.Predictor)


if __name__ == "__main__":
    main()
