"""The tables and figures of the ACE paper, in virtual time on recorded trainings.

    python -m bench run ace_table1 [--data credit.npz] [--seeds 20] [--processes 2]

Without data of one's own the credit curves that the repository carries are used. A search is one simulated study;
tables that ask for the same one share it. Budgets are scaled to the size of the recording, so that no method runs
through more than about half of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fairway as fw
from bench import runs
from bench.papers import ace_paper
from bench.papers.ace_paper import CHEAP, DEAR
from bench.pictures import figure
from bench.reproduction import Given, Need, Reproduction, Result, made_by
from fairway.engine.events import Reported
from fairway.interval import expected_cost
from fairway.runners.recording import key

CURVES = Need(
    "the recorded credit curves",
    "FAIRWAY_CREDIT_CURVES",
    carried=Path(__file__).parents[1] / "recordings" / "credit.npz",
)
SENTENCES = Need("the recorded SST-2 curves (sst2.npz)", "FAIRWAY_SST2_CURVES")
WORKERS = 4
LIMITS = {"hard": 0.25, "easy": 0.30}  # the paper's easy one is 0.325
PRICED_STEPS = 50  # a check costs its price times the mean of so many first steps, as in simulation


class Task(NamedTuple):
    """What is searched for, and the seconds of a search on a recording of so many configurations."""

    objective: str
    constraint: str
    seconds: float
    configurations: int

    def budget(self, recording: fw.Recording, share: float = 1.0) -> float:
        """Virtual seconds, in proportion to the recording."""
        return round(share * self.seconds * len(recording) / self.configurations, 2)


CREDIT = Task("auc", "eod", 14.0, 4589)
SST2 = Task("accuracy", "afr", 12.0, 229)


@dataclass(frozen=True)
class Method:
    """A stopper, and when constraints are checked: as it says, or all afterwards, from the best objective down."""

    stopper: fw.Stopper
    afterwards: bool = False


METHODS = {
    "no stopping, afterwards": Method(fw.Never(), afterwards=True),
    "no stopping, on the way": Method(fw.Never(skip=False)),
    "no stopping, where worth it": Method(fw.Never()),
    "ASHA, afterwards": Method(fw.ASHA(), afterwards=True),
    "ASHA, on the way": Method(fw.ASHA(skip=False)),
    "ASHA, where worth it": Method(fw.ASHA()),
    "ASHA strata": Method(fw.ASHA(strata=True, skip=False)),
    "ASHA strata, not fixed": Method(fw.ASHA(strata=True, interval="adaptive", skip=False)),
    "ACE": Method(fw.ACE()),
    "ACE hard": Method(fw.ACE(tolerance="hard")),
    "ACE no skip": Method(fw.ACE(skip=False)),
    "ACE interval 1": Method(fw.ACE(interval=1)),
    "ACE interval T": Method(fw.ACE(interval="end")),
}
TRUNCATIONS = (0.03, 0.06, 0.13, 0.25, 0.5, 0.75)
METHODS |= {f"ACE truncation {share:.0%}": Method(fw.ACE(share)) for share in TRUNCATIONS}
SAMPLERS: dict[str, fw.Sampler] = {"random": fw.Random(), "blend": fw.Blend(ace_paper.TABLE_4)}
WHEN = """\
Afterwards: the search knows nothing of the limit; when its seconds are over, trials are checked one after the other,
from the best objective down, each at its best checkpoint, until one is feasible, and that time is added. On the way:
every step is checked. Where worth it: only steps whose objective would be a new best, which is ACE's rule and
fairway's default for every stopper."""


class Search(NamedTuple):
    """What one setting of a table is."""

    sampler: str
    method: str
    limit: float
    price: float
    budget: float


@dataclass(frozen=True)
class Job:
    """One search with one seed."""

    path: str
    task: Task
    search: Search
    seed: int

    @property
    def key(self) -> tuple[str | float, ...]:
        """All that its outcome depends on, but for the recording and the code."""
        search = self.search
        return repr(SAMPLERS[search.sampler]), repr(METHODS[search.method]), *search[2:], self.seed


Row = dict[str, Any]
load = cache(fw.Recording.load)


