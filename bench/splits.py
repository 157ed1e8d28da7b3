"""Tables cut into four parts, and LightGBM trained on the first: what `bench.unseen` searches, certifies and judges on.

A *plain* split deals the rows of a table out. In a *population* the table stands for all people there are: every part
is drawn from it with replacement, so that the truth about a model is what it does on the whole table. The demo's
generator has the truth too, up to a million rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import fairway as fw
from bench.practitioner import DATASETS, FIXED, SPACE, judged
from fairway.constraints import equalized_odds_difference
from fairway.demo import auc, credit_table

Array: TypeAlias = NDArray[np.float64]
SHARES = (0.4, 0.2, 0.2, 0.2)  # train, judge, certify, final
DEMO, DEMO_ROWS, DEMO_TRUTH = "demo", 20_000, 1_000_000
TABLES = (*DATASETS, DEMO)
POPULATION = "population"
ROUNDS = 300


class Rows(NamedTuple):
    """Rows of a table: features (n, d), target (n,) and group (n,)."""

    x: Array
    y: NDArray[np.int64]
    group: NDArray[np.int64]

    def at(self, places: NDArray[np.intp]) -> Rows:
        """Some of them."""
        return Rows(self.x[places], self.y[places], self.group[places])


class Split(NamedTuple):
    """The four parts, and the rows that tell the truth, where they are known."""

    train: Rows
    judge: Rows
    certify: Rows
    final: Rows
    truth: Rows | None


@cache
def table(name: str, folder: str) -> Rows:
    """A public table."""
    loaded = DATASETS[name].load(Path(folder))
    coded = {
        column: values if pd.api.types.is_numeric_dtype(values) else values.astype("category").cat.codes
        for column, values in loaded.features.items()
    }
    x = pd.DataFrame(coded).to_numpy(np.float64)
    target, group = (column.to_numpy().astype(np.int64) for column in (loaded.target, loaded.group))
    return Rows(x, target, group)


@cache
def _demo_truth() -> Rows:
    return Rows(*credit_table(DEMO_TRUTH, seed=2**31))


def split(setting: str, folder: str, seed: int) -> Split:
    """A split of a setting: a table's name, or that and "population"."""
    name, _, kind = setting.partition(" ")
    rng = np.random.default_rng([seed, 20_241])
    rows = Rows(*credit_table(DEMO_ROWS, seed=1_000 + seed)) if name == DEMO else table(name, folder)
    n = len(rows.y)
    places = rng.integers(0, n, n) if kind == POPULATION else rng.permutation(n)
    truth = _demo_truth() if name == DEMO else rows if kind == POPULATION else None
    ends = np.round(np.cumsum(SHARES) * len(places)).astype(int)
    train, judge, certify, final = (rows.at(part) for part in np.split(places, ends[:-1]))
    return Split(train, judge, certify, final, truth)


class Machine:
    """Trains LightGBM on one split within a budget of CPU seconds; decides at the base rate.

    Decisions are at the base rate: as many of the judging rows are decided 1 as are 1.
    """

    def __init__(self, split: Split, seconds: float) -> None:
        import lightgbm  # noqa: PLC0415 - not for those who only read the results

        self.split = split
        settings = {**FIXED, "feature_pre_filter": False}
        self._data = lightgbm.Dataset(split.train.x, split.train.y, params=settings).construct()
        self._valid = self._data.create_valid(split.judge.x, split.judge.y).construct()
        self._settings = {**settings, "metric": "none"}
        self._base_rate = float(split.judge.y.mean())
        self._ends = time.process_time() + seconds
        self._began = time.process_time()

    @property
    def spent(self) -> float:
        """CPU seconds."""
        return time.process_time() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return time.process_time() > self._ends

    def without_budget(self) -> None:
        """Train on as long as it takes."""
        self._ends = math.inf

    def booster(self, params: Mapping[str, Any]) -> Any:
        """A new training."""
        import lightgbm  # noqa: PLC0415

        booster = lightgbm.Booster({**self._settings, **params}, self._data)
        return booster.add_valid(self._valid, "judge")

    def threshold(self, model: Any) -> float:
        """The score from which on a model decides 1."""
        return self.cutoff(model.predict(self.split.judge.x))

    def cutoff(self, scores: Array) -> float:
        """The same, from its scores of the judging rows."""
        return float(np.quantile(scores, 1.0 - self._base_rate))

    def eod(self, scores: Array) -> float:
        """The equalized-odds difference on the judging rows, with its error."""
        return odds(self.split.judge, scores >= self.cutoff(scores))

    def train(self, trial: fw.Trial) -> Any:
        """One trial, as a user of fairway would write it."""
        booster = self.booster(trial.params)
        for step in trial.steps(ROUNDS):
            ended = booster.update()
            if step > 1 and (ended or self.is_over):  # no split is left, or no time
                break
            scores = judged(booster)
            trial.report(auc=auc(self.split.judge.y, scores), eod=lambda scores=scores: self.eod(scores))
        return booster

    def facts(self, model: Any) -> dict[str, float | None]:
        """What a model does on the final rows, and what is true of it, where that is known."""
        threshold, final, truth = self.threshold(model), self.split.final, self.split.truth
        scores = model.predict(final.x)
        known = None if truth is None else float(odds(truth, model.predict(truth.x) >= threshold))
        return {
            "auc": auc(final.y, scores),
            "final": float(odds(final, scores >= threshold)),
            "truth": known,
            "share": float((scores >= threshold).mean() / final.y.mean()),
        }


def odds(rows: Rows, decided: NDArray[np.bool_]) -> float:
    """The equalized-odds difference of decisions, with its error."""
    return equalized_odds_difference(rows.y, decided, sensitive_features=rows.group)


def widest_error(rows: Rows, decided: NDArray[np.bool_]) -> float:
    """The standard error of the least certain gap between the groups, of true-positive or false-positive rates."""
    cell = 2 * rows.y + rows.group
    n = np.bincount(cell, minlength=4)
    rate = (np.bincount(cell, decided, minlength=4) + 1) / (n + 2)
    variance = rate * (1 - rate) / n
    return float(np.sqrt(variance.reshape(2, 2).sum(axis=1)).max())


def parameters(rng: np.random.Generator) -> dict[str, Any]:
    """A random configuration."""
    space = fw.Space(SPACE)
    return dict(space.decode(rng.random(len(space))))
