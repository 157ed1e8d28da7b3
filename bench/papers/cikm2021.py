"""The CIKM 2021 contest on its two public functions: the preliminary round, and the final round, simulated.

    python -m bench run cikm2021 --data FOLDER [--seeds 20] [--processes 2] [--methods GP TPE]

FOLDER holds `cikm.py`, the functions and the contest's score (0: the median of random search after 100 evaluations, 1:
the optimum). Preliminary: 20 rounds of 5 suggestions. Final: the organisers' partial rewards are not public; they are
simulated after what the winners report of them: 14 readings, whose 95% interval shrinks and covers the final reward,
above or below it with equal chance. 700 readings in all, the price of 50 full evaluations; only full ones count.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ctpe_tabular import anchor
from bench.reproduction import Given, Need, Reproduction, Result

METHODS: dict[str, fw.Sampler] = {
    "random": fw.Random(),
    "TPE": fw.TPE(),
    "GP.cikm2021()": fw.GP.cikm2021(),
    "GP": fw.GP(),
}
FINALS: dict[str, tuple[fw.Sampler, fw.Stopper]] = {
    "GP.cikm2021(), every trial to its end": (fw.GP.cikm2021(), fw.Never()),
    "GP.cikm2021(), HalfAt(7, after=40), imputed": (fw.GP.cikm2021(), fw.HalfAt(7, after=40)),
    "GP.cikm2021(), HalfAt(7, after=40), as shown": (
        replace(fw.GP.cikm2021(), impute=False),
        fw.HalfAt(7, after=40),
    ),
}
WINNERS = {"data-2": 0.810, "data-30": 0.922}
ROUNDS, BATCH = 20, 5
READINGS, BUDGET = 14, 700
Job = tuple[str, str, str, int]


def _study(function: Any, sampler: fw.Sampler, stopper: fw.Stopper, seed: int) -> fw.Study:
    space = {f"p{k}": fw.Int(0, int(size) - 1) for k, size in enumerate(function.sizes)}
    return fw.Study(space, fw.Maximize("reward"), sampler=sampler, stopper=stopper, seed=seed)


def run(job: Job) -> float:
    """The best full reward of one repeat."""
    folder, name, method, seed = job
    function = anchor("cikm", folder).load(name)
    if method in FINALS:
        return _final(function, *FINALS[method], seed)
    study = _study(function, METHODS[method], fw.Never(), seed)
    for _ in range(ROUNDS):
        trials = study.ask(BATCH)
        for trial in trials:
            study.tell(trial, reward=float(function(tuple(trial.params.values()))))
    assert study.best is not None
    return float(study.best.metrics["reward"] or 0.0)


def _final(function: Any, sampler: fw.Sampler, stopper: fw.Stopper, seed: int) -> float:
    """Trials of 14 noisy readings, until the budget of readings is spent; only the last reading is the reward."""
    study, spent, best = _study(function, sampler, stopper, seed), 0, -np.inf
    spread = float(np.std(function.reward)) * 0.6
    while spent < BUDGET:
        trial = study.ask()
        reward = float(function(tuple(trial.params.values())))
        noise = np.random.default_rng([seed, trial.number])
        for step in trial.steps(READINGS):
            spent += 1
            width = spread * (1 - step / READINGS)  # the half width of the 95% interval
            trial.report(reward=reward + width / 1.96 * noise.normal())
            if spent == BUDGET:
                break
        if trial.last_step == READINGS:
            best = max(best, reward)
        elif spent == BUDGET and not trial.stopped:
            study.tell(trial, failed="the budget is spent")
            break
        study.tell(trial)
    return float(best)


def make(given: Given) -> Result:
    """Every repeat of both rounds."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    folder, methods = str(given.path), given.options.methods
    jobs: dict[tuple[str, str, int], Job] = {
        (name, method, seed): (folder, name, method, seed)
        for method in methods
        for name in WINNERS
        for seed in range(given.seeds)
    }
    sources = (runs.SOURCES / part for part in ("samplers", "models", "stoppers"))
    kept = f"cikm2021-{runs.digest(Path(__file__), *sources)}"
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=given.name)
    singles = [
        {"function": name, "method": method, "seed": seed, "best": value}
        for (name, method, seed), value in done.items()
    ]
    return Result(_report(folder, methods, given.seeds, done), singles)


def _report(folder: str, methods: list[str], repeats: int, results: dict[tuple[str, str, int], float]) -> str:
    cikm = anchor("cikm", folder)
    lines = [
        "# The CIKM 2021 contest, two public functions",
        "",
        f"{repeats} repeats; the contest's score (best and worst dropped), and single repeats ± error.",
        "Made by `python -m bench run cikm2021`. The winners' own code, 20 seeds: 0.810, 0.922, average 0.866.",
        "",
        "| round | method | data-2 | data-30 | average | single repeats: data-2 | data-30 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for method in methods:
        scores, singles = [], []
        for name in WINNERS:
            function = cikm.load(name)
            best = np.array([results[name, method, seed] for seed in range(repeats)])
            scores.append(cikm.score(function, best))
            single = np.clip((best - function.rand) / (function.best - function.rand), 0, 1)
            singles.append(runs.mean(single, 3))
        stage = "final (simulated)" if method in FINALS else "preliminary"
        numbers = " | ".join(f"{score:.3f}" for score in (*scores, float(np.mean(scores))))
        lines.append(f"| {stage} | {method} | {numbers} | {' | '.join(singles)} |")
    return "\n".join(lines) + "\n"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", default=[*METHODS, *FINALS], choices=[*METHODS, *FINALS])
    parser.add_argument("--repeats", dest="seeds", type=int, default=argparse.SUPPRESS, help="the same as --seeds")


CONTEST = Need(
    "the contest's two public functions and its score (cikm.py)",
    "FAIRWAY_ANCHORS",
    flags=("--data", "--anchors"),
    holds=("cikm.py",),
)
REPRODUCTIONS = (
    Reproduction(
        "cikm2021",
        "The CIKM 2021 contest: its preliminary round, and its final one simulated",
        (CONTEST,),
        make,
        3,
        20,
        options=_options,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "cikm2021", *sys.argv[1:]))
