"""Where trials fail, samplers propose less, and still find what is best beside it."""

from __future__ import annotations

import statistics

import pytest

import fairway as fw
from fairway.models import gaussian_process
from fairway.samplers.gp import limit_terms

SPACE = {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)}


def train(trial):
    """It runs out of memory in a corner, towards which it gets better."""
    x, y = trial.params["x"], trial.params["y"]
    if x + y < 0.6:
        raise MemoryError("out of memory")
    return x + y + 0.2 * (x - 0.5) ** 2


def searched(sampler, seed):
    study = fw.Study(SPACE, fw.Minimize("loss"), sampler=sampler, seed=seed)
    study.optimize(train, trials=50, progress=False)
    return study


@pytest.mark.parametrize("sampler", [fw.TPE(), fw.CTPE(), fw.Compass(), fw.BORE()])
def test_few_trials_fail_where_others_did(sampler):
    studies = [searched(sampler, seed) for seed in range(4)]
    assert statistics.median(study.counts["failed"] for study in studies) <= 16  # 20 to 30 if none is learned from
    assert statistics.median(study.best.objective for study in studies) < 0.63


def test_a_gaussian_process_finds_the_border_of_what_fails():
    assert max(searched(fw.GP(), seed).best.objective for seed in range(4)) < 0.63  # 0.64 to 0.78


def test_a_gaussian_process_learns_from_so_many_failures_at_most(monkeypatch):
    sizes, fit = [], gaussian_process.fit
    monkeypatch.setattr(
        gaussian_process, "fit", lambda *given, **how: sizes.append(len(given[1])) or fit(*given, **how)
    )
    study = fw.Study(SPACE, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    for k in range(400):
        trial = study.ask()
        study.tell(trial, failed="made to fail") if k % 2 else study.tell(trial, loss=trial.params["x"])
    history = study.history
    assert len([*limit_terms(gaussian_process.Features(history.space), history, history.best_first[:50])]) == 1
    assert sizes == [200]  # of 400
