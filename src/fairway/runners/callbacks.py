"""Callbacks: what a run tells others as it goes, such as a tracker or a message to your phone.

Each callback has a thread of its own and a queue. So a slow one never holds up a trial, and one that raises or hangs
never ends a run; when the run is over, what is left in the queues is delivered, with patience for calls that hang.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fairway.engine.owner import Owner
from fairway.engine.record import Best, TrialRecord
from fairway.errors import UsageError
from fairway.logs import logger
from fairway.runners.evaluate import located
from fairway.runners.repeating import repeating
from fairway.terminators.terminator import Verdict
from fairway.text import counted, shown

if TYPE_CHECKING:
    from fairway.engine.certificate import Certificate  # scipy takes its time to load

_LOOK_SECONDS = 0.1  # between looks for a new best in the middle of trials
_PATIENCE_SECONDS = 60.0  # for one call to return, once the run is over
_SLOW_SECONDS = 2.0  # of waiting before it is mentioned


class Callback:
    """What `study.optimize(callbacks=[...])` and `study.certify(callbacks=[...])` call; override what you need.

    `study` is the `Study`. The calls of one callback come one at a time and in order, from a thread of its own in the
    process of the study, wherever trials run. They do not hold up trials, so the study may have moved on by then.
    `optimize` returns when all calls were made. An exception is logged, the first one as a warning; neither the run nor
    the callback ends. A call that takes more than a minute after the end of the run is given up, with those behind it.

    >>> import fairway as fw
    >>> class Tell(fw.Callback):
    ...     def on_new_best(self, study, best):
    ...         print(f"trial {best.number}: loss {best.metrics['loss']:.3f}")
    ...     def on_run_end(self, study, reason):
    ...         print(reason)
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=7)
    >>> study.optimize(lambda trial: trial.params["x"], trials=5, callbacks=[Tell()])
    trial 0: loss 0.580
    trial 1: loss 0.026
    5 trials were run
    """

    def __str__(self) -> str:
        """The name that messages use."""
        return type(self).__name__

    # `study: Any`, since a study is built on this module. A subclass may say `fw.Study`.

    def on_run_start(self, study: Any) -> None:
        """`optimize` was called; first trials may have begun by now."""

    def on_new_best(self, study: Any, best: Best) -> None:
        """There is a new best feasible checkpoint, perhaps in the middle of a trial or from another process.

        If the best changes several times within a tenth of a second, this may come once, with the last of them. A
        trial's last best comes before its end.
        """

    def on_trial_end(self, study: Any, trial: TrialRecord) -> None:
        """A trial of this run completed, was stopped or failed."""

    def on_verdict(self, study: Any, verdict: Verdict) -> None:
        """The terminator has looked at the study."""

    def on_run_end(self, study: Any, reason: str) -> None:
        """`optimize` is about to return or to raise, for this reason."""

    def on_certificate(self, study: Any, certificate: Certificate) -> None:
        """`certify` is about to return this certificate."""


class Herald:
    """Finds out what is new in a study, and has every callback called."""

    def __init__(self, study: Any, owner: Owner, callbacks: Sequence[Callback]) -> None:
        self._owner, self._lock = owner, threading.Lock()
        self.reason = ""  # why the run ended, once it has
        self._messengers = [_Messenger(study, callback) for callback in callbacks]
        self._best, self._heard = self._place(owner.best), len(owner.ledger.verdicts)

    def trial_ended(self, number: int) -> None:
        """A trial of this run has ended."""
        if self._messengers:
            with self._lock:
                self._look()
                self.tell("on_trial_end", self._owner.ledger.record(number))

    def look(self) -> None:
        """Tell of a new best and of new verdicts."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        best, verdicts = self._owner.best, self._owner.ledger.verdicts
        if best is not None and self._place(best) != self._best:
            self._best = self._place(best)
            self.tell("on_new_best", best)
        first, self._heard = self._heard, len(verdicts)
        for said in self._owner.verdicts.since(first):
            self.tell("on_verdict", Verdict(said.stop, said.reason, said.value, said.threshold))

    def tell(self, method: str, *arguments: Any) -> None:
        """Have a method of every callback called."""
        for messenger in self._messengers:
            messenger.calls.put((method, arguments))

    def finish(self) -> None:
        """Wait until everything is delivered, or given up."""
        began = time.monotonic()
        for messenger in self._messengers:
            messenger.calls.put(None)
        try:
            for messenger in self._messengers:
                messenger.wait(began)
        finally:  # Ctrl-C ends the wait
            for messenger in self._messengers:
                messenger.dismissed = True

    @staticmethod
    def _place(best: Best | None) -> tuple[int, int] | None:
        return None if best is None else (best.number, best.step)


