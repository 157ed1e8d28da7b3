"""One report with its stop decision: `trial.report` under Pilot and ACE against Optuna's `report` plus `should_prune`.

Both stand at the same place: 1,000 trials of 1,000 steps are known, and the trial measured has 1,000 steps behind it.
The constraint is given as a callable; 1 in 8 of the reports measured is worth its price and calls it, about as many as
in a run of random search on the recorded credit curves.
"""

from __future__ import annotations

import gc
import random
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import fairway as fw
from fairway.engine.measurement import Observation
from fairway.engine.referee import Referee
from fairway.engine.trial import Trial

TRIALS = STEPS = 1000
BATCH = 200
ROUNDS = 21


def main() -> None:
    peer = _optuna_study()
    ours = [_fairway_trial(TRIALS, STEPS + BATCH, STEPS, stopper=stopper) for stopper in (ACE, PILOT)]
    rounds = []
    for _ in range(ROUNDS):
        trial, mine = _optuna_trial(peer), []
        for one in ours:
            one.driver.last_step = STEPS
            mine.append(_time(partial(_fairway_report, one)))
        rounds.append((*mine, _time(partial(_optuna_report, trial))))
    ace, pilot, theirs = zip(*rounds, strict=True)
    print(f"one report and its decision, {STEPS:,} steps into a trial after {TRIALS:,} trials of {STEPS:,} steps")
    print(f"  Optuna in memory, SuccessiveHalvingPruner   {statistics.median(theirs):8.2f} us")
    for name, times in (("ACE", ace), ("Pilot", pilot)):
        median, _, ratio = _medians(list(zip(times, theirs, strict=True)))
        print(f"  {f'fairway, {name}, a lazy constraint':42}  {median:8.2f} us, {ratio:5.1f} x   (bar: at least 6)")
    _growth_with_reports()
    _growth_with_steps()
    _memory()
    _import_time()


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The median of each side, and of the ratio within pairs: a machine's own pace drifts, but not within a pair."""
    sides = [statistics.median(side) for side in zip(*pairs, strict=True)]
    return sides[0], sides[1], statistics.median(other / one for one, other in pairs)


def _time(report: Callable[[int], None]) -> float:
    """Microseconds a report, over one batch."""
    gc.collect()
    gc.disable()
    began = time.perf_counter()
    for i in range(BATCH):
        report(i)
    seconds = time.perf_counter() - began
    gc.enable()
    return seconds / BATCH * 1e6


def _known(study: fw.Study, trials: int, steps: int, *, first: int = 1) -> None:
    """Fold `trials` x `steps` reports into the study's referee, as if other workers had ruled on them."""
    rng = random.Random(0)  # noqa: S311 - a workload, not a secret
    referee = study.owner.referee
    for number in range(trials):
        for step in range(first, first + steps):
            loss = -0.9 * rng.random()
            referee.rule(number, _observation(referee, step, loss))
    referee.rule(0, Observation(1, 0.5, -0.5, (0.2,), (1000,), 0.0, 1000, last=False))


def _observation(referee: Referee, step: int, loss: float) -> Observation:
    """A report that paid for nothing."""
    return Observation(step, -loss, loss, referee.unmeasured, referee.all_saved, None, 1000, last=False)


# Truncation is tiny and persistence huge so that the trial measured continues; what a report costs depends on neither.
ACE = fw.ACE(truncation=1e-6, interval=1)
PILOT = fw.Pilot(persistence=1e12)


def _fairway_trial(trials: int, steps: int, at: int, *, first: int = 1, stopper: fw.Stopper = ACE) -> Trial:
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0)},
        fw.Maximize("auc"),
        [fw.AtMost("eod", 0.25)],
        stopper=stopper,
        seed=0,
    )
    _known(study, trials, steps, first=first)
    trial = study.ask()
    trial.driver.begin(10**9)
    if at:  # as good as any, it passes every rung up to here
        trial.report(auc=1.0, eod=lambda: 0.3, step=at)
    trial.driver.last_step = at
    return trial


_RNG = random.Random(1)  # noqa: S311
_AUCS = [0.57 * _RNG.random() for _ in range(BATCH)]  # 1 in 8 reaches the best feasible one, 0.5, and is checked


