"""News for browsers: while somebody listens, one task looks for news on behalf of all listeners."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from fairway.errors import FairwayError
from fairway.report.templates import compact
from fairway.text import shown

BEAT_SECONDS = 15.0
"""Between signs of life when there is no news; without them a proxy may close the connection."""
RESET = "event: reset\ndata: null\n\n"
"""Tells a browser to load its page again."""


class Feed:
    """Looks again and again while somebody listens, and wakes the listeners when `look` saw something or failed."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self.listeners = 0
        self.task: asyncio.Task[None] | None = None
        self.closed = False
        self.last_words = ""  # an event after which there is nothing more to hear
        self._problem = ""
        self._look = look
        self._news = asyncio.Event()

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        woken, self._news = self._news, asyncio.Event()
        woken.set()

    async def _poll(self, pause: float) -> None:
        while self.listeners and not self.closed:
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
        try:
            yield "retry: 2000\n\n"
            told, at = "", time.monotonic()
            while not self.closed and not self.last_words:
                news, said = self._news, ""
                if self._problem != told:
                    told = self._problem
                    said = event("problem", compact(shown(told, 600)))
                elif not told:
                    said = await asyncio.to_thread(tell)
                if not said and time.monotonic() - at > BEAT_SECONDS:
                    said = ": nothing new\n\n"
                if said:
                    at = time.monotonic()
                    yield said
                    continue
                try:
                    await asyncio.wait_for(news.wait(), BEAT_SECONDS)
                except TimeoutError:
                    continue
            if self.last_words:
                yield self.last_words
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
