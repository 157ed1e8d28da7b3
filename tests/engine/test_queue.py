"""A worker that was given up as lost comes back: its end holds, unless its configuration had begun to run again."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import Asked, Judged, Revived, Told, claim
from fairway.engine.verify import verify
from fairway.storage.memory import MemoryLog
from tests.conftest import SPACE, flush, judged
from tests.engine.logs import LIMITS, STOPPERS, fingerprint, reopen
from tests.engine.test_owner import Forsaken


def check(study):
    """All that is known agrees: live, replayed and verified; every trial has one end."""
    flush(study)
    again = reopen(study, study.log)
    assert fingerprint(again) == fingerprint(study)
    assert verify(study.log.read()).faults == []
    numbers = study.history.number.tolist()
    counts = study.counts
    assert len(numbers) == len(set(numbers)) == sum(counts.values()) - counts["running"]
    assert Counter(trial.status for trial in study.trials) == Counter({k: n for k, n in counts.items() if n})
    assert set(study.history.number[study.history.failed]) == {t.number for t in study.trials if t.status == "failed"}
    best = study.owner.ledger.best
    if best is not None:
        assert study.best.metrics["auc"] >= best[1].objective


def make_two(stopper=None, log=None):
    log = log or Forsaken()
    stopper = stopper or fw.ACE(interval=1)
    return log, *(
        fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, sampler=fw.Random(), seed=0, storage=log)
        for _ in range(2)
    )


def test_a_late_end_holds_if_nobody_has_run_the_trial_again():
    log, silent, other = make_two()
    trial = silent.ask()
    trial.steps(4)
    trial.report(auc=0.5, eod=0.1, ms=1.0)
    flush(silent)
    other.owner.journal.catch_up()
    other.owner.give_up(0, "lost its worker", retry=1)
    assert (other.counts["failed"], len(other.owner.ledger.queue), len(other.history)) == (1, 1, 1)
    trial.report(auc=0.6, eod=0.1, ms=1.0)
    flush(silent)  # the worker learns that its trial was given up, and reports on
    trial.report(auc=0.9, eod=0.1, ms=1.0)
    silent.tell(trial)
    assert trial.status == "completed"
    kinds = [type(event).__name__ for event in log.read()]
    assert kinds[-3:] == ["Revived", "Reported", "Told"]
    flush(other)
    for study in (silent, other):
        assert (study.counts["completed"], study.counts["failed"], study.last_failure) == (1, 0, "")
        assert (study.trials[0].status, study.trials[0].steps, study.trials[0].metrics["auc"]) == ("completed", 3, 0.9)
        assert len(study.owner.ledger.queue) == 0  # it is not run again
        assert study.best.metrics["auc"] == 0.9
        check(study)
    with pytest.raises(fw.UsageError, match="told already"):
        silent.tell(trial)


def test_a_late_end_is_refused_if_its_configuration_runs_again():
    log, silent, other = make_two()
    trial = silent.ask()
    log.gone = {0}
    assert other.ask().params == trial.params
    with pytest.raises(fw.UsageError, match=r"trial 0 was ended by another worker \(lost its worker\)"):
        silent.tell(trial, auc=0.9, eod=0.1, ms=1.0)
    assert (trial.status, silent.counts["failed"], silent.counts["running"]) == ("failed", 1, 1)
    assert not any(isinstance(event, Revived) for event in log.read())
    check(silent)


class Raced(Forsaken):
    """A log on which somebody does something just before an event of some kind is written."""

    before, act = None, None

    def append(self, events):
        if self.act is not None and any(isinstance(event, self.before) for event in events):
            act, self.act = self.act, None
            act()
        return super().append(events)


def test_a_configuration_that_begins_at_the_moment_of_the_revival_makes_it_void():
    log, silent, other = make_two(log=Raced())
    trial = silent.ask()
    other.owner.journal.catch_up()
    other.owner.give_up(0, "lost its worker", retry=1)
    log.before, log.act = Revived, other.ask
    with pytest.raises(fw.UsageError, match="was ended by another worker"):
        silent.tell(trial, auc=0.9, eod=0.1, ms=1.0)
    assert (trial.status, silent.counts) == ("failed", {"running": 1, "completed": 0, "stopped": 0, "failed": 1})
    assert [type(event) for event in log.read()][-3:] == [Asked, Revived, Told]
    check(silent)


def test_an_owner_that_asks_at_the_moment_of_the_revival_runs_what_was_withdrawn():
    log, silent, other = make_two(log=Raced())
    trial = silent.ask()
    other.owner.journal.catch_up()
    other.owner.give_up(0, "lost its worker", retry=1)
    log.before, log.act = Asked, lambda: silent.tell(trial, auc=0.9, eod=0.1, ms=1.0)
    assert other.ask().params == trial.params
    other.enqueue({"x": 0.25})
    assert other.ask().params == {"x": 0.25}
    assert other.counts == {"running": 2, "completed": 1, "stopped": 0, "failed": 0}
    check(other)


def test_a_trial_that_is_given_up_at_the_moment_of_its_end_is_revived():
    log, silent, other = make_two(log=Raced())
    trial = silent.ask()
    trial.report(auc=0.5, eod=0.1, ms=1.0)
    other.owner.journal.catch_up()
    log.before, log.act = Told, lambda: other.owner.give_up(0, "lost its worker", retry=1)
    silent.tell(trial, auc=0.9, eod=0.1, ms=1.0)
    assert (trial.status, silent.trials[0].steps, silent.trials[0].metrics["auc"]) == ("completed", 2, 0.9)
    check(silent)


def test_the_trial_of_a_further_worker_is_revived_too():
    log, silent, other = make_two()
    worker = silent.owner.enlist().worker
    asked = silent.owner.assign(worker)
    other.owner.journal.catch_up()
    other.owner.give_up(asked.number, "lost its worker", retry=1)
    silent.owner.journal.catch_up()
    assert silent.owner.tell_for(Told(0, "failed", "no luck", 0.0, worker, 1), None)
    assert (silent.trials[0].reason, len(silent.owner.ledger.queue)) == ("no luck", 0)
    assert isinstance(log.read()[-2], Revived)


def test_nobody_but_its_worker_revives_a_trial():
    _, silent, other = make_two()
    third = reopen(silent, silent.log)
    silent.ask()
    for study in (other, third):
        study.owner.journal.catch_up()
    assert other.owner.give_up(0, "lost its worker", retry=1)
    assert not third.owner.give_up(0, "lost its worker", retry=1)
    assert third.counts["failed"] == 1


def test_a_revival_of_what_was_not_given_up_is_damage():
    _, study, _ = make_two()
    study.ask()
    study.log.append([Revived(0, 0, 0.0)])
    with pytest.raises(fw.StorageError, match="revives trial 0, which was not given up"):
        study.ask()


def test_a_revival_and_the_end_after_it_have_claims_and_travel_as_json():
    revived, told = Revived(3, 1, 2.5), Told(3, "completed", "", 2.5, 1, 9, revived=True)
    assert [claim(event) for event in (revived, told)] == ["revived 3", "told 3 revived"]
    assert [from_json(to_json(event)) for event in (revived, told)] == [revived, told]


def test_a_verdict_is_judged_again_by_what_it_looked_at(monkeypatch):
    log = MemoryLog()
    silent, other = (judged(fw.Plateau(10), storage=log) for _ in range(2))
    lost = silent.ask()
    other.owner.journal.catch_up()
    other.owner.give_up(0, "lost its worker", retry=0)
    for _ in range(2):
        other.tell(other.ask(), loss=0.5)
    acts, check = [lambda: silent.tell(lost, loss=0.1)], fw.Plateau.check

    def interrupted(self, history):
        for act in acts[:1]:
            acts.clear()
            act()  # better than all before, while the terminator looks
        return check(self, history)

    monkeypatch.setattr(fw.Plateau, "check", interrupted)
    other.tell(other.ask(), loss=0.5)
    events = list(log.read())
    assert verify(events).faults == []
    place = max(i for i, event in enumerate(events) if isinstance(event, Judged))
    assert events[place].seen < place - 2
    events[place] = replace(events[place], seen=None)
    assert len(verify(events).faults) == 1


act = st.tuples(
    st.integers(0, 2), st.integers(0, 8), st.sampled_from(["report", "tell", "fail", "lose", "lose", "ask"])
)


@given(st.sampled_from(STOPPERS), st.lists(act, max_size=40))
def test_whoever_is_lost_and_comes_back_all_agree(stopper, acts):
    log = Forsaken()
    studies = [
        fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=stopper, sampler=fw.Random(), seed=0, storage=log)
        for _ in range(3)
    ]
    slots = {}
    for slot, level, what in acts:
        study, trial = studies[slot], slots.get(slot)
        if trial is None or trial.status != "running":
            trial = slots[slot] = study.ask()
            trial.steps(6)
        elif what == "lose":
            other = studies[(slot + 1) % 3].owner
            other.journal.catch_up()
            other.give_up(trial.number, "lost its worker", retry=1)
        elif trial.stopped or trial.last_step == 6 or what == "tell" and trial.last_step:
            with suppress(fw.UsageError):  # it has run again
                study.tell(trial)
        elif what == "fail":
            study.owner.close(trial, "failed", "broken")
        elif what == "report":
            trial.report(auc=level / 8, eod=lambda _, level=level: level / 16, ms=1.0, checkpoint=trial.last_step + 1)
    for study in studies * 2:
        flush(study)
    revived = sum(isinstance(event, Revived) for event in log.read())
    told = Counter(event.number for event in log.read() if isinstance(event, Told))
    assert sum(told.values()) - len(told) == revived
    for study in studies:
        check(study)
