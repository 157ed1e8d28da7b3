from __future__ import annotations

import random
import shutil
import subprocess
import sys

import pytest

from tests.faults import SCENARIOS, fault, hammer


@pytest.mark.parametrize("run", range(8))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_told_is_lost_by_a_kill(url, scenario, run):
    fault(scenario, url, random.Random(run))


def test_many_processes_at_once_make_no_gap_no_duplicate_and_no_deadlock(url):
    sys.stdout.write(hammer(url, seconds=4.0) + "\n")


SMALL_DISK = """
import os, sys
import fairway as fw

where, what, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
ballast = f"{where}/ballast"
if what == "fill":
    with open(ballast, "wb") as file:
        file.write(b"-" * 400_000)

def train(trial):
    for step in trial.steps(20):
        trial.report(auc=trial.params["x"] + step)

try:
    url = f"sqlite:///{where}/study.db"
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), storage=url, seed=0, stopper=fw.Never(),
                     patience=0.5)
    study.optimize(train, trials=100_000 if what == "fill" else 5, workers=workers, progress=False)
except fw.StorageError as error:
    print(error)
if what == "fill":
    os.unlink(ballast)
if what != "read":
    print(study.counts["completed"], study.counts["running"])
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_and_a_read_only_one_get_a_sentence_and_lose_nothing(tmp_path, workers):
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}"
    namespace = [shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*namespace, mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small file system of his own")
    fill, go_on, read = (f'"$0" -c "$1" {tmp_path} {what} {workers}' for what in ("fill", "go-on", "read"))
    script = f"{mount} && {fill} && {go_on} && mount -o remount,ro {tmp_path} && {read}"
    done = subprocess.run(
        [*namespace, script, sys.executable, SMALL_DISK], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    full, told, later, read_only = done.stdout.splitlines()
    assert "study.db could not be written: database or disk is full, tried for " in full
    completed, running = map(int, told.split())
    assert completed > 5
    assert later.split()[1] == "0"
    assert completed + 5 <= int(later.split()[0]) <= completed + 5 + running  # what runs is tried again
    assert "study.db could not be opened: " in read_only
