"""What is an earlier study worth? Regret after 10, 30 and 100 trials, and at equal seconds, with `start_from` or not.

    python -m bench run carry_over --data FOLDER [--seeds 48]

FOLDER holds curves/ (recorded trainings) and fairness_tabular/ (COMPAS and German, on which LightGBM is recorded first:
five minutes, kept in bench/out). Each earlier study has 100 trials of the default on its own recording; the later one
runs on another in virtual time. Seeds pair the ways, and each seed has an earlier study of its own.

- *scratch*: the default, which knows nothing.
- *start_from*: what fairway does. Five of the earlier study's best run first, the best one last; then its rows join
  c-TPE's densities, fewer with each trial.

Good configurations train longer before they are stopped, so as many trials take more time. Both ways are therefore also
compared at equal virtual seconds: those that the search from scratch took for its first 10, 30 and 100 trials.

Whether two recordings are related is measured, not guessed from their names: a random forest that knows all of the
later recording says where the earlier one's best twentieth would stand there.

The way was chosen on the first pairs, on some more between their recordings and on pairs of HPOLib's tables, with seeds
of their own (100 to 139), and is judged on the others, with seeds from 1000 on.
"""

from __future__ import annotations

import sys
import time
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.multifidelity import checked
from bench.reproduction import Given, Need, Reproduction, Result, made_by

Array: TypeAlias = NDArray[np.float64]
Search: TypeAlias = tuple[list[float], list[tuple[float, float]]]  # as `run` returns it
DATA = Need(
    "recorded curves (curves/) and tables (fairness_tabular/)",
    "FAIRWAY_DATA",
    holds=("curves", "fairness_tabular"),
)
AFTER = (10, 30, 100)  # trials
TABLES = ("compas", "german")
RECORDED, ROUNDS, RECORDING_SEED = 300, 150, 5  # of LightGBM on a table
CHANCE = {"auc": 0.5, "accuracy": 0.0}
FIRST_SEED = 1000  # those below were looked at when `start_from` was made what it is
RELATED = 0.6  # the least standing of a pair that counts as related
SCRATCH, START_FROM = "scratch", "start_from"
WAYS = (SCRATCH, START_FROM)


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


@lru_cache(len(PAIRS))  # those of a seed, whose runs follow one another
def earlier_study(name: str, seed: int, folder: str) -> fw.Study:
    recorded = recording(name, folder)
    study = fw.Study(recorded.space, *problem(recorded), terminator=After(), seed=1000 + seed)
    fw.simulate(study, recorded, workers=1, budget=1e12, constraint_price=1.0)
    return study


def run(job: Job) -> Search:
    """The virtual seconds at which each trial ended, and the course of the regret: (seconds, regret x 1000)."""
    recorded, start_from = recording(job.pair.later, job.folder), []
    if job.way == START_FROM:
        start_from = [(earlier_study(job.pair.earlier, job.seed, job.folder), job.pair.lacked)]
    parts: dict[str, Any] = {"terminator": After(), "seed": job.seed, "start_from": start_from}
    later = fw.Study(recorded.space, *problem(recorded), **parts)
    fw.simulate(later, recorded, workers=1, budget=1e12, constraint_price=1.0)
    ends = np.cumsum([trial.training_seconds + trial.check_seconds for trial in later.trials])
    return ends.tolist(), regrets(later, recorded)


def regrets(study: fw.Study, recorded: fw.Recording) -> list[tuple[float, float]]:
    """The seconds and the regret at the start, and whenever a checked report was the best feasible one so far."""
    metric = problem(recorded)[0].metric
    rows, times = checked(study, recorded)
    feasible = allowed(recorded)[rows]
    rows, times = rows[feasible], times[feasible]
    best, found = CHANCE[metric], [(0.0, CHANCE[metric])]
    for i in np.argsort(times, kind="stable"):
        if recorded.metrics[metric][rows[i]] > best:
            best = float(recorded.metrics[metric][rows[i]])
            found.append((float(times[i]), best))
    most = float(bests(recorded).max())
    return [(seconds, 1000 * (most - objective)) for seconds, objective in found]


def regret_at(course: Sequence[Sequence[float]], seconds: float) -> float:
    """The regret once so many seconds are over; `course` is as `regrets` returns it."""
    return course[bisect_right(course, seconds * (1 + 1e-9), key=itemgetter(0)) - 1][1]


# The report


def make(given: Given) -> Result:
    folder = str(given.path)
    recordings = [given.path / "curves" / f"lcbench-{n}.npz" for n in (126029, 168331, 189354)]
    recordings += [_recorded(name, folder) for name in TABLES]
    jobs = {
        (_label(pair, way), way, seed): Job(pair, way, FIRST_SEED + seed, folder)
        for pair, way, seed in product(PAIRS, WAYS, range(given.seeds))
    }
    kept = f"carry_over-{runs.digest(*runs.simulation_sources(), *recordings, PAIRS, FIRST_SEED)}"
    jobs = dict(sorted(jobs.items(), key=lambda one: (one[0][2], one[0][0])))  # whole seeds, were it cut off
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=given.name)
    regret = dict[tuple[str, str], Array]()
    for pair, way in product(PAIRS, WAYS):
        ours, scratch = ([done[_label(pair, each), each, k] for k in range(given.seeds)] for each in (way, SCRATCH))
        regret[pair.label, way] = np.array([_compared(*both) for both in zip(ours, scratch, strict=True)])
    stands = {pair.label: standing(pair, folder) for pair in PAIRS}
    singles = [
        {
            "pair": label,
            "way": way,
            "after": AFTER[i],
            "regret_of_seeds": values[:, i, 0].round(3).tolist(),
            "regret_of_seeds_at_equal_seconds": values[:, i, 1].round(3).tolist(),
        }
        for (label, way), values in regret.items()
        for i in range(len(AFTER))
    ]
    return Result("\n".join(_report(given, regret, stands)) + "\n", singles)


