"""Limits that training does not change, such as a model's size: learned from checks that were paid for anyway.

A limit is *steady* if its value never moved within a trial, was checked again in the same trial at twice the step or
later at least three times, and differs between trials: a gap that is 0 in every untrained model proves nothing. A
trial's value is then carried from a check to its later reports, up to four times the step of that check, and is checked
again after that. One check that finds it moved ends that for good. A report that may be the best is measured anyway.

What is known depends on which checks were seen, not on the order in which different trials' checks arrived.
"""

from __future__ import annotations

from typing import NamedTuple

_AGAIN = 2  # a check at this many times the last step says something new
_WITNESSES = 3
_CARRIED = 4  # a value is carried up to this many times the step of its check


class _Check(NamedTuple):
    step: int
    value: float


class Steadiness:
    """What a referee knows about how each constraint changes during training.

    >>> steadiness = Steadiness(1)
    >>> for trial in range(3):
    ...     for step in (1, 2):
    ...         steadiness.learn(trial, step, 0, value=5.0 + trial)
    >>> steadiness.steady, steadiness.carried(2, 8), steadiness.carried(2, 9)
    ([0], {0: 7.0}, {})
    """

    def __init__(self, constraints: int) -> None:
        self.steady: list[int] = []
        self._moved = [False] * constraints
        self._witnesses = [0] * constraints
        self._values: list[set[float]] = [set() for _ in range(constraints)]  # up to two different values
        self._checks: dict[int, dict[int, _Check]] = {}  # by running trial and constraint: the last new one

    def learn(self, number: int, step: int, constraint: int, value: float) -> None:
        """Learn from one check of a constraint."""
        checks = self._checks.setdefault(number, {})
        last = checks.get(constraint)
        if last is not None and last.value != value:
            self._moved[constraint] = True
        if len(self._values[constraint]) < 2:  # noqa: PLR2004
            self._values[constraint].add(value)
        if last is None or step >= _AGAIN * last.step:
            self._witnesses[constraint] += last is not None
            checks[constraint] = _Check(step, value)
        self.steady = [i for i in range(len(self._moved)) if self._is_steady(i)]

    def _is_steady(self, i: int) -> bool:
        return not self._moved[i] and self._witnesses[i] >= _WITNESSES and len(self._values[i]) > 1

    def unchecked(self, number: int) -> list[int]:
        """The steady constraints that a trial has not been checked for."""
        checks = self._checks.get(number, {})
        return [i for i in self.steady if i not in checks]

    def carried(self, number: int, step: int) -> dict[int, float]:
        """The values that hold for a trial's report without another check, by constraint."""
        checks = self._checks.get(number, {})
        return {i: checks[i].value for i in self.steady if i in checks and step <= _CARRIED * checks[i].step}

    def forget(self, number: int) -> None:
        """Forget the checks of a trial that has ended."""
        self._checks.pop(number, None)
