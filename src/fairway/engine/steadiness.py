"""Limits that training does not change, such as a model's size: learned from checks that were paid for anyway.

A limit is *steady* once a trial was checked for it again at twice the step or later, three times or more, if it never
moved within a trial and differs between trials: a gap that is 0 in every untrained model proves nothing. Its value
is then carried from one check of a trial to the trial's later reports, up to four times as far, where it is checked
again. One check that finds it moved ends that for good. A report that may be the best is measured in any case.

What is known depends on which checks were seen, not on the order in which different trials' checks arrived.
"""

from __future__ import annotations

from typing import NamedTuple

_AGAIN = 2  # times later a check says something new
_WITNESSES = 3
_CARRIED = 4  # times as far as it was checked


class _Check(NamedTuple):
    step: int
    value: float


class Steadiness:
    """What a referee knows of each constraint's changes.

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
        self._values: list[set[float]] = [set() for _ in range(constraints)]  # two of those that trials had
        self._checks: dict[int, dict[int, _Check]] = {}  # the last of each running trial, by constraint

    def learn(self, number: int, step: int, constraint: int, value: float) -> None:
        """A constraint was checked."""
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
        """A trial has ended."""
        self._checks.pop(number, None)
