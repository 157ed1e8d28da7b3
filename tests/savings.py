"""A study and a training with checkpoints, for worker processes and scripts: it imports little, so they start fast."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import fairway as fw

STEPS = 8


def make(folder: Path, *, storage: str | None = None, **more) -> fw.Study:
    keep = fw.Keep(folder / "kept", best=2)
    space, limits = {"x": fw.Float(0.1, 0.9)}, [fw.AtMost("eod", 0.5)]
    settings = {"sampler": fw.Random(), "stopper": fw.Never(), "seed": 0, **more}
    return fw.Study(space, fw.Maximize("auc"), limits, checkpoints=keep, storage=storage, **settings)


def trainer(folder: Path, dies=lambda trial, step: False, *, half=False):
    """A training that counts in its checkpoints, writes down each step that it really runs, and is killed once."""

    def die() -> None:
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def train(trial):
        resumed = trial.resume
        weights = [] if resumed is None else json.loads(resumed.read_text())

        def write(path):
            path.write_text(json.dumps(weights)[: -1 if dying and half else None])
            if dying and half:
                die()

        for step in trial.steps(STEPS):
            weights.append(step)
            with (folder / "ran").open("a") as ran:
                ran.write(f"{trial.params['x']} {step}\n")
            dying = dies(trial, step) and not (folder / "died").exists()
            trial.report(auc=trial.params["x"] * len(weights), eod=lambda: trial.params["x"])
            if dying and not half:
                die()
            trial.save(write)

    return train
