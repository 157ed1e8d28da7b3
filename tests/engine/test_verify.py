from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import SAVED, Judged, Reported, Told
from fairway.engine.verify import verify
from fairway.storage.memory import MemoryLog
from fairway.terminators.terminator import Terminator, Verdict
from tests.conftest import judged, run_curves
from tests.engine.logs import acts_up_to, live, stoppers
from tests.trainings import parabola


@given(stoppers, acts_up_to(60), st.integers(1, 3))
def test_every_ruling_of_every_owner_can_be_made_again_from_the_log(stopper, acts, owners):
    log = list(live(stopper, acts, owners).log.read())
    result = verify(log)
    assert result.faults == []
    reports = [event for event in log if isinstance(event, Reported)]
    begun = len({(event.worker, event.number) for event in reports})
    rows = sum(len(event.step) + len(event.payments) for event in reports)
    assert result.rulings == begun + rows + sum(isinstance(event, Told) for event in log)


def test_a_lost_trial_is_given_up_with_all_that_it_reported(make_study):
    study = make_study(fw.Pilot(interval=1, trust=0.0))
    other = make_study(fw.Pilot(interval=1, trust=0.0), storage=study.log)
    lost = study.ask()
    for step in range(1, 6):  # a rung at step 4, none at step 5
        lost.report(auc=0.5, eod=0.1)
        if step == 4:
            study.owner.journal.flush()
            other.tell(other.ask(), auc=0.5, eod=0.1)
    study.owner.journal.flush()
    other.owner.journal.catch_up()
    other.owner.give_up(0, "lost its worker", retry=0)
    run_curves(other, [[(0.6, {"eod": 0.1})] * 5] * 8 + [[(0.6, {"eod": 0.1})] * 3 + [(0.1, {"eod": 0.1})] * 2])
    assert "of 10 at step 4" in other.trials[-1].reason
    assert verify(other.log.read()).faults == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"stop_reason": None}, "trial 8, step 1: continued; ruled again: eod 0.9 > 0.25, worst 25% of 8 at step 1"),
        ({"stop_reason": "because"}, "trial 8, step 1: because; ruled again"),
        ({"interval": 4}, "trial 8 has interval 4 of 4 steps, which should be 1 of 4"),
        ({"objective": np.array([0.1])}, "constraints were paid for, and need not have been"),
        ({"payments": np.zeros((0, 3), np.int64)}, "constraints were paid for without a decision"),
        (
            {"check_ns": np.array([[SAVED]]), "payments": np.zeros((0, 3), np.int64)},
            "constraints were not paid for, and should have been",
        ),
    ],
)
def test_a_log_that_was_tampered_with_is_found_out(make_study, change, fault):
    study = make_study(fw.ACE(interval=1))
    run_curves(study, [[(0.5, {"eod": 0.1})] + [(0.5, {"eod": 0.3})] * 3] + [[(0.9, {"eod": 0.3})] * 4] * 7)
    run_curves(study, [[(0.9, {"eod": 0.9})] * 4, [(0.9, {"eod": 0.9})] * 4])
    log = list(study.log.read())
    assert verify(log).faults == []
    place = next(i for i, event in enumerate(log) if isinstance(event, Reported) and event.stop_reason)
    log[place] = replace(log[place], **change)
    assert any(fault in found for found in verify(log).faults)


def test_a_stopper_of_the_users_own_cannot_be_verified(make_study):
    class Mine(fw.ACE):
        pass

    study = make_study(Mine())
    with pytest.raises(fw.StorageError, match=r"a stopper of its own, .*\.Mine"):
        verify(study.log.read())


def test_verdicts_are_in_the_log_and_can_be_made_again(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = judged(fw.any_of(fw.RegretBound(1e-9, start=5), fw.Plateau(12)), storage=url)
    study.optimize(parabola, trials=200)
    again = judged(None, storage=url, seed=None)
    assert [repr(said) for said in again.verdicts] == [repr(said) for said in study.verdicts]
    assert again.ended == study.ended
    events = study.log.read(0)
    result = verify(events)
    assert not result.faults
    place = max(i for i, event in enumerate(events) if isinstance(event, Judged))
    forged = to_json(events[place]) | {"stop": False, "reason": "go on"}
    result = verify([*events[:place], from_json(forged), *events[place + 1 :]])
    assert len(result.faults) == 1
    assert "go on; judged again: nothing better" in result.faults[0]


def test_running_trials_do_not_change_what_is_said():
    study = judged(fw.ExpectedImprovementBelow(1e-12, start=5), storage=MemoryLog())
    study = fw.Study(
        {"k": fw.Int(1, 14)}, fw.Minimize("loss"), terminator=study.terminator, sampler=fw.Random(), seed=0
    )
    running = study.ask(3)
    for _ in range(8):
        running.append(study.ask())
        trial = running.pop(0)
        study.tell(trial, loss=float((trial.params["k"] - 6) ** 2))
    assert len(study.verdicts) == 8
    assert not verify(study.log.read(0)).faults


def test_a_verdict_of_nobody_is_damage():
    study = judged(fw.Plateau(3))
    study.tell(study.ask(), loss=1.0)
    events = [to_json(event) for event in study.log.read(0)]
    events[-1]["worker"] = 9
    with pytest.raises(fw.StorageError, match="worker 9, who never joined"):
        verify([from_json(event) for event in events])


def test_a_stop_without_a_reason_is_a_stop():
    class Silent(Terminator):
        def check(self, history):
            return Verdict(len(history) > 2, "")

    study = judged(Silent())
    study.optimize(parabola, trials=30)
    assert (len(study.trials), study.ended) == (3, "the terminator said so")
    result = verify(study.log.read(0))
    assert (result.unchecked, result.faults) == (3, [])


def test_a_stopped_trial_that_is_said_to_have_completed_is_found_out(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    run_curves(study, [[(0.5, {"eod": 0.9})] * 4])
    log = list(study.log.read())
    assert isinstance(log[-1], Told)
    log[-1] = replace(log[-1], status="completed", reason="")
    (fault,) = verify(log).faults
    assert fault.startswith("trial 0 ended as completed, but was stopped: eod 0.9 > 0.25")


def test_a_log_without_a_study_has_nothing_to_verify():
    result = verify([])
    assert (result.rulings, result.unchecked, result.faults) == (0, 0, [])


@pytest.mark.parametrize(
    "stopper", [fw.Pilot(interval=2), fw.ACE(interval=4), fw.ASHA(interval=4), fw.Never(interval=2)]
)
@pytest.mark.parametrize("planned", [None, 20])
def test_a_trial_that_ends_sooner_than_planned_and_off_its_interval_can_be_made_again(stopper, planned):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.3)], stopper=stopper, seed=0)

    def train(trial):
        for step in range(1, 20) if planned is None else trial.steps(planned):
            trial.report(auc=trial.params["x"] + step / 100, eod=lambda: 0.1)
            if trial.stopped or step == 7 + trial.number % 5:
                return

    study.optimize(train, trials=8, progress=False)
    assert verify(study.log.read()).faults == []
