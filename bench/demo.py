"""The demo's search beside random search in the same seconds, and why its trials stopped.

    python -m bench.demo [--seeds 5] [--seconds 30] [--first-seed 1000]

Both stop trials by the default stopper. They take turns, seed by seed, and each is one process on one thread; run it on
a quiet machine. Seeds below 1000 were looked at when the demo's task was made.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from dataclasses import dataclass, field
from itertools import product

import numpy as np

import fairway as fw
from bench import runs
from fairway.demo import Credit, open_study

SAMPLERS: dict[str, fw.Sampler | None] = {"default": None, "random search": fw.Random()}
KINDS = {
    "not among": "not among the best 55% at its step",
    "not on course": "not on course for the best 55% at its step",
    "behind the best": "too far behind the best to catch up",
    "violated since": "beyond the limit, and such trials rarely come back",
}


def kind(reason: str) -> str:
    """What a reason says, in the words of a newcomer."""
    return next((words for part, words in KINDS.items() if part in reason), reason)


@dataclass
class Searches:
    """What the searches with one sampler came to."""

    auc: list[float] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)
    checks: list[float] = field(default_factory=list)  # the share of the seconds
    why: Counter[str] = field(default_factory=Counter)

    def add(self, study: fw.Study) -> None:
        """One more search."""
        best, costs = study.best, study.costs
        auc = 0.5 if best is None else best.metrics["auc"]
        assert auc is not None
        self.auc.append(auc)
        self.trials.append(len(study.trials))
        self.checks.append(costs.check_seconds / (costs.check_seconds + costs.training_seconds))
        self.why.update(kind(trial.reason) for trial in study.trials if trial.status == "stopped")

    def row(self) -> tuple[str, str, str, str]:
        """The cells of the table, but for the first."""
        shares = ", ".join(f"{count / self.why.total():.0%} {words}" for words, count in self.why.most_common(3))
        auc = runs.mean([1000 * each for each in self.auc], 2)
        return auc, f"{np.mean(self.trials):.0f}", f"{np.mean(self.checks):.0%}", shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--first-seed", type=int, default=1000)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    credit, searches = Credit(), {name: Searches() for name in SAMPLERS}
    for seed, name in product(range(given.first_seed, given.first_seed + given.seeds), SAMPLERS):
        study = open_study(seed, SAMPLERS[name])
        study.optimize(credit.objective, timeout=given.seconds)
        searches[name].add(study)
        print(f"{name}, seed {seed}: auc {searches[name].auc[-1]:.4f}, {len(study.trials)} trials", flush=True)
    rows = [(name, *made.row()) for name, made in searches.items()]
    heading = ("search", "auc x 1000 within the limit", "trials", "seconds on checks", "trials stopped because")
    print("\n".join(["", *runs.table(heading, rows)]))
    ahead = 1000 * np.subtract(searches["default"].auc, searches["random search"].auc)
    print(
        f"\nthe default is ahead by {runs.mean(ahead, 2)} (x 1000), in {int((ahead > 0).sum())} of {given.seeds} seeds"
    )


if __name__ == "__main__":
    main()
