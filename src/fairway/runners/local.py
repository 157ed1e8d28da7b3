"""Runs trials in this process, in whichever thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairway.engine.interrupts import uninterrupted
from fairway.engine.owner import Owner
from fairway.engine.trial import Trial
from fairway.runners.evaluate import describe, evaluate
from fairway.runners.run import Outcome, Run, write_down


class LocalHand:
    """Runs trials in this process."""

    def __init__(self, owner: Owner, this: Run, function: Callable[[Trial], Any]) -> None:
        self._owner, self._run, self._function = owner, this, function
        self._trial: Trial | None = None

    def ready(self) -> bool:
        """Always."""
        return True

    def run_one(self) -> Outcome:
        """Run a trial to its end."""
        owner, trial = self._owner, None
        try:
            with uninterrupted():
                self._trial = trial = owner.ask()
                trial.driver.expire(*self._run.left())
                if self._run.ending:  # that came while the trial was asked for
                    self.cut()
            status, reason = evaluate(self._function, trial)
            if self._run.ending and status != "completed":
                status, reason = "failed", self._run.ending
            with uninterrupted():
                owner.close(trial, status, reason)
        except BaseException as error:
            if trial is None:
                raise
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else self._run.ending or describe(error)
            with uninterrupted():
                if trial.status == "running":
                    write_down(owner.close, trial, "failed", why)
            if self._run.ending:
                return Outcome(trial.number, failed=True)
            return Outcome(trial.number, failed=True, error=error, caught=isinstance(error, self._run.catch))
        return Outcome(trial.number, failed=trial.status == "failed")

    def cut(self) -> None:
        """End the trial at its next report."""
        trial = self._trial
        if trial is not None:
            trial.driver.expire(-1.0, self._run.ending)

    def abandon(self) -> None:
        """End the trial now; the function runs on until its next report, which is refused."""
        trial = self._trial
        if trial is not None and trial.status == "running":
            write_down(self._owner.close, trial, "failed", self._run.ending)

    def close(self) -> None:
        """Nothing is left open."""
