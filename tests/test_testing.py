from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field, replace

import pytest

import fairway as fw
from fairway.engine.events import Reported, claim
from fairway.stoppers.earlier import EarlierPilot
from fairway.stoppers.stopper import StopperState
from fairway.storage.memory import MemoryLog
from fairway.storage.sql import Database
from fairway.testing import check_stopper, check_storage

STOPPERS = [
    fw.Pilot(),
    fw.Pilot(interval=1, skip=False),
    fw.Pilot(keep=0.3, spacing=2, trust=0, persistence=1, checks=0.9, grace=2),
    EarlierPilot(),
    fw.ACE(),
    fw.ACE(0.5, interval=1, skip=False, grace=3),
    fw.ACE(tolerance="hard", interval="end"),
    fw.ASHA(),
    fw.ASHA(2, strata=True, grace=2, max_steps=7),
    fw.Median(min_trials=1),
    fw.HalfAt(step=2, after=1),
    fw.Never(),
]


@pytest.mark.parametrize("stopper", STOPPERS, ids=repr)
def test_every_stopper_conforms(stopper):
    check_stopper(stopper)


@dataclass(frozen=True)
class Worse(fw.Stopper):
    """Stops what is worse than the mean of all reports at its step; `fault` breaks it in some way."""

    fault: str = "none"
    stop_probability = 0.5

    def start(self, problem):
        return _SHARED if self.fault == "shared" else WorseState(self.fault)


class WorseState(StopperState):
    def __init__(self, fault):
        self.fault = fault
        self.open = (letter for letter in "abc") if fault == "open" else None
        self.last, self.counts, self.totals, self.running = 0, defaultdict(int), defaultdict(int), set()

    def __deepcopy__(self, memo):
        if self.fault == "shallow":
            return self
        other = WorseState(self.fault)
        other.last, other.counts, other.totals = self.last, self.counts.copy(), self.totals.copy()
        other.running = self.running.copy()
        return other

    def due(self, number, step, loss, train_ns):
        self.totals[step] += 1000 if self.fault == "due" else 0
        return None if self.fault == "no answer" else True

    def judge(self, number, step, loss, violation):
        loss = round(loss * 1024)
        self.counts[step] += 1
        self.totals[step] += loss
        worse = loss * self.counts[step] > self.totals[step]
        if self.fault == "order":
            worse, self.last = loss > self.last, loss
        if self.fault == "memory":
            worse = number not in self.running
        self.running.add(number)
        reason = "" if self.fault == "reason" else f"worse than the mean at step {step}"
        return reason if worse else None

    def finish(self, number, *, completed):
        if self.fault != "memory":
            self.running.discard(number)


_SHARED = WorseState("none")


