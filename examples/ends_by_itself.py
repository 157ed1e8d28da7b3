"""A cross-validated search under a limit that ends by itself, and what going on would have gained.

    pip install '.[sklearn]'
    python examples/ends_by_itself.py [--trials 150] [--workers 2]

The best forest for handwritten digits that fits a small device: at most 3,000 tree nodes. Ten folds measure its loss,
and their spread says how far that measurement can be trusted. The search ends when what is left to gain is below it.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold

import fairway as fw

X, Y = load_digits(return_X_y=True)
FOLDS = list(StratifiedKFold(10, shuffle=True, random_state=0).split(X, Y))
SPACE: dict[str, fw.Int | fw.Float] = {
    "n_estimators": fw.Int(2, 40, log=True),
    "max_depth": fw.Int(2, 20),
    "min_samples_leaf": fw.Int(1, 20, log=True),
    "max_features": fw.Float(0.05, 1.0),
}


def evaluate(trial: fw.Trial) -> dict[str, Any]:
    """The log loss of each fold, and the nodes of the largest forest among them."""
    losses, nodes = [], 0
    for train, test in FOLDS:
        model = ExtraTreesClassifier(**trial.params, random_state=trial.seed).fit(X[train], Y[train])
        right = model.predict_proba(X[test])[np.arange(len(test)), Y[test]]
        losses.append(float(-np.log(np.clip(right, 0.01, 1.0)).mean()))
        nodes = max(nodes, sum(tree.tree_.node_count for tree in model.estimators_))
    return {"loss": fw.Folds(losses), "nodes": nodes}


def make_study(terminator: fw.Terminator | None, **more: Any) -> fw.Study:
    """The search, with or without something that ends it."""
    limits = [fw.AtMost("nodes", 3000)]
    return fw.Study(SPACE, fw.Minimize("loss"), limits, sampler=fw.GP(), terminator=terminator, seed=0, **more)


def main() -> None:
    """Search until it ends by itself, then go on to the full budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=150, help="the full budget")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    study = make_study(fw.RegretBound("cv"))
    study.optimize(evaluate, trials=given.trials, workers=given.workers)
    found, at, seconds = study.best, len(study.trials), study.costs.training_seconds
    if found is None:
        print(f"Nothing met the limit in {at} trials.")
        return
    loss, nodes = found.metrics["loss"], found.metrics["nodes"]
    print(f"It ended after {at} of {given.trials} trials: {study.ended}.")
    print(f"Best within the limit: loss {loss:.4f}, {nodes:.0f} nodes, {dict(found.params)}")
    if at == given.trials:
        return
    whole = make_study(None, storage=study.log)  # the same study, with nothing to end it
    whole.optimize(evaluate, trials=given.trials - at, workers=given.workers)
    noise = float(study.history.noise[study.history.number == found.number][0])
    longer, gain = whole.costs.training_seconds / seconds, loss - whole.best.metrics["loss"]
    print(
        f"The full {given.trials} trials take {longer:.1f} times as long, and gain {gain:.4f} "
        f"where the noise of the measurement is {noise:.4f}."
    )


if __name__ == "__main__":
    main()
