"""A stored study opens by its address and its name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import fairway as fw
from fairway.samplers.sampler import Sampler

SPACE = {
    "booster": fw.Choice(["gbdt", "dart"]),
    "rate": fw.Float(0.01, 1.0, log=True),
    "depth": [fw.Int(2, 8, when={"booster": "gbdt"}), fw.Int(2, 16)],
}
LIMITS = [fw.AtMost("eod", 0.5, confidence=0.9), fw.AtLeast("recall", 0.1, cost=2.0)]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'studies.db'}"


def evaluate(trial):
    return {"auc": trial.params["rate"], "eod": fw.Measured(trial.params["depth"] / 16, 0.01), "recall": 0.5}


def test_a_loaded_study_is_the_stored_one_and_resumes_as_it_would(url):
    parts = {"sampler": fw.Random(), "stopper": fw.Median(), "terminator": fw.Plateau(50)}
    study = fw.Study(SPACE, fw.Maximize("auc", best=1.0), LIMITS, **parts, storage=url, name="credit", seed=3)
    study.optimize(evaluate, trials=4)
    loaded = fw.load_study(url, "credit")
    assert (loaded.name, loaded.seed, loaded.problem) == ("credit", 3, study.problem)
    assert loaded.space.declared == study.space.declared
    assert (loaded.sampler, loaded.stopper, loaded.terminator) == tuple(parts.values())
    assert loaded.trials == study.trials
    loaded.optimize(evaluate, trials=4)
    whole = fw.Study(SPACE, fw.Maximize("auc", best=1.0), LIMITS, **parts, seed=3)
    whole.optimize(evaluate, trials=8)
    assert [trial.params for trial in loaded.trials] == [trial.params for trial in whole.trials]


def test_another_sampler_may_be_given(url):
    fw.Study(SPACE, fw.Maximize("auc"), storage=url)
    assert fw.load_study(url, sampler=fw.Random()).sampler == fw.Random()


def test_a_name_that_is_not_there_gets_those_that_are_and_no_study_is_made(url):
    fw.Study(SPACE, fw.Maximize("auc"), storage=url, name="credit")
    with pytest.raises(fw.UsageError, match="has no study 'credti'; it has 'credit'"):
        fw.load_study(url, "credti")
    with pytest.raises(fw.UsageError, match=r"has no study 'credti'; it has 'credit'$"):
        fw.load_study(url, "credti")
    for k in range(9):
        fw.Study(SPACE, fw.Maximize("auc"), storage=url, name=f"more {k}")
    with pytest.raises(fw.UsageError, match=r"'more 6' and 2 more$"):
        fw.load_study(url, "credti")


def test_a_database_that_is_not_there_is_not_made(url, tmp_path):
    with pytest.raises(fw.FairwayError):
        fw.load_study(url)
    assert not [*tmp_path.iterdir()]


def test_a_space_with_a_function_is_to_be_passed(url):
    def is_slow(params):
        return params["rate"] < 0.5

    space = {"rate": fw.Float(0.0, 1.0), "rounds": fw.Int(1, 9, when=is_slow)}
    fw.Study(space, fw.Minimize("loss"), storage=url)
    with pytest.raises(fw.UsageError, match=r"'rounds' is active by the function 'is_slow'.*pass the space too"):
        fw.load_study(url)
    study = fw.load_study(url, space=space)
    study.optimize(lambda trial: trial.params["rate"], trials=3)
    assert len(study.trials) == 3
    with pytest.raises(fw.UsageError, match="has another space"):
        fw.load_study(url, space={"rate": fw.Float(0.0, 1.0)})


@dataclass(frozen=True)
class Middle(Sampler):
    """A sampler of the user's own."""

    def propose(self, history, rng):
        return fw.Random().propose(history, rng)


def test_a_sampler_of_ones_own_is_to_be_passed(url):
    fw.Study(SPACE, fw.Maximize("auc"), sampler=Middle(), storage=url)
    with pytest.raises(fw.UsageError, match=r"the sampler of this study is .*Middle.*: pass sampler=\.\.\."):
        fw.load_study(url)
    assert fw.load_study(url, sampler=Middle()).sampler == Middle()
