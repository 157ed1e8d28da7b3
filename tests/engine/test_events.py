from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given

import fairway as fw
from fairway.engine import soundness
from fairway.engine.event_json import from_json, to_json, to_text
from fairway.engine.events import Judged, Told
from fairway.feasibility import Checkpoint
from fairway.storage.memory import MemoryLog
from fairway.terminators.terminator import Verdict
from tests.conftest import LINE
from tests.engine.logs import acts_up_to, fingerprint, live, reopen, stoppers


@given(stoppers, acts_up_to(60))
def test_events_survive_json(stopper, acts):
    study, log = live(stopper, acts), MemoryLog()
    for event in study.log.read():
        text = json.dumps(to_json(event), allow_nan=False)
        assert to_text(event) == json.dumps(to_json(event), allow_nan=False, separators=(",", ":"))
        log.append([from_json(json.loads(text))])
        assert to_json(log.read()[-1]) == to_json(event)
    assert fingerprint(reopen(study, log)) == fingerprint(study)


TOLD = {"event": "Told", "number": 0, "status": "completed", "reason": "", "at": 1.0, "worker": 0, "act": 2}
COLUMNS = {"acts": [1], "step": [1], "objective": [0.5], "values": [[0.1]], "train_ns": [1], "check_ns": [[1]]}
BEGUN = {"number": 0, "worker": 0, "seen": 0, "begun": 0, "begun_seen": 0, "total": 1, "interval": 1}
REPORTED = {"event": "Reported", **BEGUN, **COLUMNS}
SURVEYED = {"event": "Surveyed", "number": 0, "objective": [0.5], "values": [[0.1]], "errors": [[None]], "cuts": True}


@pytest.mark.parametrize(
    "data",
    [
        {"event": "Exploded"},
        {"event": []},
        {"event": "Asked"},
        {"event": "Reported"},
        {},
        {**SURVEYED, "step": [[[]]]},
    ],
)
def test_what_is_no_event_is_refused_with_a_sentence(data):
    with pytest.raises(fw.UsageError, match="no event of a fairway log"):
        from_json(data)


@pytest.mark.parametrize(
    "data",
    [
        {**TOLD, "checkpoint": [1, 0.5, [0.1], None, 10**30, 10**30]},
        {**TOLD, "checkpoint": [1, 0.5, [0.1]], "peak": [1, 0.5, [0.1], None, 1, 2**63]},
        {**TOLD, "halfway": [10**400, 0.5]},
        {**REPORTED, "noise": [[0, 0.1, 1e300, 1e300]]},
    ],
)
def test_a_number_too_large_for_a_column_is_refused_before_it_is_replayed(data):
    with pytest.raises(fw.UsageError, match=f"^{data['event']}"):
        soundness.check(from_json(data))


def test_a_verdict_without_numbers_survives_the_log():
    said = Judged(0, 3, *Verdict(False, "too early"), at=1.0)
    assert repr(from_json(to_json(said))) == repr(said)


def test_numbers_that_json_lacks_are_written_as_text():
    said = Judged(0, 3, stop=False, reason="", value=math.nan, threshold=-math.inf, at=1.0)
    assert json.loads(to_text(said)) == to_json(said)
    assert '"value":"nan","threshold":"-inf"' in to_text(said)


def test_what_has_its_default_is_left_out_and_older_logs_that_have_it_are_read():
    short, whole = Told(3, "completed", "", 1.0, 0, 7), {"peak": None, "means": {}, "left": 0, "traceback": ""}
    assert not {*whole} & {*to_json(short)}
    assert from_json(to_json(short)) == from_json(to_json(short) | whole) == short
    best, other = Checkpoint(2, 0.5, (0.1,)), Checkpoint(4, 0.6, (None,))
    ended = replace(short, checkpoint=best, peak=other, late=best)
    assert to_json(ended)["late"] == 0
    assert from_json(to_json(ended)) == from_json(to_json(ended) | {"late": list(best)}) == ended
    full = replace(short, means={2: 0.5}, left=3, traceback="here", by_stopper=False)
    assert from_json(to_json(full)) == full


def test_logs_from_before_there_were_folds_are_read():
    study = fw.Study(LINE, fw.Minimize("error"), seed=0)
    study.tell(study.ask(), error=0.5)
    for event in study.log.read(0):
        old = to_json(event)
        assert "noise" not in old
        if old["event"] == "Told":
            old["checkpoint"] = old["checkpoint"][:3]
        elif old["event"] == "Opened":
            del old["config"]["terminator"]
        assert repr(from_json(old)).replace(", 'terminator': None", "") == repr(event).replace(
            ", 'terminator': None", ""
        )


def test_logs_that_do_not_say_of_how_many_folds_mean_all():
    study = fw.Study(LINE, fw.Minimize("error"), seed=0)
    study.tell(study.ask(), error=fw.Folds([0.5, 0.7]))
    for event in study.log.read(0):
        old = to_json(event)
        if old["event"] == "Reported":
            old["noise"] = [row[:3] for row in old["noise"]]
        elif old["event"] == "Told":
            old["checkpoint"] = old["checkpoint"][:5]
        assert repr(from_json(old)) == repr(event)