def _label(pair: Pair, way: str) -> str:
    """What a run is kept under: from scratch, only the later recording counts."""
    return pair.later if way == SCRATCH else pair.label


def _compared(ours: Search, scratch: Search) -> list[tuple[float, float]]:
    """For each number of trials: the regret after them, and that in the time which the search from scratch took."""
    (ends, course), others = ours, scratch[0]
    return [(regret_at(course, ends[n - 1]), regret_at(course, others[n - 1])) for n in AFTER]


def _report(given: Given, regret: dict[tuple[str, str], Array], stands: dict[str, float | None]) -> list[str]:
    lines = [
        "# What an earlier study is worth",
        "",
        "Regret (objective x 1000) after so many trials, mean ± standard error over seeds; and the difference to",
        "*scratch*, paired by seed, with its standard error: below 0, the earlier study helped. Differences of more",
        "than two of these errors are bold. *Equal seconds* is the difference once the seconds are over that the",
        f"search from scratch took for so many trials; one that has run all of its {AFTER[-1]} by then waits. An",
        f"earlier study has {AFTER[-1]} trials. The default sampler and stopper, one worker in virtual time, a check",
        "costs a step. Where nothing feasible was found, chance counts. *Related*: where the configurations that are",
        "the earlier recording's best twentieth would stand in the later one, by a random forest that knows all of the",
        f"later one: 50% is anywhere, 100% the best. Seeds are counted from {FIRST_SEED}.",
        made_by(given),
    ]
    for chosen_on, heading in ((False, "Judged on"), (True, "Chosen on")):
        rows = [
            (*_named(pair, stands), way, *_cells(regret[pair.label, way], regret[pair.label, SCRATCH], way))
            for pair, way in product(PAIRS, WAYS)
            if pair.chosen_on == chosen_on
        ]
        columns = [text for n in AFTER for text in (f"after {n}", "difference", "equal seconds")]
        lines += ["", f"## {heading}", "", *runs.table(("pair", "kind", "related", "way", *columns), rows)]
    return [*lines, "", "## Over the pairs", "", *_over_pairs(regret, stands)]


def _over_pairs(regret: dict[tuple[str, str], Array], stands: dict[str, float | None]) -> list[str]:
    """The mean differences over groups of pairs; a seed counts once, with its mean over the pairs."""
    related = [pair for pair in PAIRS if (stands[pair.label] or 0.0) >= RELATED]
    groups = {
        "related, judged on": [pair for pair in related if not pair.chosen_on],
        "related, all": related,
        "not related, judged on": [pair for pair in PAIRS if pair not in related and not pair.chosen_on],
        "not related, all": [pair for pair in PAIRS if pair not in related],
    }
    rows = []
    for name, pairs in groups.items():
        changes = [regret[pair.label, START_FROM] - regret[pair.label, SCRATCH] for pair in pairs]
        rows.append((name, str(len(pairs)), *_changes(np.mean(changes, axis=0))))
    columns = [text for n in AFTER for text in (f"after {n}", "equal seconds")]
    return [
        f"The mean difference over pairs; related are those of at least {RELATED:.0%}. Its standard error is over",
        "seeds, each with its mean over the pairs, since pairs of one later recording share their search from scratch.",
        "",
        *runs.table(("pairs", "number", *columns), rows),
    ]


def _named(pair: Pair, stands: dict[str, float | None]) -> tuple[str, str, str]:
    share = stands[pair.label]
    return pair.label, pair.kind, "" if share is None else f"{share:.0%}"


def _cells(values: Array, scratch: Array, way: str) -> list[str]:
    changes = _changes(values - scratch) if way != SCRATCH else [""] * (2 * len(AFTER))
    means = [runs.mean(values[:, i, 0], 1) for i in range(len(AFTER))]
    return [cell for i, mean in enumerate(means) for cell in (mean, *changes[2 * i : 2 * i + 2])]


def _changes(change: Array) -> list[str]:
    """Differences (seeds, AFTER, 2) as cells: after as many trials and after as many seconds, for each of AFTER."""
    cells = []
    for column in change.reshape(len(change), -1).T:
        shown = runs.mean(column, 1, "+")
        cells.append(f"**{shown}**" if abs(column.mean()) > 2 * runs.error(column) else shown)
    return cells


REPRODUCTIONS = (
    Reproduction(
        "carry_over",
        "What an earlier study is worth: start_from beside a search from scratch",
        (DATA,),
        make,
        30,
        48,
        of_paper=False,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "carry_over", *sys.argv[1:]))
