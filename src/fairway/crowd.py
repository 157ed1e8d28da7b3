"""Detects what else uses the machine while something is timed, and pins a measurement to some cores."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fairway.checks import short, whole
from fairway.errors import UsageError
from fairway.text import counted

_BUSY = 0.25  # the share of all cores that others must use before it is mentioned
_SHORTEST = 0.1  # seconds; the system counts in hundredths
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)  # of /proc/stat: user, nice, system, interrupts, and what a host gave to other guests
_runs: list[int] = []  # the workers of each run that this process takes part in


@contextmanager
def run_of(workers: int) -> Iterator[None]:
    """Record, during the block, that this process takes part in a run with this many workers."""
    _runs.append(workers)
    try:
        yield
    finally:
        _runs.remove(workers)  # any equal entry will do: runs of other threads may end in any order


def in_run() -> bool:
    """Whether this process takes part in a run, which then warns its user itself."""
    return bool(_runs)


class _Moment(NamedTuple):
    seconds: float
    busy: float | None  # seconds of all cores together; None where the system does not say
    own: float  # the part that this process used


class Watch:
    """Watches what else the machine does, from its creation on."""

    def __init__(self) -> None:
        self._began = _now()

    def company(self) -> str:
        """Who else used the machine, such as "beside 1 other worker"; empty if nobody did."""
        cores, others, workers = os.cpu_count() or 1, self._others(), sum(_runs)
        parts = [f"beside {counted(workers - 1, 'other worker')}"] if workers > 1 else []
        parts += [f"while others used {others:.1f} of {counted(cores, 'core')}"] if others > _BUSY * cores else []
        return ", ".join(parts)

    def _others(self) -> float:
        """The cores that others used, on average; 0 if that is not known."""
        began, now = self._began, _now()
        seconds = now.seconds - began.seconds
        if seconds < _SHORTEST:
            return 0.0
        if began.busy is None or now.busy is None:
            return os.getloadavg()[0] - 1.0 if hasattr(os, "getloadavg") else 0.0
        return (now.busy - began.busy - (now.own - began.own)) / seconds


def _now() -> _Moment:
    busy = None
    with contextlib.suppress(OSError, ValueError, IndexError):  # the file is missing, or has another format
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        busy = sum(int(fields[i]) for i in _BUSY_FIELDS) / os.sysconf("SC_CLK_TCK")
    return _Moment(time.monotonic(), busy, time.process_time())


def checked_cores(pin: Any) -> set[int] | None:
    """The cores to pin to, from one core or several; None for None."""
    if pin is None:
        return None
    several = isinstance(pin, Iterable) and not isinstance(pin, str | bytes)
    cores = {whole(core, "pin", least=0) for core in (pin if several else [pin])}
    if not hasattr(os, "sched_setaffinity"):
        raise UsageError(f"pin={short(pin)}: this system cannot keep a process to some cores; leave pin out")
    allowed = os.sched_getaffinity(0)
    if not cores or not cores <= allowed:
        there = ", ".join(map(str, sorted(allowed)))
        raise UsageError(f"pin={short(pin)}: some of the cores that this process may use are expected: {there}")
    return cores


@contextmanager
def pinned(cores: set[int] | None) -> Iterator[None]:
    """Pin all threads of this process to some cores during the block; None changes nothing."""
    if cores is None:
        yield
        return
    usual, before = os.sched_getaffinity(0), {thread: os.sched_getaffinity(thread) for thread in _threads()}
    try:
        for thread in before:
            _keep(thread, cores)
        yield
    finally:
        for thread in _threads():
            _keep(thread, before.get(thread, usual))  # a thread that began in the block was pinned too


def _threads() -> list[int]:
    try:
        return [int(thread) for thread in os.listdir("/proc/self/task")]  # noqa: PTH208
    except OSError:
        return [0]  # the calling one


def _keep(thread: int, cores: set[int]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.sched_setaffinity(thread, cores)
