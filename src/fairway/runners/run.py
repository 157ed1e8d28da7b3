"""What the workers of one `optimize` share: how much is to be done and in what time, how much is done, why it ends."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from fairway.checks import positive, whole
from fairway.engine.owner import Owner
from fairway.errors import FairwayError, SpaceExhausted, StudyFailed, UsageError
from fairway.runners.evaluate import describe

logger = logging.getLogger("fairway")

_HOPELESS = 3  # so many failures before any success, and the function is broken rather than unlucky


class Outcome(NamedTuple):
    """What became of one trial; `again`: it was lost with its worker and will be tried again."""

    number: int
    failed: bool = False
    error: BaseException | None = None
    caught: bool = False  # the error is one that fails its trial and no more
    again: bool = False


class Hand(Protocol):
    """What runs one trial after another."""

    def ready(self) -> bool:
        """Be able to run a trial, which may take time; False if the run is over first."""

    def run_one(self) -> Outcome:
        """Run a trial to its end."""

    def cut(self) -> None:
        """The run ends before its time: end the trial that runs, soon."""

    def abandon(self) -> None:
        """End it at once."""

    def close(self) -> None:
        """There are no more trials."""


class Judge:
    """Has the search judged after each trial of a run; a verdict to stop from before the run has been overruled by it.

    What other owners of the study with the same terminator were told counts too.
    """

    def __init__(self, owner: Owner) -> None:
        verdicts = owner.verdicts_since(0)
        self._heard, self._overruled = len(owner.ledger.verdicts), bool(verdicts) and verdicts[-1].stop
        self.reason = ""  # to begin no more trials

    def ask(self, owner: Owner) -> None:
        """A trial of this owner has finished."""
        owner.judge()
        heard, self._heard = self._heard, len(owner.ledger.verdicts)
        for said in owner.verdicts_since(heard):
            if not said.stop:
                self._overruled = False
            elif not self._overruled:
                self.reason = said.reason


class Run:
    """One call of `optimize`."""

    def __init__(
        self,
        owner: Owner,
        *,
        trials: int | None,
        timeout: float | None,
        trial_timeout: float | None,
        retry: int,
        catch: type[Exception] | tuple[type[Exception], ...],
    ) -> None:
        if trials is None and timeout is None:
            raise UsageError("optimize: say when to end, with trials=, timeout= or both")
        self.trials = None if trials is None else whole(trials, "trials")
        self._timeout = math.inf if timeout is None else positive(timeout, "timeout", what="number of seconds")
        self._each = math.inf
        if trial_timeout is not None:
            self._each = positive(trial_timeout, "trial_timeout", what="number of seconds")
        self.retry = whole(retry, "retry", least=0)
        self.catch = catch if isinstance(catch, tuple) else (catch,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in self.catch):
            raise UsageError(f"catch={catch!r}: an exception class or a tuple of them is expected")
        self._owner = owner
        self.hands: Sequence[Hand] = ()
        self._clock = owner.clock.ns
        self._end = self._clock() + self._timeout * 1e9
        self._lock = threading.Lock()
        self._begun = self._done = self._failed = 0
        self._exhausted = ""  # that there is nothing left to try
        self._judge = Judge(owner)
        self.ending = ""  # why it ends before its time
        self.error: BaseException | None = None  # the first that ended it

    def work(self, hand: Hand) -> None:
        """Run trials with one hand until there is a reason to end."""
        try:
            while hand.ready() and self._take():
                self._count(hand.run_one())
        except SpaceExhausted as error:
            self._exhausted = str(error)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self.stop("interrupted" if interrupted else f"the run was ended by {describe(error)}", error)
            raise
        finally:
            hand.close()

    def stop(self, why: str, error: BaseException | None = None) -> None:
        """End before the time: what runs is cut."""
        with self._lock:
            if self.ending:
                return
            self.ending, self.error = why, error
        for hand in self.hands:
            hand.cut()

    def left(self) -> tuple[float, str]:
        """The seconds that a trial may take if it begins now, and why it ends after them."""
        whole_run = ((self._end - self._clock()) / 1e9, self._overtime)
        return min(whole_run, (self._each, f"longer than trial_timeout={self._each:g} s"))

    @property
    def _overtime(self) -> str:
        return f"the timeout of {self._timeout:g} s has passed"

    @property
    def reason(self) -> str:
        """Why it ended, now that it has."""
        if self.ending:
            return self.ending
        if self._judge.reason:
            return self._judge.reason
        if self._done == self.trials:
            return "1 trial was run" if self.trials == 1 else f"{self.trials} trials were run"
        return self._exhausted or self._overtime

    @property
    def goes_on(self) -> bool:
        """Whether there is, as far as is known now, another trial to run."""
        over = self.ending or self._exhausted or self._judge.reason
        return not over and self._begun != self.trials and self._clock() < self._end

    def _take(self) -> bool:
        """Whether there is another trial to run; then it is taken."""
        with self._lock:
            taken = self.goes_on
            self._begun += taken
            return taken

    def _count(self, outcome: Outcome) -> None:
        """Count a trial; raise what ends the run.

        A mistake in using fairway is raised at once while nothing has succeeded, and fails its trial like any other
        after that; a log that cannot be written ends the run.
        """
        with self._lock:
            if outcome.again:
                self._begun -= 1
                return
            self._done += 1
            self._failed += outcome.failed
            counts = self._owner.counts
            succeeded = counts["completed"] + counts["stopped"] > 0
            hopeless = self._failed == self._done and (self._failed == _HOPELESS or self._done == self.trials)
            failed = self._failed
        if not outcome.failed:
            self._judge.ask(self._owner)
        error = outcome.error
        if error is not None:
            fatal = isinstance(error, FairwayError) and (not isinstance(error, UsageError) or not succeeded)
            if fatal or not outcome.caught:
                raise error
            logger.warning("trial %d failed: %s", outcome.number, describe(error))
            logger.debug("where trial %d failed", outcome.number, exc_info=error)
        if hopeless and not succeeded and not self.ending:
            how = "1 trial failed" if failed == 1 else f"{failed} trials failed"
            why = self._owner.ledger.courses[outcome.number].reason
            raise StudyFailed(f"{how} and none succeeded; the last one: {why}") from error


def write_down(write: Callable[..., object], *what: Any) -> None:
    """Write what can still be written, while another error is on its way to the user."""
    try:
        write(*what)
    except FairwayError as error:
        logger.warning("%s", error)
