"""A small search with a limit on fairness, and rows that it never saw: a model of numpy that decides whom to invite."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import fairway as fw
from fairway.constraints import demographic_parity_difference

SPACE = {"weight": fw.Float(0.0, 1.0)}


def hiring(seed=0, rows=3000, *, drift=0.0, limits=(fw.AtMost("parity", 0.1, confidence=0.9),), **more):
    """A study that has searched, its `train`, and its `fresh` rows; with a `drift` these are drawn differently."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, 2 * rows)
    x = rng.normal(size=(2 * rows, 2)) + np.outer(group, [0.0, 0.6])
    truth = x.sum(1) > 0.5
    x[rows:, 0] += drift * group[rows:]
    judge, rest = slice(0, rows), slice(rows, None)

    def train(trial):
        def model(rows, weight=trial.params["weight"]):
            return (rows[:, 0] + weight * rows[:, 1] > 0.5).astype(int)

        decided = model(x[judge])
        gap = demographic_parity_difference(truth[judge], decided, sensitive_features=group[judge])
        others = {"share": decided.mean()} if len(limits) > 1 else {}
        trial.report(accuracy=(decided == truth[judge]).mean(), parity=gap, **others)
        return model

    study = fw.Study(SPACE, fw.Maximize("accuracy"), limits, sampler=fw.Random(), seed=0, **more)
    study.optimize(train, trials=20)
    names = ["a", "b"]
    groups = [names[each] for each in group[rest]]
    fresh = fw.FreshRows(x[rest], truth[rest], groups=groups, parity=demographic_parity_difference)
    return SimpleNamespace(study=study, train=train, fresh=fresh, judged=x[judge])
