from __future__ import annotations

import pytest

import fairway as fw

SPACE = {"rate": fw.Float(0.01, 0.9), "kind": fw.Choice(["plain", "odd"])}
LIMITS = [fw.AtMost("size", 0.6)]


class Net:
    def __init__(self, seed):
        self.weight, self.seed, self.steps = 0.0, seed, 0


def train(trial, noise=0.0):
    net = Net(trial.seed)
    for step in trial.steps(12):
        net.weight += trial.params["rate"] * (1.0 - net.weight)
        net.steps = step
        trial.report(loss=(0.7 - net.weight) ** 2 + noise, size=lambda: net.weight)
    return net


@pytest.fixture
def study():
    study = fw.Study(SPACE, fw.Minimize("loss"), LIMITS, seed=0)
    study.optimize(train, trials=15)
    return study


def test_the_model_is_the_one_that_was_best(study):
    model = study.rebuild(train)
    assert model.steps == study.best.step
    assert (0.7 - model.weight) ** 2 == study.best.metrics["loss"]
    assert model.weight <= 0.6
    assert len(study.trials) == 15  # it is no trial


def test_it_is_built_from_what_the_storage_keeps(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    fw.Study(SPACE, fw.Minimize("loss"), LIMITS, seed=3, storage=url).optimize(train, trials=6, workers=2)
    again = fw.Study(SPACE, fw.Minimize("loss"), LIMITS, storage=url)
    model = again.rebuild(train)
    assert (0.7 - model.weight) ** 2 == again.best.metrics["loss"]


def test_constraints_are_not_called_again(study):
    def train(trial):
        for _ in trial.steps(12):
            trial.report(loss=0.1, size=lambda: pytest.fail("called"))
        return "model"

    with pytest.warns(UserWarning, match=r"trial \d+ has loss 0.1 at step \d+ where it had"):
        assert study.rebuild(train) == "model"


def test_a_loop_of_ones_own_sees_that_it_is_over(study):
    def train(trial):
        weight, decision = 0.0, None
        while not decision:
            weight += trial.params["rate"] * (1.0 - weight)
            decision = trial.report(loss=(0.7 - weight) ** 2, size=weight)
        return decision

    decision = study.rebuild(train)
    assert decision.best
    assert decision.reason == f"step {study.best.step} was the best"


def test_what_cannot_be_built_is_said(study):
    with pytest.raises(fw.UsageError, match="nothing within the limits was found so far"):
        fw.Study(SPACE, fw.Minimize("loss"), seed=0).rebuild(train)
    with pytest.raises(fw.UsageError, match="the function returned its metrics"):
        study.rebuild(lambda trial: {"loss": 0.1, "size": 0.2})
    with pytest.raises(fw.UsageError, match=f"did not report step {study.best.step} this time"):
        study.rebuild(lambda trial: Net(0))


def test_a_limit_that_comes_out_differently_is_said_and_models_may_be_mappings(study):
    def other(trial):
        for _ in trial.steps(12):
            trial.report(loss=study.best.metrics["loss"], size=99.0)
        return {"layer": [1.0]}

    with pytest.warns(UserWarning, match=r"has size 99 at step \d+ where it had"):
        assert study.rebuild(other) == {"layer": [1.0]}


def test_numbers_among_the_limits_do_not_make_a_check_worth_its_price(study):
    def mixed(trial):
        for step in trial.steps(12):
            size = 0.1 if step == 1 else lambda: pytest.fail("called")
            trial.report(loss=study.best.metrics["loss"] - (step > 1), size=size)
        return "model"

    found = fw.Study(SPACE, fw.Minimize("loss"), LIMITS, seed=0)
    found.optimize(lambda trial: trial.report(loss=0.5, size=0.2, step=3) and None, trials=1)
    with pytest.warns(UserWarning, match="has loss"):
        found.rebuild(mixed)


def test_the_best_checkpoint_of_a_late_check_is_built_again():
    def train(trial):
        for step in trial.steps(6):
            trial.report(loss=abs(step - 3) + trial.params["rate"], size=lambda step: step / 10, checkpoint=step)
        return [step]

    late = fw.Study(SPACE, fw.Minimize("loss"), LIMITS, seed=0, stopper=fw.Never(interval="end"))
    late.optimize(train, trials=4)
    assert late.best.step == 3
    assert late.rebuild(train) == [3]
