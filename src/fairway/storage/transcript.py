"""Keeps in memory what a process has read from a log or written to it, so that the log can be written again.

The events are kept as the database has them, as JSON, and compressed: about a hundred bytes each. A study that was
opened from a snapshot has not read the events before the snapshot; a thread reads them, a few at a time.
"""

from __future__ import annotations

import threading
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from fairway.engine.awaited import Awaited
from fairway.errors import StorageError, Unreachable

_CHUNK = 1 << 18  # characters that are compressed together
_AT_ONCE, _PAUSE_SECONDS = 500, 0.02  # events read at a time in the background, and the pause after


class Source(Protocol):
    """A log whose events can be read as JSON."""

    def bodies(self, since: int, most: int) -> Sequence[str]:
        """Some events from a position on."""


class Transcript:
    """The events of a log as JSON, from the first one on.

    >>> transcript = Transcript()
    >>> transcript.add(0, ["{}", "[]"]), transcript.add(1, ["[]", "{1}"])  # one of them is known
    (True, True)
    >>> transcript.add(7, ["{7}"])  # those before it are not
    False
    >>> len(transcript), list(transcript)
    (3, ['{}', '[]', '{1}'])
    """

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._fresh: list[str] = []
        self._characters = self._length = 0
        self._lock = threading.Lock()
        self._filling = False  # a thread reads what is missing

    def __len__(self) -> int:
        return self._length

    def add(self, position: int, bodies: Sequence[str]) -> bool:
        """Keep events that were read or written at a position; False, and none is kept, if earlier ones are missing."""
        with self._lock:
            if position > self._length:
                return False
            for body in bodies[self._length - position :]:
                self._fresh.append(body)
                self._length += 1
                self._characters += len(body)
                if self._characters > _CHUNK:
                    self._packed.append(zlib.compress("\0".join(self._fresh).encode(), 1))  # never in JSON
                    self._fresh, self._characters = [], 0
            return True

    def note(self, log: Source, position: int, bodies: Sequence[str]) -> None:
        """Keep events of a log; if earlier ones are missing, a thread reads all of them while the log is in use."""
        if self.add(position, bodies):
            return
        with self._lock:
            started, self._filling = self._filling, True
        if not started:
            source = weakref.ref(log)
            threading.Thread(target=self._fill, args=(source,), name="fairway transcript", daemon=True).start()

    def _fill(self, source: weakref.ref[Source]) -> None:
        work, more = Awaited(), True
        while more:
            with work:
                more = self._read_on(source)
            time.sleep(_PAUSE_SECONDS)
        work.dismiss()

    def _read_on(self, source: weakref.ref[Source]) -> bool:
        """Read a few more events, if the log is still in use; whether there is more to read."""
        log = source()
        if log is None:
            return False
        try:
            found = log.bodies(self._length, _AT_ONCE)
        except Unreachable:
            return True  # it may be back at the next look
        except StorageError:  # it is gone, or damaged: whoever uses the study will be told
            return False
        self.add(self._length, found)
        self._filling = len(found) == _AT_ONCE
        return self._filling

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            packed, fresh = list(self._packed), list(self._fresh)
        for chunk in packed:
            yield from zlib.decompress(chunk).decode().split("\0")
        yield from fresh
