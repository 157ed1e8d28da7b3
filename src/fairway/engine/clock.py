"""Where time comes from: the machine, or a simulation. Algorithms see neither; they see costs inside events."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def ns(self) -> int:
        """Nanoseconds since some moment, never running back: for measuring costs."""

    def at(self) -> float:
        """Seconds on the wall, for the log."""


class WallClock:
    """The machine's own."""

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
