"""A trial's pace: how many steps it plans, and at which of them its constraints may be checked."""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    """A trial's total number of steps, and when its constraints may be checked.

    `interval` is the number of steps between checks. With `at_end` there is one check, when training ends, of the best
    checkpoint. `interval` is None where the total is unknown and the only check is at the end.

    >>> Pace(total=10, interval=4, at_end=False).allows(8, last=False)
    True
    """

    total: int | None
    interval: int | None
    at_end: bool

    def allows(self, step: int, *, last: bool) -> bool:
        """Whether constraints may be checked at a step."""
        return last or not self.at_end and step % (self.interval or 1) == 0
