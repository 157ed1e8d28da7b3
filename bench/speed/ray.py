"""Trials a second on a local Ray of two CPUs beside Ray Tune's, what a report adds in a worker, and a lost node.

    python -m bench.speed.ray

200 trials of 20 reports that do no work. Ray Tune reuses its actors and writes no logs; ours runs the same function in
actors, with its log in memory, and once more with every report stored in SQLite. They take turns, and ratios are
medians over the turns. What a report adds is the time of a trial that reports 2,000 times (in Ray Tune 500 times), less
the time of its loop without reports.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import fairway as fw
from bench.speed.parallel import ages

os.environ |= {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_DEDUP_LOGS": "1", "TUNE_RESULT_BUFFER_LENGTH": "1"}
TRIALS, REPORTS, MANY, ROUNDS = 200, 20, 2000, 3


def main() -> None:
    import ray  # noqa: PLC0415 - after the environment is set
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        print(line, flush=True)

    turns = [(_ours(stored=False), _ours(stored=True), _tunes()) for _ in range(ROUNDS)]
    ours, stored, tunes = (statistics.median(side) for side in zip(*turns, strict=True))
    ratio, stored_ratio = (statistics.median(turn[k] / turn[2] for turn in turns) for k in (0, 1))
    say(f"a local Ray, 2 CPUs: {TRIALS} trials of {REPORTS} reports that do nothing, with the start of the workers")
    say(f"  Ray Tune, reused actors, no loggers {tunes:7.1f} trials a second")
    say(f"  fairway, ACE, in memory             {ours:7.1f}: {ratio:6.1f} x   (bar: at least 10)")
    say(f"  fairway, ACE, stored in SQLite      {stored:7.1f}: {stored_ratio:6.1f} x")
    added, theirs = _added(), _tunes_added()
    say(f"  a report adds {added * 1e6:.1f} us in a worker, in Ray Tune {theirs * 1e6:.0f} us   (bar: at most 100)")
    say(ages(backend="ray", resources={"CPU": 0.5}))
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    say(_lose(cluster, node))
    ray.shutdown()
    cluster.shutdown()
    Path("bench/results/ray.txt").write_text("\n".join(said) + "\n")


def _study(folder: str, **settings: Any) -> fw.Study:
    space, limits = {"x": fw.Float(0.0, 1.0)}, [fw.AtMost("eod", 0.25)]
    storage = f"sqlite:///{folder}/study.db" if folder else None
    return fw.Study(space, fw.Maximize("auc"), limits, sampler=fw.Random(), storage=storage, seed=0, **settings)


def _ours(*, stored: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        study = _study(folder if stored else "", stopper=fw.ACE(truncation=1e-6))

        def train(trial: fw.Trial) -> None:
            x = trial.params["x"]
            assert isinstance(x, float)
            for step in trial.steps(REPORTS):
                trial.report(auc=x * step / REPORTS, eod=lambda: x / 3)

        began = time.perf_counter()
        study.optimize(train, trials=TRIALS, workers=2, backend="ray", progress=False)
        return TRIALS / (time.perf_counter() - began)


def _tunes() -> float:
    from ray import tune  # noqa: PLC0415

    def train(config: dict[str, Any]) -> None:
        for step in range(1, REPORTS + 1):
            tune.report({"auc": config["x"] * step / REPORTS, "eod": config["x"] / 3})

    began = time.perf_counter()
    _fit(train, TRIALS, scheduler=tune.schedulers.ASHAScheduler(max_t=REPORTS, grace_period=REPORTS))
    return TRIALS / (time.perf_counter() - began)


def _fit(train: Any, samples: int, **settings: Any) -> Any:
    from ray import tune  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        return tune.Tuner(
            train,
            param_space={"x": tune.uniform(0.0, 1.0)},
            tune_config=tune.TuneConfig(metric="auc", mode="max", num_samples=samples, reuse_actors=True, **settings),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()


def _added() -> float:
    """Seconds that a report adds in an actor of ours, the exchange of batches in the background included."""
    with tempfile.TemporaryDirectory() as folder:
        study = _study(folder, stopper=fw.ACE(truncation=1e-6))

        def train(trial: fw.Trial) -> None:
            began = time.perf_counter()
            for step in trial.steps(MANY):
                _work()
                trial.report(auc=step / MANY, eod=lambda: 0.5)
            reported = time.perf_counter()
            for _ in range(MANY):
                _work()
            trial.note(added=(reported - began - (time.perf_counter() - reported)) / MANY)

        study.optimize(train, trials=8, workers=2, backend="ray", progress=False)
        return float(statistics.median(trial.notes["added"] for trial in study.trials))


def _tunes_added() -> float:
    from ray import tune  # noqa: PLC0415

    reports = MANY // 4

    def train(config: dict[str, Any]) -> None:
        del config
        began = time.perf_counter()
        for _ in range(reports):
            _work()
            tune.report({"auc": 0.5})
        reported = time.perf_counter()
        for _ in range(reports):
            _work()
        tune.report({"auc": 0.5, "added": (reported - began - (time.perf_counter() - reported)) / reports})

    results = _fit(train, 2)
    return float(statistics.median(result.metrics["added"] for result in results))


def _work() -> None:
    end = time.thread_time_ns() + 200_000
    while time.thread_time_ns() < end:
        pass


def _lose(cluster: Any, node: Any) -> str:
    """Kill one of three nodes in mid-run, and say what that cost."""
    with tempfile.TemporaryDirectory() as folder:
        study = _study(folder, stopper=fw.Never())

        def train(trial: fw.Trial) -> None:
            for step in trial.steps(20):
                time.sleep(0.02)
                trial.report(auc=step / 20, eod=0.1)

        def kill() -> None:
            while study.counts["completed"] < 15:
                time.sleep(0.01)
            cluster.remove_node(node, allow_graceful=False)
            killed.append(time.perf_counter())

        killed: list[float] = []
        thread = threading.Thread(target=kill)
        thread.start()
        study.optimize(train, trials=60, workers=3, backend="ray", progress=False)
        thread.join()
        counts = study.counts
        lost = [trial.reason for trial in study.trials if trial.status == "failed"]
        return (
            f"  3 nodes, one killed after 15 of 60 trials: {counts['completed']} completed, {len(lost)} lost "
            f"({', '.join(lost)}), {time.perf_counter() - killed[0]:.1f} s to the end"
        )


if __name__ == "__main__":
    main()
