"""The course of every trial, by number, in a tenth of the memory: trials that have ended are kept packed, as JSON.

A study may have a million trials, and hardly any of them is read again. A block of trials is packed once all of them
have ended, and unpacked when one of them is read.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, overload

from fairway.engine.course import Course
from fairway.feasibility import Checkpoint

BLOCK = 256
"""The number of trials that are packed together."""

_UNPACKED = 64  # the most blocks that stay unpacked after they were read
NAMES = tuple(item.name for item in fields(Course))
"""The fields that are kept of a trial, in this order."""

_VALUES = attrgetter(*NAMES)
_CHECKPOINTS = tuple(NAMES.index(name) for name in ("checkpoint", "peak", "late"))
_OCTAVES, _LOWS, _HALFWAY, _MEANS, _FRONT = (
    NAMES.index(name) for name in ("by_octave", "lows", "halfway", "means", "front")
)


Block = list[Course] | bytes | Callable[[], bytes]
"""Trials unpacked; packed; or packed elsewhere, to be fetched when they are read."""


class Courses(Sequence[Course]):
    """A list of courses; replace one that has ended instead of changing it."""

    def __init__(self, blocks: Sequence[Block] = (), length: int = 0, running: Mapping[int, int] | None = None) -> None:
        self._blocks = list(blocks)
        self._length = length
        self._running = dict(running or {})  # the number of trials that have not ended, by open block
        self._sealed_last: tuple[int, Sequence[Course]] = -1, ()  # the block packed last, and its trials: read often

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> Course: ...
    @overload
    def __getitem__(self, number: slice) -> list[Course]: ...
    def __getitem__(self, number: int | slice) -> Course | list[Course]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self._length))]
        if not -self._length <= number < self._length:
            raise IndexError(number)
        block, place = divmod(number % self._length, BLOCK)
        return self._block(block)[place]

    def __iter__(self) -> Iterator[Course]:
        for block in range(len(self._blocks)):
            yield from tuple(self._block(block))

    def append(self, course: Course) -> None:
        """Add a running trial."""
        block = self._length // BLOCK
        if block == len(self._blocks):
            self._blocks.append([])
        self._unsealed(block).append(course)
        self._running[block] = self._running.get(block, 0) + 1
        self._length += 1

    def replace(self, number: int, course: Course) -> None:
        """Replace a trial's course; either both courses are running or neither is."""
        self._unsealed(number // BLOCK)[number % BLOCK] = course
        self._seal(number // BLOCK)

    def end(self, number: int) -> None:
        """Note that a trial has ended."""
        self._running[number // BLOCK] -= 1
        self._seal(number // BLOCK)

    def resume(self, number: int, course: Course) -> None:
        """Let a trial that had ended run again, with this course."""
        self._unsealed(number // BLOCK)[number % BLOCK] = course
        self._running[number // BLOCK] = self._running.get(number // BLOCK, 0) + 1

    def still(self) -> Courses:
        """A snapshot; the running trials are shared."""
        blocks = [list(block) if isinstance(block, list) else block for block in self._blocks]
        return Courses(blocks, self._length, self._running)

    def packed(self) -> list[bytes]:
        """Every block, packed; running trials as they are now."""
        return [pack(block) if isinstance(block, list) else self._packed(i) for i, block in enumerate(self._blocks)]

    def _packed(self, i: int) -> bytes:
        """A packed block, fetched if it was packed elsewhere."""
        block = self._blocks[i]
        assert not isinstance(block, list)
        if callable(block):
            block = self._blocks[i] = block()
        return block

    def _block(self, i: int) -> Sequence[Course]:
        block = self._blocks[i]
        if isinstance(block, list):
            return block
        if i == self._sealed_last[0]:
            return self._sealed_last[1]
        return unpack(self._packed(i))

    def _unsealed(self, i: int) -> list[Course]:
        block = self._blocks[i]
        if not isinstance(block, list):
            block = self._blocks[i] = list(self._block(i))
            self._running.setdefault(i, 0)
        return block

    def _seal(self, i: int) -> None:
        block = self._blocks[i]
        if isinstance(block, list) and len(block) == BLOCK and not self._running[i]:
            self._blocks[i], self._sealed_last = pack(block), (i, block)
            del self._running[i]


def pack(courses: Sequence[Course]) -> bytes:
    """Courses as compressed JSON."""
    rows = [to_json(course) for course in courses]
    return zlib.compress(json.dumps(rows, check_circular=False, separators=(",", ":")).encode(), 1)


@lru_cache(_UNPACKED)
def unpack(packed: bytes) -> tuple[Course, ...]:
    """The courses that `pack` packed."""
    return tuple(from_json(row) for row in json.loads(zlib.decompress(packed)))


def to_json(course: Course) -> list[Any]:
    """A course as plain values in the order of its fields; a peak or late check that equals the checkpoint is 0."""
    row = list(_VALUES(course))
    first = row[_CHECKPOINTS[0]]
    for i in _CHECKPOINTS[1:]:
        if row[i] is not None and row[i] == first:
            row[i] = 0
    row[_OCTAVES] = [*course.by_octave.items()]
    row[_LOWS] = [*course.lows.items()]
    row[_MEANS] = [*course.means.items()]
    return row


def from_json(row: list[Any]) -> Course:
    """The course that `to_json` wrote."""
    for i in _CHECKPOINTS:
        row[i] = row[_CHECKPOINTS[0]] if row[i] == 0 else row[i] and checkpoint(row[i])
    row[_OCTAVES] = {octave: checkpoint(one) for octave, one in row[_OCTAVES]}
    row[_LOWS] = {octave: tuple(low) for octave, low in row[_LOWS]}
    row[_HALFWAY] = row[_HALFWAY] and tuple(row[_HALFWAY])
    row[_MEANS] = dict(row[_MEANS])
    row[_FRONT] = tuple(checkpoint(one) for one in row[_FRONT])
    return Course(*row)


def checkpoint(row: Sequence[Any]) -> Checkpoint:
    """A checkpoint from its plain values."""
    step, objective, values, noise, folds, of, errors = row
    return Checkpoint(step, objective, tuple(values), noise, folds, of, tuple(errors))
