"""The studies that somebody looks at: read once, then followed by position, whatever the number of browsers."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from fairway.errors import FairwayError, MissingDependency, UsageError
from fairway.report import content
from fairway.report.chart import Chart
from fairway.report.plots import drawn, importance
from fairway.report.summary import State, goal, number_text, state
from fairway.report.view import View
from fairway.storage.sql import Database, Stored, public
from fairway.text import shown

POLL_SECONDS = 0.5
"""How often a study that is watched is looked at."""
STATE_SECONDS = 3.0
"""How often it is asked whether its workers live."""
LIST_SECONDS = 1.0
"""How often the list of studies is looked at while somebody sees it."""
BEAT_SECONDS = 15.0
"""After so long without news a browser is told that there is none, lest somebody between closes the line."""
DRAW_SECONDS = 2.0
"""The least between two drawings of a study's charts; they take at most a quarter of the time."""
SLOW_SECONDS = 20.0
"""The same for those that take a second or more to draw."""
KEPT = 4
"""Studies kept in memory that nobody watches."""
STREAMS = 100
"""Browsers that can be kept up to date at once."""


class Signal:
    """Wakes all who wait for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Now."""
        woken, self._event = self._event, asyncio.Event()
        woken.set()

    async def wait(self, seconds: float) -> bool:
        """Until it is fired; False if that took too long."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Drawing:
    """Some pictures of a study, drawn anew when it changed, was asked for, and enough time has passed."""

    def __init__(self, least: float, draw: Callable[[View], list[Chart]]) -> None:
        self._least, self._draw = least, draw
        self._lock = threading.Lock()
        self._charts, self._version, self._due = "[]", -1, 0.0

    def shown(self, watch: Watch) -> str:
        """As JSON."""
        with self._lock:
            if self._version != watch.version and time.monotonic() >= self._due:
                began, version = time.monotonic(), watch.version
                charts = content.charts(self._draw(watch.still()))
                self._charts, self._version = json.dumps(charts, allow_nan=False, separators=(",", ":")), version
                now = time.monotonic()
                self._due = now + max(self._least, 3 * (now - began))
            wait = max(self._due - time.monotonic(), 0.5)
            again = "null" if self._version == watch.version else f"{wait:.1f}"
            return f'{{"again":{again},"charts":{self._charts}}}'


def _quick(view: View) -> list[Chart]:
    return drawn(view, quick=True)


def _slow(view: View) -> list[Chart]:
    try:
        chart = importance(view)
    except MissingDependency:  # a page does without
        return []
    return [chart] if any(panel.marks for panel in chart.panels) else []


class Watch:
    """One study in memory, and what of it changed when."""

    def __init__(self, database: Database, stored: Stored) -> None:
        self.database, self.name = database, stored.name
        self.view = View(database.log(stored.name, create=False), stored.name)
        self.epoch = _epoch(stored)  # a study of the same name may come after it
        self.version = 0  # of everything that is shown
        self.streams = 0
        self.problem = ""
        self.dead = False
        self.signal = Signal()
        self.task: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        self._changed = [self.position] * len(self.view.courses)  # at which position each trial was last seen to change
        self._state: State = state(self.view)
        self._asked = time.monotonic()
        self._drawings = {False: Drawing(DRAW_SECONDS, _quick), True: Drawing(SLOW_SECONDS, _slow)}
        self._payload: tuple[tuple[int, int], str] = ((-1, -1), "")

    @property
    def position(self) -> int:
        """Of the log, up to which it is known."""
        return self.view.position

    @property
    def last(self) -> str:
        """What a browser that knows all of this says to hear what comes next."""
        return f"{self.epoch}.{self.position}"

    def update(self) -> bool:
        """Take in what is new; whether there was anything to see."""
        with self._lock:
            running, before = set(self.view.ledger.running), len(self.view.courses)
            fresh = self.view.update()
            if fresh:
                self._changed += [0] * (len(self.view.courses) - before)
                for number in (*running, *range(before, len(self.view.courses))):
                    self._changed[number] = self.position
            if fresh or time.monotonic() - self._asked > STATE_SECONDS:
                known, self._state, self._asked = self._state, state(self.view), time.monotonic()
                fresh = fresh or known != self._state
            self.version += fresh
            return fresh

    def since(self, position: int) -> tuple[str, int, str]:
        """What a browser at a position does not know, as JSON; with its `last`, and the version that it has then."""
        with self._lock:
            key = position, self.version
            if self._payload[0] != key:
                numbers = [number for number, at in enumerate(self._changed) if at > position]
                changed = {"study": content.study(self.view), "rows": content.rows(self.view, numbers)}
                self._payload = key, json.dumps(changed, allow_nan=False, separators=(",", ":"))
            return self.last, self.version, self._payload[1]

    def shell(self) -> dict[str, Any]:
        """What the page of the study begins with."""
        with self._lock:
            return {"study": content.study(self.view), "columns": content.columns(self.view), "last": self.last}

    def trials(self) -> dict[str, Any]:
        """Every trial."""
        with self._lock:
            return {"last": self.last, "rows": content.rows(self.view, range(len(self.view.courses)))}

    def charts(self, *, slow: bool = False) -> str:
        """The pictures, or those that take their time, as JSON; `again`: in how many seconds to ask for newer ones."""
        return self._drawings[slow].shown(self)

    def still(self) -> View:
        """The view as it is now: a drawing takes a while, and news must not wait for it."""
        with self._lock:
            return self.view.still()

    def facts(self) -> dict[str, Any]:
        """A line in the list of studies."""
        with self._lock:
            view, best = self.view, self.view.best
            times = [at for course in view.courses for at in (course.began, course.ended) if at > 1e9]  # noqa: PLR2004
            metrics = {} if best is None else dict(best.metrics)
            return {
                "goal": goal(view.problem),
                "trials": len(view.courses),
                "best": ", ".join(
                    f"{shown(name, 40)} {number_text(value)}" for name, value in metrics.items() if value is not None
                ),
                "state": self._state,
                "updated": max((at for at in times if math.isfinite(at)), default=None),
            }


class Desk:
    """The database, the studies of it that are in memory, and those who watch."""

    def __init__(self, url: str) -> None:
        database = Database(url, reading=True)  # or it says what is wrong with the URL
        self.url = url
        self.shown = public(url)
        self._watches: OrderedDict[str, Watch] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.RLock()
        self._facts: dict[str, tuple[tuple[str, int], dict[str, Any]]] = {}
        self._streams = 0
        self._listing: asyncio.Task[None] | None = None
        self._list_streams, self._looks, self._list, self._list_problem = 0, 0, "[]", ""
        self._list_signal: Signal | None = None
        self.closing = False
        self._file = _file(url)
        self._opened = self._mark(), database

    def _mark(self) -> tuple[int, int] | None:
        """What tells a file from another in its place."""
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            raise UsageError(f"{self.shown}: there is no such file") from None
        return found.st_dev, found.st_ino

    def database(self) -> Database:
        """The database that is there now: a file may have been taken away, or put in its place."""
        with self._lock:
            mark = self._mark()
            if self._opened[0] != mark:
                self._opened = mark, Database(self.url, reading=True)
                self._watches.clear()
                self._facts.clear()
            return self._opened[1]

    def watch(self, name: str) -> Watch:
        """A study, up to date."""
        database = self.database()
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        try:
            with opening:
                with self._lock:
                    known = self._watches.get(name)
                stored = next((one for one in database.studies() if one.name == name), None)
                if stored is None:
                    with self._lock:
                        self._watches.pop(name, None)
                    database.log(name, create=False)  # says what there is
                    raise UsageError(f"{self.shown} has no study {name!r}")
                if known is None or known.database is not database or known.epoch != _epoch(stored):
                    known = Watch(database, stored)
                elif not known.streams:
                    known.update()
        finally:
            with self._lock:
                self._opening.pop(name, None)
        with self._lock:
            self._watches[name] = known
            self._watches.move_to_end(name)
            idle = [one for one, watch in self._watches.items() if not watch.streams]
            for one in idle[: max(len(idle) - KEPT, 0)]:
                del self._watches[one]
        return known

    # --- one study's news ---

    def _refresh(self, watch: Watch) -> bool:
        """Look at a study that is watched; whether a browser has something to hear."""
        problem, fresh = "", False
        try:
            database = self.database()
            stored = next((one for one in database.studies() if one.name == watch.name), None)
            if stored is None:
                problem = "the study was deleted"
            elif database is not watch.database or watch.epoch != _epoch(stored):
                watch.dead = True  # another one took its place
            else:
                before = watch.position
                fresh = watch.update() or watch.position != before
        except Exception as error:  # noqa: BLE001 - the next look may succeed, and whoever watches is told
            problem = _sentence(error)
        fresh = fresh or watch.dead or watch.problem != problem
        watch.problem = problem
        return fresh

    async def _poll(self, watch: Watch) -> None:
        while watch.streams and not watch.dead and not self.closing:
            await asyncio.sleep(POLL_SECONDS)
            if await asyncio.to_thread(self._refresh, watch):
                watch.signal.fire()
        watch.task = None

    @contextmanager
    def _streaming(self, watch: Watch) -> Iterator[None]:
        watch.streams += 1
        if watch.task is None:
            watch.task = asyncio.create_task(self._poll(watch))
        try:
            yield
        finally:
            watch.streams -= 1

    async def news(self, watch: Watch, last: str) -> AsyncIterator[str]:
        """What happens to a study, as server-sent events, from what a browser knew last."""
        epoch, _, known = last.rpartition(".")
        whole = known.isascii() and known.isdigit() and len(known) < 16  # noqa: PLR2004
        position = int(known) if whole else watch.position
        if last and (epoch != watch.epoch or not whole):
            yield _event("reset", "null")
            return
        with self._counted(), self._streaming(watch):
            yield "retry: 2000\n\n"
            version, ticked, told = -1, watch.position, ""
            while not self.closing:
                if watch.dead:
                    yield _event("reset", "null")
                    return
                if watch.problem != told:
                    told = watch.problem
                    yield _event("problem", json.dumps(shown(told, 600)))
                if version != watch.version and not watch.problem:
                    before = position
                    last, version, payload = await asyncio.to_thread(watch.since, before)
                    position = ticked = int(last.rpartition(".")[2])
                    yield _event("change", payload, last)
                    continue
                if ticked != watch.position:
                    ticked = watch.position
                    yield _event("tick", str(ticked))
                if not await watch.signal.wait(BEAT_SECONDS):
                    yield ": nothing new\n\n"

    # --- the list ---

    def list(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Every study, with what is known of it; spends so long on learning more."""
        until = time.monotonic() + seconds
        listed = []
        for stored in self.database().studies():
            mark = _epoch(stored), stored.events
            known, facts = self._facts.get(stored.name, (None, {}))
            stale = known != mark or facts.get("state") == "running" or "problem" in facts
            if stale and time.monotonic() < until:
                try:
                    facts = self.watch(stored.name).facts()
                except Exception as error:  # noqa: BLE001 - one study must not hide the others
                    facts = {"problem": shown(_sentence(error))}
                self._facts[stored.name] = mark, facts
            elif known is not None and known[0] != mark[0]:
                facts = {}  # of one that was there before
            line = {"key": stored.name, "name": shown(stored.name, 200), **facts}
            line["updated"] = line.get("updated") or stored.created
            listed.append(line)
        for name in set(self._facts) - {line["key"] for line in listed}:
            self._facts.pop(name, None)
        return listed

    def _relist(self) -> None:
        try:
            listed = json.dumps(self.list(LIST_SECONDS / 2), allow_nan=False, separators=(",", ":"))
        except Exception as error:  # noqa: BLE001 - as above
            self._list_problem = _sentence(error)
        else:
            self._list, self._list_problem = listed, ""
        self._looks += 1

    async def _poll_list(self) -> None:
        assert self._list_signal is not None
        while self._list_streams and not self.closing:
            await asyncio.to_thread(self._relist)
            self._list_signal.fire()
            await asyncio.sleep(LIST_SECONDS)
        self._listing = None

    async def list_news(self) -> AsyncIterator[str]:
        """What happens to the list of studies, as server-sent events."""
        with self._counted():
            self._list_signal = self._list_signal or Signal()
            self._list_streams += 1
            if self._listing is None:
                self._listing = asyncio.create_task(self._poll_list())
            try:
                yield "retry: 2000\n\n"
                sent, told, at, looks = "", "", time.monotonic(), self._looks
                while not self.closing:
                    if self._list_problem != told:
                        told = self._list_problem
                        yield _event("problem", json.dumps(shown(told, 600)))
                    elif self._looks > looks and self._list != sent:  # what was seen before may be older than the page
                        sent, at = self._list, time.monotonic()
                        yield _event("studies", sent)
                    elif time.monotonic() - at > BEAT_SECONDS:
                        at = time.monotonic()
                        yield ": nothing new\n\n"
                    else:
                        await self._list_signal.wait(BEAT_SECONDS)
            finally:
                self._list_streams -= 1

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @property
    def is_full(self) -> bool:
        """Whether no further browser can be kept up to date."""
        return self._streams >= STREAMS

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        for watch in self._watches.values():
            watch.signal.fire()
        if self._list_signal is not None:
            self._list_signal.fire()


def _event(kind: str, data: str, last: str = "") -> str:
    """One event; JSON has no line breaks of its own."""
    return f"{f'id: {last}{chr(10)}' if last else ''}event: {kind}\ndata: {data}\n\n"


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, FairwayError) else f"{type(error).__name__}: {error}"


def _epoch(stored: Stored) -> str:
    """What tells a study from another of its name; ids and positions may come again."""
    return f"{stored.created:.6f}"


def _file(url: str) -> Path | None:
    parsed = sa.make_url(url)
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
