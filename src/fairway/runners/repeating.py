"""Something that is done again and again while something else runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(act: Callable[[], object], seconds: float, name: str) -> Iterator[None]:
    """Call something every so many seconds in a thread during the block; whoever wants a last call makes it after."""
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
