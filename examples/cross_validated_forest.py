"""A cross-validated forest under a size constraint, by a scikit-learn estimator that knows when to stop searching.

    pip install '.[sklearn]'
    python examples/cross_validated_forest.py [--trials 80] [--workers 2]

Each configuration is evaluated on ten folds, one after another; a hopeless one is stopped after a few. The search ends
when the possible improvement is no larger than the noise of the ten folds, or after 25 configurations in a row without
improvement. The constraint: at most 3,000 nodes in all trees.
"""

from __future__ import annotations

import argparse
from typing import Any

from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold, train_test_split

import fairway as fw
from fairway.integrations.sklearn import ConstrainedSearchCV


def nodes(forest: ExtraTreesClassifier, rows: Any, truth: Any) -> int:
    """A scorer, like any other in scikit-learn, that returns the size of the forest."""
    del rows, truth
    return sum(int(tree.tree_.node_count) for tree in forest.estimators_)


def main() -> None:
    """Search, and test the winner on unseen rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=80, help="maximum number of configurations")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows, unseen, truth, unseen_truth = train_test_split(*load_digits(return_X_y=True), test_size=0.3, random_state=0)
    search = ConstrainedSearchCV(
        ExtraTreesClassifier(random_state=0),
        {
            "n_estimators": fw.Int(2, 40, log=True),
            "max_depth": fw.Int(2, 20),
            "min_samples_leaf": fw.Int(1, 20, log=True),
            "max_features": fw.Float(0.05, 1.0),
        },
        scoring="accuracy",
        constraints=[fw.AtMost("nodes", 3000)],
        scorers={"nodes": nodes},
        cv=StratifiedKFold(10, shuffle=True, random_state=0),
        sampler=fw.GP(),
        terminator=fw.any_of(fw.RegretBound("cv"), fw.Plateau(25)),
        trials=given.trials,
        workers=given.workers,
        random_state=0,
    ).fit(rows, truth)
    results, study = search.cv_results_, search.study_
    tried, folds = len(results["params"]), int(results["n_folds"].sum())
    print(f"Ended after {tried} of {given.trials} configurations: {study.ended}.")
    print(f"{folds} of {10 * tried} folds were run; {study.counts['stopped']} configurations were stopped early.")
    nodes_per_fold = search.best_limits_["nodes"]
    print(f"Best within the limit on the folds: accuracy {search.best_score_:.3f}, {nodes_per_fold:.0f} nodes a fold,")
    print(f"  {search.best_params_}")
    print(f"On unseen rows: accuracy {search.score(unseen, unseen_truth):.3f}.")


if __name__ == "__main__":
    main()
