"""One thread for linear algebra, so that proposals do not depend on how many cores a machine has.

BLAS splits its work between threads, and another split rounds differently. Now and then such a difference leads a fit
to another optimum, and so to another proposal. At a few hundred points one thread is no slower.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


class _Blocks:
    """How many blocks run on one thread; the last to end lifts the limits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.limits: dict[bool, Any] = {}


_blocks = _Blocks()


@contextmanager
def one_thread() -> Iterator[None]:
    """Have BLAS use one thread during the block; several threads of Python may be inside at once.

    >>> with one_thread():
    ...     {library["num_threads"] for library in _controller(False).info() if library["user_api"] == "blas"} <= {1}
    True
    """
    with_scipy = "scipy.linalg" in sys.modules  # which brings a BLAS of its own
    with _blocks.lock:
        if with_scipy not in _blocks.limits:
            _blocks.limits[with_scipy] = _controller(with_scipy).limit(limits=1, user_api="blas")
        _blocks.running += 1
    try:
        yield
    finally:
        with _blocks.lock:
            _blocks.running -= 1
            while not _blocks.running and _blocks.limits:
                _blocks.limits.popitem()[1].restore_original_limits()


@cache
def _controller(with_scipy: bool) -> Any:
    """The controller of the threads of the libraries that are loaded by now."""
    del with_scipy
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - takes its time to load

    return ThreadpoolController()
