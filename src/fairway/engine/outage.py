"""A database that goes away for a while: what needs it is tried again, and everything else continues.

Whoever must have the log (`ask`, `tell`) insists: it waits, and the journal's lock is free meanwhile, so that reports
are ruled on and their rows stay in their batches. Whatever can come later (the rows of a running trial) makes an
attempt, and none that could block while somebody else waits. After `patience` seconds both raise.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from fairway.engine import interrupts
from fairway.errors import Unreachable
from fairway.logs import logger

PATIENCE = 60.0
"""How many seconds a database may be away, unless the study says otherwise."""

_SHORTEST, _LONGEST = 0.05, 2.0  # seconds between attempts, each pause twice the last
_QUIET = 10.0  # seconds without any attempt, after which a failure is the first of another outage

T = TypeVar("T")


class Outage:
    """Whether the log can be reached now, for all that share the journal's lock."""

    def __init__(self, lock: Any, patience: float) -> None:
        self.patience = patience
        self._lock = lock
        self._over = threading.Condition(lock)
        self._waiting = False  # somebody is in the middle of an act, without the lock
        self._began: float | None = None  # the first failure; None while the log can be reached
        self._noticed: float | None = None  # the same, if anything was said of it
        self._last = self._next = 0.0  # the last failure; when to try again
        self._pause = _SHORTEST

    def __enter__(self) -> None:
        """Take the lock, once nobody waits for the log in the middle of an act: a *turn*."""
        self._lock.acquire()
        try:
            while self._waiting:
                self._over.wait()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def insist(self, act: Callable[[], T], meanwhile: Callable[[], object] | None = None) -> T:
        """What an act returns that needs the log, tried again while it is away.

        The turn is the caller's. The lock is free between attempts; `meanwhile` is called once before that.
        """
        while True:
            started = time.monotonic()
            try:
                return act()
            except Unreachable as error:
                self._note(error, started)
            if meanwhile is not None:
                meanwhile()
                meanwhile = None
            self._waiting = True
            try:
                self._over.wait(self._pause)
            finally:
                self._waiting = False
                self._over.notify_all()

    def attempt(self, act: Callable[[], T]) -> T | None:
        """What an act returns that may come later; None if the log is away, or was a moment ago."""
        started = time.monotonic()
        if self._waiting or self._began is not None and started < self._next:
            return None
        try:
            return act()
        except Unreachable as error:
            self._note(error, started)
            return None

    def end(self) -> None:
        """Something was written: the log is there. That it can be read says less, as a disk may be full."""
        if self._noticed is not None:
            logger.warning("the database is back after %.1f s; nothing is lost", time.monotonic() - self._noticed)
        self._began = self._noticed = None

    def hurry(self) -> None:
        """Wait no longer in this outage, or in one that begins in this moment: somebody pressed Ctrl-C."""
        with self._lock:
            self._began, self._last = -math.inf, time.monotonic()
            self._over.notify_all()

    def _note(self, error: Unreachable, started: float) -> None:
        """The log could not be reached: raise if that has lasted too long, or if somebody pressed Ctrl-C."""
        now = time.monotonic()
        if self._began is None or started - self._last > _QUIET:
            self._began, self._pause = started, _SHORTEST
            if self.patience:
                self._noticed = started
                logger.warning("%s; training continues, and this is tried again for %g s", error, self.patience)
        self._last = now
        if interrupts.is_pending():
            self.hurry()
        if now - self._began >= self.patience:
            seconds = now - (started if self._noticed is None else self._noticed)
            lasted = f", tried for {seconds:.0f} s (patience={self.patience:g})" if self.patience else ""
            raise Unreachable(
                f"{error}{lasted}; what was told before is safe, and all that this process knows is in memory: fix "
                "the database and call again, or write it to another one with study.save_as(url)"
            ) from error
        self._pause = min(2 * self._pause, _LONGEST, max(self._began + self.patience - now, _SHORTEST))
        self._next = now + self._pause
