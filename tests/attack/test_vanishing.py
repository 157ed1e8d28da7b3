"""Database files that vanish under a run: it ends with a sentence, and what was told is in memory and can be saved."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import os, resource, shutil, sqlite3, sys, threading, time
from contextlib import closing
from pathlib import Path
import fairway as fw
from fairway.engine.verify import verify

folder, attack, workers = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
home = folder / "home"
home.mkdir()
file = home / "study.db"
said = []  # the trials whose tell has returned

def open_study(url, name="credit"):
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], storage=url, name=name,
                    stopper=fw.Never(), sampler=fw.Random(), seed=0, patience=0.5)

def strike():
    while len(said) < 12:
        time.sleep(0.001)
    if attack == "unlink":
        for path in home.iterdir():
            path.unlink()
    elif attack == "unlink the file alone":
        file.unlink()
    elif attack == "rename another over it":
        open_study(f"sqlite:///{folder}/other.db", "other")
        os.replace(folder / "other.db", file)
    elif attack == "truncate to nothing":
        os.truncate(file, 0)
    elif attack == "truncate":
        with closing(sqlite3.connect(file, timeout=60)) as other:  # what is in the log of SQLite goes into the file
            other.execute("PRAGMA wal_checkpoint")
        time.sleep(0.5)  # the owner has looked at it since
        for _ in range(40):  # SQLite's own checkpoint may extend it again in the very moment
            os.truncate(file, file.stat().st_size // 3)
            time.sleep(0.1)
    elif attack == "remove the folder":
        shutil.rmtree(home)
    elif attack == "fill the disk":  # as far as this process is concerned
        size = max(path.stat().st_size for path in home.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def train(trial):
    for step in trial.steps(4):
        trial.report(auc=trial.params["x"] + step, eod=0.1)

study = open_study(f"sqlite:///{file}")
for way in ("close", "tell_for"):
    def tell(*arguments, told=getattr(study.owner, way), **more):
        written = told(*arguments, **more)
        said.append(arguments[0].number)
        return written
    setattr(study.owner, way, tell)
threading.Thread(target=strike, daemon=True).start()
try:
    study.optimize(train, trials=100_000, workers=workers)
except fw.StorageError as error:
    print(error)
kept = {number for number, end in study.owner.ends.items() if end.status == "completed"}
known = {trial.number for trial in study.trials if trial.status == "completed"}
assert set(said) - kept <= known, set(said) - known
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
study.save_as(f"sqlite:///{folder}/saved.db")
saved = open_study(f"sqlite:///{folder}/saved.db")
assert {*said, *kept} <= {trial.number for trial in saved.trials if trial.status == "completed"}
assert verify(saved.log.read()).faults == []
saved.optimize(train, trials=2)
assert saved.counts["running"] == 0, saved.counts
print(len(said))
"""

GONE = "all that was told is in memory: write it to another file with study.save_as"
ATTACKS = {
    "unlink": f"study.db was deleted while the study ran; {GONE}",
    "unlink the file alone": f"study.db was deleted while the study ran; {GONE}",
    "rename another over it": f"study.db was replaced by another file while the study ran; {GONE}",
    "truncate to nothing": f"study.db was truncated while the study ran; {GONE}",
    "truncate": f"study.db was truncated while the study ran; {GONE}",
    "remove the folder": f"study.db was deleted while the study ran; {GONE}",
    "fill the disk": "write it to another one with study.save_as",
}


@pytest.mark.parametrize(
    ("attack", "workers"),
    [*((attack, 1) for attack in ATTACKS), ("unlink", 2), ("rename another over it", 2), ("fill the disk", 2)],
)
def test_nothing_told_is_lost_with_its_file(tmp_path, attack, workers):
    command = [sys.executable, "-c", RUN, str(tmp_path), attack, str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    sentence, told = done.stdout.splitlines()
    assert ATTACKS[attack] in sentence
    assert int(told) >= 12
