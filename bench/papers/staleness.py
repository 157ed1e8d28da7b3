"""What it costs that workers know of each other a little late: regret under perfect sharing and with stale replicas.

    python -m bench run staleness [--data credit.npz] [--seeds 40] [--processes 2]

Four virtual workers on recorded credit curves, random search under eod <= 0.25, 20 virtual seconds. Live processes
exchange within 100 ms (`python -m bench.speed.parallel` measures it). The difference is paired: the same seed tries the
same configurations in the same order.
"""

from __future__ import annotations

import sys

import numpy as np

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ace_curves import LIMIT, PAPER_PRICE, WORKERS, load
from bench.papers.ace_tables import CURVES
from bench.reproduction import Given, Reproduction, Result, made_by

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


def make(given: Given) -> Result:
    """Every run, and the table."""
    settings = [(method, staleness) for method in METHODS for staleness in STALENESS]
    jobs: dict[tuple[str, float, int], Job] = {
        (*setting, seed): (str(given.path), *setting, seed) for setting in settings for seed in range(given.seeds)
    }
    kept = f"staleness-{runs.digest(given.path, *runs.simulation_sources())}"
    done = runs.run_all(regret, jobs, kept=kept, processes=given.processes, label=given.name)
    found = {setting: np.array([done[(*setting, seed)] for seed in range(given.seeds)]) for setting in settings}
    rows = [
        (
            method,
            f"{1000 * staleness:,.0f} ms",
            runs.mean(found[method, staleness], 2),
            runs.mean(found[method, staleness] - found[method, 0.0], 2, "+") if staleness else "",
        )
        for method, staleness in settings
    ]
    text = [
        "# What it costs that workers know of each other late",
        "",
        f"Regret in AUC x 1000 under eod <= {LIMIT}, random search, {WORKERS} workers, {BUDGET:g} virtual seconds, a",
        f"check costs {PAPER_PRICE} steps. Differences to perfect sharing are paired by seed. {made_by(given)}",
        "",
        *runs.table(("method", "late by", "regret", "difference"), rows),
    ]
    singles = [
        {"method": method, "staleness": staleness, "seed": seed, "regret": value}
        for (method, staleness, seed), value in done.items()
    ]
    return Result("\n".join(text) + "\n", singles)


REPRODUCTIONS = (Reproduction("staleness", "ACE where workers know of each other late", (CURVES,), make, 4, 40),)

if __name__ == "__main__":
    sys.exit(main("run", "staleness", *sys.argv[1:]))
