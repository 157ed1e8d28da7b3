"""What it costs that workers know of each other a little late: regret under perfect sharing and with stale replicas.

    python -m bench.papers.staleness --data credit.npz [--seeds 40] [--processes 2]

Four virtual workers on recorded credit curves, random search under eod <= 0.25, 20 virtual seconds. Live processes
exchange within 100 ms (`python -m bench.speed.parallel` measures it). The difference is paired: the same seed tries the
same configurations in the same order.
"""

from __future__ import annotations

import argparse
import os
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from rich.progress import track

import fairway as fw
from bench.papers.ace_curves import LIMIT, PAPER_PRICE, WORKERS, load

BUDGET = 20.0
STALENESS = (0.0, 0.1, 1.0, 10.0)
METHODS = {"ACE": fw.ACE(), "ACE interval 1": fw.ACE(interval=1), "ACE hard": fw.ACE(tolerance="hard")}
Job = tuple[str, str, float, int]


def regret(job: Job) -> float:
    """In AUC x 1000, against the best feasible checkpoint of the whole table."""
    path, method, staleness, seed = job
    recording, best = load(path)
    study = fw.Study(
        recording.space,
        fw.Maximize("auc"),
        [fw.AtMost("eod", LIMIT)],
        sampler=fw.Random(),
        stopper=METHODS[method],
        seed=seed,
    )
    fw.simulate(study, recording, workers=WORKERS, budget=BUDGET, constraint_price=PAPER_PRICE, staleness=staleness)
    found = study.best
    assert found is not None
    auc = found.metrics["auc"]
    assert auc is not None
    return 1000 * (best - auc)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FAIRWAY_CREDIT_CURVES"), help="credit.npz")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if not given.data:
        parser.error("say where the recorded curves are: --data credit.npz, or FAIRWAY_CREDIT_CURVES")
    settings = [(method, staleness) for method in METHODS for staleness in STALENESS]
    jobs: list[Job] = [(given.data, *setting, seed) for setting in settings for seed in range(given.seeds)]
    with Pool(given.processes) as pool:
        results = list(track(pool.imap(regret, jobs), "simulating", total=len(jobs)))
    by_setting = dict(zip(settings, np.reshape(results, (len(settings), -1)), strict=True))
    lines = [f"regret, AUC x 1000, {given.seeds} seeds, {WORKERS} workers, {BUDGET:g} s, price {PAPER_PRICE}"]
    for method in METHODS:
        perfect = by_setting[method, 0.0]
        for staleness in STALENESS:
            ours = by_setting[method, staleness]
            line = f"  {method:15} {staleness * 1000:5.0f} ms   {ours.mean():.2f} ± {_error(ours):.2f}"
            if staleness:
                change = ours - perfect
                line += f"   difference {change.mean():+.2f} ± {_error(change):.2f}"
            lines.append(line)
    text = "\n".join(lines) + "\n"
    print(text)
    Path("bench/results/staleness.txt").write_text(text)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


if __name__ == "__main__":
    main()
