"""A study that somebody looks at: read once, then followed by position, for any number of browsers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fairway.errors import StorageError
from fairway.report import content
from fairway.report.chart import Chart
from fairway.report.dashboard.feed import RESET, Feed, event
from fairway.report.plots import drawn
from fairway.report.summary import State, state
from fairway.report.templates import compact
from fairway.report.view import View
from fairway.storage.sql import Database, Stored
from fairway.text import goal, measured

POLL_SECONDS = 0.5  # between two looks at a study that is watched
STATE_SECONDS = 3.0  # between two questions whether its workers live
DRAW_SECONDS = 2.0  # the least between two drawings of a study's charts; they take at most a quarter of the time
SLOW_SECONDS = 20.0  # the same for those that take a second or more to draw


class Drawing:
    """Some pictures of a study; a request draws them again if the study changed and enough time has passed."""

    def __init__(self, least: float, draw: Callable[[View], list[Chart]]) -> None:
        self._least, self._draw = least, draw
        self._lock = threading.Lock()
        self._charts, self._version, self._due = "[]", -1, 0.0

    def shown(self, watch: Watch) -> str:
        """As JSON; `again`: in how many seconds to ask for newer ones."""
        with self._lock:
            began, version = time.monotonic(), watch.version
            if self._version != version and began >= self._due:
                self._charts, self._version = compact(content.charts(self._draw(watch.view.still()))), version
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
        self._database, self._find = database, find
        self._epoch = epoch(stored)
        self._lock = threading.Lock()
        self._changed = [self.view.position] * len(self.view.courses)  # where in the log each trial last changed
        self._state: State = state(self.view)
        self._asked = time.monotonic()
        self._quick = Drawing(DRAW_SECONDS, lambda view: drawn(view, quick=True))
        self._slow = Drawing(SLOW_SECONDS, lambda view: drawn(view, slow=True))
        self._payload: tuple[tuple[int, int], str] = ((-1, -1), "")

    @property
    def last(self) -> str:
        """The id of the newest event; a browser sends it back to hear what comes next."""
        return f"{self._epoch}.{self.view.position}"

    def is_of(self, database: Database, stored: Stored) -> bool:
        """Whether it is the study that is stored now, and not one that had its name before."""
        return database is self._database and epoch(stored) == self._epoch

    def _look(self) -> bool:
        database, stored = self._find(self.name)
        if stored is None:
            raise StorageError("the study was deleted")
        if not self.is_of(database, stored):
            self.feed.last_words = RESET
            return True
        return self.update()

    def update(self) -> bool:
        """Read what is new; whether there was anything to see."""
        with self._lock:
            running, before = set(self.view.ledger.running), len(self.view.courses)
            fresh = self.view.update()
            if fresh:
                self._changed += [0] * (len(self.view.courses) - before)
                for k in (*running, *range(before, len(self.view.courses))):
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
        if last and not (whole and same == self._epoch):
            return _once(RESET)
        position, version = int(known) if whole else self.view.position, -1

        def tell() -> str:
            nonlocal position, version
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
        """Every trial."""
        with self._lock:
            return {"last": self.last, "rows": content.rows(self.view, range(len(self.view.courses)))}

    def charts(self, *, slow: bool = False) -> str:
        """The pictures, or those that take their time, as JSON."""
        return (self._slow if slow else self._quick).shown(self)

    def facts(self) -> dict[str, Any]:
        """A line in the list of studies."""
        with self._lock:
            view, best = self.view, self.view.best
            times = [at for course in view.courses for at in (course.began, course.ended) if at > 1e9]  # noqa: PLR2004
            return {
                "goal": goal(view.problem),
                "trials": len(view.courses),
                "best": "" if best is None else measured(best.metrics.keys(), best.metrics.values()),
                "state": self._state,
                "updated": max((at for at in times if math.isfinite(at)), default=None),
            }


async def _once(text: str) -> AsyncIterator[str]:
    yield text


def epoch(stored: Stored) -> str:
    """Tells a study from an earlier one with the same name: ids and positions may be reused."""
    return f"{stored.created:.6f}"
