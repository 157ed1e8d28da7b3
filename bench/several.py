"""Several limits at once: in which order are they checked, and by which order are broken ones told apart?

    python -m bench run several [--data credit.npz]

Equalized odds and demographic parity on the recorded credit curves, binding together and apart, at equal prices and
with one cheap and one expensive. The ways compared:

- *promise*: limits are checked one after the other, the likeliest to be broken per second first, until one is broken;
  what is known of a checkpoint is the excess of that one. What fairway does.
- *declared*, *reversed*: the same in a fixed order, whatever it costs: a lexicographic order that pays as it goes.
- *sum*, *worst*, *lexicographic*: every limit is paid at every check; a checkpoint beyond some is ranked by the sum of
  its excesses, by the largest, or by the first limit's and then the second's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ace_tables import CURVES, WORKERS
from bench.pictures import figure
from bench.policies import CHEAP, COIN, DEAR, PAPER, beside, floored, ratios
from bench.reproduction import Given, Reproduction, Result, made_by
from fairway.engine.referee import Referee

Array: TypeAlias = NDArray[np.float64]
BEYOND = "beyond"
BUDGET = 12.0  # seconds on a recording of so many configurations
CONFIGURATIONS = 4589
STOPPERS: dict[str, fw.Stopper] = {"ACE": fw.ACE(), "Pilot": fw.Pilot()}


class Limits(NamedTuple):
    """On equalized odds and on demographic parity."""

    eod: float
    dpd: float


class Prices(NamedTuple):
    """Of a check, in mean steps."""

    eod: float
    dpd: float


BINDING = {"both": Limits(0.20, 0.025), "eod alone": Limits(0.25, 0.15), "dpd alone": Limits(1.0, 0.025)}
PRICES = (Prices(PAPER, PAPER), Prices(CHEAP, DEAR), Prices(DEAR, CHEAP))


def _lexicographic(excess: Array) -> Array:
    first, second = excess
    return np.asarray(first * 1e6 + second)


PAID_AT_ONCE: dict[str, Callable[[Array], Array]] = {
    "sum": lambda excess: excess.sum(axis=0),
    "worst": lambda excess: excess.max(axis=0),
    "lexicographic": _lexicographic,
}
FIXED: dict[str, Callable[[Collection[int]], list[int]]] = {
    "declared": sorted,
    "reversed": lambda offered: sorted(offered, reverse=True),
}
OURS = "promise"
WAYS = (OURS, *FIXED, *PAID_AT_ONCE)
LEAST = 1e-3  # a mean regret counts as at least this, so that ratios are finite


class Job(NamedTuple):
    """One simulated search."""

    path: str
    way: str
    stopper: str
    binding: str
    prices: Prices
    seed: int


@cache
def _load(path: str) -> fw.Recording:
    return fw.Recording.load(path)


@cache
def _excess(path: str, limits: Limits) -> Array:
    """How far every checkpoint is beyond each limit, in that limit's unit: (2, rows)."""
    metrics = _load(path).metrics
    over = [np.maximum(metrics[metric] - limit, 0.0) / limit for metric, limit in limits._asdict().items()]
    return np.array(over)


@cache
def _joined(path: str, way: str, limits: Limits) -> fw.Recording:
    """The recording with one metric for all limits, 0 where they hold."""
    recording = _load(path)
    beyond = PAID_AT_ONCE[way](_excess(path, limits))
    return replace(recording, metrics={"auc": recording.metrics["auc"], BEYOND: beyond})


@contextmanager
def _checked_in(order: Callable[[Collection[int]], list[int]]) -> Iterator[None]:
    with patch.object(Referee, "check_order", lambda *given: order(given[-1])):
        yield


def run(job: Job) -> tuple[float, int, int, float]:
    """The regret x 1000, trials, checks, and the share of the recording used."""
    recording, limits = _load(job.path), BINDING[job.binding]
    constraints = [fw.AtMost(metric, limit) for metric, limit in limits._asdict().items()]
    price: dict[str, float] = dict(job.prices._asdict())
    if job.way in PAID_AT_ONCE:
        recording = _joined(job.path, job.way, limits)
        constraints, price = [fw.AtMost(BEYOND, 0.0)], {BEYOND: sum(job.prices)}
    study = fw.Study(
        recording.space,
        fw.Maximize("auc"),
        constraints,
        sampler=fw.Random(),
        stopper=STOPPERS[job.stopper],
        seed=job.seed,
    )
    budget = BUDGET * len(recording) / CONFIGURATIONS
    with _checked_in(FIXED[job.way]) if job.way in FIXED else nullcontext():
        done = fw.simulate(study, recording, workers=WORKERS, budget=budget, constraint_price=price)
    found = COIN if study.best is None else study.best.metrics["auc"]
    assert found is not None
    feasible = (_excess(job.path, limits) == 0).all(axis=0)
    regret = 1000 * (float(recording.metrics["auc"][feasible].max()) - found)
    return regret, len(study.trials), study.costs.checks, done.share_used


