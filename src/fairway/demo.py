"""`make demo`: tunes a credit model under a fairness constraint on synthetic data, and certifies it, in under a minute.

One feature is a score that predicts default well for one group and is mostly noise for the other. A model that relies
on the score is accurate but unfair, since its errors fall on one group. LightGBM's default settings do just that. The
search sets LightGBM's usual hyperparameters and one more: the weight of the rows of the group that the score fails
(reweighing). The heavier they are, the less the model relies on the score: it becomes fairer, and less accurate.

The table is cut in three: rows to train on, rows to judge by during the search, and fresh rows for the certificate.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from fairway.constraints import equalized_odds_difference
from fairway.report.certificates import attempts
from fairway.text import counted

if TYPE_CHECKING:
    from rich.console import Console

LIMIT = 0.1
_ROWS = 6000
_PARTS = (10_000, 4000, 9000)  # rows to train on, to judge by, and fresh ones
_ROUNDS = 200


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
    """The task: train LightGBM round by round on some rows, judge it on others, and keep the rest away from both."""

    def __init__(self) -> None:
        from fairway.integrations.lightgbm import Predictor  # noqa: PLC0415 - optional

        features, default, group = credit_table(sum(_PARTS))
        train, judge, rest = np.split(np.arange(len(default)), np.cumsum(_PARTS[:2]))
        self.train = (features[train], default[train])
        self.failed_by_score = group[train] == 0
        self.judge = (features[judge], default[judge])
        self.group = group[judge]
        self.predict = Predictor(features[judge])
        self.fresh = fw.FreshRows(
            features[rest],
            default[rest],
            groups=group[rest],
            threshold=lambda model: self.threshold(model.predict(self.judge[0])),
            eod=equalized_odds_difference,
        )

    def booster(self, params: Mapping[str, Any], rounds: int = 0) -> Any:
        """A booster trained for `rounds` rounds; rows of the group that the score fails count `group_weight` times."""
        import lightgbm  # noqa: PLC0415 - optional

        settings = {"objective": "binary", "verbosity": -1, "num_threads": 1, "seed": 0, "bagging_freq": 1, **params}
        weight = np.where(self.failed_by_score, settings.pop("group_weight", 1.0), 1.0)
        booster = lightgbm.Booster(settings, lightgbm.Dataset(*self.train, weight=weight, params=settings))
        for _ in range(rounds):
            booster.update()
        return booster

    def auc(self, booster: Any) -> float:
        """The AUC of a booster on the judging rows."""
        return auc(self.judge[1], self.predict(booster))

    def eod(self, booster: Any) -> float:
        """The equalized-odds difference of a booster on the judging rows, with its error; 0 is fair."""
        scores = self.predict(booster)
        refused = scores >= self.threshold(scores)
        return equalized_odds_difference(self.judge[1], refused, sensitive_features=self.group)

    def threshold(self, scores: NDArray[np.float64]) -> float:
        """The probability from which credit is refused, chosen so that as many judging rows are refused as default."""
        return float(np.quantile(scores, 1.0 - self.judge[1].mean()))

    def objective(self, trial: fw.Trial) -> Any:
        """One trial, as a user of fairway would write it."""
        booster = self.booster(trial.params)
        for _ in trial.steps(_ROUNDS):
            ended = booster.update()  # no split is left
            trial.report(auc=self.auc(booster), eod=lambda: self.eod(booster))
            if ended:
                break
        return booster


def open_study(seed: int, sampler: fw.Sampler | None = None) -> fw.Study:
    """The search for a credit model, with the default sampler or another.

    >>> from fairway.demo import open_study
    >>> len(open_study(seed=0).space), "group_weight" in open_study(seed=0).space
    (8, True)
    """
    return fw.Study(
        {
            "num_leaves": fw.Int(2, 128, log=True),
            "min_child_samples": fw.Int(2, 256, log=True),
            "learning_rate": fw.Float(0.005, 0.5, log=True),
            "feature_fraction": fw.Float(0.2, 1.0),
            "bagging_fraction": fw.Float(0.2, 1.0),
            "lambda_l1": fw.Float(1e-3, 1e2, log=True),
            "lambda_l2": fw.Float(1e-3, 1e3, log=True),
            "group_weight": fw.Float(0.05, 20.0, log=True),
        },
        objective=fw.Maximize("auc"),
        constraints=[fw.AtMost("eod", LIMIT, confidence=0.9)],  # with a margin: its bound at 90% must be within
        sampler=sampler,
        seed=seed,
    )


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
    study = open_study(seed=0)
    console.print(
        f"Credit scoring, LightGBM {lightgbm.__version__}: the best AUC whose error rates differ by at most "
        f"{LIMIT:.0%} between two groups (eod <= {LIMIT}).\n"
        "One feature, a score, is accurate for one group only. The search sets LightGBM's parameters and how much "
        "the other group's rows count.\n"
        f"A search of {seconds:.0f} seconds, with the defaults.\n"
    )
    study.searched_by(np.concatenate([credit.train[0], credit.judge[0]]))
    began = time.monotonic()
    study.optimize(credit.objective, trials=trials, timeout=seconds, progress=True)
    spent = time.monotonic() - began

    default = credit.booster({}, rounds=100)
    best, free = study.best, study.best_ignoring_limits
    table = Table(title=f"\nWhat was found, on the {_PARTS[1]:,} rows the search judged by", title_justify="left")
    for heading in ("", "auc", "eod", f"within {LIMIT}?"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("LightGBM's defaults, 100 rounds", *_shown(credit.auc(default), credit.eod(default)))
    if free is not None:
        eod = free.metrics["eod"]
        if eod is None:
            eod = credit.eod(credit.booster(free.params, rounds=free.step))
        label = f"best without the limit: trial {free.number}, round {free.step}"
        table.add_row(label, *_shown(free.objective, eod))
    if best is None:
        table.add_row("[bold]best within the limit", "none found", "", "")
        console.print(table)
    else:
        label = f"[bold]best within the limit: trial {best.number}, round {best.step}"
        table.add_row(label, *_shown(best.objective, best.metrics["eod"]))
        console.print(table)
        console.print("  " + ", ".join(f"{name} {value:.4g}" for name, value in best.params.items()))
    costs = study.costs
    console.print(
        f"\n{trainings(study, spent)}\n"
        f"{costs.checks:,} of {costs.checks + costs.saved_checks:,} fairness checks paid.\n"
        f"Saved about {costs.saved_training_seconds:.0f} s of training by stopping and "
        f"{costs.saved_check_seconds:.0f} s of checks by skipping."
    )
    if best is not None:
        _certify(console, study, credit)


def trainings(study: fw.Study, seconds: float) -> str:
    """A sentence that says how many trials ran, how many were stopped early, and how soon."""
    stopped = [trial.steps for trial in study.trials if trial.status == "stopped"]
    soon = f", half of these within {counted(int(np.median(stopped)), 'round')}" if stopped else ""
    return (
        f"{counted(len(study.trials), 'trial')} in {seconds:.0f} s: {study.counts['completed'] or 'none'} ran to the "
        f"end of {_ROUNDS} rounds, {len(stopped):,} were stopped early{soon}."
    )


def _certify(console: Console, study: fw.Study, credit: Credit) -> None:
    """Certify the limit on the fresh rows, and print the result."""
    from rich.table import Table  # noqa: PLC0415

    console.print(
        f"\nOut of many noisy measurements the search picks one that looks feasible. Does it hold for others?\n"
        f"Candidates from safe to bold, each tested on {_PARTS[2]:,} fresh rows until one fails:"
    )
    certificate = study.certify(credit.fresh, credit.objective)
    headings, rows = attempts(study.problem, certificate)
    table = Table()
    for heading, *cells in zip(headings, *rows, strict=True):
        width = max(map(len, (*heading.split(), *cells)))  # headings are broken between words, for 80 characters
        table.add_column(heading, justify="right", width=width)
    for row, tested in zip(rows, certificate.tested, strict=True):
        table.add_row(*row, style="green" if tested.passed else "red")
    console.print(table)
    console.print(f"[bold]{'Certified' if certificate.certified else 'Not certified'}:[/bold] {certificate}")
    for warning in certificate.warnings:
        console.print(f"[yellow]{warning}")


def _shown(auc: float, eod: float | None) -> tuple[str, str, str]:
    assert eod is not None
    return f"{auc:.4f}", f"{eod:.3f}", "[green]yes" if eod <= LIMIT else f"[red]no, by {eod - LIMIT:.3f}"


if __name__ == "__main__":
    main()
