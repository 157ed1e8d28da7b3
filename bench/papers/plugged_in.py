"""Our stoppers inside Optuna and Ray Tune, beside their own, on recorded credit curves at equal virtual seconds.

    python -m bench run plugged_in [--data credit.npz] [--seeds 10] [--tune-seeds 4]

One process whatever is asked for: where ours decides, seconds are real.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import fairway as fw
from bench import runs
from bench.__main__ import main
from bench.papers.ace_curves import LIMIT, PAPER_PRICE, load
from bench.papers.ace_tables import CURVES
from bench.reproduction import Given, Reproduction, Result

BUDGET = 40.0
PACE = 0.1
HOW = """\
One worker, random configurations in the same order for a seed, a check at 1.94 times the mean price of a step. What is
theirs prunes on the objective and pays for one check when a trial completes, as one does today; ours pays when it is
worth it. Where ours decides time passes for real, at a tenth of its pace, because prices are measured."""
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")


class Spent:
    """Virtual seconds, and the best feasible objective that was measured within them."""

    def __init__(self) -> None:
        self.seconds, self.best = 0.0, -math.inf

    def found(self, auc: float, eod: float | None) -> None:
        """A checkpoint was measured."""
        if eod is not None and eod <= LIMIT and self.seconds <= BUDGET:
            self.best = max(self.best, auc)


@cache
def _price(path: str) -> float:
    recording, _ = load(path)
    return PAPER_PRICE * float(np.mean(recording.seconds))


def _steps(path: str, k: int) -> Iterator[tuple[int, int, float, float, float]]:
    """Of one recorded training: the step, how many there are, its seconds, auc and eod."""
    recording, _ = load(path)
    first, last = recording.offset[k], recording.offset[k + 1]
    for row in range(first, last):
        columns = (recording.seconds, recording.metrics["auc"], recording.metrics["eod"])
        seconds, auc, eod = (float(column[row]) for column in columns)
        yield int(row - first + 1), int(last - first), seconds, auc, eod


def in_optuna(path: str, arm: str, seed: int) -> float:
    """The best feasible objective of an Optuna study with a pruner of its own or of ours."""
    import optuna  # noqa: PLC0415 - only for this part

    from fairway.integrations.optuna import ACEPruner, report  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    recording, _ = load(path)
    pruners = {
        "no pruner": optuna.pruners.NopPruner(),
        "MedianPruner": optuna.pruners.MedianPruner(),
        "SuccessiveHalvingPruner": optuna.pruners.SuccessiveHalvingPruner(),
        "fairway's ACEPruner": ACEPruner([fw.AtMost("eod", LIMIT)]),
        "fairway's ACEPruner, hard": ACEPruner([fw.AtMost("eod", LIMIT)], tolerance="hard"),
    }
    study, spent = optuna.create_study(direction="maximize", pruner=pruners[arm]), Spent()
    ours = arm.startswith("fairway")
    for k in np.random.default_rng(seed).permutation(len(recording)):
        trial = study.ask()
        stop = False
        for step, total, seconds, auc, eod in _steps(path, k):
            spent.seconds += seconds
            if ours:
                time.sleep(seconds * PACE)

            def check(auc: float = auc, eod: float = eod) -> float:
                if ours:
                    time.sleep(_price(path) * PACE)
                spent.seconds += _price(path)
                spent.found(auc, eod)
                return eod

            if ours:
                stop = bool(report(trial, auc, step, {"eod": check}, total=total))
            else:
                trial.report(auc, step)
                stop = trial.should_prune()
                if step == total and not stop:
                    check()
            if spent.seconds > BUDGET:
                return spent.best
            if stop:
                break
        state = optuna.trial.TrialState.PRUNED if stop else optuna.trial.TrialState.COMPLETE
        study.tell(trial, None if stop else auc, state=state)
    return spent.best


def in_tune(path: str, arm: str, seed: int) -> float:
    """The best feasible objective of a Tuner with a scheduler of its own or of ours."""
    from ray import tune  # noqa: PLC0415 - only for this part
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, MedianStoppingRule  # noqa: PLC0415

    from fairway.integrations.raytune import StopperScheduler, report  # noqa: PLC0415

    recording, _ = load(path)
    problem = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", LIMIT)])
    schedulers = {
        "no scheduler": FIFOScheduler,
        "ASHAScheduler": lambda: ASHAScheduler(max_t=10_000),
        "MedianStoppingRule": lambda: MedianStoppingRule(time_attr="training_iteration", grace_period=5),
        "fairway's ACE": lambda: StopperScheduler(fw.ACE(), problem),
        "fairway's ACE, hard": lambda: StopperScheduler(fw.ACE(tolerance="hard"), problem),
    }
    ours, price = arm.startswith("fairway"), _price(path)

    def train(config: dict[str, Any]) -> None:
        for step, total, seconds, auc, eod in _steps(path, config["k"]):
            if not ours:
                tune.report({"auc": auc, "eod": eod if step == total else math.nan, "seconds": seconds})
                continue
            time.sleep(seconds * PACE)

            def check(eod: float = eod) -> float:
                time.sleep(price * PACE)
                return eod

            report({"auc": auc, "seconds": seconds}, constraints={"eod": check}, total=total)

    class Budget(tune.Stopper):  # type: ignore[misc]
        """Counts what results say was spent, and ends the experiment."""

        def __init__(self) -> None:
            self.spent = Spent()
            self._heard: set[tuple[str, int]] = set()

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            key = (trial_id, result["training_iteration"])
            if key not in self._heard:  # Tune says it once more when a trial is done
                self._heard.add(key)
                paid = not math.isnan(result["eod"])
                self.spent.seconds += result["seconds"] + paid * price
                self.spent.found(result["auc"], result["eod"] if paid else None)
            return False

        def stop_all(self) -> bool:
            return self.spent.seconds > BUDGET

    budget = Budget()
    order = np.random.default_rng(seed).permutation(len(recording))[:150]
    with tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            train,
            param_space={"k": tune.grid_search([int(k) for k in order])},
            tune_config=tune.TuneConfig(
                metric="auc", mode="max", scheduler=schedulers[arm](), max_concurrent_trials=1, reuse_actors=True
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0, stop=budget),
        ).fit()
    return budget.spent.best


OPTUNA = ("no pruner", "MedianPruner", "SuccessiveHalvingPruner", "fairway's ACEPruner", "fairway's ACEPruner, hard")
TUNE = ("no scheduler", "ASHAScheduler", "MedianStoppingRule", "fairway's ACE", "fairway's ACE, hard")


def _one(job: tuple[str, str, str, int]) -> float | None:
    """The best feasible objective; None: there was none."""
    tool, path, arm, seed = job
    if tool == "Ray Tune":
        import ray  # noqa: PLC0415 - optional

        if not ray.is_initialized():
            logging.getLogger("ray.tune").setLevel(logging.ERROR)
            ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    best = (in_tune if tool == "Ray Tune" else in_optuna)(path, arm, seed)
    return best if math.isfinite(best) else None


def make(given: Given) -> Result:
    """Every arm of both tools."""
    path = str(given.path)
    _, best = load(path)
    arms = [("Optuna", arm, given.seeds) for arm in OPTUNA]
    arms += [("Ray Tune", arm, given.options.tune_seeds) for arm in TUNE]
    jobs = {(tool, arm, seed): (tool, path, arm, seed) for tool, arm, seeds in arms for seed in range(seeds)}
    sources = (runs.SOURCES / "integrations", *runs.simulation_sources())
    done = runs.run_all(
        _one, jobs, kept=f"plugged_in-{runs.digest(given.path, *sources)}", processes=1, label=given.name
    )
    lines = ["# Our stoppers inside Optuna and Ray Tune", "", HOW, ""]
    lines += [f"{BUDGET:g} virtual seconds. Regret is in AUC x 1000 under eod <= {LIMIT}, ± its error over seeds.", ""]
    rows = []
    for tool, arm, seeds in arms:
        found = np.array([done[tool, arm, seed] for seed in range(seeds)], float)
        there = 1000 * (best - found[~np.isnan(found)])
        rows.append((tool, arm, runs.mean(there, 2), f"{seeds - len(there)} of {seeds}"))
    lines += runs.table(("tool", "what stops trials", "regret", "without a feasible model"), rows)
    singles = [{"tool": tool, "arm": arm, "seed": seed, "best": value} for (tool, arm, seed), value in done.items()]
    return Result("\n".join(lines) + "\n", singles)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tune-seeds", type=int, default=4, help="with Ray Tune, which takes longer")


REPRODUCTIONS = (
    Reproduction(
        "plugged_in",
        "ACE inside Optuna and Ray Tune, beside their own",
        (CURVES,),
        make,
        15,
        10,
        options=_options,
    ),
)

if __name__ == "__main__":
    sys.exit(main("run", "plugged_in", *sys.argv[1:]))
