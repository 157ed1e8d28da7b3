"""Calls a function again and again while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], object], seconds: float, name: str) -> Iterator[None]:
    """Call `act` every `seconds` seconds in a thread during the block; there is no last call at its end."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, name=f"fairway {name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