def make(given: Given) -> Result:
    cells = list(product(BINDING, PRICES))
    jobs = {
        (way, stopper, binding, *prices, seed): Job(str(given.path), way, stopper, binding, prices, seed)
        for way, stopper, (binding, prices), seed in product(WAYS, STOPPERS, cells, range(given.seeds))
    }
    kept = f"several-{runs.digest(*runs.simulation_sources(), STOPPERS, BINDING, given.path)}"
    done = runs.run_all(run, jobs, kept=kept, processes=given.processes, label=given.name)
    regret = {
        stopper: np.array(  # (cell, way, seed)
            [
                [[done[way, stopper, binding, *prices, seed][0] for seed in range(given.seeds)] for way in WAYS]
                for binding, prices in cells
            ]
        )
        for stopper in STOPPERS
    }
    used = max(result[3] for result in done.values())
    singles = [
        {"stopper": stopper, "binding": binding, **prices._asdict(), "way": way, "regret_of_seeds": values}
        for stopper, rows in regret.items()
        for (binding, prices), row in zip(cells, rows.round(4).tolist(), strict=True)
        for way, values in zip(WAYS, row, strict=True)
    ]
    return Result("\n".join(_report(given, cells, regret, used)) + "\n", singles, lambda path: _draw(path, regret))


def _report(given: Given, cells: list[tuple[str, Prices]], regret: Mapping[str, Array], used: float) -> list[str]:
    lines = [
        "# Several limits",
        "",
        "Regret (AUC x 1000), mean ± standard error; random search, the same configurations for every way. Together:",
        f"eod <= {BINDING['both'].eod:g} and dpd <= {BINDING['both'].dpd:g}; alone: the other limit is never broken.",
        "Promise: checked one after the other, the likeliest to be broken per second first, until one is; declared and",
        "reversed: the same in a fixed order. Sum, worst, lexicographic: all are paid, and broken ones ranked by that.",
        f"A search used at most {used:.0%} of the recording. {made_by(given)}",
        "",
        "## Over all cells",
        "",
        "Geometric mean of regret over that of promise, with the bounds of a bootstrap over seeds, at 95%.",
        "",
    ]
    rows = []
    for stopper, values in regret.items():
        means, first = ratios(floored(values, LEAST)), WAYS.index(OURS)
        bounded = zip(means / means[first], *beside(values, LEAST, first), strict=True)
        rows.append((stopper, *(f"{mean:.2f} ({low:.2f} to {high:.2f})" for mean, low, high in bounded)))
    lines += runs.table(("stopper", *WAYS), rows)
    for stopper, values in regret.items():
        lines += ["", f"## {stopper}", ""]
        rows = []
        for (binding, prices), cell in zip(cells, values, strict=True):
            least = cell.mean(axis=1).min()
            shown = [f"**{runs.mean(v, 2)}**" if v.mean() == least else runs.mean(v, 2) for v in cell]
            rows.append((binding, f"{prices.eod:g} and {prices.dpd:g}", *shown))
        lines += runs.table(("binding", "prices of eod and dpd", *WAYS), rows)
    return lines


def _draw(path: Path, regret: Mapping[str, Array]) -> None:
    with figure(path, len(regret)) as axes:
        for axis, (stopper, values) in zip(axes, regret.items(), strict=True):
            means, place = ratios(floored(values, LEAST)), WAYS.index(OURS)
            low, high = beside(values, LEAST, place)
            means = means / means[place]
            axis.bar(WAYS, means, yerr=(means - low, high - means), capsize=3)
            axis.axhline(1.0, color="black", lw=1)
            axis.set(title=stopper)
            axis.tick_params(axis="x", rotation=30)
        axes[0].set_ylabel("regret, of that by promise")


REPRODUCTIONS = (
    Reproduction("several", "Several limits: ways to check and to order them", (CURVES,), make, 10, 30, of_paper=False),
)

if __name__ == "__main__":
    sys.exit(main("run", "several", *sys.argv[1:]))
