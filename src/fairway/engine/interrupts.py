"""Delay Ctrl-C until a safe moment: a write to the log is finished first."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` turns numbers into enums and back, ten times the work
import threading
from types import FrameType
from weakref import WeakSet

_holding: WeakSet[uninterrupted] = WeakSet()  # the blocks that hold back a Ctrl-C


def is_pending() -> bool:
    """Whether a Ctrl-C is held back until a block that must not be interrupted is over."""
    return bool(_holding)


class uninterrupted:  # noqa: N801 - used like a function; a generator would take three times as long, for every write
    """Hold back a first Ctrl-C until the block is over; a second one comes through at once."""

    __slots__ = ("__weakref__", "_pressed", "_previous")

    def __enter__(self) -> None:
        self._pressed: list[tuple[int, FrameType | None]] = []
        is_main = threading.current_thread() is threading.main_thread()  # other threads are never interrupted
        self._previous = _signal.getsignal(_signal.SIGINT) if is_main else None
        if callable(self._previous):  # not ignored, the system's default, or not set from Python
            _signal.signal(_signal.SIGINT, self._hold)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            _signal.signal(_signal.SIGINT, self._previous)  # here, since `__exit__` itself may be what is interrupted
            raise KeyboardInterrupt
        self._pressed.append((number, frame))
        _holding.add(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if not callable(self._previous):
            return
        _signal.signal(_signal.SIGINT, self._previous)
        if self._pressed:
            _holding.discard(self)
            self._previous(*self._pressed[0])
