"""News for browsers, and the studies they are about.

While somebody listens, one task looks for news on behalf of all listeners; a study is read once, then followed by
position, for any number of browsers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fairway.errors import FairwayError, StorageError
from fairway.report import content
from fairway.report.plots import drawn
from fairway.report.summary import state
from fairway.report.templates import compact
from fairway.report.view import View
from fairway.storage.sql import Database, Stored
from fairway.text import shown

POLL_SECONDS = 0.5  # between two looks at a study that is watched
STATE_SECONDS = 3.0  # between two questions whether its workers live
DRAW_SECONDS = 2.0  # the least between two drawings of a study's charts; they take at most a quarter of the time
SLOW_SECONDS = 20.0  # the same for those that take a second or more to draw
BEAT_SECONDS = 15.0
"""Between signs of life when there is no news; without them a proxy may close the connection."""
RESET = "event: reset\ndata: null\n\n"
"""Tells a browser to load its page again; nothing comes after it."""


class Feed:
    """Looks again and again while somebody listens, and wakes the listeners when `look` saw something or failed."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self.listeners = 0
        self.task: asyncio.Task[None] | None = None
        self._look, self._closed, self._problem = look, False, ""
        self._news = asyncio.Event()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _poll(self, pause: float) -> None:
        while self.listeners and not self._closed:
            problem, fresh = "", False
            try:
                fresh = await asyncio.to_thread(self._look)
            except Exception as error:  # noqa: BLE001 - the next look may succeed, and whoever listens is told
                problem = sentence(error)
            if fresh or problem != self._problem:
                self._problem = problem
                self._wake()
            await asyncio.sleep(pause)
        self.task = None

    async def listen(self, tell: Callable[[], str], pause: float) -> AsyncIterator[str]:
        """Server-sent events: those of `tell`, which is empty when there is nothing new, and problems with looking."""
        self.listeners += 1
        self.task = self.task or asyncio.create_task(self._poll(pause))
        said, told = "retry: 2000\n\n", ""
        try:
            while not self._closed:
                if said:
                    yield said
                if said == RESET:
                    break
                news, said = self._news, ""
                if self._problem != told:
                    told = self._problem
                    said = event("problem", compact(shown(told, 600)))
                elif not told:
                    said = await asyncio.to_thread(tell)
                if not said:
                    try:
                        await asyncio.wait_for(news.wait(), BEAT_SECONDS)
                    except TimeoutError:
                        said = ": nothing new\n\n"
        finally:
            self.listeners -= 1


def event(kind: str, data: str, last: str = "") -> str:
    r"""One event; JSON has no line breaks of its own.

    >>> event("change", "{}", last="7")
    'id: 7\nevent: change\ndata: {}\n\n'
    """
    return (f"id: {last}\n" if last else "") + f"event: {kind}\ndata: {data}\n\n"


def sentence(error: Exception) -> str:
    """An error for people: our own are sentences already."""
    return str(error) if isinstance(error, FairwayError) else f"{type(error).__name__}: {error}"


class Drawing:
    """Some pictures of a study; a request draws them again if the study changed and enough time has passed."""

    def __init__(self, least: float, **which: bool) -> None:
        self._least, self._which, self._lock = least, which, threading.Lock()
        self._charts, self._version, self._due = "[]", -1, 0.0

    def shown(self, watch: Watch) -> str:
        """As JSON; `again`: in how many seconds to ask for newer ones."""
        with self._lock:
            began, version = time.monotonic(), watch.version
            if self._version != version and began >= self._due:
                charts = drawn(watch.view.still(), **self._which)
                self._charts, self._version = compact(content.charts(charts)), version
                now = time.monotonic()
                self._due = now + max(self._least, 3 * (now - began))
            wait = max(self._due - time.monotonic(), 0.5)
            again = "null" if self._version == watch.version else f"{wait:.1f}"
            return f'{{"again":{again},"charts":{self._charts}}}'


