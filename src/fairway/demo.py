"""`make demo`: tunes a credit model under a fairness constraint on synthetic data, in under a minute.

One feature is a score that predicts default well for one group and is mostly noise for the other. A model that relies
on the score is accurate but unfair, since its errors fall on one group. LightGBM's default settings do just that.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from fairway.constraints import equalized_odds_difference

LIMIT = 0.10
_ROWS = 6000
_ROUNDS = 400


def credit_table(rows: int = _ROWS, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Synthetic features (rows, 8), default (rows,) and sensitive group (rows,), which is not among the features.

    >>> from fairway.demo import credit_table
    >>> features, default, group = credit_table(rows=100)
    >>> features.shape, set(group.tolist())
    ((100, 8), {0, 1})
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    income, debt, age, late = rng.normal(size=(4, rows))
    risk = 1.2 * debt - 1.0 * income + 0.8 * np.abs(late) - 0.4 * age + 0.5 * debt * late - 1.6
    default = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(np.int64)
    score = rng.normal(2.0 * default, np.where(group == 1, 0.6, 3.0))
    noise = rng.normal(size=(3, rows))
    return np.column_stack([income, debt, age, late, score, *noise]), default, group


def auc(truth: NDArray[np.int64], predicted: NDArray[np.float64]) -> float:
    """The area under the ROC curve: the probability that a default is ranked above a non-default.

    >>> from fairway.demo import auc
    >>> auc(np.array([0, 1, 1]), np.array([0.2, 0.1, 0.9]))
    0.5
    """
    _, place, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positives = int(truth.sum())
    return float((ranks[truth == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(truth) - positives)))


class Credit:
    """The task: train LightGBM round by round on one half of the rows, and validate it on the other."""

    def __init__(self) -> None:
        features, default, group = credit_table()
        self.train = (features[::2], default[::2])
        self.judge = (features[1::2], default[1::2])
        self.group = group[1::2]

    def booster(self, params: Mapping[str, Any], rounds: int = 0) -> Any:
        """A booster trained for `rounds` rounds."""
        import lightgbm  # noqa: PLC0415 - optional

        settings = {"objective": "binary", "metric": "none", "verbosity": -1, "num_threads": 1, "seed": 0}
        data = lightgbm.Dataset(*self.train, params=settings)
        booster = lightgbm.Booster({**settings, **params}, data)
        booster.add_valid(data.create_valid(*self.judge), "judge")
        for _ in range(rounds):
            booster.update()
        return booster

    def predict(self, booster: Any) -> NDArray[np.float64]:
        """The predicted probability of default in the validation half, from the scores that LightGBM keeps."""
        caught: list[NDArray[np.float64]] = []

        def catch(scores: NDArray[np.float64], _: Any) -> tuple[str, float, bool]:
            caught.append(scores)
            return "", 0.0, True

        booster.eval_valid(catch)
        return caught[0]

    def auc(self, booster: Any) -> float:
        """The validation AUC of a booster."""
        return auc(self.judge[1], self.predict(booster))

    def eod(self, booster: Any) -> float:
        """The equalized-odds difference of a booster; 0 is fair."""
        refused = self.predict(booster) >= 0.5  # noqa: PLR2004
        return equalized_odds_difference(self.judge[1], refused, sensitive_features=self.group)

    def objective(self, trial: fw.Trial) -> None:
        """One trial, as a user of fairway would write it."""
        booster = self.booster(trial.params)
        for _ in trial.steps(_ROUNDS):
            if booster.update():  # no split is left
                break
            trial.report(auc=self.auc(booster), eod=lambda: self.eod(booster))


def main(seconds: float = 30.0, *, trials: int | None = None) -> None:
    """Run the demo for some seconds, or until a number of trials, and print the result."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(highlight=False)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # OpenMP threads are slow on a busy machine
    try:
        import lightgbm  # noqa: PLC0415
    except ImportError:
        console.print("the demo trains LightGBM: pip install lightgbm")
        sys.exit(1)
    credit = Credit()
    study = fw.Study(
        {
            "num_leaves": fw.Int(2, 128, log=True),
            "min_child_samples": fw.Int(2, 256, log=True),
            "learning_rate": fw.Float(0.005, 0.5, log=True),
            "feature_fraction": fw.Float(0.2, 1.0),
            "lambda_l2": fw.Float(1e-3, 1e3, log=True),
        },
        objective=fw.Maximize("auc"),
        constraints=[fw.AtMost("eod", LIMIT)],
        sampler=fw.Random(),  # thousands of trials in half a minute: a model would cost more than a trial
        seed=0,
    )
    console.print(
        f"Credit scoring, LightGBM {lightgbm.__version__}: the best AUC whose error rates differ by at most "
        f"{LIMIT:.0%} between two groups (eod <= {LIMIT}).\nRandom search for {seconds:.0f} seconds.\n"
    )
    began = time.monotonic()
    study.optimize(credit.objective, trials=trials, timeout=seconds, progress=True)
    spent = time.monotonic() - began

    default = credit.booster({}, rounds=100)
    best, free = study.best, study.best_ignoring_limits
    table = Table(title="\nWhat was found", title_justify="left")
    for heading in ("", "auc", "eod", f"within {LIMIT}?"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("LightGBM's defaults, 100 rounds", *_judged(credit.auc(default), credit.eod(default)))
    if free is not None:
        eod = free.metrics["eod"]
        if eod is None:
            eod = credit.eod(credit.booster(free.params, rounds=free.step))
        label = f"best without the limit: trial {free.number}, round {free.step}"
        table.add_row(label, *_judged(free.metrics["auc"], eod))
    if best is None:
        table.add_row("[bold]best within the limit", "none found", "", "")
        console.print(table)
    else:
        label = f"[bold]best within the limit: trial {best.number}, round {best.step}"
        table.add_row(label, *_judged(best.metrics["auc"], best.metrics["eod"]))
        console.print(table)
        console.print("  " + ", ".join(f"{name} {value:.4g}" for name, value in best.params.items()))
    counts, costs = study.counts, study.costs
    done = sum(counts.values())
    console.print(
        f"\n{done} trials in {spent:.0f} s, {counts['stopped'] / done:.0%} stopped early; "
        f"{costs.checks:,} of {costs.checks + costs.saved_checks:,} fairness checks paid.\n"
        f"Saved about {costs.saved_training_seconds:.0f} s of training by stopping and "
        f"{costs.saved_check_seconds:.0f} s of checks by skipping."
    )


def _judged(auc: float | None, eod: float | None) -> tuple[str, str, str]:
    assert auc is not None
    assert eod is not None
    return f"{auc:.4f}", f"{eod:.3f}", "[green]yes" if eod <= LIMIT else f"[red]no, by {eod - LIMIT:.3f}"


if __name__ == "__main__":
    main()
