"""What the workers of one `optimize` share: what is left to do, in what time, and why the run ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from fairway.checks import flag, short, whole
from fairway.engine.owner import Owner
from fairway.errors import FairwayError, SpaceExhausted, StudyComplete, StudyFailed, UsageError
from fairway.logs import logger
from fairway.runners.doubts import Doubts
from fairway.runners.evaluate import describe
from fairway.runners.times import Times
from fairway.text import counted

_HOPELESS = 3  # failures before any success; after so many the function is broken rather than unlucky
_HOPELESS_NOW = 10  # the same in a run of a study in which trials succeeded before it


def _tell_nobody(number: int) -> None:
    """Do nothing when a trial has ended."""


class Outcome(NamedTuple):
    """How one trial ended."""

    number: int
    failed: bool = False
    error: BaseException | None = None
    caught: bool = False  # the error fails its trial and not the run
    again: bool = False  # lost with its worker, and to be tried again
    cut: bool = False  # ended because the run was over, which says nothing about the function


class Hand(Protocol):
    """Runs one trial after another."""

    def ready(self) -> bool:
        """Prepare to run a trial, which may take time; False if the run is over first."""
        return True

    def run_one(self) -> Outcome:
        """Run a trial to its end."""

    def waits(self) -> str:
        """A sentence that says that a trial is past its time and cannot be ended; empty if none is."""
        return ""

    def cut(self) -> None:
        """End the running trial soon: the run ends early."""

    def abandon(self) -> None:
        """End the running trial at once."""

    def close(self) -> None:
        """Clean up: there are no more trials."""


class Judge:
    """Asks the terminator after each trial of a run; starting the run has overruled an earlier verdict to stop.

    Verdicts given to other owners of the study with the same terminator count too.
    """

    def __init__(self, owner: Owner) -> None:
        verdicts = owner.verdicts.since(0)
        self._heard, self._overruled = len(owner.ledger.verdicts), bool(verdicts) and verdicts[-1].stop
        self.reason = ""  # why no more trials begin

    def ask(self, owner: Owner) -> None:
        """Have the terminator look at the study, after a trial of this owner has finished."""
        owner.verdicts.ask()
        heard, self._heard = self._heard, len(owner.ledger.verdicts)
        for verdict in owner.verdicts.since(heard):
            if not verdict.stop:
                self._overruled = False
            elif not self._overruled:
                self.reason = verdict.reason


class Run:
    """One call of `optimize`."""

    def __init__(
        self,
        owner: Owner,
        *,
        trials: int | None,
        total: int | None,
        timeout: float | None,
        until: str | datetime | None,
        trial_timeout: float | None,
        check_timeout: float | None,
        retry: int | None,
        catch: type[Exception] | tuple[type[Exception], ...],
        raise_on_failure: bool,
    ) -> None:
        if trials is None and total is None and timeout is None and until is None:
            raise UsageError("optimize: say when to end, with trials=, total=, timeout= or until=")
        self._most = None if trials is None else whole(trials, "trials")
        self.total = None if total is None else whole(total, "total")
        left = None if self.total is None else max(self.total - owner.ledger.ended_trials, 0)
        self.trials = min((n for n in (self._most, left) if n is not None), default=None)  # that it will make
        clock = owner.clock.ns
        seconds = {"timeout": timeout, "trial_timeout": trial_timeout, "check_timeout": check_timeout}
        self.times = Times(clock, until=until, **seconds)
        asked = None if retry is None else whole(retry, "retry", least=0)
        self.retry_lost = 1 if asked is None else asked  # how often a trial that lost its worker is tried again
        self.retry_late = asked or 0  # or one that was killed past its time
        self.catch = catch if isinstance(catch, tuple) else (catch,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in self.catch):
            raise UsageError(f"catch={short(catch)}: an exception class or a tuple of them is expected")
        flag(raise_on_failure, "raise_on_failure")
        self._raise_on_failure = raise_on_failure
        self._owner = owner
        self._lock = threading.Lock()
        self._begun = self.done = self._failed = 0
        self._exhausted = ""  # why there is nothing left to try
        self._judge, self._doubts = Judge(owner), Doubts(owner, self.trials)
        self.hands: Sequence[Hand] = ()
        self.on_trial_end: Callable[[int], object] = _tell_nobody  # called with the number of each trial that has ended
        self.ending = ""  # why it ends early
        self.error: BaseException | None = None  # the first that ended it

    def work(self, hand: Hand) -> None:
        """Run trials with one hand until there is a reason to end."""
        try:
            while hand.ready() and self._take():
                self._count(hand.run_one())
        except SpaceExhausted as error:
            self._exhausted = str(error)
        except StudyComplete:
            pass  # others may still run a trial, and try it again if it is lost
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self.stop("interrupted" if interrupted else f"the run was ended by {describe(error)}", error)
            raise
        finally:
            hand.close()

    def stop(self, why: str, error: BaseException | None = None) -> None:
        """End early: running trials are cut."""
        with self._lock:
            if self.ending:
                return
            self.ending, self.error = why, error
        for hand in self.hands:
            hand.cut()

    def conclude(self) -> None:
        """Warn why the run found nothing feasible, if that is so."""
        self._doubts.conclude(self.done)

    def interrupt(self) -> None:
        """End early at a Ctrl-C, without waiting for a database that is unreachable."""
        self._owner.journal.outage.hurry()
        self.stop("interrupted")

    def waits(self) -> list[str]:
        """What it waits for past the time, in sentences."""
        return [sentence for hand in self.hands if (sentence := hand.waits())]

    @property
    def reason(self) -> str:
        """Why it ended, now that it has."""
        done = ""
        if self.done == self._most:
            done = "1 trial was run" if self._most == 1 else f"{self._most} trials were run"
        elif self.total is not None and self._is_complete:
            done = f"the study has {counted(self._owner.ledger.different_trials, 'trial')}"
        return self.ending or self._judge.reason or done or self._exhausted or self.times.overtime

    @property
    def continues(self) -> bool:
        """Whether there is, as far as is known now, another trial to run."""
        over = self.ending or self._exhausted or self._judge.reason
        enough = self._begun == self._most or self._is_complete and not self._owner.ledger.running
        return not over and not enough and not self.times.are_over

    @property
    def _is_complete(self) -> bool:
        """Whether the study has all its trials, as far as is known; one may still run, and may have to run again."""
        return self.total is not None and not self._owner.ledger.has_room(self.total)

    def _take(self) -> bool:
        """Take another trial to run; False if there is none."""
        with self._lock:
            taken = self.continues
            self._begun += taken
            return taken

    def _count(self, outcome: Outcome) -> None:
        """Count a trial; raise an error that ends the run.

        With `raise_on_failure` that is the first failure. Otherwise a `UsageError` ends it while nothing has succeeded
        in this run, and after that fails its trial like any other error; any other error of fairway, such as a log that
        cannot be written, always ends it.
        """
        self.on_trial_end(outcome.number)
        with self._lock:
            if outcome.again:
                self._begun -= 1
                return
            self.done += 1
            self._failed += outcome.failed
            counts = self._owner.counts
            none = self._failed == self.done
            if counts["completed"] + counts["stopped"] > 0:
                hopeless = none and self._failed == _HOPELESS_NOW
            else:
                hopeless = none and (self._failed == _HOPELESS or self.done == self.trials)
            done, failed = self.done, self._failed
        self._doubts.look(done)
        self._doubts.hear(self._owner.ledger.courses[outcome.number].notes)
        if not outcome.failed:
            self._judge.ask(self._owner)
        error, course = outcome.error, self._owner.ledger.courses[outcome.number]
        at = f" ({course.raised_at})" if course.raised_at else ""
        if error is not None:
            fatal = isinstance(error, FairwayError) and (not isinstance(error, UsageError) or none)
            if fatal or not outcome.caught or self._raise_on_failure:
                raise error
            logger.warning("trial %d failed: %s%s", outcome.number, describe(error), at)
            logger.debug("where trial %d failed", outcome.number, exc_info=error)
        elif outcome.failed and not outcome.cut and not self.ending and not self._raise_on_failure:
            logger.warning("trial %d failed: %s", outcome.number, course.reason)
        if hopeless and not outcome.cut and not self.ending:
            how = "1 trial failed" if failed == 1 else f"{failed} trials failed"
            how += " in this run" if failed == _HOPELESS_NOW else ""
            raise StudyFailed(f"{how} and none succeeded; the last one: {course.reason}{at}") from error
        if outcome.failed and self._raise_on_failure and not outcome.cut and not self.ending:
            raise StudyFailed(f"trial {outcome.number} failed: {course.reason}")


def write_down(write: Callable[..., object], *what: Any) -> None:
    """Write to the log if that is possible, while another error is on its way to the user."""
    try:
        write(*what)
    except FairwayError as error:
        logger.warning("%s", error)
