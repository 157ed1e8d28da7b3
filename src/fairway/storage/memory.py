"""A log in memory: gone with its process.

Events are kept packed, except for the latest: hardly any is read again, and a million trials should fit.
"""

from __future__ import annotations

import pickle
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from fairway.engine.events import Event, Reported, claim
from fairway.engine.log import Log

_BLOCK = 512  # events that are packed together


class MemoryLog(Log):
    """Events in a list."""

    leases = None  # all its workers live in this one process

    def __init__(self) -> None:
        self._packed: list[bytes] = []  # the first events, by the block
        self._latest: list[Event] = []
        self._claims = _Claims()
        self._lock = threading.Lock()

    def __getstate__(self) -> list[Event]:
        return list(self.read())

    def __setstate__(self, events: list[Event]) -> None:
        self.__init__()  # type: ignore[misc]
        self.append(events)

    def append(self, events: Sequence[Event]) -> int | None:
        claims = [taken for event in events if (taken := claim(event)) is not None]
        with self._lock:
            if not self._claims.take(claims):
                return None
            self._latest.extend(events)
            while len(self._latest) >= 2 * _BLOCK:
                self._packed.append(_pack(self._latest[:_BLOCK]))
                del self._latest[:_BLOCK]
            return len(self._packed) * _BLOCK + len(self._latest)

    def read(self, since: int = 0, most: int | None = None) -> Sequence[Event]:
        with self._lock:
            packed, latest, before = self._packed, self._latest, len(self._packed) * _BLOCK
            until = before + len(latest) if most is None else since + most
            if since >= before:
                return latest[since - before : until - before]
            packed, latest = packed[since // _BLOCK : -(-until // _BLOCK)], latest[: max(until - before, 0)]
        first = since // _BLOCK * _BLOCK
        events = [event for block in packed for event in _unpack(block)][since - first : until - first]
        return [*events, *latest]

    def summary(self, since: int = 0) -> tuple[Sequence[Event], int]:
        events, position = list[Event](), since
        for event in self._walk(since):
            position += 1
            if not isinstance(event, Reported):
                events.append(event)
        return events, position

    def reports(self, numbers: Collection[int]) -> Sequence[Reported]:
        if not numbers:
            return []
        return [event for event in self._walk(0) if isinstance(event, Reported) and event.number in numbers]

    def _walk(self, since: int) -> Iterator[Event]:
        """The events from a position on, a block at a time."""
        while events := self.read(since, _BLOCK):
            yield from events
            since += len(events)


def _pack(events: Sequence[Event]) -> bytes:
    """Events, packed; arrays as bytes, since pickle takes long for small ones."""
    plain = []
    for event in events:
        values = [getattr(event, name) for name in event.__match_args__]
        arrays = [(i, value) for i, value in enumerate(values) if isinstance(value, np.ndarray)]
        for i, array in arrays:
            values[i] = array.tobytes(), array.dtype.char, array.shape
        plain.append((type(event), values, [i for i, _ in arrays]))
    return zlib.compress(pickle.dumps(plain, pickle.HIGHEST_PROTOCOL), 1)


def _unpack(packed: bytes) -> list[Event]:
    events = list[Event]()
    for kind, values, arrays in pickle.loads(zlib.decompress(packed)):  # noqa: S301 - our own, from this process
        for i in arrays:
            content, dtype, shape = values[i]
            values[i] = np.frombuffer(content, dtype).reshape(shape)
        events.append(kind(*values))
    return events


class _Claims:
    """The claims taken so far. Numbers are claimed nearly in order: all below some number are kept as that number."""

    def __init__(self) -> None:
        self._below: dict[str, int] = {}
        self._others: dict[str, set[int]] = {}

    def take(self, claims: Iterable[str]) -> bool:
        """Claim all or nothing; False if one is taken."""
        wanted = [(f"{kind} {' '.join(rest)}", int(number)) for kind, number, *rest in map(str.split, claims)]
        taken = any(n < self._below.get(kind, 0) or n in self._others.get(kind, ()) for kind, n in wanted)
        if taken or len(set(wanted)) < len(wanted):
            return False
        for kind, n in wanted:
            others, below = self._others.setdefault(kind, set()), self._below.get(kind, 0)
            others.add(n)
            while below in others:
                others.remove(below)
                below += 1
            self._below[kind] = below
        return True
