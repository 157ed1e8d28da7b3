"""The most accurate digit classifier that is small and fast: two constraints, both measured on the model itself.

    pip install '.[sklearn]'
    python examples/small_digits.py [--trials 40] [--kb 150] [--ms 2.5]

A forest grows in twenty steps. Its size and latency are measured only when they can matter, on the trees that it had
when it was reported. By default, `--ms` is half the latency of the largest forest on this machine.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import train_test_split

import fairway as fw
from fairway.constraints import latency, model_size
from fairway.integrations.sklearn import fit_steps

TREES = 60
X, JUDGE_X, Y, JUDGE_Y = train_test_split(*load_digits(return_X_y=True), test_size=0.4, random_state=0)
SPACE: dict[str, fw.Int | fw.Float] = {
    "max_depth": fw.Int(3, 20),
    "min_samples_leaf": fw.Int(1, 20, log=True),
    "max_features": fw.Float(0.05, 1.0),
}


def first(forest: ExtraTreesClassifier, trees: int) -> ExtraTreesClassifier:
    """The forest as it was with its first `trees` trees."""
    smaller = copy.copy(forest)
    smaller.estimators_ = forest.estimators_[:trees]
    smaller.n_estimators = trees
    return smaller


def kilobytes(forest: ExtraTreesClassifier) -> float:
    """The pickled size."""
    return model_size(forest) / 1000


def milliseconds(forest: ExtraTreesClassifier) -> float:
    """The 95th percentile of the time that one prediction takes."""
    return 1000 * latency(forest, JUDGE_X, seconds=0.1)


def train(trial: fw.Trial) -> ExtraTreesClassifier:
    """One trial: three more trees per step."""
    forest = ExtraTreesClassifier(n_estimators=TREES, random_state=trial.seed, **trial.params)
    for grown in fit_steps(trial, forest, X, Y, total=20):
        trial.report(
            accuracy=grown.score(JUDGE_X, JUDGE_Y),
            kb=lambda trees, grown=grown: kilobytes(first(grown, trees)),
            ms=lambda trees, grown=grown: milliseconds(first(grown, trees)),
            checkpoint=len(grown.estimators_),
        )
    return grown


def main() -> None:
    """Search, rebuild the winner, and measure it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=40.0, help="maximum search time")
    parser.add_argument("--kb", type=float, default=150.0, help="maximum size in kilobytes")
    parser.add_argument("--ms", type=float, help="maximum latency in milliseconds")
    given = parser.parse_args()
    largest = ExtraTreesClassifier(n_estimators=TREES, random_state=0).fit(X, Y)
    ms = given.ms or milliseconds(largest) / 2
    constraints = [fw.AtMost("kb", given.kb), fw.AtMost("ms", ms)]
    stopper = fw.ACE(tolerance="hard", interval=1)  # a forest only grows: once too large or too slow, it stays so
    study = fw.Study(SPACE, fw.Maximize("accuracy"), constraints, stopper=stopper, seed=0)
    study.optimize(train, trials=given.trials, timeout=given.seconds)

    def line(name: str, accuracy: float, model: Any) -> str:
        return f"{name:20} {accuracy:8.3f} {kilobytes(model):8.0f} {milliseconds(model):6.1f}"

    print(f"{'':20} accuracy       kB     ms")
    print(line(f"default, {TREES} trees", largest.score(JUDGE_X, JUDGE_Y), largest))
    if study.best is None:
        print(f"No trial of {len(study.trials)} met both limits.")
        return
    print(line("best within limits", float(study.best.metrics["accuracy"] or 0.0), study.rebuild(train)))
    print(f"{'limits':20} {'':8} {given.kb:8.0f} {ms:6.1f}")
    counts, costs = study.counts, study.costs
    print(f"\n{3 * study.best.step} trees, {dict(study.best.params)}.")
    print(
        f"{sum(counts.values())} trials, {counts['stopped']} stopped early; {costs.checks} checks took "
        f"{costs.check_seconds:.1f} s, {costs.saved_checks} more would have taken {costs.saved_check_seconds:.0f} s."
    )


if __name__ == "__main__":
    main()
