"""What is an earlier study worth? Regret after 10, 30 and 100 trials, with `start_from` and without.

    python -m bench run carry_over --data FOLDER [--seeds 10]

FOLDER holds curves/ (recorded trainings) and fairness_tabular/ (COMPAS and German, on which LightGBM is recorded first:
five minutes, kept in bench/out). Each earlier study has 100 trials of the default on its own recording; the later one
runs on another in virtual time. Seeds pair the ways, and each seed has an earlier study of its own.

- *scratch*: the default, which knows nothing.
- *start_from*: what fairway does. Five of the earlier study's best run first, the best one last; then its rows join
  c-TPE's densities, fewer with each trial.
- *portfolio*: the five, and c-TPE knows nothing of the earlier study.
- *best first*: the same five, the best one first.

Whether two recordings are related is measured, not guessed from their names: a random forest that knows all of the
later recording says where the earlier one's best twentieth would stand there.

The way was chosen on the first pairs, on some more between their recordings and on pairs of HPOLib's tables, with seeds
of their own (100 to 139), and is judged on the others.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.reproduction import Given, Need, Reproduction, Result, made_by
from fairway.samplers.portfolio import portfolio

Array: TypeAlias = NDArray[np.float64]
DATA = Need(
    "recorded curves (curves/) and tables (fairness_tabular/)",
    "FAIRWAY_DATA",
    holds=("curves", "fairness_tabular"),
)
AFTER = (10, 30, 100)  # trials
TABLES = ("compas", "german")
RECORDED, ROUNDS, RECORDING_SEED = 300, 150, 5  # of LightGBM on a table
CHANCE = {"auc": 0.5, "accuracy": 0.0}
SCRATCH, START_FROM, PORTFOLIO, BEST_FIRST = "scratch", "start_from", "portfolio", "best first"
WAYS = (SCRATCH, START_FROM, PORTFOLIO, BEST_FIRST)


class Pair(NamedTuple):
    """An earlier recording and a later one, and what stands for a parameter that the earlier one lacks."""

    earlier: str
    later: str
    kind: str
    chosen_on: bool = False
    lacked: dict[str, float] = {}  # noqa: RUF012 - nobody changes it

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"{self.earlier} → {self.later}"


WITHOUT, SHUFFLED = " without max_dropout", " shuffled"
PAIRS = (
    Pair("lcbench-126029", "lcbench-189354", "other data", chosen_on=True),
    Pair("lcbench-189354", "lcbench-126029", "other data", chosen_on=True),
    Pair(f"lcbench-126029{SHUFFLED}", "lcbench-189354", "unrelated", chosen_on=True),
    Pair("compas", "german", "other data, one limit"),
    Pair("lcbench-168331", "lcbench-189354", "other data"),
    Pair("lcbench-168331", "lcbench-126029", "other data"),
    Pair(f"lcbench-168331{WITHOUT}", "lcbench-189354", "one more parameter", lacked={"max_dropout": 0.1}),
    Pair("lcbench-126029", "lcbench-168331", "other data"),
    Pair(f"lcbench-126029{WITHOUT}", "lcbench-168331", "one more parameter", lacked={"max_dropout": 0.1}),
    Pair("sst2", "lcbench-168331", "unrelated: three names in common"),
    Pair(f"lcbench-189354{SHUFFLED}", "lcbench-168331", "unrelated: shuffled"),
)


@dataclass(frozen=True)
class After(fw.Terminator):
    """Ends a search after so many trials."""

    trials: int = AFTER[-1]

    def check(self, history: fw.History) -> fw.Verdict:
        """Whether they have finished."""
        n = len(history)
        return fw.Verdict(n >= self.trials, f"{n} trials", float(n), float(self.trials))


# Recordings


@cache
def recording(name: str, folder: str) -> fw.Recording:
    if name in TABLES:
        return fw.Recording.load(_recorded(name, folder))
    plain = name.removesuffix(SHUFFLED).removesuffix(WITHOUT)
    found = fw.Recording.load(Path(folder) / "curves" / f"{plain}.npz")
    if name.endswith(SHUFFLED):  # curves of other configurations: nothing can be learned from them
        return replace(found, config=np.random.default_rng(3).permutation(found.config))
    return _lacking(found, "max_dropout", below=0.2) if name.endswith(WITHOUT) else found


def _lacking(whole: fw.Recording, name: str, *, below: float) -> fw.Recording:
    """The configurations that have next to nothing of a parameter, in a space without it."""
    column = list(whole.space).index(name)
    kept = np.flatnonzero(whole.config[:, column] < below)
    rows = np.concatenate([np.arange(whole.offset[k], whole.offset[k + 1]) for k in kept])
    return fw.Recording(
        space=fw.Space({each: parameter for each, parameter in whole.space.items() if each != name}),
        config=np.delete(whole.config[kept], column, axis=1),
        total_steps=whole.total_steps[kept],
        offset=np.concatenate([[0], np.cumsum(np.diff(whole.offset)[kept])]),
        seconds=whole.seconds[rows],
        metrics={metric: values[rows] for metric, values in whole.metrics.items()},
    )


def _recorded(name: str, folder: str) -> Path:
    """The file of a table's recording, which is made where it is not there."""
    path = runs.OUT / f"carry_over-{name}-{RECORDED}-{ROUNDS}-{RECORDING_SEED}.npz"
    if path.is_file():
        return path
    from bench.practitioner import SPACE, judged  # noqa: PLC0415 - LightGBM and pandas, not for a listing
    from bench.splits import Machine, split  # noqa: PLC0415
    from fairway.demo import auc  # noqa: PLC0415

    machine, space, rng = Machine(split(name, folder, 0), 1e9), fw.Space(SPACE), np.random.default_rng(RECORDING_SEED)
    configurations, curves = list[list[float]](), list[Array]()
    with warnings.catch_warnings(), runs.progress(f"recording {name}", RECORDED) as advance:
        warnings.simplefilter("ignore")
        for _ in range(RECORDED):
            params: dict[str, Any] = dict(space.decode(rng.random(len(space))))
            booster, rows = machine.booster(params), list[tuple[float, float, float]]()
            for step in range(ROUNDS):
                began = time.process_time()
                over, scores = booster.update(), judged(booster)
                seconds = time.process_time() - began
                rows.append((seconds, auc(machine.split.judge.y, scores), float(machine.eod(scores))))
                if over and step:
                    break
            configurations.append([float(value) for value in params.values()])
            curves.append(np.array(rows))
            advance()
    columns = np.concatenate(curves).T
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        names=np.array(list(space)),
        low=np.array([SPACE[each].low for each in space], float),
        high=np.array([SPACE[each].high for each in space], float),
        log=np.array([SPACE[each].log for each in space]),
        integer=np.array([isinstance(SPACE[each], fw.Int) for each in space]),
        config=np.array(configurations),
        total_steps=np.full(RECORDED, ROUNDS),
        offset=np.concatenate([[0], np.cumsum([len(curve) for curve in curves])]),
        seconds=columns[0],
        auc=columns[1],
        eod=columns[2],
    )
    return path


