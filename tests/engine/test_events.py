from __future__ import annotations

import json

import pytest
from hypothesis import given

import fairway as fw
from fairway.engine.events import from_json, to_json
from fairway.storage.memory import MemoryLog
from tests.engine.logs import acts_up_to, fingerprint, live, reopen, stoppers


@given(stoppers, acts_up_to(60))
def test_events_survive_json(stopper, acts):
    study, log = live(stopper, acts), MemoryLog()
    for event in study.log.read():
        text = json.dumps(to_json(event), allow_nan=False)
        log.append([from_json(json.loads(text))])
        assert to_json(log.read()[-1]) == to_json(event)
    assert fingerprint(reopen(study, log)) == fingerprint(study)


@pytest.mark.parametrize("data", [{"event": "Exploded"}, {"event": []}, {"event": "Asked"}, {"event": "Reported"}, {}])
def test_what_is_no_event_is_refused_with_a_sentence(data):
    with pytest.raises(fw.UsageError, match="no event of a fairway log"):
        from_json(data)
