"""The runs of Makarova et al. (2022) as replays: what was evaluated, what it cost, and the authors' own bounds.

Their tables (bo-early-stopping, as parquet): 220 searches with 10-fold cross-validation, and searches on FCNet and
NAS-Bench-201 tables. The authors number a bound, and what they say of the incumbent, by the evaluations seen: their
iteration 20 is known after row 19, the 20th evaluation, and stands there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fairway as fw
from fairway.history import History

Array = NDArray[np.float64]

START = 20  # evaluations before the first bound
SPACES: dict[str, dict[str, fw.Float | fw.Int]] = {
    "RF": {
        "max_depth": fw.Int(1, 5),
        "min_samples_split": fw.Float(0.01, 0.5, log=True),
        "n_estimators": fw.Float(1.0, 64.0, log=True),
    },
    "XGB": {
        "colsample_bytree": fw.Float(0.3, 1.0),
        "gamma": fw.Float(1e-6, 64.0, log=True),
        "learning_rate": fw.Float(1e-6, 1.0, log=True),
        "max_depth": fw.Float(2.0, 32.0, log=True),
        "min_child_weight": fw.Float(1e-6, 32.0, log=True),
        "n_estimators": fw.Float(2.0, 512.0, log=True),
        "reg_alpha": fw.Float(1e-6, 2.0, log=True),
        "reg_lambda": fw.Float(1e-6, 2.0, log=True),
        "subsample": fw.Float(0.5, 1.0),
    },
}
ORDERED = ("batch_size", "dropout_1", "dropout_2", "init_lr", "n_units_1", "n_units_2")  # of FCNet


@dataclass(frozen=True, eq=False)
class Replay:
    """One recorded search; `test` is that of the incumbent after each evaluation, `seconds` run from row 20 on."""

    group: str  # algorithm, or task and optimizer
    dataset: str
    seed: int
    history: History
    test: Array
    seconds: Array
    bounds: Array  # the authors', NaN before their first
    ei: Array
    pi: Array
    lowest: float = math.nan  # the lowest loss of all searches on that table, these and others

    def scores(self, stop: int) -> tuple[float, float]:
        """RYC and RTC of stopping after row `stop`."""
        last, now = float(self.test[-1]), float(self.test[stop])
        return (last - now) / max(last, now), 1.0 - float(self.seconds[stop] / self.seconds[-1])


def incumbents(history: History) -> NDArray[np.intp]:
    """The row of the best evaluation so far, after each."""
    loss = history.loss
    improved = np.concatenate([[True], loss[1:] < np.minimum.accumulate(loss)[:-1]])
    return np.maximum.accumulate(np.where(improved, np.arange(len(loss)), 0))


def _history(space: fw.Space, x: Array, loss: Array, noise: Array) -> History:
    n, none = len(x), np.zeros(len(x), bool)
    return History(
        space=space,
        problem=fw.Problem(fw.Minimize("error")),
        seed=0,
        number=np.arange(n),
        x=x,
        loss=loss,
        values=np.zeros((n, 0)),
        bounds=np.zeros((n, 0)),
        violation=np.zeros(n),
        failed=none,
        partial=none,
        step=np.ones(n, np.int64),
        reached=np.ones(n, np.int64),
        lowest=loss,
        halfway=np.full((n, 2), np.nan),
        late=np.zeros((n, 0)),
        seconds=np.zeros(n),
        noise=noise,
        folds=np.full(n, 10),
        pending=x[:0],
    )


def load_cv(folder: Path) -> list[Replay]:
    """The searches with cross-validation."""
    import pandas as pd  # noqa: PLC0415 - optional

    runs, bounds = (pd.read_parquet(folder / f"{name}.parquet") for name in ("bo_runs_cv", "regrets_cv"))
    bounds["algo"] = np.where(bounds.task.str.contains("RandomForest"), "RF", "XGB")
    bounds["dataset"], bounds["seed"] = bounds.task.str.split("_dpp").str[0], bounds.file.str[:3].astype(int)
    theirs = dict(iter(bounds.groupby(["algo", "dataset", "seed"])))
    replays = []
    for key, run in runs.sort_values("i").groupby(["algo", "dataset", "seed"]):
        algo, dataset, seed = map(str, key)
        space = fw.Space(SPACES[algo])
        columns = []
        for name, parameter in space.items():
            value = run[f"hp_{name}"].to_numpy(float)
            value = np.exp(value) if getattr(parameter, "log", False) else value
            columns.append(np.clip(value, parameter.low, parameter.high))  # type: ignore[attr-defined]
        x = np.array([space.encode(_params(space, row)) for row in zip(*columns, strict=True)])
        folds = run[[f"val_fold{k}" for k in range(10)]].to_numpy(float)
        history = _history(space, x, run.value.to_numpy(float), np.array([fw.Folds(row).noise for row in folds]))
        bound = np.full(len(run), np.nan)
        said = theirs[key]
        bound[said.iteration.to_numpy(int) - 1] = said.regret_bound.to_numpy(float)
        replays.append(
            Replay(
                algo,
                dataset,
                int(seed),
                history,
                test=run.test_value.to_numpy(float)[incumbents(history)],
                seconds=np.cumsum(np.where(run.i >= START, run.evaluation_time, 0.0)),
                bounds=bound,
                ei=np.append(run.ei.to_numpy(float)[1:], np.nan),  # of the next evaluation
                pi=np.append(run.pi.to_numpy(float)[1:], np.nan),
            )
        )
    return replays


def _params(space: fw.Space, row: Sequence[float]) -> dict[str, Any]:
    return {
        name: int(value) if isinstance(parameter, fw.Int) else float(value)
        for (name, parameter), value in zip(space.items(), row, strict=True)
    }


def load_tables(folder: Path, runs: int) -> list[Replay]:
    """The first so many searches of each optimizer on each table."""
    import pandas as pd  # noqa: PLC0415 - optional

    bounds = pd.read_parquet(folder / "regrets_baselines.parquet")
    bounds["optimizer"] = bounds.set.str.split("_").str[2]
    theirs = dict(iter(bounds.groupby(["task", "optimizer", "file"])))
    replays = []
    for name in ("runs_hpobench", "runs_nas201"):
        table = pd.read_parquet(folder / f"{name}.parquet")
        lowest = {str(task): float(value) for task, value in table.groupby("bench").feval.min().items()}
        table = table[table.file < f"{runs:03d}"].dropna(axis=1, how="all")
        names = sorted(str(column)[3:] for column in table if str(column).startswith("hp_"))
        options = {name: sorted(table[f"hp_{name}"].dropna().unique().tolist()) for name in names}
        space = fw.Space({name: fw.Choice(options[name], ordered=name in ORDERED) for name in names})
        for (task, optimizer, file), run in table.sort_values("iteration").groupby(["bench", "optimizer", "file"]):
            said = theirs[task, optimizer, file].sort_values("iteration")
            at = said.iteration.to_numpy(int)
            run = run[: at[-1] + 1]  # noqa: PLW2901 - the authors' bounds may end before it
            rows = run[[f"hp_{name}" for name in names]].itertuples(index=False)
            x = np.array([space.encode(dict(zip(names, row, strict=True))) for row in rows])
            history = _history(space, x, run.feval.to_numpy(float), np.full(len(run), np.nan))
            seconds = np.full(len(run), np.nan)
            seconds[at] = said.total_train_time.to_numpy(float)
            bound, ei, pi = known = np.full((3, len(run)), np.nan)
            known[:, at - 1] = said[["regret_bound", "ei", "pi"]].to_numpy(float).T
            place = (str(optimizer), str(task), int(str(file)[:3]))
            tested = run.m_final_test_error if "m_final_test_error" in run else run.feval  # as in the paper
            test = tested.to_numpy(float)[incumbents(history)]
            replays.append(Replay(*place, history, test, seconds, bound, ei, pi, lowest[str(task)]))
    return replays
