"""Tells processes apart: a process number is reused, on this machine and in other containers."""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """This machine, boot and process namespace: where process numbers mean the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # not Linux
        return f"{socket.gethostname()} {uuid.getnode():x}"  # without a network, it differs in each process


def began(process: int) -> str | None:
    """When a process of this machine began, to tell it from others with its number; None if there is no such process.

    Empty if that cannot be known: without /proc and psutil, or for somebody else's process.

    >>> began(os.getpid()) == began(os.getpid()), began(2**22 + 1)
    (True, None)
    """
    if not isinstance(process, int) or process < 1:  # what a damaged database may say; kill would address a whole group
        return None
    try:
        state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]  # a zombie is over; the 22nd field is the start, in ticks after boot
    except (OSError, IndexError, ValueError):
        return _began_elsewhere(process)


def _began_elsewhere(process: int) -> str | None:
    """`began` without /proc."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except (OSError, OverflowError):  # it is there, and somebody else's
        return ""
    try:
        import psutil  # type: ignore[import-untyped]  # noqa: PLC0415 - optional
    except ImportError:
        return ""
    try:
        found = psutil.Process(process)
        return None if found.status() == psutil.STATUS_ZOMBIE else repr(found.create_time())
    except psutil.Error:
        return ""
