"""Whole studies on disk: trials a second with 100 reports each, ACE on SQLite against Optuna's SQLite and journal.

fairway runs 1,000 trials; the peers, which are slower, as many as show their pace. They take turns, and the ratios are
medians over the turns. Every trial runs to its end, so that all write the same number of reports; `truncation` is tiny
for that, and costs the same.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairway as fw

REPORTS = 100
TURNS = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = (_fairway(Path(folder)), _optuna(f"sqlite:///{folder}/optuna.db"), _optuna(Path(folder) / "optuna.log"))
        turns = [
            [_rate(run, trials) for run, trials in zip(runs, (1000 // TURNS, 3, 20), strict=True)] for _ in range(TURNS)
        ]
        ours, sqlite, journal = (statistics.median(side) for side in zip(*turns, strict=True))
        over_sqlite, over_journal = (statistics.median(turn[0] / turn[k] for turn in turns) for k in (1, 2))
        pairs = [(_report_cost(Path(folder), 10, k), _report_cost(Path(folder), 5000, k)) for k in range(7)]
        early, late = (statistics.median(side) for side in zip(*pairs, strict=True))
        growth = statistics.median(other / one for one, other in pairs)
    print(f"whole trials of {REPORTS} reports, stored on disk")
    print(f"  fairway, ACE, SQLite                        {ours:8.1f} trials a second")
    print(f"  Optuna, RDBStorage (SQLite), halving        {sqlite:8.1f}: {over_sqlite:6.0f} x   (bar: at least 100)")
    print(f"  Optuna, JournalStorage, halving             {journal:8.1f}: {over_journal:6.1f} x   (bar: at least 10)")
    print(f"a stored report at step 10 {early:.2f} us, at 5,000 {late:.2f} us: x {growth:.2f}   (bar: under 1.5)")


def _rate(run: Callable[[int], object], trials: int) -> float:
    began = time.perf_counter()
    run(trials)
    return trials / (time.perf_counter() - began)


def _study(folder: Path, name: str) -> fw.Study:
    return fw.Study(
        {"x": fw.Float(0.0, 1.0)},
        fw.Maximize("auc"),
        [fw.AtMost("eod", 0.25)],
        stopper=fw.ACE(truncation=1e-6),
        storage=f"sqlite:///{folder}/fairway.db",
        name=name,
        seed=0,
    )


def _fairway(folder: Path) -> Callable[[int], object]:
    study = _study(folder, "whole trials")

    def train(trial: fw.Trial) -> None:
        x = trial.params["x"]
        assert isinstance(x, float)
        for step in trial.steps(REPORTS):
            trial.report(auc=x * step / REPORTS, eod=lambda: x / 3)

    return lambda trials: study.optimize(train, trials=trials)


def _optuna(storage: str | Path) -> Callable[[int], object]:
    import optuna  # noqa: PLC0415 - the peer
    from optuna.storages import journal  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    backend: Any = storage
    if isinstance(storage, Path):
        backend = optuna.storages.JournalStorage(journal.JournalFileBackend(str(storage)))
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(
        storage=backend, direction="maximize", pruner=optuna.pruners.SuccessiveHalvingPruner(), sampler=sampler
    )

    def train(trial: Any) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        for step in range(1, REPORTS + 1):
            trial.report(x * step / REPORTS, step)
            trial.should_prune()
        return float(x)

    return lambda trials: study.optimize(train, n_trials=trials)


def _report_cost(folder: Path, at: int, k: int, reports: int = 2000) -> float:
    """Microseconds of one report of a stored study, flushes to disk included, from a step on."""
    study = _study(folder, f"from step {at}, {k}")
    trial = study.ask()
    trial.driver.begin(None)
    for step in range(1, at):
        trial.report(auc=0.5, eod=lambda: 0.3, step=step)
    study.owner.journal.drain(trial.driver.batch)
    began = time.perf_counter()
    for step in range(at, at + reports):
        trial.report(auc=0.5, eod=lambda: 0.3, step=step)
    study.owner.journal.drain(trial.driver.batch)
    return (time.perf_counter() - began) / reports * 1e6


if __name__ == "__main__":
    main()
