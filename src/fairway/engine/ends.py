"""Ends of trials that are not in the log yet, kept until they are written there or to another database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairway.engine.events import Enqueued, Event, Reported, Status
from fairway.engine.ledger import Ledger
from fairway.engine.sums import Outcome


@dataclass
class End:
    """How a trial ended."""

    status: Status
    reason: str
    write: Callable[[], object]  # tries again to write it
    notes: Mapping[str, Any] = field(default_factory=dict)
    rows: Reported | None = None  # the last reports, written with it
    traceback: str = ""  # where the user's code raised
    then: Sequence[Enqueued] = ()  # the trial's configuration, to be tried again
    outcome: Outcome | None = None  # once writing it was tried: it may be in the log, so its act stays taken


def complete(ledger: Ledger, reports: Sequence[Event], ends: Sequence[tuple[Outcome, Reported | None]]) -> list[Event]:
    """The reports, saves and ends that a ledger has not seen, in an order that it can replay.

    `ends` has the outcome of each trial and the last reports before its end.
    """
    events, ledger = list[Event](reports), ledger.still()
    for report in reports:
        ledger.replay(report)
    for outcome, rows in ends:
        told = ledger.summed(outcome, rows)
        events += [told] if rows is None else [rows, told]
    return events
