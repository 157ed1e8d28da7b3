"""The contract of a log: append-only, read from any position, one order of events that all readers share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

from fairway.engine.events import Event, Reported


@runtime_checkable
class Log(Protocol):
    """One study's events."""

    def append(self, events: Sequence[Event]) -> int | None:
        """Append all or nothing and return the new length; None, with nothing appended, if a claim was taken.

        An event may claim what only one event of a log can have (`events.claim`), such as the next trial number. Who
        comes too late reads what others wrote meanwhile and tries again.
        """

    def read(self, since: int = 0, most: int | None = None) -> Sequence[Event]:
        """The events from a position on, or the first few of them."""

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        """The events from a position on without the reports, and the position up to which these are all.

        Enough for a list of trials, whatever the length of the study.
        """

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        """All reports of some trials, in their order."""

    def attend(self, worker: int, pulse: Callable[[], None] | None = None) -> None:
        """Let others know that a worker of this process lives, for as long as the log is in use.

        A log that others may write to calls `pulse`, a method, ten times a second from a thread of its own.
        """

    def leave(self, worker: int) -> None:
        """Let others know that a worker of this process is gone."""

    def lost(self, workers: Collection[int]) -> set[int]:
        """Those of the workers that live no more, or have not been heard of for too long."""
