"""A cross-validated search under a limit that ends by itself, and what going on would have gained.

    pip install '.[sklearn]'
    python examples/ends_by_itself.py [--trials 200] [--workers 2]

The best forest for a table of tumours that fits a small device: at most 600 tree nodes. Ten folds measure its error,
and their spread says how far that measurement can be trusted. The search ends when what is left to gain is below it.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

import fairway as fw

X, Y = load_breast_cancer(return_X_y=True)
FOLDS = list(StratifiedKFold(10, shuffle=True, random_state=0).split(X, Y))
SPACE = {
    "n_estimators": fw.Int(2, 40, log=True),
    "max_depth": fw.Int(1, 12),
    "min_samples_leaf": fw.Int(1, 20, log=True),
    "max_features": fw.Float(0.05, 1.0),
}


def evaluate(trial):
    """The log loss of each fold, and the nodes of the largest forest among them."""
    losses, nodes = [], 0
    for train, test in FOLDS:
        model = ExtraTreesClassifier(**trial.params, random_state=trial.seed).fit(X[train], Y[train])
        losses.append(log_loss(Y[test], np.clip(model.predict_proba(X[test]), 1e-3, 1.0)))
        nodes = max(nodes, sum(tree.tree_.node_count for tree in model.estimators_))
    return {"loss": fw.Folds(losses), "nodes": nodes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="the full budget")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    study = fw.Study(
        SPACE,
        fw.Minimize("loss"),
        [fw.AtMost("nodes", 600)],
        sampler=fw.GP(),
        terminator=fw.RegretBound("cv"),
        seed=0,
    )
    study.optimize(evaluate, trials=given.trials, workers=given.workers)
    at, found = len(study.trials), study.best
    print(f"It ended after {at} of {given.trials} trials: {study.ended}.")
    print(f"Best within the limit: loss {found.metrics['loss']:.4f}, {found.metrics['nodes']:.0f} nodes, {found.params}")
    seconds = study.costs.training_seconds
    if at < given.trials:
        study.optimize(evaluate, trials=given.trials - at, workers=given.workers)
    gained = found.metrics["loss"] - study.best.metrics["loss"]
    noise = study.history.noise[study.history.number == found.number][0]
    more = study.costs.training_seconds - seconds
    print(
        f"Going on to {given.trials} trials took {more / seconds:.1f} times as long again and gained {gained:.4f}, "
        f"where the noise of the measurement is {noise:.4f}."
    )


if __name__ == "__main__":
    main()
