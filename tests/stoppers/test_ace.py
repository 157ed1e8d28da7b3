from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from tests.conftest import SPACE, run_curves

# Few distinct values, so that ties are common.
values = st.integers(0, 8).map(lambda k: k / 8)
points = st.tuples(values, values.map(lambda eod: {"eod": eod}))
curves = st.lists(st.lists(points, min_size=1, max_size=6), min_size=1, max_size=12)
fractions = st.sampled_from([0.1, 0.25, 0.5, 0.75])
LIMIT = fw.AtMost("eod", 0.25)


def study_of(stopper, constraints=(LIMIT,), objective=None):
    return fw.Study(SPACE, objective or fw.Maximize("auc"), constraints, stopper=stopper, seed=0)


def stops(decisions):
    return [[decision.stop for decision in trial] for trial in decisions]


def algorithm_1(curves, *, truncation, skip, hard):
    """The paper's Algorithm 1 for interval 1, written from the text with full sorts: (stops, checks, best feasible)."""
    history, best, checks, verdicts = [], -math.inf, 0, []
    for curve in curves:
        trial = []
        for t, (auc, constraints) in enumerate(curve, start=1):
            stratum, amount = "no_constraint", 0.0
            if not skip or auc >= best:
                checks += 1
                amount = max(0.0, constraints["eod"] - 0.25)
                stratum = "invalid" if amount > 0 else "valid"
                if stratum == "valid":
                    best = max(best, auc)
            history.append((t, stratum, amount, -auc))
            peers = sorted(row[2:] for row in history if row[:2] == (t, stratum))
            worst = math.floor(truncation * len(peers))
            cut = peers[len(peers) - worst - 1]  # the worst that survives
            stop = (amount, -auc) > cut or hard and stratum == "invalid"
            trial.append(stop and t < len(curve))
            if trial[-1]:
                break
        verdicts.append(trial)
    return verdicts, checks, best


@given(curves, fractions, st.booleans(), st.booleans())
def test_decisions_checks_and_best_are_those_of_algorithm_1(curves, truncation, skip, hard):
    stopper = fw.ACE(truncation, interval=1, skip=skip, tolerance="hard" if hard else "soft")
    study = study_of(stopper)
    decisions = run_curves(study, curves)
    expected, checks, best = algorithm_1(curves, truncation=truncation, skip=skip, hard=hard)
    assert stops(decisions) == expected
    assert study.costs.checks == checks
    assert (study.best.metrics["auc"] if study.best else -math.inf) == best


@given(curves, fractions, st.booleans())
def test_decisions_are_unchanged_by_a_monotone_transform_of_the_objective(curves, truncation, skip):
    stopper = fw.ACE(truncation, interval=1, skip=skip)
    transformed = [[(-math.exp(3 * auc), constraints) for auc, constraints in curve] for curve in curves]
    original = run_curves(study_of(stopper), curves)
    flipped = run_curves(study_of(stopper, objective=fw.Minimize("loss")), transformed)
    assert stops(original) == stops(flipped)


@given(curves, fractions, st.booleans())
def test_constraints_that_always_hold_change_nothing(curves, truncation, lazy):
    held = [[(auc, {"eod": eod["eod"] / 8}) for auc, eod in curve] for curve in curves]
    bare = [[(auc, {}) for auc, _ in curve] for curve in curves]
    limited = run_curves(study_of(fw.ACE(truncation, skip=False, interval=1)), held, lazy=lazy)
    free = run_curves(study_of(fw.ACE(truncation), constraints=()), bare)
    assert stops(limited) == stops(free)
    assert [[d.best for d in trial] for trial in limited] == [[d.best for d in trial] for trial in free]


@given(curves, fractions, st.sampled_from([1, 2, "end", "adaptive"]))
def test_with_skip_and_one_worker_the_valid_stratum_never_cuts(curves, truncation, interval):
    study = study_of(fw.ACE(truncation, interval=interval))
    run_curves(study, curves)
    for event in study.log.read():
        if getattr(event, "verdict", None):
            last = event.check_ns[-1, 0]
            assert last < 0 or event.values[-1, 0] > 0.25


@given(curves, fractions, st.sampled_from(["soft", "hard"]))
def test_a_stopped_trial_never_runs_another_step(curves, truncation, tolerance):
    study = study_of(fw.ACE(truncation, interval=1, tolerance=tolerance))
    for decisions in run_curves(study, curves):
        assert not any(decision.stop for decision in decisions[:-1])
        assert all(bool(decision.reason) == decision.stop for decision in decisions)


def test_the_reason_is_a_sentence_a_person_can_read(make_study):
    study = make_study(fw.ACE(interval=1))
    curve = [(0.9, {"eod": 0.3})] * 2
    run_curves(study, [curve] * 3)
    decision = run_curves(study, [[(0.9, {"eod": 0.41})] * 2])[0][0]
    assert decision.reason == "eod 0.41 > 0.25, worst 25% of 4 at step 1"
    assert study.trials[-1].reason == decision.reason
    assert study.trials[-1].status == "stopped"


def test_hard_tolerance_stops_at_the_first_violated_check(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    decisions = run_curves(study, [[(0.5, {"eod": 0.1}), (0.6, {"eod": 0.3}), (0.7, {"eod": 0.1})]])[0]
    assert [decision.stop for decision in decisions] == [False, True]
    assert decisions[-1].reason.startswith("eod 0.3 > 0.25")


def test_nothing_stops_before_the_grace(make_study):
    study = make_study(fw.ACE(truncation=0.5, interval=1, grace=3))
    run_curves(study, [[(0.9, {"eod": 0.3})] * 5] * 8)
    decisions = run_curves(study, [[(0.9, {"eod": 0.5})] * 5])[0]
    assert [decision.stop for decision in decisions] == [False, False, True]


def test_a_tie_is_never_worse_than_the_cut(make_study):
    study = make_study(fw.ACE(truncation=0.75), constraints=())
    assert not any(decision.stop for trial in run_curves(study, [[(0.5, {})] * 3] * 20) for decision in trial)


def test_at_its_last_step_a_trial_completes_whatever_its_rank(make_study):
    study = make_study(fw.ACE(truncation=0.5), constraints=())
    run_curves(study, [[(0.9, {})]] * 9 + [[(0.1, {})]])
    assert study.trials[-1].status == "completed"


def test_reports_of_different_steps_are_not_compared(make_study):
    study = make_study(fw.ACE(truncation=0.5), constraints=())
    run_curves(study, [[(0.1 * step, {}) for step in range(1, 9)]] * 6)
    assert {trial.status for trial in study.trials} == {"completed"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fw.ACE(truncation=25), r"truncation=25: a fraction between 0 and 1 is expected; did you mean 0.25\?"),
        (lambda: fw.ACE(truncation=0), "truncation=0: a fraction"),
        (lambda: fw.ACE(truncation="a"), "truncation='a': a fraction"),
        (lambda: fw.ACE(interval=0), "interval=0: a whole number"),
        (lambda: fw.ACE(interval="T"), "interval='T': a whole number, 'end' or 'adaptive'"),
        (lambda: fw.ACE(tolerance="medium"), "tolerance='medium': 'soft' or 'hard'"),
        (lambda: fw.ACE(grace=0), "grace=0: a whole number"),
    ],
)
def test_a_bad_configuration_gets_one_clear_sentence(make, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        make()
