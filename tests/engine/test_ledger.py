from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.events import Asked, Reported, Told
from fairway.storage.memory import MemoryLog
from tests.conftest import flush, run_curves
from tests.engine.logs import acts_up_to, fingerprint, live, reopen, stoppers


@given(stoppers, acts_up_to(60))
def test_replay_equals_live(stopper, acts):
    study = live(stopper, acts)
    assert fingerprint(reopen(study, study.log)) == fingerprint(study)


@given(stoppers, acts_up_to(60), st.data())
def test_it_does_not_matter_where_batches_of_reports_end(stopper, acts, data):
    study, log = live(stopper, acts), MemoryLog()
    for event in study.log.read():
        if not isinstance(event, Reported):
            log.append([event])
            continue
        cut = data.draw(st.integers(0, len(event.step)))
        columns = ("acts", "step", "objective", "values", "train_ns", "check_ns")
        for part in (slice(0, cut), slice(cut, len(event.step))):
            if len(event.step[part]):
                rows = {name: getattr(event, name)[part] for name in columns}
                end = part.stop == len(event.step)
                log.append(
                    [replace(event, **rows, stop_reason=event.stop_reason if end else None, over=event.over and end)]
                )
    assert fingerprint(reopen(study, log)) == fingerprint(study)


def test_a_damaged_log_is_refused_with_a_sentence(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.1)
    opened, asked, reported, told = study.log.read()
    for events, sentence in (
        ([opened, asked, asked], "the log asks for trial 0 where 1 is due"),
        ([opened, asked, told, told], "the log ends trial 0, which is not running"),
        ([opened, reported], "the log reports for trial 0, which was never asked for"),
        ([opened, Asked(0, {"x": 0.5}, 0.0, 0, queued=True)], "the log takes trial 0 from an empty queue"),
    ):
        broken = MemoryLog()
        for event in events:
            broken._latest.append(event)  # past its claims
        with pytest.raises(fw.StorageError, match=sentence):
            make_study(storage=broken)


def test_costs_say_what_was_spent_and_saved(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    run_curves(study, [[(0.5, {"eod": 0.1})] * 4, [(0.4, {"eod": 0.1})] * 3 + [(0.6, {"eod": 0.9})] * 7])
    costs = study.costs
    assert (costs.checks, costs.saved_checks) == (5, 3)
    assert costs.saved_training_seconds > 0
    assert costs.training_seconds > 0


def test_reports_of_a_trial_that_was_given_up_count_for_nothing(make_study):
    study = make_study()
    trial = study.ask()
    study.log.append([Told(0, "failed", "lost its worker", 0.0, 99, 0)])
    trial.report(auc=0.9, eod=0.1)
    flush(study)
    assert study.best_ignoring_limits is None
    assert (study.trials[0].steps, study.trials[0].metrics) == (0, {})
    assert study.counts == {"running": 0, "completed": 0, "stopped": 0, "failed": 1}


def test_a_still_ledger_does_not_move_with_the_one_it_was_taken_of(make_study):
    study = make_study()
    ledger = study.owner.ledger
    study.enqueue({"x": 0.25})
    study.tell(study.ask(), auc=0.5, eod=0.1)
    trial = study.ask()
    trial.report(auc=0.7, eod=0.1)
    flush(study)
    still, before = ledger.still(), (len(study.trials), study.trials[1], ledger.counts["completed"])
    trial.report(auc=0.9, eod=0.1)
    study.tell(trial)
    study.enqueue({"x": 0.75})
    study.tell(study.ask(), auc=0.5, eod=0.1)
    assert (len(still.courses), still.record(1), still.counts["completed"]) == before
    assert (len(still.history()), len(ledger.history())) == (1, 3)
    assert (len(still.queue), list(still.running)) == (0, [1])
    assert still.record(1).metrics == {"auc": 0.7, "eod": 0.1}


def test_some_folds_of_many_stand_for_a_trial_until_all_are_there(make_study):
    study = make_study(constraints=())
    trial = study.ask()
    for folds in (1, 2):
        trial.report(auc=fw.Folds([0.9] * folds, of=3))
        flush(study)
    course = study.owner.ledger.courses[0]
    assert (course.checkpoint.folds, course.checkpoint.of, course.peak) == (2, 3, None)
    assert course.means == {1: 0.9, 2: 0.9}
    trial.report(auc=fw.Folds([0.9, 0.9, 0.3], of=3))
    study.tell(trial)
    assert (course.checkpoint.folds, course.peak.folds) == (3, 3)
    assert study.best_ignoring_limits.metrics["auc"] == pytest.approx(0.7)


@given(stoppers, acts_up_to(40))
def test_the_best_feasible_checkpoint_is_the_referees(stopper, acts):
    study = live(stopper, acts)
    flush(study)
    best, incumbent = study.owner.ledger.best, study.owner.referee.incumbent
    if incumbent is None:
        assert best is None
    else:
        number, checkpoint = best
        assert (-checkpoint.objective, number, checkpoint.step) == incumbent[:3]