def _fairway_report(trial: Trial, i: int) -> None:
    trial.report(auc=_AUCS[i], eod=lambda: 0.3)


def _optuna_study() -> Any:
    import optuna  # noqa: PLC0415 - the peer

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = random.Random(0)  # noqa: S311
    pruner = optuna.pruners.SuccessiveHalvingPruner()
    study = optuna.create_study(direction="maximize", pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
    for number in range(TRIALS):
        values = {step: 0.9 * rng.random() for step in range(1, STEPS + 1)}
        study.add_trial(
            optuna.trial.create_trial(
                params={"x": 0.5},
                distributions={"x": optuna.distributions.FloatDistribution(0.0, 1.0)},
                value=values[STEPS],
                intermediate_values=values,
                system_attrs={f"completed_rung_{k}": values[4**k] for k in range(5)},
            )
        )
        _progress("Optuna's history", number + 1, TRIALS)
    return study


def _optuna_trial(study: Any) -> Any:
    """A trial with `STEPS` reports behind it, good enough to have passed every rung."""
    trial = study.ask()
    for step in range(1, STEPS + 1):
        trial.report(1.0, step)
        trial.should_prune()
    return trial


def _optuna_report(trial: Any, i: int) -> None:
    trial.report(_AUCS[i], STEPS + i + 1)
    trial.should_prune()


def _growth_with_reports() -> None:
    """From 1,000 to 100,000 reports at each step."""
    few, many = _fairway_trial(1_000, BATCH, 0), _fairway_trial(100_000, BATCH, 0)
    costs = []
    for _ in range(ROUNDS):
        few.driver.last_step = many.driver.last_step = 0
        costs.append((_time(partial(_fairway_report, few)), _time(partial(_fairway_report, many))))
    small, large, growth = _medians(costs)
    print(f"reports at one step: 1,000 {small:.2f} us, 100,000 {large:.2f} us: x {growth:.2f}   (bar: under 2)")


def _growth_with_steps() -> None:
    """From step 10 to step 5,000 of one trial."""
    early, late = _fairway_trial(200, BATCH, 9, first=10), _fairway_trial(200, BATCH, 4999, first=5000)
    for step in range(1, 5000):
        late.driver.batch.add(_observation(late.driver.referee, step, 0.5))
    costs = []
    for _ in range(ROUNDS):
        early.driver.last_step, late.driver.last_step = 9, 4999
        costs.append((_time(partial(_fairway_report, early)), _time(partial(_fairway_report, late))))
    small, large, growth = _medians(costs)
    print(f"steps in the trial: 10 {small:.2f} us, 5,000 {large:.2f} us: x {growth:.2f}   (bar: under 1.2)")


def _memory() -> None:
    """What ten million reports leave in the stopper's state: 1,000 trials of 10,000 steps, a third in each stratum."""
    rng = random.Random(0)  # noqa: S311
    state = fw.ACE().start(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]))
    tracemalloc.start()
    for number in range(1000):
        for step in range(10_000):
            state.judge(number, step, rng.random(), (None, 0.0, rng.random())[step % 3])
        _progress("ten million reports", number + 1, 1000)
    megabytes = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    print(f"the stopper's state after 10,000,000 reports: {megabytes:.0f} MB   (bar: at most 400)")


def _import_time() -> None:
    def seconds(statement: str) -> float:
        code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
        command = [sys.executable, "-c", code]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(9)]  # noqa: S603
        return statistics.median(float(run.stdout) for run in runs)

    numpy, fairway, study = (seconds(f"import numpy{more}") for more in ("", ", fairway", ", fairway; fairway.Study"))
    print(
        f"import: numpy {numpy * 1e3:.0f} ms, and fairway {(fairway - numpy) * 1e3:+.0f} ms, "
        f"and fairway.Study {(study - numpy) * 1e3:+.0f} ms   (bar: under 200)"
    )


def _progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty() or done == total:
        sys.stderr.write(f"\r{what}: {done:,} of {total:,}" + ("\n" if done == total else ""))
        sys.stderr.flush()


if __name__ == "__main__":
    main()
