"""Several process workers: steps a second against one worker's, and how old what they know of each other is.

The objective burns 1 ms of CPU a step. One worker and two take turns; the ratio is the median over pairs. The age of a
report is taken when another worker folds it in.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Any

import fairway as fw
from fairway.engine.events import Asked, Remeasured, Reported, Told

STEPS, TRIALS = 400, 8


def main() -> None:
    pairs = [(_rate(1), _rate(2)) for _ in range(5)]
    one, two = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"process workers on {os.cpu_count()} cores, 1 ms of CPU a step, stored in SQLite")
    print(f"  one worker {one:7.0f} steps a second, two {two:7.0f}: x {ratio:.2f}   (bar: at least 1.8)")
    print(ages())


def _train(trial: fw.Trial) -> None:
    x = trial.params["x"]
    assert isinstance(x, float)
    for step in trial.steps(STEPS):
        end = time.thread_time_ns() + 1_000_000
        while time.thread_time_ns() < end:
            pass
        trial.report(auc=x * step / STEPS, eod=lambda: x / 3)


def _rate(workers: int) -> float:
    """Steps a second, from the first report to the last, without the start of the processes."""
    with tempfile.TemporaryDirectory() as folder:
        study = fw.Study(
            {"x": fw.Float(0.0, 1.0)},
            fw.Maximize("auc"),
            [fw.AtMost("eod", 0.25)],
            stopper=fw.ACE(truncation=1e-6),
            storage=f"sqlite:///{folder}/study.db",
            seed=0,
        )
        began = []

        def train(trial: fw.Trial) -> None:
            trial.note(began=time.time())
            _train(trial)
            trial.note(ended=time.time())

        study.optimize(train, trials=TRIALS * workers, workers=workers, backend="process", progress=False)
        began = [trial.notes["began"] for trial in study.trials]
        ended = [trial.notes["ended"] for trial in study.trials]
        return float(STEPS * len(study.trials) / (max(ended) - min(began)))


def ages(**settings: Any) -> str:
    """How old a report is when another of four workers, of a kind that settings say, has replayed it; in words."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/study.db"
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("age"), stopper=fw.Never(), storage=url, seed=0)

        def train(trial: fw.Trial) -> None:
            seconds: list[float] = []
            referee = trial.driver.referee
            replay = referee.replay

            def replay_and_time(event: Asked | Reported | Told | Remeasured, after: int = -1) -> None:
                if isinstance(event, Reported):
                    seconds.append(time.time() + event.objective[0])  # its oldest row carries minus when it was made
                replay(event, after)

            referee.replay = replay_and_time  # type: ignore[method-assign]
            for _ in trial.steps(1500):
                time.sleep(0.002)
                trial.report(age=-time.time())
            trial.note(ages=seconds)

        study.optimize(train, trials=4, workers=4, progress=False, **settings)
        found = [age for trial in study.trials for age in trial.notes["ages"]]
    quantiles = statistics.quantiles(found, n=100)
    return (
        f"  age of another worker's report when it is known, 4 workers: median {quantiles[49] * 1e3:.0f} ms, "
        f"95% {quantiles[94] * 1e3:.0f} ms, 99% {quantiles[98] * 1e3:.0f} ms, {len(found)} batches   (bar: 100)"
    )


if __name__ == "__main__":
    main()
