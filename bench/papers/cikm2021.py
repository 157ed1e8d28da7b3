"""The CIKM 2021 contest on its two public functions: the preliminary round, and the final round, simulated.

    python -m bench.papers.cikm2021 --anchors FOLDER [--repeats 20] [--processes 2] [--methods GP TPE]

FOLDER holds `cikm.py`, the functions and the contest's score (0: the median of random search after 100 evaluations, 1:
the optimum). Preliminary: 20 rounds of 5 suggestions. Final: the organisers' partial rewards are not public; they are
simulated after what the winners report of them: 14 readings, whose 95% interval shrinks and covers the final reward,
above or below it with equal chance. 700 readings in all, the price of 50 full evaluations; only full ones count.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import fairway as fw

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


def _cikm(folder: str) -> Any:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("cikm")


def run(job: Job) -> float:
    """The best full reward of one repeat."""
    folder, name, method, seed = job
    function = _cikm(folder).load(name)
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
        if trial._last == READINGS:
            best = max(best, reward)
        elif spent == BUDGET and not trial.stopped:
            study.tell(trial, failed="the budget is spent")
            break
        study.tell(trial)
    return float(best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anchors", default=os.environ.get("FAIRWAY_ANCHORS", ""), help="folder of the contest")
    parser.add_argument("--methods", nargs="+", default=[*METHODS, *FINALS], choices=[*METHODS, *FINALS])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("bench/results/cikm2021.md"))
    given = parser.parse_args()
    if not given.anchors:
        parser.exit(2, "cikm2021: it needs the functions; pass --anchors FOLDER or set FAIRWAY_ANCHORS\n")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    results = _run_all(given.anchors, given.methods, given.repeats, given.processes)
    text = _report(given.anchors, given.methods, given.repeats, results)
    given.out.write_text(text)
    print(text)


def _run_all(folder: str, methods: list[str], repeats: int, processes: int) -> dict[Job, float]:
    """Every repeat, those that this code made before included."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for part in ("samplers", "models", "stoppers"):
        for source in sorted((Path(fw.__file__).parent / part).glob("*.py")):
            digest.update(source.read_bytes())
    kept = Path("bench/out") / f"cikm2021-{digest.hexdigest()[:12]}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    if kept.exists():
        done = {tuple(row[0]): row[1] for row in map(json.loads, kept.read_text().splitlines())}
    jobs = [(folder, name, method, seed) for method in methods for name in WINNERS for seed in range(repeats)]
    todo = [job for job in jobs if job[1:] not in done]
    with kept.open("a") as file, ProcessPoolExecutor(processes) as pool:
        for job, value in zip(todo, track(pool.map(run, todo), "repeats", total=len(todo)), strict=True):
            done[job[1:]] = value
            file.write(json.dumps([job[1:], value]) + "\n")
            file.flush()
    return {job: done[job[1:]] for job in jobs}


def _report(folder: str, methods: list[str], repeats: int, results: dict[Job, float]) -> str:
    cikm = _cikm(folder)
    lines = [
        "# The CIKM 2021 contest, two public functions",
        "",
        f"{repeats} repeats; the contest's score (best and worst dropped), and single repeats ± error.",
        "Made by `python -m bench.papers.cikm2021`. The winners' own code, 20 seeds: 0.810, 0.922, average 0.866.",
        "",
        "| round | method | data-2 | data-30 | average | single repeats: data-2 | data-30 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for method in methods:
        scores, singles = [], []
        for name in WINNERS:
            function = cikm.load(name)
            best = np.array([results[folder, name, method, seed] for seed in range(repeats)])
            scores.append(cikm.score(function, best))
            single = np.clip((best - function.rand) / (function.best - function.rand), 0, 1)
            singles.append(f"{single.mean():.3f} ± {single.std(ddof=1) / np.sqrt(repeats):.3f}")
        stage = "final (simulated)" if method in FINALS else "preliminary"
        numbers = " | ".join(f"{score:.3f}" for score in (*scores, float(np.mean(scores))))
        lines.append(f"| {stage} | {method} | {numbers} | {' | '.join(singles)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