def run(job: Job) -> Row:
    """Simulate one search."""
    recording, task, search = load(job.path), job.task, job.search
    method = METHODS[search.method]
    study = fw.Study(
        recording.space,
        fw.Maximize(task.objective),
        [] if method.afterwards else [fw.AtMost(task.constraint, search.limit)],
        sampler=SAMPLERS[search.sampler],
        stopper=method.stopper,
        seed=job.seed,
    )
    done = fw.simulate(study, recording, workers=WORKERS, budget=search.budget, constraint_price=search.price)
    if method.afterwards:
        best, best_after, checks = _afterwards(study, recording, job)
    else:
        best = None if study.best is None else study.best.metrics[task.objective]
        best_after, checks = done.best_after, study.costs.checks
    reports = [event for event in study.log.read() if isinstance(event, Reported)]
    paces = {event.number: (event.interval, event.total) for event in reports}.values()
    return {
        "best": best,
        "trials": len(study.trials),
        "checks": checks,
        "best_after": best_after,
        "share_used": round(done.share_used, 4),
        "interval_1": round(sum(interval == 1 for interval, _ in paces) / max(len(paces), 1), 4),
        "interval_t": round(sum(1 != interval == total for interval, total in paces) / max(len(paces), 1), 4),
    }


def _afterwards(study: fw.Study, recording: fw.Recording, job: Job) -> tuple[float | None, float | None, int]:
    """The best feasible objective, when it is known, and after how many checks."""
    task, search, seconds = job.task, job.search, job.search.budget
    ranked = sorted(study.trials, key=lambda trial: -(trial.metrics.get(task.objective) or 0.0))
    for checks, trial in enumerate(ranked, start=1):
        if trial.step is None:  # nothing was reported in time
            break
        k = recording.index[key(trial.params)]
        first = recording.seconds[recording.offset[k] : recording.offset[k + 1]][:PRICED_STEPS]
        seconds += search.price * float(first.mean())
        if recording.at(task.constraint, k, trial.step) <= search.limit:
            return trial.metrics[task.objective], seconds, checks
    return None, None, len(ranked)


class Searches:
    """The runs of every search that a table asks for."""

    def __init__(self, given: Given, task: Task, searches: Iterable[Search]) -> None:
        self.given, self.task = given, task
        seeds = range(given.seeds)
        wanted = {(search, seed): Job(str(given.path), task, search, seed) for search in searches for seed in seeds}
        code = (WORKERS, PRICED_STEPS, task[:2], *(inspect.getsource(part) for part in (run, _afterwards)))
        kept = f"ace-{runs.digest(given.path, *runs.simulation_sources(), *code)}"
        jobs = {job.key: job for job in wanted.values()}
        done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=given.name)
        self.rows: dict[tuple[Search, int], Row] = {place: done[job.key] for place, job in wanted.items()}

    def column(self, search: Search, name: str) -> np.ndarray:
        """Over seeds; NaN where nothing was found."""
        return np.array([self.rows[search, seed][name] for seed in range(self.given.seeds)], float)

    def mean(self, search: Search, name: str, form: str = ".0f") -> str:
        """Of those seeds that found something."""
        column = self.column(search, name)
        column = column[~np.isnan(column)]
        return format(column.mean(), form) if len(column) else "none"

    def best(self, search: Search) -> str:
        """The best feasible objective in percent, and how many seeds found none."""
        column = 100 * self.column(search, "best")
        found = column[~np.isnan(column)]
        nothing = len(column) - len(found)
        return runs.mean(found, 3) + (f" ({nothing} of {len(column)} found none)" if nothing else "")

    def less(self, search: Search, other: Search) -> str:
        """The difference, in thousandths of the objective, paired by seed."""
        apart = 1000 * (self.column(search, "best") - self.column(other, "best"))
        return "" if search == other else runs.mean(apart[~np.isnan(apart)], 2, "+")

    def result(self, title: str, text: Iterable[str], picture: Callable[[Path], None] | None = None) -> Result:
        """The whole page."""
        used = {search: float(self.column(search, "share_used").mean()) for search, _ in self.rows}
        most = dict.fromkeys(search.method for search, share in used.items() if share > 0.5)
        over = f", but for {' and '.join(most)}" if most else ""
        recording = load(str(self.given.path))
        about = (
            f"{made_by(self.given)} {WORKERS} virtual workers, {len(recording):,} recorded configurations, of which no "
            f"method runs more than half{over}. The best feasible {self.task.objective} is in percent, ± its standard "
            "error over seeds; differences are in thousandths, paired by seed. The paper's ± is over three seeds."
        )
        rows = [{**search._asdict(), "seed": seed, **row} for (search, seed), row in self.rows.items()]
        return Result("\n".join([f"# {title}", "", about, *text]) + "\n", rows, picture)


