"""ACE and its rivals on recorded credit curves, in virtual time: random search under eod <= 0.25.

    python -m bench run ace_curves [--data credit.npz] [--seeds 20] [--processes 2] [--out bench/results]

Regret is in AUC x 1000 against the best feasible checkpoint of the whole table. Every method sees the same
configurations in the same order for the same seed.
"""

from __future__ import annotations

import platform
import sys
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ace_tables import CURVES
from bench.reproduction import Given, Reproduction, Result
from fairway.engine.events import Reported

LIMIT = 0.25
WORKERS = 4
BUDGETS = (10.0, 20.0)
GROUPS = 5  # of seeds, where the spread between groups is shown
PAPER_PRICE = 1.94
PRICES = (0.04, PAPER_PRICE, 24.0)
METHODS: dict[str, fw.Stopper] = {
    "Never": fw.Never(),
    "ASHA": fw.ASHA(),
    "ASHA strata": fw.ASHA(strata=True, interval="adaptive"),
    "ASHA strata, no skip": fw.ASHA(strata=True, interval="adaptive", skip=False),
    "ACE": fw.ACE(),
    "ACE hard": fw.ACE(tolerance="hard"),
    "ACE no skip": fw.ACE(skip=False),
    "ACE interval 1": fw.ACE(interval=1),
    "ACE interval T": fw.ACE(interval="end"),
    "ACE truncation 3%": fw.ACE(truncation=0.03),
    "ACE truncation 13%": fw.ACE(truncation=0.13),
    "ACE truncation 50%": fw.ACE(truncation=0.5),
    "ACE truncation 75%": fw.ACE(truncation=0.75),
}
# An independent prototype's regrets at the paper's price, 20 seeds, standard errors of about 0.15.
PROTOTYPE = {
    (10.0, "Never"): 2.78,
    (10.0, "ASHA"): 2.01,
    (10.0, "ACE"): 1.70,
    (10.0, "ACE hard"): 1.21,
    (20.0, "Never"): 2.12,
    (20.0, "ASHA"): 1.30,
    (20.0, "ACE"): 1.24,
    (20.0, "ACE hard"): 0.87,
}


Job = tuple[str, str, float, float, int]


@cache
def load(path: str) -> tuple[fw.Recording, float]:
    """The recording and the AUC of its best feasible checkpoint."""
    recording = fw.Recording.load(path)
    return recording, float(recording.metrics["auc"][recording.metrics["eod"] <= LIMIT].max())


def run(job: Job) -> dict[str, Any]:
    """One simulated study."""
    path, method, budget, price, seed = job
    recording, best = load(path)
    limits = [fw.AtMost("eod", LIMIT)]
    study = fw.Study(
        recording.space, fw.Maximize("auc"), limits, sampler=fw.Random(), stopper=METHODS[method], seed=seed
    )
    result = fw.simulate(study, recording, workers=WORKERS, budget=budget, constraint_price=price)
    found = study.best
    intervals = {
        event.number: (event.interval, event.total) for event in study.log.read() if isinstance(event, Reported)
    }
    auc = None if found is None else found.metrics["auc"]
    return {
        "method": method,
        "budget": budget,
        "price": price,
        "seed": seed,
        "regret": None if auc is None else 1000 * (best - auc),
        "trials": len(study.trials),
        "checks": study.costs.checks,
        "best_after": result.best_after,
        "share_used": result.share_used,
        "interval_1": float(np.mean([interval == 1 for interval, _ in intervals.values()])),
        "interval_t": float(np.mean([1 != interval == total for interval, total in intervals.values()])),
    }


def make(given: Given) -> Result:
    """Every run, and the tables."""
    path, seeds = str(given.path), given.seeds
    settings = [(method, budget, price) for price in PRICES for budget in BUDGETS for method in METHODS]
    wanted = [(*setting, seed) for setting in settings for seed in range(seeds)]
    more = range(seeds, GROUPS * seeds)
    wanted += [(method, budget, PAPER_PRICE, seed) for budget, method in PROTOTYPE for seed in more]
    jobs: dict[tuple[str, float, float, int], Job] = {key: (path, *key) for key in wanted}
    kept = f"ace_curves-{runs.digest(given.path, *runs.simulation_sources())}"
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=given.name)
    rows = [done[key] for key in wanted]
    return Result(report(rows, seeds, load(path)[1]), rows)


def report(rows: list[dict[str, Any]], seeds: int, best: float) -> str:
    """The tables, as Markdown."""
    groups: dict[tuple[float, float, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["price"], row["budget"], row["method"]].append(row)
    lines = [
        "# ACE on recorded credit curves",
        "",
        (
            f"Random search, eod <= {LIMIT}, {WORKERS} virtual workers, {seeds} seeds (0 to {seeds - 1}), the same "
            "configurations in the same order for every method. Regret in AUC x 1000 against the table's best feasible "
            f"{best:.5f}, mean ± standard error. Price: one check in mean steps. T: share that checks once, at "
            f"the end. Made by `python -m bench run ace_curves`, fairway {fw.__version__}, numpy {np.__version__}, "
            f"Python {platform.python_version()}."
        ),
    ]
    for price in PRICES:
        for budget in BUDGETS:
            lines += [
                "",
                f"## Price {price:g}, {budget:g} virtual seconds",
                "",
                "| method | regret | prototype | trials | checks | time to best (s) | table used | interval 1 | T |",
                "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            ]
            lines += [_row(method, groups[price, budget, method][:seeds]) for method in METHODS]
    lines += [
        "",
        f"## Beside the prototype, price {PAPER_PRICE:g}",
        "",
        f"An independent prototype ran 20 seeds of its own. Ours: {GROUPS * seeds} seeds, and their means by {seeds}.",
        "",
        f"| budget (s) | method | prototype | ours, {GROUPS * seeds} seeds | lowest to highest mean of {seeds} |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (budget, method), theirs in PROTOTYPE.items():
        group = groups[PAPER_PRICE, budget, method]
        means = np.array([row["regret"] for row in group], float).reshape(GROUPS, seeds).mean(axis=1)
        lines.append(
            f"| {budget:g} | {method} | {theirs:.2f} | {_regret(group)} | {means.min():.2f} to {means.max():.2f} |"
        )
    return "\n".join(lines) + "\n"


def _regret(group: list[dict[str, Any]]) -> str:
    regret = np.array([row["regret"] for row in group], float)
    nothing = int(np.isnan(regret).sum())
    return runs.mean(regret[~np.isnan(regret)], 2) + (f" ({nothing} found nothing)" if nothing else "")


def _row(method: str, group: list[dict[str, Any]]) -> str:
    columns = {name: np.array([row[name] for row in group], float) for name in group[0] if name != "method"}
    mean = {name: np.nanmean(column) for name, column in columns.items()}
    theirs = PROTOTYPE.get((group[0]["budget"], method)) if group[0]["price"] == PAPER_PRICE else None
    cells = (
        method,
        _regret(group),
        "" if theirs is None else f"{theirs:.2f}",
        f"{mean['trials']:.0f}",
        f"{mean['checks']:.0f}",
        f"{mean['best_after']:.1f}",
        f"{mean['share_used']:.1%}",
        f"{mean['interval_1']:.0%}",
        f"{mean['interval_t']:.0%}",
    )
    return f"| {' | '.join(cells)} |"


REPRODUCTIONS = (
    Reproduction("ace_curves", "ACE and its rivals: regret at three prices and two budgets", (CURVES,), make, 17, 20),
)

if __name__ == "__main__":
    sys.exit(main("run", "ace_curves", *sys.argv[1:]))
