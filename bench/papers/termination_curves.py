"""Automatic termination under a limit: searches on recorded learning curves, whose trials ACE stops early.

A part of `python -m bench run termination`, with `--curves`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import fairway as fw
from bench import runs
from fairway.history import History
from fairway.terminators.terminator import Verdict

LIMIT, BUDGET = 0.25, 20.0  # of the constraint; virtual seconds


class Trusting(fw.RegretBound):
    """The bound that takes stopped trials for what they showed, as if they could have come to no more."""

    def check(self, history: History) -> Verdict:  # noqa: D102
        return super().check(replace(history, partial=np.zeros(len(history), bool)))


def _search(job: tuple[str, fw.Terminator | None, int]) -> tuple[int, float, float, bool]:
    """Trials, seconds and best feasible objective of one simulated search, and whether it ended by itself."""
    path, terminator, seed = job
    recording = fw.Recording.load(path)
    limits = [fw.AtMost("eod", LIMIT)]
    study = fw.Study(recording.space, fw.Maximize("auc"), limits, stopper=fw.ACE(), terminator=terminator, seed=seed)
    done = fw.simulate(study, recording, workers=4, budget=BUDGET)
    best = -math.inf if study.best is None else float(study.best.metrics["auc"] or 0.0)
    return len(study.trials), done.seconds, best, done.ended.startswith("regret bound")


def curve_table(path: Path, seeds: int, processes: int) -> Iterator[str]:
    """When searches on recorded curves end, and how far the best then is from the best feasible one of the table."""
    recording = fw.Recording.load(path)
    feasible = recording.metrics["eod"] <= LIMIT
    oracle = float(recording.metrics["auc"][feasible].max())
    yield from ("", f"## Recorded curves, eod at most {LIMIT}, c-TPE and ACE, {seeds} seeds, {BUDGET:g} s at most", "")
    yield "| rule | trials | seconds | ended by itself | regret x 1000 | within the threshold, of those |"
    yield "| --- | --- | --- | --- | --- | --- |"
    rules: list[tuple[str, float, fw.Terminator | None]] = [("none", math.nan, None)]
    for threshold in (0.02, 0.05):
        rules.append((f"ours, {threshold}", threshold, fw.RegretBound(threshold)))
        rules.append((f"stopped trials at their word, {threshold}", threshold, Trusting(threshold)))
    code = [inspect.getsource(part) for part in (_search, Trusting)]
    kept = f"termination-curves-{runs.digest(path, runs.SOURCES / 'terminators', *runs.simulation_sources(), *code)}"
    jobs = {(name, seed): (str(path), terminator, seed) for name, _, terminator in rules for seed in range(seeds)}
    every = runs.run_all(_search, jobs, kept=kept, processes=processes, label="curves")
    for name, threshold, _ in rules:
        trials, seconds, best, ended = np.array([every[name, seed] for seed in range(seeds)], float).T
        regret = oracle - best
        within = f"{(regret[ended == 1] <= threshold).mean():.0%}" if ended.any() else ""
        cells = [name, f"{trials.mean():.0f}", f"{seconds.mean():.1f}", f"{ended.mean():.0%}"]
        yield f"| {' | '.join(cells)} | {runs.mean(1000 * regret, 2)} | {within} |"
