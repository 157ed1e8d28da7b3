"""Limits that training never changes: checked once a trial, first; carried, and given up on at once where broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.steadiness import Steadiness
from fairway.engine.verify import verify

SPACE = {"width": fw.Int(1, 100)}


def run(size, *, stopper=None, trials=60, steps=20):
    """A study whose model grows with its width, and how often its size was measured in each trial."""
    calls = []
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("size", 50)], sampler=fw.Random(), stopper=stopper, seed=0)

    for _ in range(trials):
        trial = study.ask()
        width, called = trial.params["width"], [0]
        for step in trial.steps(steps):

            def measure(step=step, width=width, called=called):
                called[0] += 1
                return size(width, step)

            trial.report(auc=1 - 1 / (1 + width * step), size=measure)
        study.tell(trial)
        calls.append(called[0])
    assert not verify(study.log.read()).faults
    return study, calls


def test_a_limit_that_never_moves_is_soon_checked_once_a_trial_and_ends_those_that_break_it():
    study, calls = run(lambda width, step: float(width), stopper=fw.Pilot(interval=1))
    late = [trial for trial in study.trials[30:] if trial.params["width"] > 50]
    assert {trial.steps for trial in late} == {1}
    assert {trial.reason for trial in late if trial.params["width"] == late[0].params["width"]} == {
        f"size {late[0].params['width']} > 50, and training never changes size"
    }
    assert max(calls[30:]) <= 3  # the first, and again at four times the step
    assert 45 <= study.best.params["width"] <= 50
    assert study.best.metrics["size"] == study.best.params["width"]


def test_a_limit_that_moves_is_never_carried():
    study, _ = run(lambda width, step: width + step / 100, stopper=fw.Pilot(interval=1))
    assert not study.owner.referee.steadiness.steady
    assert not any("never changes" in trial.reason for trial in study.trials)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_was_measured_where_it_is_also_if_few_trainings_change_a_limit_late(seed):
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0), "width": fw.Float(0.1, 1.0)},
        fw.Maximize("auc"),
        [fw.AtMost("size", 0.5)],
        stopper=fw.Pilot(interval=1),
        seed=seed,
    )

    def size(params, step):
        return params["width"] * (1.6 if step > 10 and params["x"] > 0.8 else 1.0)

    for _ in range(40):
        trial = study.ask()
        x, width = trial.params["x"], trial.params["width"]
        for step in trial.steps(40):
            auc = 0.5 + 0.3 * width + 0.1 * x - 0.3 / step
            trial.report(auc=auc, size=lambda trial=trial, step=step: size(trial.params, step))
        study.tell(trial)
    best = study.best
    assert best.metrics["size"] == size(best.params, best.step) <= 0.5
    assert not verify(study.log.read()).faults


def test_the_rules_of_papers_check_as_they_always_did():
    study, _ = run(lambda width, step: float(width), stopper=fw.ACE(interval=1))
    assert not study.owner.referee.steadiness.steady


def test_a_gap_that_is_zero_in_every_untrained_model_proves_nothing():
    steadiness = Steadiness(1)
    for trial in range(9):
        for step in (1, 2, 4):
            steadiness.learn(trial, step, 0, value=0.0)
    assert not steadiness.steady


checks = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.sampled_from([1.0, 2.0])), min_size=1, max_size=30)


@given(checks, st.randoms(use_true_random=False))
def test_what_is_known_does_not_depend_on_the_order_of_trials(found, rng):
    by_trial = {}
    for number, constraint, value in found:
        rows = by_trial.setdefault(number, [])
        rows.append((len(rows) + 1, constraint, value))
    one, other = Steadiness(2), Steadiness(2)
    for number, rows in by_trial.items():
        for row in rows:
            one.learn(number, *row)
    left = {number: list(rows) for number, rows in by_trial.items()}
    while left:
        number = rng.choice(sorted(left))
        other.learn(number, *left[number].pop(0))
        if not left[number]:
            del left[number]
    assert one.steady == other.steady
    assert all(one.carried(number, 8) == other.carried(number, 8) for number in by_trial)
