"""Fair credit scoring with LightGBM and Fairlearn: the best AUC with similar error rates for both groups, certified.

    pip install '.[lightgbm,fairlearn]'
    python examples/fair_credit.py [--seconds 20] [--limit 0.15] [--workers 1]
    python examples/fair_credit.py --data uci_credit_card.csv.gz --limit 0.1

Every boosting round is reported; fairness, which takes a prediction for every row, is measured only when it can matter.
A quarter of the rows is for training, a quarter to judge by during the search, and half is kept fresh: on those the
limit is certified, and Fairlearn shows the certified model group by group. The data is synthetic or the UCI credit card
data, where column SEX is the group and hidden from the model.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before LightGBM is loaded: small trees need no threads

import lightgbm
import numpy as np
from fairlearn.metrics import MetricFrame, false_positive_rate, true_positive_rate
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import fairway as fw
from fairway.constraints import equalized_odds_difference
from fairway.demo import credit_table
from fairway.integrations.lightgbm import Predictor, callback

ROUNDS = 400
SPACE: dict[str, fw.Int | fw.Float] = {
    "num_leaves": fw.Int(2, 64, log=True),
    "min_child_samples": fw.Int(2, 256, log=True),
    "learning_rate": fw.Float(0.01, 0.5, log=True),
    "feature_fraction": fw.Float(0.2, 1.0),
    "lambda_l2": fw.Float(1e-3, 1e3, log=True),
}


class Credit:
    """The data: a quarter for training, a quarter to judge by, and half that no search sees."""

    def __init__(self, path: str | None) -> None:
        if path is None:
            x, y, group = credit_table(rows=16_000)
        else:
            names = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str).tolist()
            table = np.loadtxt(path, delimiter=",", skiprows=1)
            group, y = table[:, names.index("SEX")].astype(int), table[:, -1].astype(int)
            x = np.delete(table, [names.index("ID"), names.index("SEX"), len(names) - 1], axis=1)
        part = np.arange(len(y)) % 4
        self.seen = (x[part == 0], y[part == 0])
        self.x, self.y, self.group = x[part == 1], y[part == 1], group[part == 1]
        self.predict = Predictor(self.x)
        self.searched_by = x[part <= 1]
        self.fresh_truth, self.fresh_group = y[part > 1], group[part > 1]
        self.fresh = fw.FreshRows(
            x[part > 1],
            self.fresh_truth,
            groups=self.fresh_group,
            threshold=float(self.seen[1].mean()),
            eod=equalized_odds_difference,
        )

    def refused(self, booster: lightgbm.Booster, rounds: int | None = None) -> NDArray[np.bool_]:
        """Whose risk is above average. With 0.5 as the threshold, a model that refuses nobody would look fair."""
        return np.asarray(self.predict(booster, rounds) >= self.seen[1].mean())

    def eod(self, booster: lightgbm.Booster, rounds: int | None = None) -> float:
        """The larger gap between groups in true-positive or false-positive rate."""
        return equalized_odds_difference(self.y, self.refused(booster, rounds), sensitive_features=self.group)

    def fit(self, params: Mapping[str, Any], rounds: int, callbacks: Any = None) -> lightgbm.Booster:
        """A booster trained by plain LightGBM."""
        settings = {"objective": "binary", "metric": "auc", "verbosity": -1, "seed": 0, **params}
        data = lightgbm.Dataset(*self.seen)
        return lightgbm.train(settings, data, rounds, [data.create_valid(self.x, self.y)], callbacks=callbacks)

    def train(self, trial: fw.Trial) -> lightgbm.Booster:
        """One trial: LightGBM with fairway's callback."""
        return self.fit(trial.params, ROUNDS, [callback(trial, "auc", constraints={"eod": self.eod})])

    def row(self, name: str, booster: lightgbm.Booster) -> str:
        """One line of output, measured with plain `predict`."""
        auc = roc_auc_score(self.y, booster.predict(self.x))
        return f"{name:<43}{auc:.4f}  {self.eod(booster):.3f}  {booster.current_iteration():>6}"


def main() -> None:
    """Search for some seconds, print what the constraint costs, and certify it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=0.15, help="on the equalized-odds difference")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data", help="the UCI credit card data as .csv or .csv.gz")
    given = parser.parse_args()
    credit = Credit(given.data)

    # Unfairness grows with training here, so a trial that violates the constraint can stop for good.
    stopper = fw.ACE(tolerance="hard", interval=5)
    limit = fw.AtMost("eod", given.limit, confidence=0.9)  # with a margin of 1.28 standard errors
    study = fw.Study(SPACE, fw.Maximize("auc"), [limit], stopper=stopper, seed=0)
    study.searched_by(credit.searched_by)
    study.optimize(credit.train, timeout=given.seconds, workers=given.workers, progress=False)

    print(f"{'':<43}   AUC    EOD  rounds")
    print(credit.row("LightGBM's defaults", credit.fit({}, 100)))
    unconstrained = study.best_ignoring_limits
    if unconstrained is not None:
        label = f"best without the limit (trial {unconstrained.number})"
        print(credit.row(label, credit.fit(unconstrained.params, unconstrained.step)))
    if study.best is None:
        print(f"None of {len(study.trials)} trials has EOD <= {given.limit} with a margin.")
        return
    best, counts, costs = study.best, study.counts, study.costs
    auc, eod = best.metrics["auc"], best.metrics["eod"]
    print(f"{f'best within {given.limit}, by a margin (trial {best.number})':<43}{auc:.4f}  {eod:.3f}  {best.step:>6}")
    done, offered = sum(counts.values()), costs.checks + costs.saved_checks
    print(
        f"{done} trials, {counts['stopped']} stopped early, {counts['completed'] or 'none'} ran to the end; "
        f"{costs.checks:,} of {offered:,} fairness checks paid, in {costs.check_seconds:.1f} s."
    )
    certificate = study.certify(credit.fresh, credit.train)
    which = "certified" if certificate.certified else "tested and not certified"
    print(credit.row(f"{which} (trial {certificate.number})", certificate.model))
    print(f"\n{certificate}", *certificate.warnings, sep="\n")
    rates = {"true-positive rate": true_positive_rate, "false-positive rate": false_positive_rate}
    by_group = MetricFrame(
        metrics=rates,
        y_true=credit.fresh_truth,
        y_pred=credit.fresh.decide(certificate.model),
        sensitive_features={"group": credit.fresh_group},
    ).by_group
    print(by_group.round(3))


if __name__ == "__main__":
    main()