class _Messenger:
    """Makes the calls of one callback, in a thread."""

    def __init__(self, study: Any, callback: Callback) -> None:
        self._study, self._callback, self._name = study, callback, type(callback).__name__
        with suppress(Exception):  # nothing that a callback does ends a run
            self._name = shown(str(callback), 200)
        self.calls: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = queue.SimpleQueue()  # None: the last
        self.dismissed = False
        self._call, self._since, self._failures = "", 0.0, 0
        self._thread = threading.Thread(
            target=self._work, name=f"fairway callback {type(callback).__name__}", daemon=True
        )
        self._thread.start()

    def _work(self) -> None:
        while (call := self.calls.get()) is not None and not self.dismissed:
            method, arguments = call
            self._call, self._since = method, time.monotonic()
            try:
                getattr(self._callback, method)(self._study, *arguments)
            except BaseException as error:  # noqa: BLE001 - nothing that a callback raises may end a run
                self._failed(method, error)

    def _failed(self, method: str, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1:
            said = f"the callback {self._name} failed in {method}: {located(error)}"
            logger.warning("%s; the run goes on, and calls it again", shown(said, 1000))
        logger.debug("the callback %s failed in %s", self._name, method, exc_info=error)

    def wait(self, began: float) -> None:
        """Wait for the last call, as long as none takes too long; `began` is when the waiting began."""
        waiting = False
        while self._thread.is_alive():
            now = time.monotonic()
            if now - max(began, self._since) > _PATIENCE_SECONDS:
                left = self.calls.qsize() - 1
                behind = f", and {counted(left, 'call')} behind it" if left > 0 else ""
                logger.warning(
                    "the callback %s has not returned from %s within %g s: it is given up%s",
                    self._name,
                    self._call,
                    _PATIENCE_SECONDS,
                    behind,
                )
                return
            if not waiting and now - began > _SLOW_SECONDS:
                waiting = True
                logger.info("waiting for the callback %s: %s left", self._name, counted(self.calls.qsize(), "call"))
            self._thread.join(_LOOK_SECONDS)
        if self._failures > 1:
            logger.warning("the callback %s failed %d times in this run", self._name, self._failures)


@contextmanager
def calling(study: Any, owner: Owner, callbacks: Sequence[Callback]) -> Iterator[Herald]:
    """Call callbacks during a run, and after it until all calls were made."""
    herald = Herald(study, owner, callbacks)
    if not callbacks:
        yield herald
        return
    herald.tell("on_run_start")
    try:
        with repeating(herald.look, _LOOK_SECONDS, "callbacks"):
            yield herald
    finally:
        herald.look()
        herald.tell("on_run_end", herald.reason)
        herald.finish()


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """Raise a `UsageError` unless the argument is a list of callbacks."""
    if isinstance(callbacks, Callback):
        raise UsageError(f"callbacks={callbacks!r}: a list is expected; write callbacks=[...] around it")
    if not isinstance(callbacks, list | tuple):
        raise UsageError(f"callbacks={callbacks!r}: a list of fw.Callback objects is expected")
    for each in callbacks:
        if not isinstance(each, Callback):
            hint = f"; did you mean {each.__name__}()?" if isinstance(each, type) else ""
            what = hint or "; subclass fw.Callback and override on_trial_end, on_new_best or another of its methods"
            raise UsageError(f"callbacks=[{each!r}]: an object of a subclass of fw.Callback is expected{what}")
        for name in dir(each):
            if name.startswith("on_") and not hasattr(Callback, name):
                known = ", ".join(one for one in vars(Callback) if one.startswith("on_"))
                raise UsageError(f"callbacks=[{type(each).__name__}]: {name} is never called; its methods are {known}")
