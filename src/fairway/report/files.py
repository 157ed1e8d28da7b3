"""Files that a user asked for: written whole, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

from fairway.errors import UsageError


def write(path: str | Path, content: bytes) -> int:
    """Write a file and return its size in bytes."""
    try:
        return Path(path).write_bytes(content)
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{str(path)!r} could not be written: {why}") from error
