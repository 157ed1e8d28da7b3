from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from tests.conftest import SPACE, run_curves

values = st.integers(0, 8).map(lambda k: k / 8)
curves = st.lists(st.lists(values, min_size=1, max_size=20), min_size=1, max_size=12)


def free_study(stopper):
    return fw.Study(SPACE, fw.Maximize("auc"), stopper=stopper, seed=0)


def run(study, curves):
    return [
        [decision.stop for decision in trial] for trial in run_curves(study, [[(v, {}) for v in c] for c in curves])
    ]


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


def test_median_stops_what_is_behind_the_others_running_means():
    study = free_study(fw.Median(min_trials=3, grace=2))
    curves = [[0.2, 0.4, 0.6], [0.4, 0.6, 0.8], [0.6, 0.8, 1.0]]  # running means at step 2: 0.3, 0.5, 0.7
    assert not any(any(trial) for trial in run(study, curves))
    assert run(study, [[0.1, 0.49, 0.9]]) == [[False, True]]
    assert study.trials[-1].reason == "auc 0.49, behind the median of 3 at step 2"
    assert run(study, [[0.1, 0.51, 0.9]]) == [[False, False, False]]


def test_median_waits_for_enough_trials():
    study = free_study(fw.Median(min_trials=3))
    assert run(study, [[0.9, 0.9], [0.9, 0.9], [0.1, 0.1]])[-1] == [False, False]


def test_half_at_compares_once_and_only_after_enough_completed():
    study = free_study(fw.HalfAt(step=2, after=3))
    assert not any(any(trial) for trial in run(study, [[0.5, value, 0.5] for value in (0.9, 0.8, 0.1)]))
    assert run(study, [[0.9, 0.2, 0.9]]) == [[False, True]]
    assert "not in the better half of 4 at step 2" in study.trials[-1].reason
    assert run(study, [[0.1, 0.85, 0.1]]) == [[False, False, False]]


@given(curves)
def test_never_never_stops(curves):
    assert not any(any(trial) for trial in run(free_study(fw.Never()), curves))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fw.ASHA(reduction=1), "reduction=1"),
        (lambda: fw.ASHA(grace=0), "grace=0"),
        (lambda: fw.ASHA(max_steps=0), "max_steps=0"),
        (lambda: fw.Median(min_trials=0), "min_trials=0"),
        (lambda: fw.HalfAt(step=True), "step=True"),
        (lambda: fw.Never(interval=1.5), "interval=1.5"),
    ],
)
def test_a_bad_configuration_gets_one_clear_sentence(make, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        make()
