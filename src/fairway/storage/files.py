"""Checks that a database's file is still the one that was opened: it may be deleted or replaced while it is used.

A process that has a deleted file open can write to it without any error, and loses all of it when the process ends.
"""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa

from fairway.errors import StorageError

_HEADER = 100  # bytes

KEPT = (
    "all that was told is in memory: write it to another file with study.save_as('sqlite:///other.db'), and open that"
)
"""What a study's user can do about a database that is gone."""


def path_of(url: sa.URL) -> Path | None:
    """The file of a database; None if it is not a file of this machine."""
    if url.get_backend_name() != "sqlite" or not url.database:
        return None
    return Path(url.database).absolute()


def mark(path: Path) -> tuple[int, int]:
    """The identity of a file, which changes when the file is replaced; OSError if there is none."""
    found = path.stat()
    return found.st_dev, found.st_ino


class Presence:
    """The file that was opened, so that later looks can tell if it is still there."""

    def __init__(self, path: Path, shown: str) -> None:
        self._path, self._shown = path, shown
        self._name = str(path)
        self._size = 0  # at the last look
        try:
            self._opened: tuple[int, int] | None = mark(path)
        except OSError:  # a name that only SQLite understands, as in file:study.db?uri=true
            self._opened = None

    def check(self) -> None:
        """Raise an error if the file was deleted, replaced or truncated; a file that cannot be seen may be there."""
        if self._opened is None:
            return
        before = self._size  # at an earlier look: other threads may look at a growing file meanwhile
        try:
            found = os.stat(self._name)  # noqa: PTH116 - every ask and tell looks, and this takes half as long
            is_cut = found.st_size < before and found.st_size < _expected_size(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise StorageError(f"{self._shown} was deleted while the study ran; {KEPT}") from None
        except OSError:
            return
        if (found.st_dev, found.st_ino) != self._opened:
            raise StorageError(f"{self._shown} was replaced by another file while the study ran; {KEPT}")
        if is_cut:
            raise StorageError(f"{self._shown} was truncated while the study ran; {KEPT}")
        self._size = found.st_size


def _expected_size(path: Path) -> int:
    """The size of an SQLite file by its own header: VACUUM may shrink a file in good order."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    return max(pages * (65536 if page == 1 else page), _HEADER)
