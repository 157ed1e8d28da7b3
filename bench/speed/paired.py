"""Two states of the code, measured in turns on one machine: what a change made faster or slower.

    python -m bench.speed.paired OTHER [--rounds 7] [--ray]

OTHER is a checkout of the state before; this one is the state after. Each turn runs in a fresh process, by the public
API alone, so that any two states can be compared. A figure is the best of many short ones, since the pace of a shared
machine drifts; ratios are medians over pairs of turns, after over before: below 1 is faster for times, above 1 for
rates.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fairway as fw

HERE = Path(__file__).resolve()
LABELS = {
    "ace": "report and decision, ACE (us)",
    "pilot": "report and decision, Pilot (us)",
    "stored": "report, stored in SQLite (us)",
    "sqlite": "trials of 100 reports a second, SQLite",
    "two": "steps a second, two worker processes",
    "ray": "trials of 20 reports a second, two Ray actors",
}


def _study(**more: object) -> fw.Study:
    limits = [fw.AtMost("eod", 0.25)]
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, seed=0, sampler=fw.Random(), **more)  # type: ignore[arg-type]


def _report(study: fw.Study, reports: int) -> float:
    """Microseconds a report: one in eight is worth its price and calls its constraint."""
    first = study.ask()
    first.report(auc=0.5, eod=lambda: 0.1)
    study.tell(first)
    trial = study.ask()
    aucs = [0.52 if i % 8 == 0 else 0.3 for i in range(reports)]
    trial.report(auc=1.0, eod=lambda: 0.3, step=100)
    gc.collect()
    gc.disable()
    began = time.perf_counter()
    for i, auc in enumerate(aucs):
        trial.report(auc=auc, eod=lambda: 0.3, step=101 + i)
    seconds = time.perf_counter() - began
    gc.enable()
    return seconds / reports * 1e6


def _train(reports: int, work_ns: int = 0) -> object:
    def train(trial: fw.Trial) -> None:
        for step in trial.steps(reports):
            end = time.thread_time_ns() + work_ns
            while time.thread_time_ns() < end:
                pass
            trial.report(auc=trial.float("x") * step / reports, eod=lambda: 0.2)

    return train


def measure(*, ray: bool) -> dict[str, float]:
    """Every figure of one state, in this process."""
    ace, pilot = fw.ACE(truncation=1e-6, interval=1), fw.Pilot(persistence=1e12)
    found = {
        "ace": min(_report(_study(stopper=ace), 500) for _ in range(60)),
        "pilot": min(_report(_study(stopper=pilot), 500) for _ in range(60)),
    }
    with tempfile.TemporaryDirectory() as folder:
        urls = (f"sqlite:///{folder}/{k}.db" for k in range(99))
        found["stored"] = min(_report(_study(stopper=ace, storage=next(urls)), 500) for _ in range(20))
        study, rates = _study(stopper=ace, storage=next(urls)), []
        for _ in range(6):
            began = time.perf_counter()
            study.optimize(_train(100), trials=60)  # type: ignore[arg-type]
            rates.append(60 / (time.perf_counter() - began))
        found["sqlite"] = max(rates)
        study = _study(stopper=ace, storage=next(urls))
        study.optimize(_train(400, 1_000_000), trials=10, workers=2)  # type: ignore[arg-type]
        steps, spent = sum(trial.steps for trial in study.trials), sum(t.training_seconds for t in study.trials)
        found["two"] = 2 * steps / spent
    if ray:
        study = _study(stopper=ace)
        study.optimize(_train(1), trials=2, workers=2, backend="ray")  # type: ignore[arg-type]
        began = time.perf_counter()
        study.optimize(_train(20), trials=400, workers=2, backend="ray")  # type: ignore[arg-type]
        found["ray"] = 400 / (time.perf_counter() - began)
    return found


def _turn(checkout: Path, *, ray: bool) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    code = f"import json, runpy; m = runpy.run_path({str(HERE)!r}); print(json.dumps(m['measure'](ray={ray})))"
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], cwd=checkout, env=environment, capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the state before")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ray", action="store_true", help="measure Ray actors too")
    given = parser.parse_args()
    pairs = []
    for round_ in range(given.rounds):
        states = [given.other.resolve(), HERE.parents[2]]
        turns = {state: _turn(state, ray=given.ray) for state in (states if round_ % 2 else states[::-1])}
        pairs.append([turns[state] for state in states])
        sys.stderr.write(f"\rround {round_ + 1} of {given.rounds}")
    sys.stderr.write("\n")
    print(f"{'':48} {'before':>9} {'after':>9} {'after / before':>15}   (medians of {given.rounds} pairs)")
    for name, label in LABELS.items():
        if name in pairs[0][0]:
            before, after = (statistics.median(pair[k][name] for pair in pairs) for k in (0, 1))
            ratio = statistics.median(pair[1][name] / pair[0][name] for pair in pairs)
            print(f"{label:48} {before:9.2f} {after:9.2f} {ratio:15.3f}")


if __name__ == "__main__":
    main()
