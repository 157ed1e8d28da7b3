"""What `Study.optimize` does: hands of the wanted kind, one for each worker, which run trials until the run is over."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from fairway.checks import whole
from fairway.engine.owner import Owner
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.runners.evaluate import describe
from fairway.runners.local import LocalHand
from fairway.runners.progress import show
from fairway.runners.run import Hand, Run, write_down

_MOMENT_SECONDS = 1.0  # for writing down that trials were interrupted, when nothing else is waited for

Backend: TypeAlias = Literal["process", "thread", "ray"]


def run(
    owner: Owner,
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
    this = Run(owner, trials=trials, timeout=timeout, trial_timeout=trial_timeout, retry=retry, catch=catch)
    this.hands = _hands(
        owner,
        this,
        function,
        workers=whole(workers, "workers"),
        backend=backend,
        resources=resources,
        address=address,
    )
    with show(owner, this.trials, progress):
        try:
            if len(this.hands) == 1 and backend is None:
                this.work(this.hands[0])
            else:
                _work_together(this)
        except KeyboardInterrupt:
            this.stop("interrupted")
        except BaseException as error:
            write_down(owner.end, describe(error))
            raise
    owner.end(this.reason)


def _hands(
    owner: Owner,
    this: Run,
    function: Callable[[Trial], Any],
    *,
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
        return [LocalHand(owner, this, function) for _ in range(workers)]
    from fairway.runners.exchange import Exchange  # noqa: PLC0415 - only where workers are elsewhere
    from fairway.runners.remote import pack  # noqa: PLC0415

    packed = pack(function, this.catch)
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
    working: set[Hand] = set()
    try:
        for i, hand in enumerate(this.hands):
            working.add(hand)
            threading.Thread(target=work, args=(hand,), name=f"fairway worker {i}", daemon=True).start()
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
