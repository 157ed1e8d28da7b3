"""Work of background threads that the end of the process waits for.

SQLite moves what was written from the log beside a file into the file when the last connection to it is closed. A
thread that is at work while the interpreter ends never closes its own, and a copy of the file alone would lack it all.
"""

from __future__ import annotations

import _thread
import atexit
import os

_SECONDS = 5.0  # a database that does not answer must not keep the process alive


class Awaited:
    """Work that the end of this process waits for, if it is under way then; after that none begins.

    One thread may begin it and another end it. It is dismissed when nothing is left to do.

    >>> work = Awaited()
    >>> with work:
    ...     print("at work")
    at work
    >>> work.dismiss()
    """

    __slots__ = ("_lock", "_process")

    def __init__(self) -> None:
        self._lock, self._process = _thread.allocate_lock(), os.getpid()  # not `threading`: a finalizer may be here
        atexit.register(self._wait)  # before the connections of studies are closed: the last registered goes first

    def begin(self) -> None:
        """Be at work; once the process ends, this does not return."""
        self._lock.acquire()

    def end(self) -> None:
        """Be at rest."""
        self._lock.release()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *error: object) -> None:
        self.end()

    def dismiss(self) -> None:
        """Have the end of the process not wait any more."""
        atexit.unregister(self._wait)

    def _wait(self) -> None:
        if os.getpid() == self._process:  # in a child, whoever holds it is not there
            self._lock.acquire(timeout=_SECONDS)