TABLE_1_METHODS = (*tuple(METHODS)[:6], "ACE")
TABLE_1_COLUMNS = (
    *("searcher", "method", "trials", "paper: trials", "best feasible", "paper: best", "less ACE's"),
    *("time to best (s)", "paper: of 1 h", "checks", "of the table"),
)


def table_1(given: Given) -> Result:
    """No stopping, ASHA and ACE, by blended and by random search."""
    budget = CREDIT.budget(load(str(given.path)))
    searches = {
        (level, sampler, method): Search(sampler, method, limit, CHEAP, budget)
        for level, limit in LIMITS.items()
        for sampler in ("blend", "random")
        for method in TABLE_1_METHODS
    }
    made = Searches(given, CREDIT, searches.values())

    def lines() -> Iterator[str]:
        yield from ("", f"{budget:g} virtual seconds, a check costs {CHEAP} steps.", *WHEN.splitlines())
        for level, limit in LIMITS.items():
            yield from ("", f"## eod <= {limit:g} ({level}; in the paper {ace_paper.LIMITS[level]:g})", "")
            yield from runs.table(
                TABLE_1_COLUMNS,
                (row(level, sampler, method) for sampler in ("blend", "random") for method in TABLE_1_METHODS),
            )

    def row(level: str, sampler: str, method: str) -> tuple[str, ...]:
        search, ace = searches[level, sampler, method], searches[level, sampler, "ACE"]
        theirs = ace_paper.TABLE_1.get((level, sampler, method))
        return (
            sampler,
            method,
            made.mean(search, "trials"),
            "" if theirs is None else f"{theirs.trials:,.1f}",
            made.best(search),
            "" if theirs is None else theirs.best,
            made.less(search, ace),
            made.mean(search, "best_after", ".1f"),
            "" if theirs is None else theirs.time,
            made.mean(search, "checks"),
            made.mean(search, "share_used", ".0%"),
        )

    return made.result("ACE, Table 1: the best feasible AUC under the fairness constraint", lines())


def table_2(given: Given) -> Result:
    """Hard stopping, and no skip."""
    budget = CREDIT.budget(load(str(given.path)))
    searches = {
        (level, method): Search("random", method, LIMITS[level], CHEAP, budget) for level, method in ace_paper.TABLE_2
    }
    made = Searches(given, CREDIT, searches.values())
    rows = (
        (
            f"eod <= {LIMITS[level]:g} ({level})",
            method,
            "first violation" if method == "ACE hard" else "strata",
            "" if method == "ACE no skip" else "yes",
            made.best(search),
            ace_paper.TABLE_2[level, method],
            made.less(search, searches[level, "ACE"]),
            made.mean(search, "trials"),
            made.mean(search, "checks"),
        )
        for (level, method), search in searches.items()
    )
    text = ["", f"Random search, {budget:g} virtual seconds, a check costs {CHEAP} steps.", ""]
    heading = ("limit", "method", "stops by", "skips", "best feasible", "paper: best", "less ACE's", "trials", "checks")
    return made.result("ACE, Table 2: stopping choices", [*text, *runs.table(heading, rows)])


INTERVALS = ("ACE interval 1", "ACE interval T", "ACE")
INTERVAL_COLUMNS = (
    *("price of a check", "method", "interval 1", "paper: 1", "interval T", "paper: T", "best feasible", "paper: best"),
    *("less ACE's", "trials", "checks"),
)


def _interval_rows(
    made: Searches, searches: Mapping[tuple[float, str], Search], papers: bool
) -> Iterator[Sequence[str]]:
    for (price, method), search in searches.items():
        theirs = ace_paper.TABLE_3.get((price, method)) if papers or price == CHEAP else None
        ones, ends, best = ("", "", "") if theirs is None else (f"{theirs[0]}%", f"{theirs[1]}%", theirs[2])
        yield (
            f"{price:g}",
            method,
            made.mean(search, "interval_1", ".0%"),
            ones,
            made.mean(search, "interval_t", ".0%"),
            ends,
            made.best(search),
            best,
            made.less(search, searches[price, "ACE"]),
            made.mean(search, "trials"),
            made.mean(search, "checks"),
        )


