"""One seed, one study: with a fixed interval no decision reads the clock, whatever is checked and however long."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.verify import verify
from tests.attack.texts import ATTACKS

FIXED = [
    fw.Pilot(interval=1),
    fw.Pilot(interval=3),
    fw.Pilot(interval="end"),
    fw.ACE(interval=1),
    fw.ASHA(),
    fw.Median(),
]
SAMPLERS = [
    *(fw.Random(), fw.TPE(), fw.CTPE(), fw.Compass(start=3)),
    *(fw.GP(start=3), fw.BORE(start=3, trees=10), fw.Blend()),
]


class Erratic:
    """A machine on which everything takes any time, from a nanosecond to a minute."""

    def __init__(self, seed=None):
        self.now, self._rng = 0, random.Random(seed)

    def ns(self):
        self.now += int(10 ** self._rng.uniform(0.0, 10.8))
        return self.now

    def at(self):
        return self._rng.uniform(-1e9, 1e10)


def told(study):
    """All that a study did, but for what it took."""
    return [
        (trial.number, dict(trial.params), trial.status, trial.reason, trial.step, dict(trial.metrics), trial.steps)
        for trial in study.trials
    ] + [study.costs.checks, study.costs.saved_checks, study.best]


def run(limits, *, stopper=None, sampler=None, trials=14, seed=0, clock=None):
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)},
        fw.Maximize("auc"),
        limits,
        sampler=sampler or fw.Random(),
        stopper=stopper or fw.Pilot(interval=1),
        seed=seed,
    )
    study.owner.clock = clock or Erratic()
    calls = []

    def train(trial):
        x, y = trial.params["x"], trial.params["y"]
        for step in trial.steps(6):
            offers = {}
            for i, limit in enumerate(limits):
                value = (x if i % 2 else y) * (1.0 + 0.1 * step * i)

                def check(value=value, metric=limit.metric, step=step):
                    calls.append((trial.number, step, metric))
                    return value

                offers[limit.metric] = check
            trial.report({"auc": x * y * step, **offers})

    study.optimize(train, trials=trials)
    return told(study), calls, study


@given(
    costs=st.lists(st.none() | st.sampled_from([0.01, 1.0, 5.0, 40.0]), max_size=4),
    stopper=st.sampled_from(FIXED),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=4 * ATTACKS)
def test_with_a_fixed_interval_one_seed_is_one_study_for_any_number_of_limits(costs, stopper, seed):
    limits = [fw.AtMost(f"limit {i}", 0.6, cost=cost) for i, cost in enumerate(costs)]
    (first, calls, study), (second, again, _) = (run(limits, stopper=stopper, seed=seed) for _ in range(2))
    assert first == second
    assert calls == again
    assert verify(study.log.read()).faults == []


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_two_lazy_limits_ten_runs_one_seed_are_one_study(sampler):
    limits = [fw.AtMost("eod", 0.6), fw.AtMost("ms", 0.7)]
    trials = 6 if isinstance(sampler, fw.GP | fw.BORE) else 20
    studies = [json.dumps(run(limits, sampler=sampler, trials=trials)[0], default=str) for _ in range(10)]
    marks = {hashlib.sha256(study.encode()).hexdigest()[:12] for study in studies}
    sys.stdout.write(f"{sampler}: 10 runs, {len(marks)} different\n")
    assert len(marks) == 1


PROPOSE = """
import sys
import numpy as np
import fairway as fw

space = {f"x{i}": fw.Float(0.0, 1.0) for i in range(4)}
study = fw.Study(space, fw.Minimize("loss"), [fw.AtMost("c", 1.0)], sampler=fw.Random(), stopper=fw.Never(), seed=0)

def evaluate(trial):
    x = np.array(list(trial.params.values()))
    return {"loss": float(((x - 0.3) ** 2).sum() + np.sin(9 * x[0])), "c": float(x.sum() / 2)}

study.optimize(evaluate, trials=150)
stopped = fw.Study(space, fw.Minimize("loss"), [fw.AtMost("c", 1.0)], sampler=fw.Random(), stopper=fw.Pilot(interval=1),
                   seed=0)

def train(trial):
    found = evaluate(trial)
    for step in trial.steps(6):
        trial.report(loss=found["loss"] + 1 / step, c=found["c"])

stopped.optimize(train, trials=80)
assert stopped.history.partial.any()
for history, samplers in ((study.history, (fw.GP(), fw.TPE(candidates=3000))), (stopped.history, (fw.Compass(),))):
    for sampler in samplers:
        for number in range(2):
            print(sampler.next_point(history, np.random.default_rng(number)).tolist())
"""


def test_proposals_do_not_depend_on_the_threads_of_blas():
    def said(threads):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(threads))}
        done = subprocess.run(
            [sys.executable, "-c", PROPOSE], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout

    assert said(1) == said(4)
