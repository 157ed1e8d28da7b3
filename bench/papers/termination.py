"""Automatic termination by replay: the authors' own runs, judged by their rule, by its rivals and by ours.

    python -m bench run termination --data FOLDER [--curves credit.npz] [--every 5] [--runs 4] [--processes 2]

FOLDER holds the runs of Makarova et al. (2022) as parquet: 220 searches with 10-fold cross-validation, and searches on
FCNet and NAS-Bench-201 tables. A rule sees a run's first t evaluations and says whether it would stop there. Ours is
asked when a study asks it: at t = 20, then after each `pause`. `--every` asks less often; that takes less time, but
misses stops that come too soon, and the tables say so. The authors' rule is asked after every evaluation.
RYC, definition (11): what a stop costs in test error, negative is worse; RTC, definition (12): the share of time saved.
Means over datasets; errors are paired, over datasets.
With recorded learning curves, searches under a limit, whose trials ACE stops early, end by themselves too.
"""

from __future__ import annotations

import argparse
import inspect
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ace_tables import CURVES
from bench.papers.termination_curves import curve_table
from bench.papers.termination_runs import START, Replay, incumbents, load_cv, load_tables
from bench.pictures import figure
from bench.reproduction import Given, Need, Reproduction, Result
from fairway.history import History

Array = NDArray[np.float64]

PUBLISHED = {"Ours_0.21": 1.0, "Ours_0.5": 0.5 / 0.21}  # the authors' settings, as factors of the deviation
FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.85, 2.2, PUBLISHED["Ours_0.5"], 3.0, 4.0)
LARGE = 0.05  # of the test error
THRESHOLDS = (0.0001, 0.001, 0.01)
WHOLE = ("ours", "ours, all points")  # asked as often as the library asks, at every factor
SELDOM = "ours, asked as seldom as what follows"
OFTEN = "when the library asks: after 20 evaluations, then after every 2% more, at least one"


class Straight(fw.RegretBound):
    """The bound with no bend of the inputs."""

    _WARP: ClassVar[bool] = False


class Narrow(fw.RegretBound):
    """The bound with a quarter of beta."""

    def width(self, d: int, t: int) -> float:  # noqa: D102
        return super().width(d, t) / 2


class Wide(fw.RegretBound):
    """The bound with beta as in the theorem, five times ours."""

    def width(self, d: int, t: int) -> float:  # noqa: D102
        return super().width(d, t) * math.sqrt(5)


class Fitted(fw.RegretBound):
    """The bound with t the number of evaluations that the process is fitted to."""

    def width(self, d: int, t: int) -> float:  # noqa: D102
        return super().width(d, max(START, math.ceil(self.top * t)))


VARIANTS: dict[str, fw.RegretBound] = {
    "ours": fw.RegretBound("cv"),
    "ours, all points": fw.RegretBound("cv", top=1.0),
    "no bend of the inputs": Straight("cv"),
    "no logarithm": fw.RegretBound("cv", log=False),
    "neither: the paper's model": Straight("cv", log=False),
    "best 20% of points": fw.RegretBound("cv", top=0.2),
    "beta / 4": Narrow("cv"),
    "beta x 5": Wide("cv"),
    "t of the fitted points": Fitted("cv"),
}
ABLATIONS = [name for name in VARIANTS if name != "ours, all points"]  # the first: ours, to compare the others with


# Bounds


def _bounds(job: tuple[fw.RegretBound, History, Sequence[int]]) -> list[float]:
    terminator, history, at = job
    return [terminator.bound(history.first(i + 1)) for i in at]


def looks(terminator: fw.RegretBound, evaluations: int, every: int = 1) -> list[int]:
    """The rows after which the library asks, or a coarser choice with at least `every` evaluations in between."""
    rows, finished = [], terminator.start
    while finished <= evaluations:
        rows.append(finished - 1)
        finished += max(every, terminator.pause(finished))
    return rows


def bounds(name: str, replays: list[Replay], what: str, every: int, processes: int) -> list[Array]:
    """Our bound at the rows that are looked at, NaN at others."""
    terminator = VARIANTS[name]
    at = [looks(terminator, len(replay.history), every) for replay in replays]
    parts = ("terminators/*.py", "models/*.py", "history.py", "space.py", "feasibility.py", "seeds.py")
    sources: list[object] = [source for part in parts for source in sorted(runs.SOURCES.glob(part))]
    if type(terminator) is not fw.RegretBound:
        sources.append(inspect.getsource(type(terminator)))
    kept = f"termination-{runs.digest(name, terminator, what, at, *sources)}"
    jobs = {k: (terminator, replay.history, at[k]) for k, replay in enumerate(replays)}
    found = runs.run_all(_bounds, jobs, kept=kept, processes=processes, label=f"{what}: {name}")
    made = []
    for k, replay in enumerate(replays):
        bound = np.full(len(replay.history), np.nan)
        bound[at[k]] = found[k]
        made.append(bound)
    return made