def standing(pair: Pair, folder: str) -> float | None:
    """Where the earlier recording's best twentieth would stand in the later one: 0.5 is anywhere, 1 the best.

    None if the earlier one lacks parameters that nothing stands for.
    """
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - not for a listing

    earlier, later = recording(pair.earlier, folder), recording(pair.later, folder)
    known = dict(zip(earlier.space, earlier.config.T, strict=True))
    known |= {name: np.full(len(earlier), value) for name, value in pair.lacked.items()}
    if not known.keys() >= set(later.space):
        return None
    forest = RandomForestRegressor(300, min_samples_leaf=2, random_state=0).fit(later.config, bests(later))
    best = bests(earlier).argsort()[-len(earlier) // 20 :]
    there = np.sort(forest.predict(later.config))
    theirs = forest.predict(np.column_stack([known[name][best] for name in later.space]))
    return float(there.searchsorted(theirs).mean() / len(there))


def bests(recorded: fw.Recording) -> Array:
    """The best feasible objective of each configuration; chance where it has none."""
    metric = problem(recorded)[0].metric
    values = np.where(allowed(recorded), recorded.metrics[metric], CHANCE[metric])
    return np.maximum.reduceat(values, recorded.offset[:-1])


def allowed(recorded: fw.Recording) -> NDArray[np.bool_]:
    """Whether each row of the recording is feasible."""
    limits = problem(recorded)[1]
    held = [recorded.metrics[each.metric] <= each.threshold for each in limits]
    return np.asarray(np.all([np.ones(len(recorded.seconds), np.bool_), *held], axis=0))


def problem(recorded: fw.Recording) -> tuple[fw.Maximize, list[fw.AtMost]]:
    """What is searched for; the limit is what half of the configurations keep at the end of their training."""
    if "eod" not in recorded.metrics:
        return fw.Maximize("accuracy"), []
    return fw.Maximize("auc"), [fw.AtMost("eod", float(np.median(recorded.metrics["eod"][recorded.offset[1:] - 1])))]


# Runs


class Job(NamedTuple):
    """One later study, after an earlier one of its own."""

    pair: Pair
    way: str
    seed: int
    folder: str


@cache
def earlier_study(name: str, seed: int, folder: str) -> fw.Study:
    recorded = recording(name, folder)
    study = fw.Study(recorded.space, *problem(recorded), terminator=After(), seed=1000 + seed)
    fw.simulate(study, recorded, workers=1, budget=1e12, constraint_price=1.0)
    return study


def run(job: Job) -> list[float]:
    """The regret after each number of trials, x 1000."""
    recorded = recording(job.pair.later, job.folder)

    def study(*, start: bool) -> fw.Study:
        earlier = [(earlier_study(job.pair.earlier, job.seed, job.folder), job.pair.lacked)] if start else []
        parts: dict[str, Any] = {"terminator": After(), "seed": job.seed, "start_from": earlier}
        return fw.Study(recorded.space, *problem(recorded), **parts)

    later = study(start=job.way == START_FROM)
    if job.way in (PORTFOLIO, BEST_FIRST):
        points = portfolio(study(start=True).history.earlier)
        for x in points if job.way == PORTFOLIO else reversed(points):
            later.enqueue(recorded.space.decode_some(x))
    fw.simulate(later, recorded, workers=1, budget=1e12, constraint_price=1.0)
    return regrets(later, recorded)


def regrets(study: fw.Study, recorded: fw.Recording) -> list[float]:
    metric, best, found = problem(recorded)[0].metric, bests(recorded).max(), list[float]()
    for n in AFTER:
        known = [each.metrics[metric] or 0.0 for each in study.trials[:n] if each.feasible]
        found.append(float(1000 * (best - max(known, default=CHANCE[metric]))))
    return found


# The report


def make(given: Given) -> Result:
    folder = str(given.path)
    recordings = [given.path / "curves" / f"lcbench-{n}.npz" for n in (126029, 168331, 189354)]
    recordings += [_recorded(name, folder) for name in TABLES]
    jobs = {
        (_label(pair, way), way, seed): Job(pair, way, seed, folder)
        for pair, way, seed in product(PAIRS, WAYS, range(given.seeds))
        if pair.chosen_on or way in (SCRATCH, START_FROM)
    }
    kept = f"carry_over-{runs.digest(*runs.simulation_sources(), *recordings, PAIRS)}"
    jobs = dict(sorted(jobs.items(), key=lambda one: (one[0][2], one[0][0])))  # whole seeds, were it cut off
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=given.name)
    regret = {
        (pair.label, way): np.array([done[_label(pair, way), way, seed] for seed in range(given.seeds)])
        for pair, way in product(PAIRS, WAYS)
        if (_label(pair, way), way, 0) in done
    }
    stands = {pair.label: standing(pair, folder) for pair in PAIRS}
    singles = [
        {"pair": label, "way": way, "after": AFTER[i], "regret_of_seeds": values[:, i].round(3).tolist()}
        for (label, way), values in regret.items()
        for i in range(len(AFTER))
    ]
    return Result("\n".join(_report(given, regret, stands)) + "\n", singles)


