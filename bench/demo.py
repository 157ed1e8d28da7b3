"""The demo's search beside random search in the same seconds, and why its trials stopped.

    python -m bench.demo [--seeds 5] [--seconds 30]

Both stop trials by the default stopper. A search is one process on one thread; run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter

import numpy as np

import fairway as fw
from bench import runs
from fairway.demo import Credit, open_study

SAMPLERS: dict[str, fw.Sampler | None] = {"default": None, "random search": fw.Random()}
KINDS = {
    "not among": "worse than the better half at its step",
    "behind the best": "too far behind the best to catch up",
    "violated since": "beyond the limit, and such trials rarely come back",
}


def kind(reason: str) -> str:
    """What a reason says, in the words of a newcomer."""
    return next((words for part, words in KINDS.items() if part in reason), reason)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    credit, found, rows = Credit(), dict[str, list[float]](), []
    for name, sampler in SAMPLERS.items():
        trials, checks, why = [], [], Counter[str]()
        for seed in range(given.seeds):
            study = open_study(seed, sampler)
            study.optimize(credit.objective, timeout=given.seconds)
            best, costs = study.best, study.costs
            auc = 0.5 if best is None else best.metrics["auc"]
            assert auc is not None
            found.setdefault(name, []).append(1000 * auc)
            trials.append(len(study.trials))
            checks.append(costs.check_seconds / (costs.check_seconds + costs.training_seconds))
            why.update(kind(trial.reason) for trial in study.trials if trial.status == "stopped")
            print(f"{name}, seed {seed}: auc {auc:.4f}, {trials[-1]} trials", flush=True)
        shares = ", ".join(f"{count / why.total():.0%} {words}" for words, count in why.most_common(3))
        rows.append((name, runs.mean(found[name], 2), f"{np.mean(trials):.0f}", f"{np.mean(checks):.0%}", shares))
    heading = ("search", "auc x 1000 within the limit", "trials", "seconds on checks", "trials stopped because")
    print("\n".join(["", *runs.table(heading, rows)]))
    ahead = np.subtract(found["default"], found["random search"])
    print(
        f"\nthe default is ahead by {runs.mean(ahead, 2)} (x 1000), in {int((ahead > 0).sum())} of {given.seeds} seeds"
    )


if __name__ == "__main__":
    main()
