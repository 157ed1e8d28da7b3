"""The workers that a process answers for."""

from __future__ import annotations

import pickle

from fairway.engine.events import Told


def test_a_further_worker_starts_from_what_is_known_and_hears_of_others_alone(make_study):
    study = make_study()
    owner = study.owner
    study.tell(study.ask(), auc=0.5, eod=0.1)
    referee = owner.enlist()
    worker = referee.worker
    assert (worker, referee.incumbent) == (1, owner.referee.incumbent)
    assert not owner.journal.roster.has_news(worker)
    study.tell(study.ask(), auc=0.7, eod=0.1)
    assert owner.journal.roster.has_news(worker)
    events, position, _ = owner.journal.roster.news(worker, owner.journal.position)
    for event in map(pickle.loads, events):
        referee.replay(event)
    assert referee.incumbent == owner.referee.incumbent
    assert position == len(study.log.read())
    asked = owner.assign(worker)
    assert owner.tell_for(Told(asked.number, "failed", "no luck", 0.0, worker, 1), None)
    assert not owner.journal.roster.has_news(worker)  # its own doing is no news to it
    owner.dismiss(worker)
    study.tell(study.ask(), auc=0.8, eod=0.1)
    assert not owner.journal.roster.has_news(worker)
    assert (study.trials[2].status, study.trials[2].reason) == ("failed", "no luck")


def test_news_comes_in_pieces_that_any_connection_takes(make_study):
    study = make_study()
    owner = study.owner
    worker = owner.enlist().worker
    for _ in range(200):
        study.tell(study.ask(), auc=0.5, eod=0.1)
    pieces = []
    while owner.journal.roster.has_news(worker):
        pieces.append(owner.journal.roster.news(worker, owner.journal.position))
    assert len(pieces) > 1
    assert max(sum(map(len, events[:-1])) for events, *_ in pieces) < 65536
    positions = [position for _, position, _ in pieces]
    assert positions == sorted(positions)
    assert sum(len(events) for events, *_ in pieces) == 400  # a report and an end each
