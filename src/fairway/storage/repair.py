"""Copies a damaged study into a new file without its damage.

Every intact event that fits those before it is kept at its position. Any other is replaced by a `Dropped`, so that the
positions that later events refer to stay right; a `Dropped` also takes the number of a trial whose beginning is gone. A
lost change of the limits is replaced by the next one, which has a column for everything measured from there on. The
copied trials of a study to start from are left out together if their intact part cannot be read: nothing else depends
on them, and the configurations that they proposed first are in the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fairway.engine.carried import unreadable
from fairway.engine.events import Asked, Carried, Dropped, Event, LimitsChanged, Opened, Reported, claim
from fairway.engine.identity import Identity
from fairway.engine.ledger import Ledger
from fairway.engine.soundness import fitting
from fairway.errors import StorageError, UsageError
from fairway.storage.inspection import Found, Inspection, Tracked
from fairway.storage.sql import Database

_AT_ONCE = 1000  # events in one transaction


class Repaired(NamedTuple):
    """The result of a repair."""

    kept: int
    left_out: list[str]  # a sentence for each event
    damage: list[str]  # outside the events; the new file has none of it


def repair(inspection: Inspection, path: Path, tracked: Tracked[Any] = lambda items, _: items) -> Repaired:
    """Write what is intact of a study to a new file."""
    if path.exists():
        raise UsageError(f"{path} is there already; name a new file")
    events, left_out = _sensible(inspection, tracked)
    try:
        log = Database(f"sqlite:///{path}").log(inspection.name)
        for i in tracked(range(0, len(events), _AT_ONCE), "writing events"):
            log.append(events[i : i + _AT_ONCE])  # no two claim the same
    except BaseException:
        for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            each.unlink(missing_ok=True)
        raise
    kept = sum(not isinstance(event, Dropped) for event in events)
    left_out += [] if inspection.cut is None else [inspection.cut]
    return Repaired(kept, left_out, inspection.around)


def _sensible(inspection: Inspection, tracked: Tracked[Found]) -> tuple[list[Event], list[str]]:
    """The new log, and a sentence for each event that it does not have."""
    opened = _founding([one.event for one in inspection.found])
    if opened is None:
        raise StorageError(f"no intact event says what study {inspection.name!r} is: nothing can be kept")
    copy, left_out, stood_for = _Copy(replace(opened, worker=0)), list[str](), list[str]()
    lost_changes = _lost_changes(inspection.found)
    for position, event, damage, _ in tracked(inspection.found, "replaying events"):
        wrong = damage or f"event {position} is no opening of a study"
        if position in lost_changes:
            if not copy.take(lost_changes[position]):
                wrong += "; the next change of the limits stands for it"
                stood_for.append(wrong)
        elif position and event is not None:
            wrong = copy.take(event)
            wrong = wrong and f"event {position} ({type(event).__name__}): {wrong}"
        elif position:
            copy.leave_out(wrong)
        elif isinstance(event, Opened):
            wrong = ""
        else:
            wrong += f"; worker {opened.worker} says what study it is"
            stood_for.append(wrong)
        left_out += [wrong] if wrong else []
    for why in stood_for:  # their places are taken, so the loss is recorded at the end
        copy.leave_out(why)
    return copy.events, [*left_out, *copy.leave_out_unreadable()]


def _founding(events: Sequence[Event | None]) -> Opened | None:
    """The first intact event that says what the study is.

    If it comes from a worker that joined after the limits had changed, it has the later limits; the study began with
    those of them that the first reports have columns for.
    """
    place = next((i for i, event in enumerate(events) if isinstance(event, Opened)), None)
    if place is None:
        return None
    opened, before = events[place], events[:place]
    assert isinstance(opened, Opened)
    change = next((event for event in before if isinstance(event, LimitsChanged)), None)
    if change is None:
        return opened
    width = min((event.values.shape[1] for event in before if isinstance(event, Reported)), default=None)
    return replace(opened, config={**opened.config, "constraints": change.constraints[:width]})


def _lost_changes(found: Sequence[Found]) -> dict[int, LimitsChanged]:
    """The replacement for each lost change of the limits, by position: the next change that is intact."""
    stands: dict[int, LimitsChanged] = {}
    after: LimitsChanged | None = None
    for one in reversed(found):
        if isinstance(one.event, LimitsChanged):
            after = one.event
        elif one.event is None and after is not None:
            lost = replace(after, change=after.change - 1)
            if one.claim == claim(lost):
                stands[one.position] = after = lost
    return stands


class _Copy:
    """A log that takes only events that make sense."""

    def __init__(self, first: Opened) -> None:
        self.events: list[Event] = [first]
        self._identity = Identity.from_json(first.config)
        self._claims = {claim(first)}
        self._numbered = 0  # where the last trial began
        self._ledger = self._replayed()

    def _replayed(self) -> Ledger:
        identity = self._identity
        ledger = Ledger(identity.space, identity.problem, identity.seed or 0)
        for event in self.events:
            ledger.replay(event)
        return ledger

    def take(self, event: Event) -> str:
        """Add an event, or leave it out and say why."""
        if isinstance(event, Asked):
            self._number_missing(event.number)
            if event.queued and not self._ledger.queue:  # what it was taken from is gone
                event = replace(event, queued=False)
        claimed = claim(event)
        wrong = f"another event has claimed {claimed!r}" if claimed is not None and claimed in self._claims else ""
        try:
            if not wrong:
                with fitting(event):
                    self._ledger.replay(event)
        except StorageError as error:
            wrong = str(error)
            if error.__cause__ is not None:  # raised within the ledger, which may be half updated now
                self._ledger = self._replayed()
        if wrong:
            self.leave_out(wrong)
            return wrong
        self.events.append(event)
        self._claims.add(claimed)
        if isinstance(event, Asked):
            self._numbered = len(self.events)
        return ""

    def leave_out(self, why: str) -> None:
        """Put a `Dropped` in the place of an event."""
        self.events.append(Dropped(why))
        self._ledger.replay(self.events[-1])

    def leave_out_unreadable(self) -> list[str]:
        """Leave out the studies to start from that cannot be read as they are; a sentence for each event."""
        copies = [event for event in self.events if isinstance(event, Carried)]
        wrong = unreadable(copies, self._identity.space, self._identity.problem)
        said = []
        for place, event in enumerate(self.events):
            if isinstance(event, Carried) and event.study in wrong:
                why = f"study {event.study} to start from cannot be read any more: {wrong[event.study]}"
                self.events[place] = Dropped(why)
                said.append(f"event {place} (Carried): {why}")
        return said

    def _number_missing(self, due: int) -> None:
        """Give the numbers of trials whose beginning is gone to events that were left out."""
        missing = range(len(self._ledger.courses), due)
        if not missing:
            return
        places = [i for i in range(self._numbered, len(self.events)) if isinstance(self.events[i], Dropped)]
        if len(places) < len(missing):
            return
        for number, place in zip(missing, places, strict=False):
            left = self.events[place]
            assert isinstance(left, Dropped)
            self.events[place] = replace(left, number=number)
            self._claims.add(claim(self.events[place]))
            self._ledger.replay(self.events[place])
            self._ledger.dropped -= 1  # it was counted at its place
            self._numbered = place + 1
