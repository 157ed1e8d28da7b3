"""The contracts of a storage: a log of events, and leases that show which workers are alive."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from fairway.engine.events import Event, Reported


@runtime_checkable
class Log(Protocol):
    """One study's events: append-only, read from any position, in one order that all readers share."""

    @property
    def leases(self) -> Leases | None:
        """The leases of the study's workers; None if nobody outside this process can write to the log."""

    def append(self, events: Sequence[Event]) -> int | None:
        """Append all or nothing and return the new length; None, with nothing appended, if a claim was taken.

        An event may claim what only one event of a log can have (`events.claim`), such as the next trial number. A
        writer that comes too late reads what others wrote meanwhile and tries again.

        An unreachable storage raises `fairway.errors.Unreachable`, here and in `read`, and the caller tries again. Such
        an append may have been written all the same. Whether it was is settled once a later append returns, even one of
        no events.
        """

    def read(self, since: int = 0, most: int | None = None) -> Sequence[Event]:
        """The events from a position on, at most `most` of them."""

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        """The events from a position on without the reports, and the position that they reach.

        This is enough for a list of trials, however long the study.
        """

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        """All reports of some trials, in their order."""


@runtime_checkable
class Snapshots(Protocol):
    """A log that can also keep a snapshot of its first events, as named parts: see `fairway.engine.snapshot`."""

    def mark(self, position: int) -> str | None:
        """A text that identifies the event before a position; None if there is no such event."""

    def keep(self, parts: Mapping[str, bytes]) -> None:
        """Keep these parts in place of all others."""

    def kept(self, names: Collection[str] | None = None) -> Mapping[str, bytes]:
        """The parts of the last `keep`, or those with these names; empty before the first."""


class Leases(Protocol):
    """Which workers of one study are alive, wherever they run."""

    def attend(self, worker: int) -> None:
        """Take a lease for a worker of this process."""

    def leave(self, worker: int) -> None:
        """Give up the lease of a worker of this process."""

    def renew(self) -> None:
        """Renew the leases of this process's workers, if that is due."""

    def lost(self, workers: Collection[int]) -> set[int]:
        """Those of these workers that no longer have a valid lease."""