def table_3(given: Given) -> Result:
    """Interval 1, T and adaptive, where a check is cheap and where it is dear."""
    budget = CREDIT.budget(load(str(given.path)))
    searches = {
        (price, method): Search("random", method, LIMITS["hard"], price, budget)
        for price in (CHEAP, DEAR)
        for method in INTERVALS
    }
    made = Searches(given, CREDIT, searches.values())
    text = [
        "",
        f"Random search, eod <= 0.25, {budget:g} virtual seconds. The paper's dear constraint is another one, on",
        "sentences: see `ace_figure3`; here the same constraint is made dear.",
        "",
    ]
    rows = _interval_rows(made, searches, papers=False)
    return made.result("ACE, Table 3: when constraints are checked", [*text, *runs.table(INTERVAL_COLUMNS, rows)])


FIGURE_3_METHODS = (
    *("no stopping, afterwards", "no stopping, where worth it", "ASHA, afterwards", "ASHA, where worth it"),
    "ACE",
)
FIGURE_3_LIMITS = (0.19, 0.20, 0.24, 0.25)
LEARNED = 0.6  # an untrained model has 0.51


def figure_3(given: Given) -> Result:
    """The robustness constraint: who finds a feasible model, and how good it is; and the dear half of Table 3."""
    budget = SST2.budget(load(str(given.path)))
    searches = {
        (limit, method): Search("random", method, limit, DEAR, budget)
        for method in FIGURE_3_METHODS
        for limit in FIGURE_3_LIMITS
    }
    intervals = {
        (price, method): Search("random", method, 0.20, price, budget) for price in (DEAR, 1.7) for method in INTERVALS
    }
    made = Searches(given, SST2, [*searches.values(), *intervals.values()])
    heading = ["method", *(f"afr <= {limit:g}" for limit in FIGURE_3_LIMITS)]

    def success(search: Search, least: float = 0.0) -> float:
        return float((made.column(search, "best") > least).mean())  # NaN, nothing found, is not

    def by_limit(cell: Callable[[Search], str]) -> list[str]:
        rows = [[method, *(cell(searches[limit, method]) for limit in FIGURE_3_LIMITS)] for method in FIGURE_3_METHODS]
        return runs.table(heading, rows)

    def draw(path: Path) -> None:
        with figure(path, 2) as (rate, accuracy):
            for method, colour in zip(
                FIGURE_3_METHODS, ("#8c8c8c", "#4d4d4d", "#e8a87c", "#c44e52", "#2a6f97"), strict=True
            ):
                columns = [made.column(searches[limit, method], "best") for limit in FIGURE_3_LIMITS]
                found = [column[~np.isnan(column)] for column in columns]
                rates = [100 * success(searches[limit, method], LEARNED) for limit in FIGURE_3_LIMITS]
                rate.plot(FIGURE_3_LIMITS, rates, marker="o", color=colour, label=method)
                means = [100 * some.mean() if len(some) else np.nan for some in found]
                errors = [100 * runs.error(some) for some in found]
                accuracy.errorbar(FIGURE_3_LIMITS, means, errors, marker="o", capsize=2, color=colour, label=method)
            rate.set(
                xlabel="limit on the average failure rate",
                ylabel=f"seeds with a feasible model above {LEARNED:.0%} (%)",
            )
            rate.set_ylim(0, 105)
            accuracy.set(xlabel="limit on the average failure rate", ylabel="best feasible accuracy (%)")
            accuracy.legend(frameon=False, fontsize=8)

    text = [
        "",
        f"MiniLM on SST-2 (the paper: DistilBERT), random search, {budget:g} virtual seconds; a check costs {DEAR}",
        "steps. An untrained model calls every sentence neutral and fails few tasks (afr 0.14), so that something",
        "feasible, if poor, is found by nearly everyone here.",
        *WHEN.splitlines(),
        "",
        ace_paper.FIGURE_3,
        "",
        "## Seeds that found a feasible model",
        "",
        *by_limit(lambda search: f"{success(search):.0%}"),
        "",
        f"## Seeds that found a feasible model with an accuracy above {LEARNED:.0%}: one that has learned something",
        "",
        *by_limit(lambda search: f"{success(search, LEARNED):.0%}"),
        "",
        "## Best feasible accuracy",
        "",
        *by_limit(made.best),
        "",
        "## Less ACE's, in thousandths, paired by seed",
        "",
        *by_limit(lambda search: made.less(search, searches[search.limit, "ACE"])),
        "",
        "## Trials",
        "",
        *by_limit(lambda search: made.mean(search, "trials")),
        "",
        "## Time to best (s)",
        "",
        *by_limit(lambda search: made.mean(search, "best_after", ".1f")),
        "",
        "## Table 3, second half: intervals under afr <= 0.2; the price was 1.7 where these curves were recorded",
        "",
        *runs.table(INTERVAL_COLUMNS, _interval_rows(made, intervals, papers=True)),
    ]
    return made.result("ACE, Figure 3 and Table 3: the robustness constraint", text, draw)


