"""Conformance suites for samplers, stoppers, terminators and storages of your own.

Each raises an AssertionError that says what does not hold.

>>> import fairway as fw
>>> from fairway.storage.memory import MemoryLog
>>> check_sampler(fw.Random())
>>> check_stopper(fw.ACE())
>>> check_terminator(fw.Plateau(30))
>>> check_storage(MemoryLog)
"""

from __future__ import annotations

from fairway.testing.samplers import MIXED, check_sampler, check_terminator
from fairway.testing.stoppers import check_stopper
from fairway.testing.storages import check_storage

__all__ = ["MIXED", "check_sampler", "check_stopper", "check_storage", "check_terminator"]
