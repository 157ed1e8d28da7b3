"""Clocks: the machine's own, or a simulation's. Algorithms never read one; they see only the costs in events."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def ns(self) -> int:
        """Monotonic nanoseconds since an arbitrary moment, to measure costs."""

    def at(self) -> float:
        """Wall-clock seconds, for the log."""


class WallClock:
    """The machine's own clock."""

    ns = staticmethod(time.perf_counter_ns)
    at = staticmethod(time.time)


class VirtualClock:
    """A clock that a simulation sets."""

    def __init__(self) -> None:
        self.now = 0

    def ns(self) -> int:
        """Virtual nanoseconds."""
        return self.now

    def at(self) -> float:
        """Virtual seconds."""
        return self.now / 1e9
