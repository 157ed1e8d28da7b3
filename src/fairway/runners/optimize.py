"""What `Study.optimize` does: one hand per worker, each of which runs trials until the run is over."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from fairway import crowd
from fairway.checks import flag, short, whole
from fairway.engine.interrupts import uninterrupted
from fairway.engine.owner import Owner
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.runners.alone import measure_alone
from fairway.runners.callbacks import Callback, calling, check_callbacks
from fairway.runners.evaluate import describe, evaluate, traced
from fairway.runners.progress import say, show
from fairway.runners.run import Hand, Outcome, Run, write_down
from fairway.runners.times import Watch, speaking_up
from fairway.text import counted, measured

_MOMENT_SECONDS = 1.0  # to write down that trials were interrupted, after a second Ctrl-C

Backend: TypeAlias = Literal["process", "thread", "ray"]


def run(
    study: Any,
    owner: Owner,
    function: Callable[[Trial], Any],
    *,
    workers: int,
    backend: Backend | None,
    resources: Mapping[str, float] | None,
    address: str | None,
    progress: bool,
    callbacks: Sequence[Callback],
    **settings: Any,
) -> None:
    """What `Study.optimize` does; `settings` are those of `Run`, and `study` is what callbacks are passed."""
    if not callable(function):
        raise UsageError(f"optimize({short(function)}): a function that takes a trial is expected")
    this = Run(owner, **settings)
    flag(progress, "progress")
    check_callbacks(callbacks)
    workers = whole(workers, "workers")
    if not isinstance(backend, str | None) or backend not in (None, "process", "thread", "ray"):
        raise UsageError(f"backend={short(backend)}: 'process', 'thread' or 'ray' is expected")
    if backend != "ray" and (resources is not None or address is not None):
        raise UsageError("resources= and address= are for backend='ray'")
    workers = workers if this.trials is None else min(workers, max(this.trials, 1))
    if backend == "thread" or backend is None and workers == 1:
        this.hands = [LocalHand(owner, this, function) for _ in range(workers)]
    else:
        from fairway.runners.exchange import Exchange  # noqa: PLC0415 - only for workers elsewhere
        from fairway.runners.remote import ProcessHand, pack  # noqa: PLC0415

        packed, exchange = pack((function, this.catch, workers)), Exchange(owner)
        if backend == "ray":
            from fairway.runners.ray import Cluster, RayHand  # noqa: PLC0415 - optional

            cluster = Cluster(address, resources, packed)
            this.hands = [RayHand(owner, this, exchange, cluster) for _ in range(workers)]
        else:
            this.hands = [ProcessHand(owner, this, exchange, packed, workers) for _ in range(workers)]
    waiting = speaking_up(this.waits) if this.times.are_set else contextlib.nullcontext()
    with calling(study, owner, callbacks) as herald:
        this.on_trial_end = herald.trial_ended
        try:
            with show(owner, this, progress), waiting, crowd.run_of(workers):
                if len(this.hands) == 1 and backend is None:
                    this.work(this.hands[0])
                else:
                    _work_together(this)
            herald.reason = this.reason
            measure_alone(owner, function, say if progress else None)
            owner.end(this.reason)
            this.conclude()
        except KeyboardInterrupt as interrupt:
            this.interrupt()
            herald.reason = "interrupted"
            write_down(owner.end, herald.reason)
            interrupt.add_note(_kept(owner))
            raise
        except BaseException as error:
            herald.reason = describe(error)
            write_down(owner.end, herald.reason)
            raise


def _kept(owner: Owner) -> str:
    """What an interrupted run has found, for whoever sees its traceback."""
    counts, best = owner.counts, owner.best
    trials = counted(sum(counts.values()) - counts["running"], "trial")
    found = "nothing is within the limits so far" if owner.problem.limits else "nothing was measured so far"
    if best is not None:
        found = f"the best is trial {best.number}: {measured(best.metrics.keys(), best.metrics.values(), best.errors)}"
    return f"fairway: the study keeps {trials}, and {found}; study.optimize continues"


class LocalHand(Hand):
    """Runs trials in this process, in whichever thread."""

    def __init__(self, owner: Owner, this: Run, function: Callable[[Trial], Any]) -> None:
        self._owner, self._run, self._function = owner, this, function
        self._trial: Trial | None = None
        self._watch: Watch | None = None

    def run_one(self) -> Outcome:
        owner, this, trial = self._owner, self._run, None
        try:
            with uninterrupted():
                self._trial = trial = owner.ask(total=this.total)
                allowance = this.times.allow()
                self._watch = this.times.watch(allowance) if this.times.are_set else None
                allowance.impose(trial.driver, None if self._watch is None else self._watch.note_check)
                if this.ending:  # that came while the trial was asked for
                    self.cut()
            status, reason = evaluate(self._function, trial)
            paused = bool(this.ending) and status != "completed"
            if paused:
                status, reason = "failed", this.ending
            with uninterrupted():
                owner.close(trial, status, reason, paused=paused)
        except BaseException as error:
            if trial is None:
                raise
            cut = "interrupted" if isinstance(error, KeyboardInterrupt) else this.ending
            with uninterrupted():
                if trial.status == "running":
                    close = partial(owner.close, paused=bool(cut))
                    write_down(close, trial, "failed", cut or describe(error), "" if cut else traced(error))
            if this.ending:
                return Outcome(trial.number, failed=True)
            return Outcome(trial.number, failed=True, error=error, caught=isinstance(error, this.catch))
        finally:
            self._watch = None
        return Outcome(trial.number, failed=trial.status == "failed")

    def waits(self) -> str:
        """A sentence that says that its trial is past its time, and what it is doing; else empty."""
        watch, trial = self._watch, self._trial
        return "" if watch is None or trial is None else watch.waits(trial.number)

    def cut(self) -> None:
        """End the trial at its next report."""
        if self._trial is not None:
            self._trial.driver.expire(-1.0, self._run.ending)

    def abandon(self) -> None:
        """End the trial now; the function continues until its next report, which is refused."""
        if self._trial is not None and self._trial.status == "running":
            write_down(partial(self._owner.close, paused=True), self._trial, "failed", self._run.ending)

    def close(self) -> None:
        """Do nothing: a local hand leaves nothing open."""


def _work_together(this: Run) -> None:
    """Have each hand work in its own thread until all are done; the first Ctrl-C ends it soon, the second at once."""

    def work(hand: Hand) -> None:
        with contextlib.suppress(BaseException):  # the run keeps the first one, which is raised in the main thread
            this.work(hand)
        finished.put(hand)

    def wait(seconds: float | None = None) -> None:
        while working:
            working.remove(finished.get(timeout=seconds))

    finished: queue.SimpleQueue[Hand] = queue.SimpleQueue()  # Thread.join forgets a thread when it is interrupted
    working: set[Hand] = set()
    try:
        for i, hand in enumerate(this.hands):
            working.add(hand)
            threading.Thread(target=work, args=(hand,), name=f"fairway worker {i}", daemon=True).start()
        wait()
    except KeyboardInterrupt:
        this.interrupt()
        try:
            wait()
        except KeyboardInterrupt:
            for hand in working:
                hand.abandon()
            with contextlib.suppress(queue.Empty):
                wait(_MOMENT_SECONDS)
        raise
    if this.error is not None:
        raise this.error
