"""How long a run, each of its trials and each check may take, and what is said if one takes longer.

A trial past its time is first asked to stop, by its next report. A worker in another process that does not listen is
killed after a grace period. In this process nothing can be killed, so the run says what it waits for.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import NamedTuple

from fairway.checks import positive, short
from fairway.engine.checker import slow_check
from fairway.engine.driver import Driver
from fairway.errors import UsageError
from fairway.logs import logger
from fairway.runners.repeating import repeating

GRACE_SECONDS = 5.0
"""The time that a trial past its time has to report before its worker is killed; or two of its steps, if longer."""

_NOTICE_SECONDS = 1.0  # past the time, before it is said that the run waits
_LOOK_SECONDS = 0.2  # between looks whether it does


class Allowance(NamedTuple):
    """The seconds that a trial may take, why it ends after them, and the seconds for each of its checks."""

    seconds: float
    reason: str
    check_seconds: float

    def impose(self, driver: Driver, on_check: Callable[[str], object] | None) -> None:
        """Make a trial's reports enforce it, and tell `on_check` of each check as it begins and ends."""
        driver.expire(self.seconds, self.reason)
        driver.limit_checks(self.check_seconds, on_check)


class Times:
    """The times of one run."""

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        timeout: float | None,
        until: str | datetime | None,
        trial_timeout: float | None,
        check_timeout: float | None,
    ) -> None:
        self._clock = clock
        self._timeout = _seconds(timeout, "timeout")
        self.overtime = f"the timeout of {self._timeout:g} s has passed"
        """The sentence for a run whose time has passed."""
        if until is not None:
            now = datetime.now()  # noqa: DTZ005 - the user's clock on the wall
            end, left = moment(until, now), math.inf
            with contextlib.suppress(OverflowError, ValueError):  # at the end of the calendar
                left = end.timestamp() - now.timestamp()
            if left < self._timeout:
                said = f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"
                self._timeout, self.overtime = left, f"it is {said}, when the run was to end"
        self._trial_timeout = _seconds(trial_timeout, "trial_timeout")
        self._check_timeout = _seconds(check_timeout, "check_timeout")
        self._end = clock() + self._timeout * 1e9

    @property
    def are_set(self) -> bool:
        """Whether any time limit is set."""
        return min(self._timeout, self._trial_timeout, self._check_timeout) < math.inf

    @property
    def are_over(self) -> bool:
        """Whether the run's own time has passed."""
        return self._clock() >= self._end

    @property
    def left(self) -> float:
        """The seconds that the run has left; infinite if it may take any time."""
        return max((self._end - self._clock()) / 1e9, 0.0)

    def allow(self) -> Allowance:
        """The allowance of a trial that begins now."""
        each = self._trial_timeout
        run, trial = ((self._end - self._clock()) / 1e9, self.overtime), (each, f"longer than trial_timeout={each:g} s")
        return Allowance(*min(run, trial), self._check_timeout)

    def watch(self, allowance: Allowance) -> Watch:
        """The watch over a trial that begins now."""
        return Watch(self._clock, allowance)


class Watch:
    """The time of one running trial, and what it does with it."""

    def __init__(self, clock: Callable[[], int], allowance: Allowance) -> None:
        self._clock, self._allowance, self._began = clock, allowance, clock()
        self._check: tuple[str, int] | None = None  # the constraint that it checks, and since when

    def note_check(self, metric: str) -> None:
        """A check of this constraint begins; empty: it has ended."""
        self._check = (metric, self._clock()) if metric else None

    @property
    def doing(self) -> str:
        """What the trial does now."""
        check = self._check
        return f"its check of {check[0]!r}" if check is not None else "its training, which reports nothing"

    def overdue(self) -> tuple[float, str]:
        """By how many seconds the trial, or its check, is past its time (less than 0: it is not), and why."""
        now, check = self._clock(), self._check
        late = (now - self._began) / 1e9 - self._allowance.seconds, self._allowance.reason
        if check is None:
            return late
        metric, began = check
        limit = self._allowance.check_seconds
        return max(late, ((now - began) / 1e9 - limit, slow_check(metric, limit)))

    def waits(self, number: int) -> str:
        """A sentence that says what the run waits for if the trial is past its time; else empty."""
        seconds, why = self.overdue()
        if seconds < _NOTICE_SECONDS:
            return ""
        return (
            f"trial {number} is past its time ({why}): the run waits for {self.doing}, "
            "and cannot end it in this process; with backend='process' it can"
        )


def speaking_up(waits: Callable[[], Sequence[str]]) -> AbstractContextManager[None]:
    """Log during the block what the run waits for, each sentence once."""
    said: set[str] = set()

    def look() -> None:
        for sentence in waits():
            if sentence not in said:
                said.add(sentence)
                logger.warning("%s", sentence)

    return repeating(look, _LOOK_SECONDS, "times")


def moment(until: str | datetime, now: datetime) -> datetime:
    """The local time that `until` names: a time of day, tomorrow's if today's has passed, or a date with a time.

    >>> from datetime import datetime
    >>> now = datetime(2026, 3, 1, 17, 0)
    >>> str(moment("18:30", now)), str(moment("09:15", now))
    ('2026-03-01 18:30:00', '2026-03-02 09:15:00')
    """
    found = until if isinstance(until, datetime) else None
    if isinstance(until, str):
        for form in ("%H:%M", "%H:%M:%S"):
            with contextlib.suppress(ValueError):
                found = datetime.combine(now, datetime.strptime(until, form).time())  # noqa: DTZ007 - local
                found += timedelta(days=found <= now)
        with contextlib.suppress(ValueError):
            found = found or datetime.fromisoformat(until)
    if found is None:
        raise UsageError(f"until={short(until)}: a time of day such as '18:30', or a datetime, is expected")
    with contextlib.suppress(OverflowError, ValueError):
        found = found if found.tzinfo is None else found.astimezone()
    found = found.replace(tzinfo=None)
    if found <= now:
        raise UsageError(f"until={short(until)}: it is {now:%Y-%m-%d %H:%M} now, and a later time is expected")
    return found


def _seconds(given: float | None, name: str) -> float:
    return positive(math.inf if given is None else given, name, what="number of seconds")
