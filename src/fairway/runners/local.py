"""Runs trials on this machine: one after another, or with several workers, each a thread or a process of its own."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fairway.checks import whole
from fairway.errors import FairwayError, UsageError
from fairway.runners.evaluate import describe, evaluate
from fairway.runners.progress import show
from fairway.runners.run import Hand, Outcome, Run

if TYPE_CHECKING:
    from fairway.study import Study
    from fairway.trial import Trial

logger = logging.getLogger("fairway")

_MOMENT_SECONDS = 1.0  # for writing down that trials were interrupted, when nothing else is waited for

Backend: TypeAlias = Literal["process", "thread"]


def run(
    study: Study,
    function: Callable[[Trial], Any],
    *,
    trials: int | None,
    timeout: float | None,
    trial_timeout: float | None,
    workers: int,
    backend: Backend | None,
    retry: int,
    catch: type[Exception] | tuple[type[Exception], ...],
    progress: bool | None,
) -> None:
    """What `Study.optimize` does."""
    if not callable(function):
        raise UsageError(f"optimize({function!r}): a function that takes a trial is expected")
    this = Run(study, trials=trials, timeout=timeout, trial_timeout=trial_timeout, catch=catch)
    study._owner.retry = whole(retry, "retry", least=0)
    hands = _hands(study, this, function, whole(workers, "workers"), backend)
    with show(study, this.trials, progress):
        try:
            if len(hands) == 1 and backend is None:
                this.work(hands[0])
            else:
                _work_together(this, hands)
        except KeyboardInterrupt:
            this.ending = this.ending or "interrupted"
        except BaseException as error:
            _write_down(study._owner.end, describe(error))
            raise
    study._owner.end(this.reason)


def _hands(
    study: Study, this: Run, function: Callable[[Trial], Any], workers: int, backend: Backend | None
) -> Sequence[Hand]:
    if backend not in (None, "process", "thread"):
        raise UsageError(f"backend={backend!r}: 'process' or 'thread' is expected")
    if this.trials is not None:
        workers = min(workers, this.trials)
    if backend == "thread" or backend is None and workers == 1:
        return [LocalHand(study, this, function) for _ in range(workers)]
    from fairway.runners.process import ProcessHand, pack  # noqa: PLC0415 - only where processes are wanted

    packed = pack(function)
    return [ProcessHand(study._owner, this, packed, workers) for _ in range(workers)]


def _work_together(this: Run, hands: Sequence[Hand]) -> None:
    """Have each hand work in a thread of its own until all are done; the first Ctrl-C ends it soon, the second now."""

    def work(hand: Hand) -> None:
        try:
            this.work(hand)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            if this.error is None:
                this.error = error
            cut(f"the run was ended by {describe(error)}")

    def cut(why: str) -> None:
        this.ending = this.ending or why
        for hand in hands:
            hand.cut()

    threads = [
        threading.Thread(target=work, args=(hand,), name=f"fairway worker {i}", daemon=True)
        for i, hand in enumerate(hands)
    ]
    for thread in threads:
        thread.start()
    try:
        _join(threads)
    except KeyboardInterrupt:
        cut("interrupted")
        try:
            _join(threads)
        except KeyboardInterrupt:
            for hand in hands:
                hand.abandon()
            _join(threads, _MOMENT_SECONDS)
        raise
    if this.error is not None:
        raise this.error


def _join(threads: Sequence[threading.Thread], seconds: float = math.inf) -> None:
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(None if math.isinf(seconds) else max(0.0, end - time.monotonic()))


class LocalHand:
    """Runs trials in this process."""

    def __init__(self, study: Study, this: Run, function: Callable[[Trial], Any]) -> None:
        self._study, self._run, self._function = study, this, function
        self._trial: Trial | None = None

    def run_one(self) -> Outcome:
        """Run a trial to its end."""
        owner = self._study._owner
        self._trial = trial = owner.ask()
        seconds, trial._overtime = self._run.left()
        trial._deadline = owner.clock.ns() + seconds * 1e9
        try:
            status, reason = evaluate(self._function, trial)
            if self._run.ending:
                status, reason = "failed", self._run.ending
            owner.close(trial, status, reason)
        except BaseException as error:  # noqa: BLE001 - the run knows which ones end it
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else self._run.ending or describe(error)
            if trial.status == "running":
                _write_down(owner.close, trial, "failed", why)
            return Outcome(trial.number, failed=True, error=None if self._run.ending else error)
        return Outcome(trial.number, failed=trial.status == "failed")

    def cut(self) -> None:
        """End the trial at its next report."""
        trial = self._trial
        if trial is not None:
            trial._overtime, trial._deadline = self._run.ending, -1.0

    def abandon(self) -> None:
        """End the trial now; the function goes on until its next report, which is refused."""
        trial = self._trial
        if trial is not None and trial.status == "running":
            _write_down(self._study._owner.close, trial, "failed", self._run.ending)

    def close(self) -> None:
        """Nothing is left open."""


def _write_down(write: Callable[..., object], *what: Any) -> None:
    """Write what can still be written, while another error is on its way to the user."""
    try:
        write(*what)
    except FairwayError as error:
        logger.warning("%s", error)
