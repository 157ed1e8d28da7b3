"""A search on a mixed space under a limit, for comparing samplers."""

from __future__ import annotations

import numpy as np

import fairway as fw
from fairway.testing import MIXED


def best_of(sampler, seeds=4, trials=30):
    space = {name: parameter for name, parameter in MIXED.items() if name != "drop"}
    found = []
    for seed in range(seeds):
        study = fw.Study(
            space, fw.Minimize("loss"), [fw.AtMost("c", 0.5)], sampler=sampler, stopper=fw.Never(), seed=seed
        )
        for _ in range(trials):
            trial = study.ask()
            u = study.space.encode(trial.params)
            study.tell(trial, loss=float(((u[:4] - 0.35) ** 2).sum()), c=float(u[0] + (trial.params["size"] == "s")))
        found.append(study.best.metrics["loss"])
    return np.mean(found)
