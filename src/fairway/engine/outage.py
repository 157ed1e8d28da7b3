"""A database that is unreachable for a while: what needs it is tried again, and everything else continues.

Calls that must have the log (`ask`, `tell`) insist: they wait, with the journal's lock released, so that reports are
still ruled on and their rows stay in their batches. Writes that can come later (the rows of a running trial) make an
attempt, but not while somebody else waits. After `patience` seconds both raise.
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
"""How many seconds a database may be unreachable, unless the study says otherwise."""

_SHORTEST, _LONGEST = 0.05, 2.0  # seconds between attempts, each pause twice the last
_QUIET = 10.0  # a failure after this many seconds without any attempt begins another outage

T = TypeVar("T")


class Outage:
    """Whether the log can be reached now, for all threads that share the journal's lock."""

    def __init__(self, lock: Any, patience: float) -> None:
        self.patience = patience
        self._lock = lock
        self._over = threading.Condition(lock)
        self._waiting = False  # somebody is in the middle of an act, without the lock
        self._began: float | None = None  # the first failure; None while the log can be reached
        self._noticed: float | None = None  # the same, if it was logged
        self._last = self._next = 0.0  # the last failure; when to try again
        self._pause = _SHORTEST

    def __enter__(self) -> None:
        """Take a *turn*: the lock, once nobody waits for the log in the middle of an act."""
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
        """Call an act that needs the log, again and again while the log is unreachable; return what it returns.

        The caller has the turn. The lock is released between attempts; `meanwhile` is called once before that.
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
        """Call an act that can wait; None if the log is unreachable, was a moment ago, or somebody waits for it."""
        started = time.monotonic()
        if self._waiting or self._began is not None and started < self._next:
            return None
        try:
            return act()
        except Unreachable as error:
            self._note(error, started)
            return None

    def end(self) -> None:
        """End the outage: something was written. A read would not show as much, since the disk may be full."""
        if self._noticed is not None:
            logger.warning("the database is back after %.1f s; nothing is lost", time.monotonic() - self._noticed)
        self._began = self._noticed = None

    def hurry(self) -> None:
        """Stop waiting in this outage, or in one that is just beginning: somebody pressed Ctrl-C."""
        with self._lock:
            self._began, self._last = -math.inf, time.monotonic()
            self._over.notify_all()

    def _note(self, error: Unreachable, started: float) -> None:
        """Note that the log could not be reached; raise if that has lasted too long, or if somebody pressed Ctrl-C."""
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
