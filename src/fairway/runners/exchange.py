"""One thread that hears every worker of a run, writes what they report, and passes on what the others wrote.

Whatever has arrived at one look, from however many workers, is written in one transaction. A worker that is slow to
read its news gets the rest later. Others wait for it only if a single event is larger than its connection's buffer, and
no longer than it lives.
"""

from __future__ import annotations

import contextlib
import queue
import select
import selectors
import threading
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from fairway.engine.durability import NEWS_SECONDS
from fairway.engine.events import Reported, Saved
from fairway.engine.owner import Owner
from fairway.runners.worker import Checking, Done, News, Reports, Trouble


class Line:
    """The connection to one worker, with its number, and the inbox of its hand."""

    def __init__(self, connection: Connection, worker: int) -> None:
        self.worker = worker
        self.inbox: queue.SimpleQueue[Checking | Trouble | Done | BaseException | None] = queue.SimpleQueue()
        self._connection = connection
        self._sending = threading.Lock()
        self._outgoing = select.poll()
        self._outgoing.register(connection, select.POLLOUT)

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Any) -> None:
        with self._sending:
            self._connection.send(message)

    def receive(self) -> list[Any]:
        """All messages that have arrived; if the worker died after them, the next call raises."""
        messages = [self._connection.recv()]
        with contextlib.suppress(EOFError, OSError):
            while self._connection.poll():
                messages.append(self._connection.recv())
        return messages

    @property
    def has_arrived(self) -> bool:
        """Whether a message waits to be received."""
        with contextlib.suppress(OSError):
            return self._connection.poll()
        return False

    @property
    def is_free(self) -> bool:
        """Whether a message of some size can be sent without waiting."""
        return bool(self._outgoing.poll(0))


class Exchange:
    """The thread; it starts with the first line and ends with the last."""

    def __init__(self, owner: Owner) -> None:
        self._journal = owner.journal
        self._lines: set[Line] = set()
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._lock = threading.Lock()  # held while lines are served, or come and go
        self._thread: threading.Thread | None = None

    def add(self, line: Line) -> None:
        with self._lock:
            self._lines.add(line)
            self._selector.register(line, selectors.EVENT_READ, line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="fairway exchange", daemon=True)
                self._thread.start()

    def remove(self, line: Line) -> None:
        """Stop serving a line, so that it can be closed."""
        with self._lock:
            self._forget(line)

    def catch_up(self, line: Line) -> None:
        """Hear now what a worker has said so far, before its trial is ended by somebody else."""
        with self._lock:
            if line in self._lines and line.has_arrived:
                self.hear([line])

    def _forget(self, line: Line) -> None:
        if line in self._lines:
            self._lines.discard(line)
            self._selector.unregister(line)

    def _serve(self) -> None:
        clock, passed_on = self._journal.clock.ns, 0
        while True:
            ready = self._selector.select(NEWS_SECONDS)
            with self._lock:
                if not self._lines:
                    self._thread = None
                    return
                lines = [key.data for key, _ in ready if key.data in self._lines]
                try:
                    self.hear(lines)
                    if clock() - passed_on >= NEWS_SECONDS * 1e9:
                        passed_on = clock()
                        self.pass_on(self._lines)
                except Exception as error:  # noqa: BLE001 - above all, that the log cannot be written
                    for line in list(self._lines):
                        self._forget(line)
                        line.inbox.put(error)

    def hear(self, lines: Sequence[Line]) -> None:
        """Write what lines report, then tell their hands which trials are done or are being checked."""
        reported: list[Reported | Saved] = []
        said: list[tuple[Line, Checking | Trouble | Done | None]] = []
        for line in lines:
            try:
                messages = line.receive()
            except (EOFError, OSError) as error:
                self._forget(line)
                line.inbox.put(error)
                continue
            for message in messages:
                if isinstance(message, Reports):
                    reported += message.events
                    if any(isinstance(event, Saved) for event in message.events):
                        said.append((line, None))  # so that its hand looks which checkpoints are worth keeping
                else:
                    said.append((line, message))
        try:
            if reported:
                self._journal.post(*reported)
        finally:  # a trial that is done is told, or kept, whatever becomes of the reports
            for line, message in said:
                line.inbox.put(message)

    def pass_on(self, lines: Iterable[Line]) -> None:
        """Send each worker what it has not seen."""
        roster = self._journal.roster
        self._journal.keep_up()
        for line in lines:
            if roster.has_news(line.worker) and line.is_free:
                with self._journal.lock:
                    news = News(*roster.news(line.worker, self._journal.position))
                with contextlib.suppress(OSError):  # its death is noticed when it is read
                    line.send(news)