# Rules: the row after which a search would have been stopped


def _first(says_stop: NDArray[np.bool_]) -> int:
    return int(np.argmax(says_stop)) if says_stop.any() else len(says_stop) - 1


def _by_noise(replay: Replay, bound: Array, factor: float, *, fixed: bool = False) -> int:
    """By the incumbent's noise; `fixed`, as in the authors' code, by that of the incumbent at the first bound."""
    noise = replay.history.noise[incumbents(replay.history)]
    noise = np.full_like(noise, noise[START - 1]) if fixed else noise
    return _first(np.nan_to_num(bound, nan=np.inf) < factor * noise)


def _by_plateau(replay: Replay, patience: int) -> int:
    rows = np.arange(len(replay.history))
    return _first((rows - incumbents(replay.history) >= patience) & (rows >= START - 1))


def _from_start(values: Array) -> Array:
    return np.where(np.arange(len(values)) >= START - 1, values, np.nan)


def _below(values: Array, threshold: float) -> int:
    return _first(np.nan_to_num(values, nan=np.inf) < threshold)


# Tables


COLUMNS = ("RYC", "its median", f"lost over {LARGE:.0%}", "RTC", "its median", "RYC > 0")


def _scores(replays: list[Replay], stops: list[int]) -> Array:
    """RYC and RTC (n, 2) of single searches."""
    return np.array([replay.scores(stop) for replay, stop in zip(replays, stops, strict=True)])


def _cells(scores: Array) -> list[str]:
    """What `COLUMNS` name, of single searches (n, 2)."""
    (ryc, rtc), (middle, half), each = scores.mean(axis=0), np.median(scores, axis=0), scores[:, 0]
    lost, won = f"{(each < -LARGE).mean():.0%}", f"{(each > 0).mean():.0%}"
    return [f"{ryc:+.4f}", f"{middle:+.4f}", lost, f"{rtc:.3f}", f"{half:.3f}", won]


def _apart(replays: list[Replay], scores: Array, others: Array) -> tuple[Array, Array]:
    """The mean difference of RYC and RTC to others of the same searches, and its error over datasets."""
    names = np.array([replay.dataset for replay in replays])
    apart = np.array([(scores - others)[names == name].mean(axis=0) for name in np.unique(names)])
    return apart.mean(axis=0), apart.std(axis=0, ddof=1) / math.sqrt(len(apart))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def cv_tables(replays: list[Replay], made: dict[str, list[Array]], folder: Path) -> Iterator[str]:
    """RYC and RTC of every rule, by algorithm."""
    for algo in ("RF", "XGB"):
        here = [k for k, replay in enumerate(replays) if replay.group == algo]
        some = [replays[k] for k in here]
        places = [(algo, r.dataset, r.seed) for r in some]
        scores: dict[str, Array] = {}
        stops: dict[str, list[int]] = {}
        for method, f in PUBLISHED.items():
            stored = _stored(folder, method).loc[places, ["rel_test", "rel_time"]]
            scores[f"the authors' stops, {method.replace('_', ' ')}"] = stored.to_numpy(float)
            kept = [_by_noise(r, r.bounds, f, fixed=True) for r in some]
            stops[f"the authors' bounds, first threshold kept, {_at(f)}"] = kept
        stops |= {f"Conv {i}": [_by_plateau(r, i) for r in some] for i in (10, 30, 50)}
        stops |= {f"EI {x:g}": [_below(_from_start(r.ei), x) for r in some] for x in (1e-8, 1e-12, 1e-16)}
        stops |= {f"PI {x:g}": [_below(_from_start(r.pi), x) for r in some] for x in (1e-4, 1e-8, 1e-12)}
        stops |= {f"the authors' bounds, {_at(f)}": [_by_noise(r, r.bounds, f) for r in some] for f in FACTORS}
        for name, bound in made.items():
            for f in FACTORS if name in WHOLE else (1.0, 1.5, 2.2):
                stops[f"{name}, {_at(f)}"] = [_by_noise(replays[k], bound[k], f) for k in here]
        scores |= {name: _scores(some, each) for name, each in stops.items()}
        default = scores[f"ours, {_at(1.0)}"]
        yield from ("", f"## {algo}, 10-fold cross-validation, {len(some)} searches", "")
        yield _line("rule", *COLUMNS, "RYC less the default's", "RTC less the default's")
        yield _line(*["---"] * (len(COLUMNS) + 3))
        for name, each in scores.items():
            apart = zip(*_apart(some, each, default), strict=True)
            yield _line(name, *_cells(each), *(f"{mean:+.4f} ± {error:.4f}" for mean, error in apart))


