"""A cross-validated search under a constraint that ends by itself, and what continuing would have gained.

    pip install '.[sklearn]'
    python examples/ends_by_itself.py [--trials 150] [--workers 2]

The best forest for handwritten digits that fits a small device: at most 3,000 tree nodes. Ten folds measure its loss,
and their spread estimates the noise of that measurement. The search ends when the possible improvement is smaller.
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
    """The log loss on each fold, and the nodes of the largest forest."""
    losses, nodes = [], 0
    for train, test in FOLDS:
        model = ExtraTreesClassifier(**trial.params, random_state=trial.seed).fit(X[train], Y[train])
        right = model.predict_proba(X[test])[np.arange(len(test)), Y[test]]
        losses.append(float(-np.log(np.clip(right, 0.01, 1.0)).mean()))
        nodes = max(nodes, sum(tree.tree_.node_count for tree in model.estimators_))
    return {"loss": fw.Folds(losses), "nodes": nodes}


def make_study(terminator: fw.Terminator | None, **more: Any) -> fw.Study:
    """The study, with or without a terminator."""
    constraints = [fw.AtMost("nodes", 3000)]
    return fw.Study(SPACE, fw.Minimize("loss"), constraints, sampler=fw.GP(), terminator=terminator, seed=0, **more)


def main() -> None:
    """Search until the terminator ends it, then continue to the full budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=150, help="the full budget")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    study = make_study(fw.RegretBound("cv"))
    study.optimize(evaluate, trials=given.trials, workers=given.workers)
    found, at, seconds = study.best, len(study.trials), study.costs.training_seconds
    if found is None:
        print(f"No trial of {at} met the limit.")
        return
    loss, nodes = found.metrics["loss"], found.metrics["nodes"]
    print(f"Ended after {at} of {given.trials} trials: {study.ended}.")
    print(f"Best within the limit on the folds: loss {loss:.4f}, {nodes:.0f} nodes, {dict(found.params)}")
    if at == given.trials:
        return
    whole = make_study(None, storage=study.log)  # the same study without a terminator
    whole.optimize(evaluate, trials=given.trials - at, workers=given.workers)
    noise = float(study.history.noise[study.history.number == found.number][0])
    longer, gain = whole.costs.training_seconds / seconds, loss - whole.best.metrics["loss"]
    print(
        f"The full {given.trials} trials take {longer:.1f} times as long and gain {gain:.4f}; "
        f"the noise of the measurement is {noise:.4f}."
    )


if __name__ == "__main__":
    main()
