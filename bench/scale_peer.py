"""Optuna in the same measurements as `scale_trials`: a study of n trials, then asks and tells with each sampler.

Optuna writes one trial after another, so that filling a file would take hours. Here it writes the first trial, and that
one's rows are repeated with other numbers: what it then finds is what it would have written.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

MOST_SECONDS = 300.0
"""How long the asks and tells of one sampler may take."""

_LIMIT = 60.0


def _points(n: int) -> list[tuple[dict[str, float], float]]:
    """Parameters and losses, as the studies of fairway have them."""
    rows = np.random.default_rng(0).random((n, 3)).tolist()
    return [({"x": x, "y": y, "k": 1 + int(k * 100)}, (x - 0.3) ** 2 + y) for x, y, k in rows]


def _fill_sqlite(path: str, points: list[tuple[dict[str, float], float]]) -> None:
    with sqlite3.connect(path) as database:
        table = "trials", "trial_values", "trial_params", "trial_system_attributes"
        first = {name: database.execute(f"SELECT * FROM {name} WHERE trial_id = 1").fetchall() for name in table}  # noqa: S608
        for number, (params, loss) in enumerate(points[1:], 1):
            trial = number + 1
            (_, _, *rest) = first["trials"][0]
            database.execute("INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?)", (trial, number, *rest))
            database.execute("INSERT INTO trial_values VALUES (?, ?, 0, ?, 'FINITE')", (trial, trial, loss))
            database.execute(
                "INSERT INTO trial_system_attributes VALUES (?, ?, 'constraints', ?)",
                (trial, trial, json.dumps([params["k"] - _LIMIT])),
            )
            database.executemany(
                "INSERT INTO trial_params VALUES (?, ?, ?, ?, ?)",
                [
                    (3 * number + key, trial, name, params[name], kind)
                    for key, _, name, _, kind in first["trial_params"]
                ],
            )


def _fill_journal(path: str, points: list[tuple[dict[str, float], float]]) -> None:
    with Path(path).open("r+") as file:
        one = json.loads(file.read().splitlines()[-1])
        for params, loss in points[1:]:
            one |= {"params": params, "value": loss, "system_attrs": {"constraints": [params["k"] - _LIMIT]}}
            file.write(json.dumps(one, separators=(",", ":")) + "\n")


def _peer() -> Any:
    peer: Any = importlib.import_module("optuna")
    importlib.import_module("optuna.storages.journal")
    peer.logging.set_verbosity(peer.logging.ERROR)
    return peer


def _opened(peer: Any, path: str, sampler: Any) -> Any:
    """A study in memory or in a file, by the path's ending."""
    storage: Any = None
    if path.endswith(".db"):
        storage = f"sqlite:///{path}"
    elif path.endswith(".log"):
        storage = peer.storages.JournalStorage(peer.storages.journal.JournalFileBackend(path))
    return peer.create_study(storage=storage, study_name="study", sampler=sampler, load_if_exists=True)


def _ask(study: Any) -> Any:
    """A new trial with its parameters, which Optuna draws one by one."""
    trial = study.ask()
    trial.suggest_float("x", 0.0, 1.0)
    trial.suggest_float("y", 0.0, 1.0)
    trial.suggest_int("k", 1, 100)
    return trial


def ask_and_tell(path: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """How a new study in a file is asked, and how a trial is told."""
    peer = _peer()
    study = _opened(peer, path, peer.samplers.RandomSampler(seed=0))

    def tell(trial: Any) -> None:
        x, y, k = trial.params.values()
        trial.set_constraint("size", k - _LIMIT)
        study.tell(trial, (x - 0.3) ** 2 + y)

    return partial(_ask, study), tell


def measure(
    path: str, n: int, times: int, cpu: Callable[[Callable[[], object]], float], memory: Callable[[], float]
) -> dict[str, float]:
    """What an ask takes with each sampler, and a tell; in memory or in a file, by the path's ending."""
    peer = _peer()
    real, points = peer.distributions, _points(n)
    kinds: Mapping[str, Any] = {
        "x": real.FloatDistribution(0.0, 1.0),
        "y": real.FloatDistribution(0.0, 1.0),
        "k": real.IntDistribution(1, 100),
    }

    study = _opened(peer, path, peer.samplers.RandomSampler(seed=0))
    for params, loss in points if not path else points[:1]:
        limits = {"constraints": [params["k"] - _LIMIT]}
        study.add_trial(peer.trial.create_trial(params=params, distributions=kinds, value=loss, system_attrs=limits))
    if path:
        (_fill_sqlite if path.endswith(".db") else _fill_journal)(path, points)
    samplers = {
        "Random": peer.samplers.RandomSampler(seed=0),
        "TPE": peer.samplers.TPESampler(seed=0),
        "c-TPE": peer.samplers.TPESampler(seed=0, constraints_func=lambda trial: (trial.params["k"] - _LIMIT,)),
    }
    tells, began = [], time.thread_time()
    if path:
        study = _opened(peer, path, None)
    study.get_trials(deepcopy=False)  # which the first ask would read
    found = {"open": time.thread_time() - began}
    for name, sampler in samplers.items():
        study.sampler = sampler
        asks, until = list[float](), time.monotonic() + MOST_SECONDS
        for i in range(times + 1):
            began = time.thread_time()
            trial = _ask(study)
            asks.append(time.thread_time() - began)
            tells.append(cpu(lambda trial=trial, i=i: study.tell(trial, 2.0 + i / 100)))  # type: ignore[misc]
            if time.monotonic() > until:
                break
        found[f"ask {name}"] = statistics.median(asks[1:] or asks)
    return {**found, "tell": statistics.median(tells), "MB": memory()}
