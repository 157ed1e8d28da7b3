"""Does a limit hold on rows nobody searched by? LightGBM under equalized odds: today's best, a margin, certificates.

    python -m bench run unseen --data FOLDER [--seeds 40] [--settings compas "compas population" ...] [--peers 10]

Each table is split into rows to train on, to judge by, to certify on and final ones (40/20/20/20), and searched for 20
CPU seconds. The limit is the median gap of 40 probed models plus 2.5 standard errors on the certification rows, those
of the least certain of its gaps (the true-positive one). Ways:

- *best*: `study.best`, within the limit on the judging rows.
- *margin*: the same with `AtMost("eod", limit, confidence=0.9)`.
- *certified*: `study.certify`, along the front; *certified after a margin*: the same after the search of *margin*.
- *single*: only `study.best` is tested.
- *Bonferroni*: the same candidates as *certified*, each at its share of the level.
- *Optuna*, *FLAML*: their best feasible model.

*certified*, *single* and *Bonferroni* share the search of *best*. Where the truth is known (the demo's generator, and
tables taken as a population), a certificate is false if the true gap is above the limit.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

import numpy as np

import fairway as fw
from bench import runs
from bench.practitioner import FEWEST, SPACE, judged
from bench.reproduction import Given, Reproduction, Result
from bench.splits import DEMO, POPULATION, ROUNDS, TABLES, Machine, Rows, odds, parameters, split, widest_error
from bench.tables import TABLES as FOLDER
from fairway.constraints import equalized_odds_difference
from fairway.demo import auc

SECONDS, PROBED, PROBE_SEED, PEERS = 20.0, 40, 1_000_003, 10
LEVEL, ERRORS = 0.05, 2.5
SETTINGS = (*TABLES, *(f"{name} {POPULATION}" for name in TABLES if name != DEMO))
HARD = "german"  # too few rows: it may end without a certificate
TESTED = ("certified", "single", "Bonferroni")
AFTER_MARGIN = "certified after a margin"
WAYS = ("best", "margin", *TESTED, AFTER_MARGIN, "Optuna", "FLAML")
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
    return found if job.way == "margin" else {**found, "seconds": time.process_time() - began}


def _probe(job: Job) -> Found:
    """The limit of a setting: at its round of the best AUC each of 40 random models has a gap on all rows left."""
    parts = split(job.setting, job.folder, PROBE_SEED)
    machine, rng = Machine(parts, math.inf), np.random.default_rng(PROBE_SEED)
    rest = Rows(*(np.concatenate(columns) for columns in zip(parts.judge, parts.certify, parts.final, strict=True)))
    gaps, errors = list[float](), list[float]()
    while len(gaps) < PROBED:
        booster, best = machine.booster(parameters(rng)), (-math.inf, 0)
        for step in range(1, ROUNDS + 1):
            if booster.update():
                break
            best = max(best, (auc(parts.judge.y, judged(booster)), step))
        if best[1]:
            threshold = machine.cutoff(booster.predict(parts.judge.x, num_iteration=best[1]))
            gaps.append(odds(rest, booster.predict(rest.x, num_iteration=best[1]) >= threshold))
            said = booster.predict(parts.certify.x, num_iteration=best[1]) >= threshold
            errors.append(widest_error(parts.certify, said))
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
    found: Found = {"trials": len(study.trials), "searched": searched, "limit": job.limit}
    names = ("margin", AFTER_MARGIN) if job.way == "margin" else ("best", *TESTED)
    if best is None:
        return {**(found if job.way == "search" else {}), **dict.fromkeys(names)}
    rows = machine.split.certify
    fresh = fw.FreshRows(rows.x, rows.y, groups=rows.group, threshold=machine.threshold, eod=equalized_odds_difference)
    began = time.process_time()
    certificate = study.certify(fresh, machine.train)
    if job.way == "margin":
        return {"margin": machine.facts(best), AFTER_MARGIN: _facts(machine, certificate)}
    found |= {"certifying": time.process_time() - began, "tested": len(certificate.tested)}
    found |= {"candidates": certificate.candidates, "p": [one.p_value for one in certificate.tested]}
    found["best"] = machine.facts(best)
    found["certified"] = _facts(machine, certificate)
    found["single"] = found["best"] if fresh(best)["eod"].p_value(limit) <= LEVEL else None
    found["Bonferroni"] = _bonferroni(machine, study, fresh, limit)
    return found


def _facts(machine: Machine, certificate: fw.Certificate) -> Found | None:
    return machine.facts(certificate.model) if certificate.certified else None


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
        scores = judged(booster)
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
        scores = judged(booster)
        value = auc(machine.split.judge.y, scores)
        if value > best[0]:
            best = (value, step, float(machine.eod(scores)))
    return *best, booster


def _cut(booster: Any, rounds: int) -> Any:
    return type(booster)(model_str=booster.model_to_string(num_iteration=rounds))


def make(given: Given) -> Result:
    """Probe the limits, run every search that is not kept, and write the tables."""
    options, folder = given.options, str(given.path)
    sources = [runs.SOURCES / name for name in ("engine/certification.py", "runners/certify.py", "evidence")]
    kept = runs.digest(*(Path(__file__).parent / name for name in ("unseen.py", "splits.py")), *sources, SECONDS)
    kept += "" if options.errors == ERRORS else f"-{options.errors:g}"

    def every(jobs: Sequence[Job], label: str) -> dict[tuple[str, str, int], Found]:
        keyed = {(job.setting, job.way, job.seed): job for job in jobs}
        return runs.run_all(run, keyed, kept=f"unseen-{kept}", processes=given.processes, label=label)

    names = list(dict.fromkeys(setting.partition(" ")[0] for setting in options.settings))
    probed = every([Job(name, "probe", 0, folder, 0.0) for name in names], "limits")
    probes = {name: probed[name, "probe", 0] for name in names}
    limits = {name: round(one["median"] + options.errors * one["error"], 4) for name, one in probes.items()}
    seeds = {"search": given.seeds, "margin": options.margins, "Optuna": options.peers, "FLAML": options.peers}
    jobs = [
        Job(setting, way, seed, folder, limits[setting.partition(" ")[0]])
        for seed in range(given.seeds)
        for setting in options.settings
        for way, most in seeds.items()
        if seed < most and (way == "search" or POPULATION not in setting)
    ]
    found = every(jobs, "searches")
    splits: dict[str, list[Found]] = {
        setting: [
            {key: value for way in seeds for key, value in found.get((setting, way, seed), {}).items()}
            for seed in range(given.seeds)
        ]
        for setting in options.settings
    }
    rows = [{"setting": setting, "seed": i, **one} for setting, all_ in splits.items() for i, one in enumerate(all_)]
    return Result("\n".join(_page(splits, limits)) + "\n", rows)


def _page(splits: Mapping[str, Sequence[Found]], limits: Mapping[str, float]) -> list[str]:
    plain = {name: each for name, each in splits.items() if POPULATION not in name}
    known = {name: each for name, each in splits.items() if POPULATION in name or name == DEMO}
    return [
        "# Limits on rows nobody searched by",
        "",
        f"`python -m bench run unseen`: LightGBM under equalized odds, {SECONDS:.0f} CPU seconds a search.",
        "",
        "## Power and price",
        "",
        "Splits with a certificate; the mean AUC on the final rows, 0.5 where there is none; paired differences.",
        "",
        *_power(plain, limits),
        "",
        "## False certificates, where the truth is known",
        "",
        "As a share of all splits; at most 5% plus two standard errors are allowed for *certified*.",
        "",
        *_level(known),
        "",
        "## Gap above the limit on the final rows",
        "",
        "Of the splits in which a way returned a model. A plug-in gap is biased upward, so this says little.",
        "",
        *_breaks(plain),
        "",
        "## Cost",
        "",
        *_cost(plain),
    ]


def _power(splits: Mapping[str, Sequence[Found]], limits: Mapping[str, float]) -> list[str]:
    lines = []
    for setting, each in splits.items():
        auc_of = {way: np.array([CHANCE if one[way] is None else one[way]["auc"] for one in each]) for way in TESTED}
        shares = [one["certified"]["share"] for one in each if one["certified"] is not None]
        lines.append(
            [
                setting,
                f"{limits[setting]:.3f}",
                str(len(each)),
                *(f"{sum(one[way] is not None for one in each)}" for way in TESTED),
                runs.mean(auc_of["certified"], 3),
                runs.mean(auc_of["certified"] - auc_of["single"], 3, "+"),
                runs.mean(auc_of["certified"] - auc_of["Bonferroni"], 3, "+"),
                f"{min(shares):.2f} to {max(shares):.2f}" if shares else "",
            ]
        )
    heading = ("table", "limit", "splits", *TESTED, "AUC, certified", "minus single", "minus Bonferroni")
    return runs.table((*heading, "positive decisions / base rate"), lines)


def _level(splits: Mapping[str, Sequence[Found]]) -> list[str]:
    lines = []
    for setting, each in splits.items():
        limit = each[0]["limit"]
        false = [sum(one[way] is not None and one[way]["truth"] > limit for one in each) for way in ("best", *TESTED)]
        n = len(each)
        bar = LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / n)
        lines.append([setting, str(n), *(f"{count} ({count / n:.0%})" for count in false), f"{bar:.1%}"])
    return runs.table(("setting", "splits", "best (no certificate)", *TESTED, "allowed"), lines)


def _breaks(splits: Mapping[str, Sequence[Found]]) -> list[str]:
    lines = []
    for setting, each in splits.items():
        cells = []
        for way in WAYS:
            models = [one[way] for one in each if one.get(way) is not None]
            broken = sum(model["final"] > each[0]["limit"] for model in models)
            cells.append(f"{broken} of {len(models)}" if models else "")
        lines.append([setting, *cells])
    return runs.table(("table", *WAYS), lines)


def _cost(splits: Mapping[str, Sequence[Found]]) -> list[str]:
    lines = []
    for setting, each in splits.items():
        made = [one for one in each if "certifying" in one]
        share = [one["certifying"] / one["searched"] for one in made]
        trials, tested = np.mean([one["trials"] for one in made]), np.mean([one["tested"] for one in made])
        lines.append([setting, f"{trials:.0f}", f"{tested:.1f}", runs.mean(100 * np.array(share), 1)])
    return runs.table(("table", "trials", "candidates tested", "certifying, % of the search's CPU time"), lines)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--settings", nargs="+", default=[*SETTINGS], choices=SETTINGS, metavar="SETTING")
    parser.add_argument("--errors", type=float, default=ERRORS, help="between the median gap and the limit (2.5)")
    parser.add_argument("--margins", type=int, default=40, help="splits that are searched with a margin too (40)")
    parser.add_argument("--peers", type=int, default=PEERS, help="splits that peers search (10)")


REPRODUCTIONS = (
    Reproduction(
        "unseen",
        "limits on rows nobody searched by: best, margin, certificates, peers",
        (FOLDER,),
        make,
        170,
        40,
        of_paper=False,
        options=_options,
    ),
)