class Watch:
    """One study in memory, and when each trial changed. `find` looks up a name in the database."""

    def __init__(
        self, database: Database, stored: Stored, find: Callable[[str], tuple[Database, Stored | None]]
    ) -> None:
        self.name = stored.name
        self.view = View(database.log(stored.name, create=False), stored.name)
        self.version = 0  # of everything that is shown
        self.feed = Feed(self._look)
        self._database, self._find, self._epoch, self._replaced = database, find, epoch(stored), False
        self._lock = threading.Lock()
        self._changed = [self.view.position] * len(self.view.courses)  # where in the log each trial last changed
        self._state, self._asked = state(self.view), time.monotonic()
        self._quick, self._slow = Drawing(DRAW_SECONDS, quick=True), Drawing(SLOW_SECONDS, slow=True)
        self._payload: tuple[tuple[int, int], str] = ((-1, -1), "")

    @property
    def last(self) -> str:
        """The id of the newest event; a browser sends it back to hear what comes next."""
        return f"{self._began}.{self.view.position}"

    @property
    def _began(self) -> str:
        """What a page must have begun with: once limits change, so may all that it shows."""
        return f"{self._epoch}-{len(self.view.ledger.limits.changes)}"

    def is_of(self, database: Database, stored: Stored) -> bool:
        """Whether it is the study that is stored now, and not one that had its name before."""
        return database is self._database and epoch(stored) == self._epoch

    def _look(self) -> bool:
        database, stored = self._find(self.name)
        if stored is None:
            raise StorageError("the study was deleted")
        self._replaced = not self.is_of(database, stored)
        return self._replaced or self.update()

    def update(self) -> bool:
        """Read what is new; whether there was anything to see."""
        with self._lock:
            running, before, later = set(self.view.ledger.running), len(self.view.courses), self.view.later
            fresh = self.view.update()
            if fresh:
                self._changed += [0] * (len(self.view.courses) - before)
                noted = [k for k, notes in self.view.later.items() if k is not None and later.get(k) != notes]
                for k in (*running, *noted, *range(before, len(self.view.courses))):
                    self._changed[k] = self.view.position
            if fresh or time.monotonic() - self._asked > STATE_SECONDS:
                known, self._state, self._asked = self._state, state(self.view), time.monotonic()
                fresh = fresh or known != self._state
            self.version += fresh
            return fresh

    def news(self, last: str) -> AsyncIterator[str]:
        """What happens to the study, as server-sent events, from what a browser knew last."""
        same, _, known = last.rpartition(".")
        whole = known.isascii() and known.isdigit() and len(known) < 16  # noqa: PLR2004
        began = self._began
        strange = bool(last) and not (whole and same == began)
        position, version = int(known) if whole else self.view.position, -1

        def tell() -> str:
            nonlocal position, version
            if strange or self._replaced or began != self._began:
                return RESET
            with self._lock:
                if version == self.version:
                    return ""
                key = position, self.version
                if self._payload[0] != key:  # browsers that know the same hear the same
                    numbers = [k for k, at in enumerate(self._changed) if at > position]
                    changed = {"study": content.study(self.view), "rows": content.rows(self.view, numbers)}
                    self._payload = key, compact(changed)
                position, version = self.view.position, self.version
                return event("change", self._payload[1], self.last)

        return self.feed.listen(tell, POLL_SECONDS)

    def shell(self) -> dict[str, Any]:
        """What the page of the study begins with."""
        with self._lock:
            return {"study": content.study(self.view), "columns": content.columns(self.view), "last": self.last}

    def trials(self) -> dict[str, Any]:
        with self._lock:
            return {"last": self.last, "rows": content.rows(self.view, range(len(self.view.courses)))}

    def charts(self, *, slow: bool = False) -> str:
        """The pictures, or those that take their time, as JSON."""
        return (self._slow if slow else self._quick).shown(self)

    def facts(self) -> dict[str, Any]:
        """A line in the list of studies."""
        with self._lock:
            return {"state": self._state, **content.line(self.view)}


def epoch(stored: Stored) -> str:
    """Tells a study from an earlier one with the same name: ids and positions may be reused."""
    return f"{stored.created:.6f}"
