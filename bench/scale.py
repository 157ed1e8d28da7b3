"""How many workers one owner can serve: what its work costs, measured, and what that comes to with 10 to 10,000.

    python -m bench.scale [--out bench/results/scale.md]

The owner hears every worker, writes what it says in one transaction a look, folds it, and passes it on to all others.
Measured here, on a study in SQLite, without any training: hearing and writing a batch; looking at a worker that has no
news; passing an event on to a worker. With N workers that each send f batches a second, and t looks a second, its load
is

    N f (hear + write) + N t look + N (N - 1) f pass

seconds a second. It saturates at 1. A worker's own load is (N - 1) f times what it takes to fold an event in. What it
costs that workers know of each other late is simulated by `python -m bench run staleness`.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import fairway as fw
from fairway.engine.batch import drained
from fairway.engine.clock import WallClock
from fairway.engine.driver import Driver
from fairway.engine.durability import NEWS_SECONDS, SEND_SECONDS
from fairway.engine.events import Reported
from fairway.runners.exchange import Exchange, Line
from fairway.runners.worker import Reports

WORKERS = (10, 30, 100, 300, 1000, 3000, 10_000)
PACES = {"10 reports a second": 10.0, "1 report a second": 1.0, "6 reports a minute": 0.1}


class Costs(NamedTuple):
    """Seconds of the owner's time, and of a worker's."""

    hear: float  # a batch, from the connection into the log and what is known
    look: float  # at a worker that has no news
    tell: float  # an event to a worker
    replay: float  # an event, in a worker

    def load(self, workers: int, batches: float) -> float:
        """Of the owner, with so many workers that each send so many batches a second."""
        heard = workers * batches * self.hear
        looked = workers / NEWS_SECONDS * self.look
        return heard + looked + workers * (workers - 1) * batches * self.tell


def measure(lines: int = 64, rounds: int = 40) -> Costs:
    """With real connections to so many workers that do nothing but send a batch and drain what they are told."""
    with tempfile.TemporaryDirectory() as folder:
        study = fw.Study(
            {"x": fw.Float(0.0, 1.0)},
            fw.Maximize("auc"),
            [fw.AtMost("eod", 0.25)],
            sampler=fw.Random(),
            storage=f"sqlite:///{folder}/study.db",
            seed=0,
        )
        owner, exchange = study.owner, Exchange(study.owner)
        there: list[tuple[Connection, Driver]] = []
        ours: list[Line] = []
        for _ in range(lines):
            referee = owner.enlist()
            asked = owner.assign(referee.worker)
            here, far = Pipe()
            driver = Driver(asked.number, referee, WallClock())
            driver.begin(10_000)
            there.append((far, driver))
            ours.append(Line(here, referee.worker))
        hear, look, tell, events = [], [], [], []
        for round_ in range(rounds):
            for far, driver in there:
                observation = driver.measure({"auc": 0.5 + round_ / 1000, "eod": lambda: 0.5})
                assert observation is not None
                driver.settle(observation)
                with drained([driver.batch], WallClock.ns()) as waiting:
                    far.send(Reports(waiting))
            hear.append(_timed(exchange.hear, ours) / lines)
            tell.append(_timed(exchange.pass_on, ours) / lines)
            look.append(_timed(exchange.pass_on, ours) / lines)
            for far, _ in there:
                while far.poll():
                    events += far.recv().events
        news = lines - 1  # events for each worker in a round
        replayed = [pickle.loads(event) for event in events[: 20 * news]]  # noqa: S301 - our own
        replay = _timed(_replay_all, there[0][1], replayed) / len(replayed)
        passed = (statistics.median(tell) - statistics.median(look)) / news
        return Costs(statistics.median(hear), statistics.median(look), passed, replay)


def hand_over(*, stored: bool, trials: int = 600, rounds: int = 3) -> float:
    """The owner's CPU seconds for a trial that trains nothing, in one of two worker processes: ask, send, hear, tell.

    The start of the processes is in a shorter run too, and is subtracted. The median of some rounds.
    """
    found = []
    for _ in range(rounds):
        short, long = (_owner_seconds(n, stored=stored) for n in (20, trials + 20))
        found.append((long - short) / trials)
    return statistics.median(found)


def _owner_seconds(trials: int, *, stored: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/study.db" if stored else None
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), sampler=fw.Random(), storage=url, seed=0)
        began = time.process_time()
        study.optimize(lambda _: 0.5, trials=trials, workers=2, progress=False)
        return time.process_time() - began


def _replay_all(driver: Driver, events: Sequence[Reported]) -> None:
    for event in events:
        driver.referee.replay(event)


def _timed(call: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def table(costs: Costs) -> list[str]:
    """The owner's load by number of workers and pace, and where it saturates."""
    lines = [
        f"A batch heard and written: {costs.hear * 1e6:.0f} us. A look at a worker: {costs.look * 1e6:.1f} us.",
        f"An event passed on to a worker: {costs.tell * 1e6:.2f} us; replayed there: {costs.replay * 1e6:.0f} us.",
        "",
        f"| workers | {' | '.join(PACES)} |",
        f"| --- |{' --- |' * len(PACES)}",
    ]
    for workers in WORKERS:
        loads = [costs.load(workers, min(pace, 1 / SEND_SECONDS)) for pace in PACES.values()]
        lines.append(f"| {workers:,} | {' | '.join(f'{load:.0%}' for load in loads)} |")
    saturated = []
    for pace in PACES.values():
        batches = min(pace, 1 / SEND_SECONDS)
        most = max(n for n in range(1, 200_000) if n == 1 or costs.load(n, batches) < 1.0)
        saturated.append(f"{most:,}")
    lines.append(f"| saturates at | {' | '.join(saturated)} |")
    own = [(999 * min(pace, 1 / SEND_SECONDS) * costs.replay) for pace in PACES.values()]
    lines.append(f"| a worker's own load, of 1,000 | {' | '.join(f'{load:.1%}' for load in own)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/results/scale.md"))
    given = parser.parse_args()
    stored, in_memory = (f"{hand_over(stored=stored) * 1e3:.1f} ms" for stored in (True, False))
    owner = f"A trial that trains nothing takes the owner {stored} of CPU time with SQLite, {in_memory} in memory."
    text = "\n".join(["# How many workers one owner can serve", "", *table(measure()), "", owner]) + "\n"
    print(text)
    given.out.write_text(text)


if __name__ == "__main__":
    main()
