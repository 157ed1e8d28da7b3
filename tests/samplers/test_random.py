from __future__ import annotations

import numpy as np

import fairway as fw
from fairway.testing import check_sampler


def test_proposals_depend_on_seed_and_number_alone(make_study):
    one, other = make_study(), make_study()
    first = [trial.params for trial in one.ask(5)]
    for _ in range(5):
        other.tell(other.ask(), auc=0.5, eod=0.1)
    assert first == [trial.params for trial in other.trials]


def test_proposals_fill_the_space_evenly():
    space = {"a": fw.Int(1, 4), "b": fw.Choice(["x", "y", "z"])}
    study, rng = fw.Study(space, fw.Minimize("m"), seed=0), np.random.default_rng(0)
    drawn = [study.space.decode(fw.Random().propose(study.history, rng)) for _ in range(600)]
    counts = np.unique([f"{params['a']}{params['b']}" for params in drawn], return_counts=True)[1]
    # 600 draws of 12 cells: chi-square with 11 degrees of freedom is below 31.3 in 999 of 1,000 cases.
    assert len(counts) == 12
    assert ((counts - 50) ** 2 / 50).sum() < 31.3


def test_it_conforms():
    check_sampler(fw.Random(), trials=25)
