"""Functions that tests hand to worker processes, in a module that costs them next to nothing to import."""

from __future__ import annotations

import os
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
