from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.events import Reported
from fairway.storage.memory import MemoryLog
from tests.conftest import run_curves
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
                log.append([replace(event, **rows, verdict=event.verdict if end else None, over=event.over and end)])
    assert fingerprint(reopen(study, log)) == fingerprint(study)


def test_a_damaged_log_is_refused_with_a_sentence(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.1)
    opened, asked, reported, told = study.log.read()
    for events, sentence in (
        ([opened, asked, asked], "the log asks for trial 0 where 1 is due"),
        ([opened, asked, told, told], "the log ends trial 0, which is not running"),
        ([opened, reported], "the log reports for trial 0, which was never asked for"),
    ):
        broken = MemoryLog()
        broken.append(events)
        with pytest.raises(fw.StorageError, match=sentence):
            make_study(storage=broken)


def test_costs_say_what_was_spent_and_saved(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    run_curves(study, [[(0.5, {"eod": 0.1})] * 4, [(0.4, {"eod": 0.1})] * 3 + [(0.6, {"eod": 0.9})] * 7])
    costs = study.costs
    assert (costs.checks, costs.saved_checks) == (5, 3)
    assert costs.saved_training_seconds > 0
    assert costs.training_seconds > 0
