"""The database of the live page, its studies that are in memory, and the list of all."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from fairway.errors import StorageError, UsageError
from fairway.report.dashboard.watch import Feed, Watch, epoch, event, sentence
from fairway.report.templates import compact
from fairway.storage.access import public
from fairway.storage.files import mark, path_of
from fairway.storage.sql import Database, Stored
from fairway.text import shown

LIST_SECONDS = 1.0  # between two looks at the list of studies while somebody sees it
KEPT = 4  # studies in memory that nobody watches
STREAMS = 100  # browsers that can be kept up to date at once


class Desk:
    """A database of studies that is only read."""

    def __init__(self, url: str) -> None:
        self.url, self.shown = url, public(url)
        self.watches: dict[str, Watch] = {}
        self.seats = 0  # that are taken
        self._feed = Feed(self._look)
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._facts: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}  # with how many events each is of
        self._looks, self._list = 0, "[]"
        database = Database(url, reading=True)  # or it says what is wrong with the URL
        self._opened = self._mark(), database

    def _mark(self) -> tuple[int, int] | None:
        """The identity of the database file, which changes when the file is replaced."""
        path = path_of(sa.make_url(self.url))
        try:
            return None if path is None else mark(path)
        except OSError:
            raise UsageError(f"{self.shown}: there is no such file") from None

    def database(self) -> Database:
        """The database that is there now: a file may have been deleted or replaced."""
        with self._lock:
            mark = self._mark()
            if self._opened[0] != mark:
                self._opened = mark, Database(self.url, reading=True)
                self.watches.clear()
                self._facts.clear()
            return self._opened[1]

    def _find(self, name: str) -> tuple[Database, Stored | None]:
        """The database, and the study with this name if there is one now."""
        database = self.database()
        return database, next((one for one in database.studies() if one.name == name), None)

    def watch(self, name: str) -> Watch:
        """A study, up to date."""
        with self._opening:
            database, stored = self._find(name)
            known = self.watches.pop(name, None)
            if stored is None:
                database.log(name, create=False)  # says what there is
                raise UsageError(f"{self.shown} has no study {name!r}")
            if known is None or not known.is_of(database, stored):
                known = Watch(database, stored, self._find)
            elif not known.feed.listeners:
                known.update()
            self.watches[name] = known  # the last one, as it is the latest used
            for one in [one for one, watch in tuple(self.watches.items()) if not watch.feed.listeners][:-KEPT]:
                self.watches.pop(one, None)
        return known

    def studies(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Every study with what is known of it; takes up to `seconds` to learn more."""
        until, listed = time.monotonic() + seconds, []
        for stored in self.database().studies():
            key = stored.name, epoch(stored)
            events, facts = self._facts.get(key, (-1, {}))
            stale = events != stored.events or facts.get("state") == "running" or "problem" in facts
            if stale and time.monotonic() < until:
                try:
                    facts = self.watch(stored.name).facts()
                except Exception as error:  # noqa: BLE001 - one study must not hide the others
                    facts = {"problem": shown(sentence(error))}
                self._facts[key] = stored.events, facts
            updated = facts.get("updated") or stored.created
            listed.append({"key": stored.name, "name": shown(stored.name, 200), **facts, "updated": updated})
        return listed

    def _look(self) -> bool:
        self._list = compact(self.studies(LIST_SECONDS / 2))
        self._looks += 1
        return True

    def news(self) -> AsyncIterator[str]:
        """What happens to the list of studies, as server-sent events."""
        looks, sent = self._looks, ""

        def tell() -> str:
            nonlocal sent
            if self._looks == looks or self._list == sent:  # what was seen before may be older than the page
                return ""
            sent = self._list
            return event("studies", sent)

        return self._feed.listen(tell, LIST_SECONDS)

    @property
    def _feeds(self) -> list[Feed]:
        return [self._feed, *(watch.feed for watch in tuple(self.watches.values()))]

    @contextmanager
    def seat(self) -> Iterator[None]:
        """A place for one more browser to be kept up to date; taken on the event loop, one browser after another."""
        if self.seats >= STREAMS:
            raise StorageError("too many pages are open at once: close some")
        self.seats += 1
        try:
            yield
        finally:
            self.seats -= 1

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()
