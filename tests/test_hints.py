"""What users of Optuna type first is answered with fairway's word for it."""

from __future__ import annotations

import inspect

import pytest

import fairway as fw
from fairway import hints


@pytest.fixture
def study():
    return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)


@pytest.mark.parametrize("name", [*hints.MODULE, *hints.STUDY, *hints.TRIAL])
def test_a_name_of_optuna_is_answered_with_a_hint(study, name):
    for owner, known in ((fw, hints.MODULE), (study, hints.STUDY), (study.ask(), hints.TRIAL)):
        if name in known:
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            assert str(caught.value).endswith(f"has no attribute '{name}': {known[name]}")
            assert not hasattr(owner, name)
            assert name not in dir(owner)


@pytest.mark.parametrize("name", hints.OPTIMIZE)
def test_an_argument_of_optuna_is_answered_with_a_hint(study, name):
    with pytest.raises(TypeError) as caught:
        study.optimize(lambda trial: 0.5, **{name: 3})
    assert str(caught.value) == f"optimize() has no argument '{name}': write {hints.OPTIMIZE[name]}"
    assert not study.trials


def test_any_other_name_is_refused_as_python_does(study):
    for owner, what in ((fw, "module 'fairway'"), (study, "'Study' object"), (study.ask(), "'Trial' object")):
        with pytest.raises(AttributeError, match=f"{what} has no attribute 'bset'$"):
            owner.bset  # noqa: B018
    with pytest.raises(TypeError, match="unexpected keyword argument 'trails'"):
        study.optimize(lambda trial: 0.5, trails=3)


def test_what_hints_recommend_is_there(study):
    study.optimize(lambda trial: trial.params["x"], trials=3)
    assert study.best.objective == study.best.metrics["loss"] == study.trials[study.best.number].metrics["loss"]
    study.note(data="v2")
    assert study.notes == {"data": "v2"}
    trial = study.ask()
    trial.note(fold=1)
    assert not trial.stopped
    assert {"trials", "total", "workers", "progress"} <= set(inspect.signature(study.optimize).parameters)
    assert all(hasattr(fw, name) for name in ("CTPE", "TPE", "Random", "Median", "ASHA", "Pilot"))