def _at(factor: float) -> str:
    return f"factor {factor:.4g}"


def _stored(folder: Path, method: str) -> Any:
    """The authors' own results of one setting, by algorithm, dataset and seed."""
    import pandas as pd  # noqa: PLC0415 - optional

    results = pd.read_csv(folder / "paper_results_cv.csv.gz")
    return results[results.method == method].set_index(["algo", "dataset", "seed"])


def _iteration(replay: Replay, row: int) -> int:
    """A row as the authors number it; they have no bound after the last."""
    return min(row + 1, len(replay.history) - 1)


def stored_table(replays: list[Replay], folder: Path) -> Iterator[str]:
    """Which factor of the deviation each setting of the authors is: the one that gives their stored stops again."""
    yield from ("", f"## The authors' settings as factors, {len(replays)} searches", "")
    yield "Stored stops that the authors' bounds give again, with the first threshold kept, as in their code, or with"
    yield from ("the incumbent's own, as in the paper:", "")
    yield from ("| setting | factor | first threshold kept | the incumbent's |", "| --- | --- | --- | --- |")
    for method, factor in PUBLISHED.items():
        stops = _stored(folder, method).stop_iter
        for f in dict.fromkeys((factor, math.sqrt(factor))):
            cells = []
            for fixed in (True, False):
                rows = [_by_noise(r, r.bounds, f, fixed=fixed) for r in replays]
                same = [
                    _iteration(r, row) == stops[r.group, r.dataset, r.seed]
                    for r, row in zip(replays, rows, strict=True)
                ]
                cells.append(f"{sum(same)} of {len(replays)}")
            yield f"| {method.replace('_', ' ')} | {f:.4g} | {' | '.join(cells)} |"


def table_tables(replays: list[Replay], made: list[Array]) -> Iterator[str]:
    """RYC, RTC and true regrets on tables, by thresholds in the metric's unit; the optimum is the best ever found."""
    yield from ("", f"## Tables, {len(replays)} searches of BORE, GP-BO, random search and TPE", "")
    yield _line("table", "rule", *COLUMNS, "stopped", "true regret within the threshold, of those stopped")
    yield _line(*["---"] * (len(COLUMNS) + 4))
    for dataset in _datasets(replays):
        here = [k for k, replay in enumerate(replays) if replay.dataset == dataset]
        some = [replays[k] for k in here]
        rules: list[tuple[str, float, list[int]]] = [
            (f"Conv {i}", math.nan, [_by_plateau(r, i) for r in some]) for i in (10, 30, 50)
        ]
        for threshold in THRESHOLDS:
            theirs = [_below(_from_start(r.bounds), threshold) for r in some]
            rules.append((f"the authors' bounds, {threshold}", threshold, theirs))
            rules.append((f"ours, {threshold}", threshold, [_below(made[k], threshold) for k in here]))
        for name, threshold, stops in rules:
            early = [(r, stop) for r, stop in zip(some, stops, strict=True) if stop < len(r.history) - 1]
            regrets = np.array([r.history.loss[: stop + 1].min() - r.lowest for r, stop in early])
            within = f"{(regrets <= threshold).mean():.0%}" if len(regrets) and threshold == threshold else ""  # noqa: PLR0124
            yield _line(dataset, name, *_cells(_scores(some, stops)), f"{len(early)} of {len(some)}", within)
    yield from ("", "How often a bound lies under the true regret, over all rows that are looked at:", "")
    yield "| table | the authors' | ours |"
    yield "| --- | --- | --- |"
    for dataset in _datasets(replays):
        under: list[list[float]] = [[], []]
        for k, replay in enumerate(replays):
            if replay.dataset == dataset:
                regret = np.minimum.accumulate(replay.history.loss) - replay.lowest
                seen = ~np.isnan(made[k]) & ~np.isnan(replay.bounds)
                for side, bound in zip(under, (replay.bounds, made[k]), strict=True):
                    side.append(float((bound[seen] < regret[seen]).mean()))
        yield f"| {dataset} | {np.mean(under[0]):.1%} | {np.mean(under[1]):.1%} |"


def _datasets(replays: list[Replay]) -> list[str]:
    return sorted({replay.dataset for replay in replays})


DRAWN = (("#c44e52", "s"), ("#2a6f97", "o"), ("#1b9e77", "o"), ("#8c8c8c", "^"))


