"""Disown what a forked child inherits but must not use: running trials and a study's threads belong to the parent.

Otherwise, a lock that one of those threads held at the moment of the fork would stay locked in the child forever.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """An object that forked children get a copy of."""

    def disown(self) -> None:
        """Make the copy in a child harmless."""


_alive: weakref.WeakSet[Inherited] = weakref.WeakSet()


def disowned_by_children(one: Inherited) -> None:
    """Call `disown` in every child that the process forks from now on."""
    _alive.add(one)


def _disown_all() -> None:
    for one in list(_alive):
        one.disown()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_disown_all)