def figure_4(given: Given) -> Result:
    """The share that is truncated."""
    budget = CREDIT.budget(load(str(given.path)), 0.5)
    searches = {
        (level, share): Search("random", f"ACE truncation {share:.0%}", limit, CHEAP, budget)
        for level, limit in LIMITS.items()
        for share in TRUNCATIONS
    }
    made = Searches(given, CREDIT, searches.values())

    def draw(path: Path) -> None:
        with figure(path, 2) as axes:
            for axis, (level, limit) in zip(axes, LIMITS.items(), strict=True):
                columns = [100 * made.column(searches[level, share], "best") for share in TRUNCATIONS]
                means = [np.nanmean(column) for column in columns]
                errors = [runs.error(column[~np.isnan(column)]) for column in columns]
                axis.errorbar(
                    [100 * share for share in TRUNCATIONS], means, errors, marker="o", capsize=2, color="#2a6f97"
                )
                for share, value, spread in zip(TRUNCATIONS, means, errors, strict=True):
                    trials = made.mean(searches[level, share], "trials")
                    label, under = f"{value:.2f}\n{trials} trials", (100 * share, value - np.nan_to_num(spread))
                    axis.annotate(label, under, (0, -3), textcoords="offset points", ha="center", va="top", fontsize=7)
                axis.set_xscale("log")
                axis.set_xticks([100 * share for share in TRUNCATIONS], [f"{share:.0%}" for share in TRUNCATIONS])
                axis.minorticks_off()
                axis.margins(0.1, 0.25)
                axis.set(title=f"eod <= {limit:g} ({level})", xlabel="truncation", ylabel="best feasible AUC (%)")

    def rows() -> Iterator[Sequence[str]]:
        for (level, share), search in searches.items():
            less = made.less(search, searches[level, 0.25])
            trials, used = made.mean(search, "trials"), made.mean(search, "share_used", ".0%")
            yield f"eod <= {LIMITS[level]:g} ({level})", f"{share:.0%}", made.best(search), less, trials, used

    text = [
        "",
        f"Random search, {budget:g} virtual seconds, half of what the other tables have: at 75% the recording is soon",
        f"used up. A check costs {CHEAP} steps. {ace_paper.FIGURE_4}",
        "",
        *runs.table(("limit", "truncation", "best feasible", "less that of 25%", "trials", "of the table"), rows()),
    ]
    return made.result("ACE, Figure 4: the share that is truncated", text, draw)


TABLE_6_KINDS = {  # by method: intervals, ranks, when constraints are checked
    "ASHA": ("geometric", "of all", "fixed"),
    "ASHA strata": ("geometric", "within strata", "fixed"),
    "ASHA strata, not fixed": ("geometric", "within strata", "not fixed"),
    "ACE no skip": ("linear", "within strata", "not fixed"),
}