def picture(replays: list[Replay], made: dict[str, list[Array]], path: Path) -> None:
    """The fronts, RYC against RTC, with the errors over datasets of the difference to the default."""
    with figure(path, 2) as axes:
        for axis, algo in zip(axes, ("RF", "XGB"), strict=True):
            _fronts(axis, algo, replays, made)
        axes[0].set_ylabel("RYC: change of test error, negative is worse")
        axes[0].legend(frameon=False, loc="lower left")


def _fronts(axis: Any, algo: str, replays: list[Replay], made: dict[str, list[Array]]) -> None:
    here = [k for k, replay in enumerate(replays) if replay.group == algo]
    some = [replays[k] for k in here]
    theirs = [replay.bounds for replay in replays]
    fronts = {
        label: [_scores(some, [_by_noise(replays[k], bound[k], f) for k in here]) for f in FACTORS]
        for label, bound in (
            ("the authors' bounds", theirs),
            ("RegretBound", made["ours"]),
            ("RegretBound, top=1", made["ours, all points"]),
        )
    }
    default = fronts["RegretBound"][FACTORS.index(1.0)]
    fronts["Conv 10, 30, 50"] = [_scores(some, [_by_plateau(r, i) for r in some]) for i in (50, 30, 10)]
    for (label, scores), (colour, marker) in zip(fronts.items(), DRAWN, strict=True):
        means = np.array([each.mean(axis=0) for each in scores])
        errors = np.array([_apart(some, each, default)[1] for each in scores])
        axis.errorbar(
            means[:, 1], means[:, 0], xerr=errors[:, 1], yerr=errors[:, 0], color=colour, marker=marker, ms=5,
            lw=1.2, elinewidth=0.6, alpha=0.9, label=label,
        )  # fmt: skip
    axis.set(title=f"{algo}, {len(_datasets(some))} datasets x 10 seeds", xlabel="RTC: share of time saved")
    axis.axhline(0.0, color="#cccccc", lw=0.8, zorder=0)
    axis.set_ylim(-0.045, 0.006)


def make(given: Given) -> Result:
    """All tables, and the picture."""
    folder, options = given.path, given.options
    replays = load_cv(folder)
    made = {name: bounds(name, replays, "cv", options.every, given.processes) for name in WHOLE}
    for name in options.variants:
        seldom = SELDOM if name == "ours" else name
        made[seldom] = bounds(name, replays, "cv", options.ablations_every, given.processes)
    coarse = f"after every {options.every} evaluations, which is less often than the library asks"
    text = [
        "# Automatic termination, by replay of the authors' runs",
        "",
        "RYC: relative change of test error, negative is worse. RTC: share of time saved. Each has its mean and its",
        f"median over searches; a search has lost over {LARGE:.0%} if its RYC is below {-LARGE}. Differences to the",
        'default, `RegretBound("cv")`, are paired, ± their error over datasets. A factor scales the noise of the',
        "incumbent's cross-validation: the authors' 0.21 is 1, and their 0.5 is 0.5 / 0.21 = 2.381.",
        "The authors' rule is asked after every evaluation from the 20th on. Ours is asked",
        f"{coarse if options.every > 1 else OFTEN}.",
        f"What is taken away from ours is asked after every {options.ablations_every} evaluations only; compare it",
        "with ours asked as seldom.",
        "Made by `python -m bench run termination`.",
        *stored_table(replays, folder),
        *cv_tables(replays, made, folder),
    ]
    if options.runs:
        tables = load_tables(folder, options.runs)
        text += table_tables(tables, bounds("ours", tables, "tables", options.every, given.processes))
    curves = given.data[1]
    if curves is not None:
        text += curve_table(curves.path, given.seeds, given.processes)
    return Result("\n".join(text) + "\n", picture=lambda path: picture(replays, made, path))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", type=int, default=1, help="evaluations between looks, at least; 1: as the library")
    parser.add_argument("--ablations-every", type=int, default=20, help="the same for what is taken away from ours")
    parser.add_argument("--runs", type=int, default=4, help="of each optimizer on each table")
    parser.add_argument("--variants", nargs="+", default=ABLATIONS, choices=ABLATIONS)


RUNS = Need(
    "the authors' runs (bo-early-stopping, as parquet)",
    "FAIRWAY_TERMINATION",
    holds=("bo_runs_cv.parquet", "regrets_cv.parquet", "runs_hpobench.parquet", "runs_nas201.parquet"),
)
REPRODUCTIONS = (
    Reproduction(
        "termination",
        "Automatic termination, Tables 3, 4 and 5: the authors' runs, replayed",
        (RUNS, replace(CURVES, flags=("--curves",), optional=True)),
        make,
        20,
        10,
        options=_options,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "termination", *sys.argv[1:]))
