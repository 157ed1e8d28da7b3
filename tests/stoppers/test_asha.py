from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from tests.conftest import run_curves
from tests.stoppers.free import curves, free_study, run


@given(curves, st.integers(2, 4), st.integers(1, 3))
def test_asha_is_successive_halving_by_full_sorts(curves, reduction, grace):
    rungs, expected = {}, []
    for curve in curves:
        trial = []
        for step, value in enumerate(curve, start=1):
            level = math.log(step / grace, reduction) if step >= grace else -1
            stop = False
            if level >= 0 and grace * reduction ** round(level) == step:
                rung = rungs.setdefault(step, [])
                rung.append(value)
                worst = len(rung) - math.ceil(len(rung) / reduction)
                stop = sum(other <= value for other in rung) <= worst
            trial.append(stop and step < len(curve))
            if trial[-1]:
                break
        expected.append(trial)
    assert run(free_study(fw.ASHA(reduction=reduction, grace=grace)), curves) == expected


def test_asha_ignores_the_limits_unless_it_has_strata(make_study):
    good_but_invalid = [(0.9, {"eod": 0.9})] * 20
    poor_but_valid = [(0.5, {"eod": 0.1})] * 20
    blind, aware = make_study(fw.ASHA()), make_study(fw.ASHA(strata=True))
    for study in (blind, aware):
        run_curves(study, [good_but_invalid] * 8 + [poor_but_valid])
    assert blind.trials[-1].status == "stopped"
    assert aware.trials[-1].status == "completed"


def test_asha_with_strata_pays_at_rungs_only(make_study):
    study = make_study(fw.ASHA(strata=True, skip=False))
    run_curves(study, [[(0.5, {"eod": 0.1})] * 20])
    paid = next(event for event in study.log.read() if hasattr(event, "check_ns"))
    assert paid.step[paid.check_ns[:, 0] > 0].tolist() == [1, 4, 16]


def test_a_trial_that_skips_a_rungs_step_enters_it_with_its_next_report():
    study = free_study(fw.ASHA())
    for value in (0.9, 0.5):
        trial = study.ask()
        for step in (3, 6, 18):
            decision = trial.report(auc=value, step=step)
            if decision.stop:
                break
        study.tell(trial)
    assert study.trials[0].status == "completed"
    assert study.trials[1].reason == "auc 0.5, not in the best 1/4 of 2 at step 1"


def test_asha_trains_no_trial_beyond_max_steps(make_study):
    study = make_study(fw.ASHA(max_steps=5, interval="end"))
    assert len(run_curves(study, [[(0.5, {"eod": 0.1})] * 9])[0]) == 5
    assert study.trials[0].status == "completed"
    assert study.best.step == 5
    trial = study.ask()
    assert len([trial.report(auc=0.6, eod=0.1) for _ in trial.steps()]) == 5


@pytest.mark.parametrize("wrong", [{"reduction": 1}, {"grace": 0}, {"max_steps": 0}])
def test_a_bad_configuration_gets_one_clear_sentence(wrong):
    with pytest.raises(fw.UsageError, match="{}={}".format(*next(iter(wrong.items())))):
        fw.ASHA(**wrong)