def table_6(given: Given) -> Result:
    """Geometric intervals against linear ones."""
    budget = CREDIT.budget(load(str(given.path)))
    plain = {"blend": "ASHA, on the way", "random": "ASHA, afterwards"}  # by the paper's figures, its Table 1's
    searches = {
        (sampler, method): Search(
            sampler, plain[sampler] if method == "ASHA" else method, LIMITS["hard"], CHEAP, budget
        )
        for sampler, method in ace_paper.TABLE_6
    }
    made = Searches(given, CREDIT, searches.values())
    rows = (
        (
            sampler,
            search.method if method == "ASHA" else method,
            *TABLE_6_KINDS[method],
            made.best(search),
            ace_paper.TABLE_6[sampler, method],
            made.less(search, searches[sampler, "ACE no skip"]),
            made.mean(search, "trials"),
            made.mean(search, "checks"),
        )
        for (sampler, method), search in searches.items()
    )
    heading = (
        "searcher",
        "method",
        "intervals",
        "ranks",
        "checks by",
        "best feasible",
        "paper: best",
        "less ACE no skip's",
    )
    text = ["", f"eod <= 0.25, {budget:g} virtual seconds, a check costs {CHEAP} steps.", ""]
    lines = runs.table((*heading, "trials", "checks"), rows)
    return made.result("ACE, Table 6: geometric against linear intervals", [*text, *lines])


FIGURE_2_STEPS = (2, 4, 8, 16, 32, 64)
FIGURE_2_RATIOS = tuple(2.0**power for power in range(-4, 11))


def figure_2(given: Given) -> Result:
    """The expected cost of a trial by interval: Eq. (1) needs no data."""

    def costs(total: int, ratio: float) -> tuple[list[int], list[float]]:
        intervals = [2**power for power in range(total.bit_length())]
        return intervals, [expected_cost(b, total, cost_ratio=ratio, stop_probability=0.5) for b in intervals]

    def cheapest(total: int, ratio: float) -> str:
        every = [expected_cost(b, total, cost_ratio=ratio, stop_probability=0.5) for b in range(1, total + 1)]
        best = int(np.argmin(every)) + 1
        return "1" if best == 1 else "T" if best == total else str(best)

    def draw(path: Path) -> None:
        with figure(path, 2) as (left, right):
            for total in FIGURE_2_STEPS:
                left.plot(*costs(total, 20.0), marker="o", ms=3, label=f"T={total}")
            for ratio in FIGURE_2_RATIOS:
                right.plot(*costs(16, ratio), marker="o", ms=3, color="#2a6f97" if ratio < 14 else "#c44e52")
            left.set(title="r = 20", xlabel="interval", ylabel="expected cost (steps)", xscale="log")
            right.set(
                title="T = 16, r from 1/16 to 1,024 (red: above 14)", xlabel="interval", xscale="log", yscale="log"
            )
            left.legend(frameon=False, fontsize=8)

    rows = [("r = 20", f"T = {total}", cheapest(total, 20.0), "T" if total < 22 else "1") for total in FIGURE_2_STEPS]
    rows += [("T = 16", f"r = {ratio:g}", cheapest(16, ratio), "T" if ratio > 14 else "1") for ratio in FIGURE_2_RATIOS]
    text = [
        "# ACE, Figure 2: the expected cost of a trial, by interval",
        "",
        f"Stop probability 0.5, Eq. (1), every whole interval tried. {made_by(given)}",
        "",
        *runs.table(("fixed", "varied", "cheapest interval", "paper"), rows),
    ]
    return Result("\n".join(text) + "\n", picture=draw)


REPRODUCTIONS = (
    Reproduction("ace_table1", "ACE, Table 1: no stopping, ASHA, ACE on recorded curves", (CURVES,), table_1, 10, 20),
    Reproduction("ace_table2", "ACE, Table 2: hard stopping, and no skip", (CURVES,), table_2, 1, 20),
    Reproduction("ace_table3", "ACE, Table 3: interval 1, T and adaptive, cheap and dear", (CURVES,), table_3, 1, 20),
    Reproduction("ace_table6", "ACE, Table 6: geometric against linear intervals", (CURVES,), table_6, 3, 20),
    Reproduction("ace_figure2", "ACE, Figure 2: the expected cost of a trial", (), figure_2, 0.1, 1),
    Reproduction("ace_figure3", "ACE, Figure 3, and Table 3 on robustness", (SENTENCES,), figure_3, 1, 20),
    Reproduction("ace_figure4", "ACE, Figure 4: truncation from 3% to 75%", (CURVES,), figure_4, 2, 20),
)
