"""Does a limit hold on rows nobody searched by? LightGBM under equalized odds: today's best, a margin, certificates.

    python -m bench run unseen --data FOLDER [--seeds 40] [--settings compas "compas population" ...] [--peers 10]

Each table is split into rows to train on, to judge by, to certify on and final ones (40/20/20/20), and searched for 20
CPU seconds. The limit is the median gap of 40 probed models plus 2.5 standard errors on the certification rows. Ways:

- *best*: `study.best`, within the limit on the judging rows.
- *margin*: the same with `AtMost("eod", limit, confidence=0.9)`.
- *certified*: `study.certify`, along the front.
- *single*: only `study.best` is tested. *Bonferroni*: the same candidates as *certified*, each at its share of the level.
- *Optuna*, *FLAML*: their best feasible model.

*certified*, *single* and *Bonferroni* share the search of *best*. Where the truth is known (the demo's generator, tables
taken as a population), a certificate is false if the true gap is above the limit.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

import numpy as np

import fairway as fw
from bench import runs
from bench.practitioner import FEWEST, SPACE
from bench.reproduction import Given, Reproduction, Result
from bench.splits import DEMO, POPULATION, ROUNDS, TABLES, Machine, Rows, odds, parameters, split
from bench.tables import TABLES as FOLDER
from fairway.constraints import equalized_odds_difference
from fairway.demo import auc

SECONDS, PROBED, PROBE_SEED, PEERS = 20.0, 40, 1_000_003, 10
LEVEL, ERRORS = 0.05, 2.5
SETTINGS = (*TABLES, *(f"{name} {POPULATION}" for name in TABLES if name != DEMO))
OURS = ("best", "certified", "single", "Bonferroni")
WAYS = ("best", "margin", "certified", "single", "Bonferroni", "Optuna", "FLAML")
CHANCE = 0.5  # the AUC of a split without a certificate
Found: TypeAlias = dict[str, Any]


class Job(NamedTuple):
    """One search, or the probing of a limit."""

    setting: str
    way: str  # probe, search, margin, Optuna or FLAML
    seed: int
    folder: str
    limit: float


def run(job: Job) -> Found:
    """One job, in this process."""
    warnings.filterwarnings("ignore", category=UserWarning)
    if job.way == "probe":
        return _probe(job)
    machine = Machine(split(job.setting, job.folder, job.seed), SECONDS)
    began = time.process_time()
    if job.way in ("Optuna", "FLAML"):
        model = {"Optuna": _optuna, "FLAML": _flaml}[job.way](machine, job)
        return {job.way: None if model is None else machine.facts(model)}
    found = _search(machine, job)
    return {**found, "seconds": time.process_time() - began}


def _probe(job: Job) -> Found:
    """The limit of a setting: at its round of the best AUC each of 40 random models has a gap on all rows left."""
    parts = split(job.setting, job.folder, PROBE_SEED)
    machine, rng = Machine(parts, math.inf), np.random.default_rng(PROBE_SEED)
    rest = Rows(*(np.concatenate(columns) for columns in zip(parts.judge, parts.certify, parts.final, strict=True)))
    gaps, errors = [], []
    while len(gaps) < PROBED:
        booster, best = machine.booster(parameters(rng)), (-math.inf, 0)
        for step in range(1, ROUNDS + 1):
            if booster.update():
                break
            best = max(best, (auc(parts.judge.y, machine.scores(booster)), step))
        if best[1]:
            threshold = machine.cutoff(booster.predict(parts.judge.x, num_iteration=best[1]))
            gaps.append(odds(rest, booster.predict(rest.x, num_iteration=best[1]) >= threshold))
            said = booster.predict(parts.certify.x, num_iteration=best[1]) >= threshold
            errors.append(odds(parts.certify, said).error)  # type: ignore[attr-defined]
    median, error = float(np.median(gaps)), float(np.median(errors))
    return {"limit": round(median + ERRORS * error, 4), "median": median, "error": error}


def _search(machine: Machine, job: Job) -> Found:
    """Search for 20 CPU seconds; then what each way makes of it."""
    limit = fw.AtMost("eod", job.limit, confidence=0.9 if job.way == "margin" else None)
    study = fw.Study(SPACE, fw.Maximize("auc"), [limit], seed=job.seed)
    while not machine.is_over:
        study.optimize(machine.train, trials=1)
    searched = machine.spent
    machine.without_budget()
    best = None if study.best is None else study.rebuild(machine.train)
    found: Found = {"trials": len(study.trials), "searched": searched}
    if job.way == "margin":
        return {**found, "margin": None if best is None else machine.facts(best)}
    if best is None:
        return {**found, **dict.fromkeys(OURS)}
    rows = machine.split.certify
    fresh = fw.FreshRows(
        rows.x, rows.y, groups=rows.group, threshold=machine.threshold, eod=equalized_odds_difference
    )
    began = time.process_time()
    certificate = study.certify(fresh, machine.train)
    found |= {"certifying": time.process_time() - began, "tested": len(certificate.tested)}
    found |= {"candidates": certificate.candidates, "p": [one.p_value for one in certificate.tested]}
    found["best"] = machine.facts(best)
    found["certified"] = machine.facts(certificate.model) if certificate.certified else None
    found["single"] = found["best"] if fresh(best)["eod"].p_value(limit) <= LEVEL else None
    found["Bonferroni"] = _bonferroni(machine, study, fresh, limit)
    return found


def _bonferroni(machine: Machine, study: fw.Study, fresh: fw.FreshRows, limit: fw.AtMost) -> Found | None:
    """The best of the same candidates that passes at its share of the level."""
    candidates = study.owner.ledger.certifications[-1].candidates
    for one in sorted(candidates, key=lambda one: -one.objective):
        booster = machine.booster(study.trials[one.number].params)
        for _ in range(one.step):
            booster.update()
        if fresh(booster)["eod"].p_value(limit) <= LEVEL / len(candidates):
            return machine.facts(booster)
    return None


def _optuna(machine: Machine, job: Job) -> Any:
    """TPE with its constraint; 300 rounds, both values at the best round; the best feasible model."""
    optuna = import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    best: list[Any] = [-math.inf, None]

    def objective(trial: Any) -> float:
        params = {
            name: (trial.suggest_int if isinstance(p, fw.Int) else trial.suggest_float)(name, p.low, p.high, log=p.log)
            for name, p in SPACE.items()
        }
        top, step, gap, booster = _top(machine, params, ROUNDS)
        trial.set_constraint("eod", gap - job.limit)
        if gap <= job.limit and top > best[0]:
            best[:] = [top, _cut(booster, step)]
        return top

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=job.seed))
    while not machine.is_over:
        study.optimize(objective, n_trials=1)
    return best[1]


def _flaml(machine: Machine, job: Job) -> Any:
    """BlendSearch with its constraint; the number of rounds is a hyperparameter; the best feasible model."""
    optuna = import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tune: Any = import_module("flaml.tune")
    search: Any = import_module("flaml.tune.searcher.blendsearch").BlendSearch
    best: list[Any] = [-math.inf, None]
    space: dict[str, Any] = {"rounds": tune.lograndint(FEWEST, ROUNDS + 1)}
    for name, p in SPACE.items():
        if isinstance(p, fw.Int):
            space[name] = tune.lograndint(p.low, p.high + 1)
        else:
            space[name] = (tune.loguniform if p.log else tune.uniform)(p.low, p.high)

    def objective(config: dict[str, Any]) -> dict[str, float]:
        booster = machine.booster({name: config[name] for name in SPACE})
        for _ in range(config["rounds"]):
            booster.update()
        scores = machine.scores(booster)
        value, gap = auc(machine.split.judge.y, scores), float(machine.eod(scores))
        if gap <= job.limit and value > best[0]:
            best[:] = [value, booster]
        return {"auc": value, "eod": gap}

    began = time.time()
    with patch("time.time", lambda: began + machine.spent):  # its budget and its costs are by the same clock
        searcher = search(
            metric="auc",
            mode="max",
            space=space,
            low_cost_partial_config={"rounds": FEWEST, "num_leaves": 4},
            metric_constraints=[("eod", "<=", job.limit)],
            time_budget_s=SECONDS,
            seed=20 + job.seed,  # 20 is its default
        )
        rest = {"time_budget_s": SECONDS, "num_samples": -1, "verbose": 0}
        tune.run(objective, metric="auc", mode="max", search_alg=searcher, **rest)
    return best[1]


def _top(machine: Machine, params: Mapping[str, Any], rounds: int) -> tuple[float, int, float, Any]:
    """The best AUC of a training, its round and gap there."""
    booster, best = machine.booster(params), (-math.inf, 1, 1.0)
    for step in range(1, rounds + 1):
        ended = booster.update()
        if step > 1 and (ended or machine.is_over):
            break
        scores = machine.scores(booster)
        value = auc(machine.split.judge.y, scores)
        if value > best[0]:
            best = (value, step, float(machine.eod(scores)))
    return *best, booster


def _cut(booster: Any, rounds: int) -> Any:
    return type(booster)(model_str=booster.model_to_string(num_iteration=rounds))