def test_a_stopper_of_ones_own_conforms():
    check_stopper(Worse())


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("shared", "two states that saw the same reports decided differently"),
        ("order", "the order in which different trials' reports arrived changed a later decision"),
        ("due", "calling due changed a later decision"),
        ("no answer", "due returned None; True or False is expected"),
        ("reason", "judge returned ''; None or a non-empty reason is expected"),
        ("open", "its state cannot be sent to a worker process: cannot pickle 'generator' object"),
        ("shallow", "of the state decided differently"),
        ("memory", "finish did not forget a trial"),
    ],
)
def test_a_broken_stopper_is_found_out(fault, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_stopper(Worse(fault))


def test_a_stopper_that_cannot_be_stored_is_found_out():
    @dataclass(frozen=True)
    class Excusing(fw.Never):
        excused: frozenset[int] = frozenset()

    with pytest.raises(AssertionError, match=r"its fields cannot be stored as JSON: .*frozenset"):
        check_stopper(Excusing())

    class Counting(fw.Never):
        def __init__(self):
            super().__init__()
            object.__setattr__(self, "count", 3)

    with pytest.raises(AssertionError, match=r"{'count'} are not fields of the dataclass"):
        check_stopper(Counting())

    @dataclass(frozen=True)
    class Listing(fw.Never):
        steps: tuple[int, ...] = field(default=(1, 2))

    with pytest.raises(AssertionError, match="came back from JSON for"):
        check_stopper(Listing())

    @dataclass(frozen=True)
    class Sure(fw.Never):
        stop_probability = 1.5

    with pytest.raises(AssertionError, match=r"stop_probability=1.5 is not in \[0, 1\]"):
        check_stopper(Sure())


def test_memory_conforms():
    check_storage(MemoryLog)


def test_sqlite_conforms(tmp_path):
    database, names = Database(f"sqlite:///{tmp_path}/log.db"), itertools.count()
    check_storage(lambda: database.log(f"study {next(names)}"))


class BrokenLog:
    """A log in a list, to be broken by its subclasses."""

    def __init__(self):
        self.events, self.claims = [], set()

    def append(self, events):
        claims = {claim(event) for event in events} - {None}
        if claims & self.claims:
            return None
        self.claims |= claims
        self.events += events
        return len(self.events)

    def read(self, since=0, most=None):
        return self.events[since:][:most]

    def summary(self, since=0):
        return [event for event in self.events[since:] if not isinstance(event, Reported)], len(self.events)

    def reports(self, numbers):
        return [event for event in self.events if isinstance(event, Reported) and event.number in numbers]


class Counts(BrokenLog):
    def append(self, events):
        return len(events) if super().append(events) else None


class Partly(BrokenLog):
    def append(self, events):
        for event in events:
            if super().append([event]) is None:
                return None
        return len(self.events)


class ClaimsFirst(BrokenLog):
    def append(self, events):
        claims = {claim(event) for event in events} - {None}
        fresh = claims.isdisjoint(self.claims)
        self.claims |= claims
        self.events += events if fresh else []
        return len(self.events) if fresh else None


class Forgiving(BrokenLog):
    def append(self, events):
        self.claims.clear()
        return super().append(events)


class AllAtOnce(BrokenLog):
    def read(self, since=0, most=None):
        return self.events[since:]


class Chatty(BrokenLog):
    def summary(self, since=0):
        return self.events[since:], len(self.events)


class ByTrial(BrokenLog):
    def reports(self, numbers):
        return [event for number in numbers for event in super(ByTrial, self).reports([number])]


class Rounding(BrokenLog):
    def read(self, since=0, most=None):
        return [
            replace(event, objective=event.objective.round(3)) if isinstance(event, Reported) else event
            for event in super().read(since, most)
        ]


class Scrambled(BrokenLog):
    def append(self, events):
        return super().append(sorted(events, key=lambda event: -getattr(event, "params", {}).get("part", 0)))


class Lossy(BrokenLog):
    def append(self, events):
        length = super().append(events)
        if events and getattr(events[0], "params", {}).get("k") == 7:
            self.events[-1] = self.events[0]
        return length


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Counts, "Counts.append returned 3; the new length, 4, is expected"),
        (Partly, r"Partly.read\(\) after a refused append: 5 events; 3 are expected"),
        (ClaimsFirst, "append returned None for a claim made by a refused append only: 4 is expected"),
        (Forgiving, "append returned 6, but 'worker 0' was taken: None is expected"),
        (AllAtOnce, r"AllAtOnce.read\(0, 0\): 25 events; 0 are expected"),
        (Chatty, r"Chatty.summary\(0\): 25 events; 22 are expected"),
        (ByTrial, r"ByTrial.reports\(\[1, 0\]\): Reported"),
        (Rounding, r"Rounding.read\(\d\).*: Reported"),
        (Scrambled, r"Scrambled.read\(\) where two threads appended: Enqueued"),
        (Lossy, r"Lossy.read\(\) where two threads appended: Enqueued"),
    ],
)
def test_a_broken_log_is_found_out(make, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_storage(make)
