"""Functions that tests hand to worker processes, in a module that costs them next to nothing to import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def parabola(trial):
    """A loss that is least, 1, where x is 0.3."""
    return (trial.params["x"] - 0.3) ** 2 + 1.0


def slow_rise(trial):
    """An auc that rises to x, and an eod of a third of it; notes the process."""
    x = trial.params["x"]
    for step in trial.steps(20):
        time.sleep(0.002)
        trial.report(auc=x * (1 - 0.5**step), eod=lambda: x / 3)
    trial.note(process=os.getpid())


def wait_for(files, folder):
    """Wait until there are so many files in a folder."""
    patience = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < files:
        assert time.monotonic() < patience
        time.sleep(0.005)


def meet(folder, number, files):
    """Say that a trial has come here, and wait until so many have."""
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / str(number)).touch()
    wait_for(files, folder)


def crowded(trial, folder, workers):
    """Trials that run side by side; their ms is 1 while others do, and x * 10 for one that runs alone.

    The first ones wait for each other, so that all of them are measured in a crowd. A file `dies` kills the process
    that measures alone, at the x that it holds.
    """
    folder, x = Path(folder), trial.params["x"]
    busy = folder / "busy"
    busy.mkdir(exist_ok=True)
    (busy / str(trial.number)).touch()
    meet(folder / "began", trial.number, workers)
    siblings = len(list(busy.iterdir())) - 1

    def ms():
        dies = folder / "dies"
        if not siblings and dies.exists() and dies.read_text() == str(x):
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0 if siblings else x * 10

    trial.report(auc=x, ms=ms)
    meet(folder / "measured", trial.number, workers)
    (busy / str(trial.number)).unlink()
