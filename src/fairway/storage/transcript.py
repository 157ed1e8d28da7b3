"""What a process has read from a log or written to it, kept in memory: the log can be written again from that.

The events are kept as the database has them, as JSON, and compressed: about a hundred bytes each.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence

_CHUNK = 1 << 18  # letters that are compressed together


class Transcript:
    """The events of a log as JSON, from the first one on.

    >>> transcript = Transcript()
    >>> transcript.add(0, ["{}", "[]"])
    >>> transcript.add(1, ["[]", "{1}"])  # one of them is known
    >>> transcript.add(7, ["{7}"])  # those before it are not
    >>> len(transcript), list(transcript)
    (3, ['{}', '[]', '{1}'])
    """

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._fresh: list[str] = []
        self._letters = self._length = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._length

    def add(self, position: int, bodies: Sequence[str]) -> None:
        """Keep events that were read or written at a position; some may be known, and all before them must be."""
        with self._lock:
            if position > self._length:
                return
            for body in bodies[self._length - position :]:
                self._fresh.append(body)
                self._length += 1
                self._letters += len(body)
                if self._letters > _CHUNK:
                    self._packed.append(zlib.compress("\0".join(self._fresh).encode(), 1))  # which JSON has not
                    self._fresh, self._letters = [], 0

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            packed, fresh = list(self._packed), list(self._fresh)
        for chunk in packed:
            yield from zlib.decompress(chunk).decode().split("\0")
        yield from fresh
