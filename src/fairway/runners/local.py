"""Runs trials: one after another, or with several workers, each a thread, a process or a Ray actor of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fairway.checks import whole
from fairway.errors import UsageError
from fairway.interrupts import uninterrupted
from fairway.runners.evaluate import describe, evaluate
from fairway.runners.progress import show
from fairway.runners.run import Hand, Outcome, Run, write_down

if TYPE_CHECKING:
    from fairway.study import Study
    from fairway.trial import Trial

_MOMENT_SECONDS = 1.0  # for writing down that trials were interrupted, when nothing else is waited for

Backend: TypeAlias = Literal["process", "thread", "ray"]


def run(
    study: Study,
    function: Callable[[Trial], Any],
    *,
    trials: int | None,
    timeout: float | None,
    trial_timeout: float | None,
    workers: int,
    backend: Backend | None,
    resources: Mapping[str, float] | None,
    address: str | None,
    retry: int,
    catch: type[Exception] | tuple[type[Exception], ...],
    progress: bool | None,
) -> None:
    """What `Study.optimize` does."""
    if not callable(function):
        raise UsageError(f"optimize({function!r}): a function that takes a trial is expected")
    this = Run(study, trials=trials, timeout=timeout, trial_timeout=trial_timeout, retry=retry, catch=catch)
    hands = _hands(study, this, function, whole(workers, "workers"), backend, resources, address)
    this.hands = hands
    with show(study, this.trials, progress):
        try:
            if len(this.hands) == 1 and backend is None:
                this.work(this.hands[0])
            else:
                _work_together(this)
        except KeyboardInterrupt:
            this.stop("interrupted")
        except BaseException as error:
            write_down(study._owner.end, describe(error))
            raise
    study._owner.end(this.reason)


def _hands(
    study: Study,
    this: Run,
    function: Callable[[Trial], Any],
    workers: int,
    backend: Backend | None,
    resources: Mapping[str, float] | None,
    address: str | None,
) -> Sequence[Hand]:
    if backend not in (None, "process", "thread", "ray"):
        raise UsageError(f"backend={backend!r}: 'process', 'thread' or 'ray' is expected")
    if backend != "ray" and (resources is not None or address is not None):
        raise UsageError("resources= and address= are for backend='ray'")
    if this.trials is not None:
        workers = min(workers, this.trials)
    if backend == "thread" or backend is None and workers == 1:
        return [LocalHand(study, this, function) for _ in range(workers)]
    from fairway.runners.exchange import Exchange  # noqa: PLC0415 - only where workers are elsewhere
    from fairway.runners.remote import pack  # noqa: PLC0415

    owner, packed = study._owner, pack(function, this.catch)
    exchange = Exchange(owner)
    if backend == "ray":
        from fairway.runners.ray import Cluster, RayHand  # noqa: PLC0415 - optional

        cluster = Cluster(address, resources, packed)
        return [RayHand(owner, this, exchange, cluster) for _ in range(workers)]
    from fairway.runners.process import ProcessHand  # noqa: PLC0415

    return [ProcessHand(owner, this, exchange, packed, workers) for _ in range(workers)]


def _work_together(this: Run) -> None:
    """Have each hand work in a thread of its own until all are done; the first Ctrl-C ends it soon, the second now."""

    def work(hand: Hand) -> None:
        with contextlib.suppress(BaseException):  # the first one is kept, and raised again in the main thread
            this.work(hand)
        finished.put(hand)

    finished: queue.SimpleQueue[Hand] = queue.SimpleQueue()  # Thread.join forgets a thread when it is interrupted
    working = set(this.hands)
    for i, hand in enumerate(this.hands):
        threading.Thread(target=work, args=(hand,), name=f"fairway worker {i}", daemon=True).start()
    try:
        while working:
            working.remove(finished.get())
    except KeyboardInterrupt:
        this.stop("interrupted")
        try:
            while working:
                working.remove(finished.get())
        except KeyboardInterrupt:
            for hand in working:
                hand.abandon()
            with contextlib.suppress(queue.Empty):
                while working:
                    working.remove(finished.get(timeout=_MOMENT_SECONDS))
        raise
    if this.error is not None:
        raise this.error


class LocalHand:
    """Runs trials in this process."""

    def __init__(self, study: Study, this: Run, function: Callable[[Trial], Any]) -> None:
        self._study, self._run, self._function = study, this, function
        self._trial: Trial | None = None

    def ready(self) -> bool:
        """Always."""
        return True

    def run_one(self) -> Outcome:
        """Run a trial to its end."""
        owner, trial = self._study._owner, None
        try:
            with uninterrupted():
                self._trial = trial = owner.ask()
                seconds, trial._overtime = self._run.left()
                trial._deadline = owner.clock.ns() + seconds * 1e9
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
            trial._overtime, trial._deadline = self._run.ending, -1.0

    def abandon(self) -> None:
        """End the trial now; the function goes on until its next report, which is refused."""
        trial = self._trial
        if trial is not None and trial.status == "running":
            write_down(self._study._owner.close, trial, "failed", self._run.ending)

    def close(self) -> None:
        """Nothing is left open."""
