"""Writes the checkpoints of one trial, in whichever process it runs, so that no other process ever sees half of one.

A checkpoint is written under a temporary name and then renamed, so a partial one that a kill leaves behind is never
taken for a checkpoint. If the disk fails, only the checkpoint is lost; the trial and the search continue.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fairway.checks import short
from fairway.errors import UsageError

Written: TypeAlias = str | os.PathLike[str] | Callable[[Path], Any]
"""What `trial.save` takes."""

_DISK_ERRORS = {
    getattr(errno, name, -1)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EACCES", "EPERM", "EROFS", "EIO", "ESTALE", "ENODEV", "ETIMEDOUT")
}
_FULL = 1 << 20  # bytes: a disk with less than this left counts as full
_PART = ".part-"
_NAME = re.compile(rf"(?:{re.escape(_PART)})?trial-(\d+)-step-(\d+)-([0-9a-f]{{8}})(?:\.[^/]*)?")


class Place(NamedTuple):
    """Where a trial saves, and what it may continue: the step and the path of each checkpoint, the latest first."""

    folder: str
    token: str  # of the owner's process, so that no two studies ever write the same file
    resumable: Sequence[tuple[int, str]] = ()


class Name(NamedTuple):
    """The parts of a checkpoint's name."""

    number: int
    step: int
    token: str


def name_of(path: str | os.PathLike[str]) -> Name | None:
    """The parts of a checkpoint's name, also of a half-written one; None if fairway did not give it.

    >>> name_of("models/trial-7-step-12-3f9a1c2e.pt")
    Name(number=7, step=12, token='3f9a1c2e')
    >>> name_of("models/final.pt") is None
    True
    """
    found = _NAME.fullmatch(Path(path).name)
    return None if found is None else Name(int(found[1]), int(found[2]), found[3])


def there(path: str, folder: str | os.PathLike[str]) -> Path | None:
    """Where a checkpoint is: at its path, or in the folder if it was moved there; None if it is gone."""
    for place in (Path(path), Path(folder) / Path(path).name):
        try:
            if place.exists():
                return place
        except (OSError, ValueError):
            continue
    return None


def delete(path: Path) -> None:
    """Delete a file or a folder; one that is gone already is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Saver:
    """Saves for one trial.

    `on_saved` is called with the step and the path of each checkpoint, `on_trouble` with a sentence about a disk that
    fails.
    """

    def __init__(
        self,
        number: int,
        place: Place,
        on_saved: Callable[[int, str], object],
        on_trouble: Callable[[str], object],
    ) -> None:
        self._number, self._place, self._on_saved, self._on_trouble = number, place, on_saved, on_trouble
        self._last = ""
        self.continued = 0  # the step of the checkpoint that training continues

    @property
    def _folder(self) -> Path:
        """The folder to save in; the `Path` is made when it is needed, as most trials save nothing."""
        return Path(self._place.folder)

    @property
    def last(self) -> Path | None:
        """The last checkpoint that the trial saved; None before the first."""
        return there(self._last, self._folder) if self._last else None

    def found(self) -> tuple[int, Path] | None:
        """The checkpoint to continue from, with its step: the latest that this process can see."""
        for step, path in self._place.resumable:
            place = there(path, self._folder)
            if place is not None:
                return step, place
        return None

    def save(self, what: Written, step: int, suffix: str | None) -> Path | None:
        """Write a checkpoint and return its path; None if the disk fails."""
        source = None if callable(what) else self._checked(what)
        suffix = self._suffix(source, suffix)
        final = self._folder / f"trial-{self._number}-step-{step}-{self._place.token}{suffix}"
        part = final.with_name(_PART + final.name)
        try:
            why = self._write(what, part) or _rename(part, final)
        except BaseException:
            _forget(part)
            raise
        if why:
            _forget(part)
            self._on_trouble(f"a checkpoint could not be saved in {self._folder} ({why}); the search goes on without")
            return None
        self._last = str(final)
        self._on_saved(step, str(final))
        return final

    def _write(self, what: Written, part: Path) -> str:
        """Write the checkpoint under its temporary name; return why the disk refused, or an empty string."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            delete(part)
            if not callable(what):
                _copy(Path(what), part)
        except OSError as error:
            return str(error)
        return self._call(what, part) if callable(what) else ""

    def _call(self, write: Callable[[Path], Any], part: Path) -> str:
        """Have the user's function write; return why the disk refused, or an empty string."""
        try:
            write(part)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _DISK_ERRORS or _is_full(self._folder):
                return str(error)
            error.add_note(f"raised by the function that trial.save of trial {self._number} called")
            raise
        if part.exists():
            return ""
        beside = [each for each in self._folder.iterdir() if each.name.startswith(f"{part.name}.")]
        hint = f": pass suffix={beside[0].name.removeprefix(part.name)!r}, which it adds" if beside else ""
        for each in beside:
            _forget(each)
        raise UsageError(
            f"trial {self._number}: the function that trial.save called wrote nothing to the path that it got{hint}"
        )

    def _checked(self, what: Any) -> Path:
        if not isinstance(what, str | os.PathLike):
            raise UsageError(
                f"trial {self._number}: save({short(what)}): the path of a file or folder is expected, or a function "
                "that writes to the path it is called with"
            )
        source = Path(what)
        if not str(what) or not source.exists():
            raise UsageError(
                f"trial {self._number}: save({short(str(what))}): there is no such file or folder; write it first, or "
                "pass a function that writes to the path it is called with"
            )
        if self._folder.resolve().is_relative_to(source.resolve()):
            raise UsageError(
                f"trial {self._number}: save({short(str(what))}): that folder holds the folder of all checkpoints, "
                f"{self._folder}; save a folder with one checkpoint in it"
            )
        return source

    def _suffix(self, source: Path | None, suffix: str | None) -> str:
        if suffix is None:
            return "" if source is None else source.suffix
        if not isinstance(suffix, str) or suffix and (not suffix.startswith(".") or "/" in suffix or "\\" in suffix):
            raise UsageError(
                f"trial {self._number}: save(suffix={short(suffix)}): an ending such as '.npy' is expected"
            )
        return suffix


def _copy(source: Path, part: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, part)
    else:
        shutil.copyfile(source, part)


def _rename(part: Path, final: Path) -> str:
    """Give a checkpoint its final name; return why the disk refused, or an empty string."""
    try:
        if final.is_dir():  # saved twice at this step
            shutil.rmtree(final)
        part.replace(final)
    except OSError as error:
        return str(error)
    return ""


def _is_full(folder: Path) -> bool:
    """Whether the disk is full, whatever a library raises then: torch raises a RuntimeError."""
    try:
        return shutil.disk_usage(folder).free < _FULL
    except OSError:
        return False


def _forget(part: Path) -> None:
    """Delete what was half-written, if the disk lets us."""
    with contextlib.suppress(OSError):
        delete(part)
