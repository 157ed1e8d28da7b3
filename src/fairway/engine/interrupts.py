"""Delay Ctrl-C until a safe moment: a write to the log is finished first."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` turns numbers into enums and back, ten times the work
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_held: list[int] = []  # one entry while a Ctrl-C is held back


def is_pending() -> bool:
    """Whether a Ctrl-C is held back until a block that must not be interrupted is over."""
    return bool(_held)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back a first Ctrl-C until the block is over; a second one comes through at once."""
    if threading.current_thread() is not threading.main_thread():  # other threads are never interrupted
        yield
        return
    held: list[tuple[int, FrameType | None]] = []

    def hold(number: int, frame: FrameType | None) -> None:
        if held:
            raise KeyboardInterrupt
        held.append((number, frame))
        _held.append(number)

    previous = _signal.getsignal(_signal.SIGINT)
    if not callable(previous):  # ignored, the system's default, or not set from Python
        yield
        return
    _signal.signal(_signal.SIGINT, hold)
    try:
        yield
    finally:
        _signal.signal(_signal.SIGINT, previous)
        if held:
            _held.pop()
            previous(*held[0])