def _label(pair: Pair, way: str) -> str:
    """What a run is kept under: from scratch, only the later recording counts."""
    return pair.later if way == SCRATCH else pair.label


def _report(given: Given, regret: dict[tuple[str, str], Array], stands: dict[str, float | None]) -> list[str]:
    lines = [
        "# What an earlier study is worth",
        "",
        "Regret (objective x 1000) after so many trials, mean ± standard error over seeds; and the difference to",
        "*scratch*, paired by seed, with its standard error: below 0, the earlier study helped. Differences of more",
        f"than two of these errors are bold. An earlier study has {AFTER[-1]} trials. The default sampler and stopper,",
        "one worker in virtual time, a check costs a step. Where nothing feasible was found, chance counts. *Related*:",
        "where the configurations that are the earlier recording's best twentieth would stand in the later one, by a",
        "random forest that knows all of the later one: 50% is anywhere, 100% the best.",
        made_by(given),
    ]
    for chosen_on, heading in ((False, "Judged on"), (True, "Chosen on")):
        rows = [
            (*_named(pair, stands), way, *_cells(regret[pair.label, way], regret[pair.label, SCRATCH], way))
            for pair, way in product(PAIRS, WAYS)
            if pair.chosen_on == chosen_on and (pair.label, way) in regret
        ]
        columns = [text for n in AFTER for text in (f"after {n}", "difference")]
        lines += ["", f"## {heading}", "", *runs.table(("pair", "kind", "related", "way", *columns), rows)]
    return lines


def _named(pair: Pair, stands: dict[str, float | None]) -> tuple[str, str, str]:
    share = stands[pair.label]
    return pair.label, pair.kind, "" if share is None else f"{share:.0%}"


def _cells(values: Array, scratch: Array, way: str) -> list[str]:
    cells = []
    for i in range(len(AFTER)):
        change = values[:, i] - scratch[:, i]
        shown = "" if way == SCRATCH else runs.mean(change, 1, "+")
        bold = shown and abs(change.mean()) > 2 * runs.error(change)
        cells += [runs.mean(values[:, i], 1), f"**{shown}**" if bold else shown]
    return cells


REPRODUCTIONS = (
    Reproduction(
        "carry_over",
        "What an earlier study is worth: start_from beside a search from scratch",
        (DATA,),
        make,
        40,
        64,
        of_paper=False,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "carry_over", *sys.argv[1:]))
