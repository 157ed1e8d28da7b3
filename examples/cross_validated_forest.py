"""A cross-validated forest under a limit, by a scikit-learn estimator that ends its search by itself.

    pip install '.[sklearn]'
    python examples/cross_validated_forest.py [--trials 80] [--workers 2]

Each configuration is judged by ten folds, one after another: a hopeless one is stopped after a few, and the whole
search ends when what is left to gain is down to the noise of the ten folds, or when 25 configurations in a row have
gained nothing. The limit: 3,000 nodes in all trees.
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
    """How large a forest is: a scorer like any other, which needs no rows."""
    del rows, truth
    return sum(int(tree.tree_.node_count) for tree in forest.estimators_)


def main() -> None:
    """Search, and judge the winner on rows that no fold has seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=80, help="at the most")
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
        terminator=fw.any_of(fw.RegretBound("cv", factor=2.2, top=1.0), fw.Plateau(25)),
        trials=given.trials,
        workers=given.workers,
        random_state=0,
    ).fit(rows, truth)
    results, study = search.cv_results_, search.study_
    tried, folds = len(results["params"]), int(results["n_folds"].sum())
    print(f"It ended after {tried} of {given.trials} configurations: {study.ended}.")
    print(f"{folds} of {10 * tried} folds were run; {study.counts['stopped']} configurations were stopped early.")
    print(f"Best within the limit: accuracy {search.best_score_:.3f}, {search.best_limits_['nodes']:.0f} nodes a fold,")
    print(f"  {search.best_params_}")
    print(f"On rows that no fold has seen: accuracy {search.score(unseen, unseen_truth):.3f}.")


if __name__ == "__main__":
    main()
