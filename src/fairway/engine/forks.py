"""What a forked child inherits and may not use: a running trial is its parent's, and so are the threads behind a study.

A lock that one of those threads held at the moment of the fork would stay locked in the child for ever.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Something of a process that its forked children get a copy of."""

    def disown(self) -> None:
        """Make the copy in a child harmless."""


_alive: weakref.WeakSet[Inherited] = weakref.WeakSet()


def disowned_by_children(one: Inherited) -> None:
    """Have this disowned in every child that the process forks from now on."""
    _alive.add(one)


def _disown_all() -> None:
    for one in list(_alive):
        one.disown()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_disown_all)
