"""The owner's side of a worker elsewhere: it hands out trials, writes what comes back, and replaces a worker that dies.

A worker is a process that runs `fairway.runners.worker` at the other end of a connection. What kinds of them there are,
and how each is started, found dead and cleared away, is said by the subclasses.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import cloudpickle

from fairway.engine.durability import NEWS_SECONDS
from fairway.engine.owner import Owner
from fairway.engine.referee import Referee
from fairway.errors import StudyFailed, UsageError
from fairway.runners.evaluate import describe
from fairway.runners.exchange import Exchange, Line
from fairway.runners.run import Hand, Outcome, Run, write_down
from fairway.runners.worker import Begin, Done, Quit, Ready, Written
from fairway.seeds import trial_seed

_LOOK_SECONDS = 1.0  # between looks whether a silent worker lives
_PATIENCE_SECONDS = 1.0  # for the news of how a worker ended


class _RemoteTraceback(Exception):  # noqa: N818 - it is the cause that is shown beside the error itself
    """Where an exception was raised in a worker."""


def pack(function: Callable[..., Any], catch: tuple[type[Exception], ...]) -> bytes:
    """A function, and which exceptions fail only their trial, on their way to workers."""
    try:
        packed: bytes = cloudpickle.dumps((function, catch))
    except Exception as error:
        raise UsageError(
            f"the function cannot be sent to worker processes ({error}): it holds something that belongs to this "
            "process, such as the study, a lock or an open file; make that inside the function, or use "
            "backend='thread'"
        ) from error
    return packed


class RemoteHand(Hand, ABC):
    """Runs trials in a worker of its own."""

    kind: ClassVar[str]  # in words
    deaths: ClassVar[int]  # in a row, before a first trial, that the run bears

    def __init__(self, owner: Owner, run: Run, exchange: Exchange) -> None:
        self._owner, self._run, self._exchange = owner, run, exchange
        self._connection: Connection | None = None
        self._line: Line | None = None  # once the worker is ready
        self._worker = -1

    # What each kind does in its own way

    @abstractmethod
    def _launch(self) -> Connection | None:
        """Start a worker and connect to it; None if the run is over first. May raise EOFError or OSError."""

    @abstractmethod
    def _is_gone(self) -> bool:
        """Whether the worker is dead, as far as is known."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Have the trial that runs interrupted, and the worker end."""

    @abstractmethod
    def abandon(self) -> None:
        """End the worker at once."""

    @abstractmethod
    def _clear(self, patience: float) -> str:
        """Wait so long for the worker's end, then put an end to it; how it ended."""

    # What all do

    def ready(self) -> bool:
        """Have a worker that knows all that the owner knows; False if the run is over first."""
        died = 0
        while self._connection is None and self._run.goes_on:
            referee = self._owner.enlist()
            self._worker = referee.worker
            try:
                if self._greet(referee):
                    break
                self._retire()
            except (EOFError, OSError) as error:
                how = self._retire() or str(error)
                died += 1
                if died >= self.deaths:
                    raise StudyFailed(f"{self.kind} died before its first trial ({how})") from None
            except BaseException:
                self._retire()
                raise
        return self._connection is not None

    def _greet(self, referee: Referee) -> bool:
        """Start a worker and wait until it is ready; False if the run is over first."""
        try:
            packed = cloudpickle.dumps(referee)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise UsageError(f"the stopper cannot be sent to worker processes ({error})") from error
        connection = self._connection = self._launch()
        if connection is None:
            return False
        connection.send_bytes(packed)
        while not connection.poll(NEWS_SECONDS):
            if not self._run.goes_on:
                return False
            if self._is_gone() and not connection.poll():
                raise EOFError
        ready = connection.recv()
        assert isinstance(ready, Ready)
        if ready.problem:
            raise UsageError(f"{self.kind} could not load the function: {ready.problem}")
        self._line = Line(connection, self._worker)
        self._exchange.add(self._line)
        return True

    def run_one(self) -> Outcome:
        """Run a trial to its end, or until its worker dies."""
        seconds, overtime = self._run.left()
        asked = self._owner.assign(self._worker)
        number, line = asked.number, self._line
        assert line is not None
        try:
            line.send(Begin(number, dict(asked.params), trial_seed(self._owner.seed, number), seconds, overtime))
            while not self._run.ending:
                message = self._hear(line)
                if isinstance(message, Done):
                    return self._finish(line, message)
                if message is not None:
                    raise message  # noqa: TRY301 - as if it had been raised here
        except (EOFError, OSError):
            retry = 0 if self._run.ending else self._run.retry
            again = self._owner.give_up(number, f"lost its worker ({self._bury()})", retry=retry)
            self._owner.dismiss(self._worker)  # not before: nobody else is to find its trial lost
            return Outcome(number, failed=True, again=again)
        except Exception as error:  # above all, that the log cannot be written
            write_down(partial(self._owner.give_up, number, describe(error), retry=0))
            raise
        self._owner.give_up(number, self._run.ending, retry=0)
        self.close()
        return Outcome(number, failed=True)

    def _hear(self, line: Line) -> Done | BaseException | None:
        """What the worker says, if it says something soon; that it is gone, if it says nothing and is."""
        try:
            return line.inbox.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            return EOFError() if self._is_gone() else None  # a child of its own may still hold the connection

    def _finish(self, line: Line, done: Done) -> Outcome:
        written = self._owner.tell_for(done.told, done.rows)
        with contextlib.suppress(OSError):  # one that is gone is missed when the next trial is sent
            line.send(Written(written))
        error: BaseException | None = None
        if done.trace:
            try:
                error = cloudpickle.loads(done.error)
            except Exception:  # noqa: BLE001 - it was made of something that is only there
                error = RuntimeError(done.told.reason)
            error.__cause__ = _RemoteTraceback(f"in {self.kind}\n{done.trace}")
        failed = not written or done.told.status == "failed"
        return Outcome(done.told.number, failed=failed, error=error, caught=done.caught)

    def close(self) -> None:
        """End the worker, gently if it is waiting for a trial; it is interrupted if it is running one."""
        if self._line is None:
            return
        with contextlib.suppress(OSError):
            if self._run.ending:
                self._interrupt()
            else:
                self._line.send(Quit())
        self._retire(_PATIENCE_SECONDS * 5)

    def cut(self) -> None:
        """Look at the run now."""
        line = self._line
        if line is not None:
            line.inbox.put(None)

    def _retire(self, patience: float = _PATIENCE_SECONDS) -> str:
        """Clear away a worker without a trial, and keep no more news for it; how it ended."""
        how = self._bury(patience)
        self._owner.dismiss(self._worker)
        return how

    def _bury(self, patience: float = _PATIENCE_SECONDS) -> str:
        """Clear away what there is of a worker; how it ended."""
        how = self._clear(patience)  # first: what is being sent to a worker that does not listen ends with it
        if self._line is not None:
            self._exchange.remove(self._line)
        if self._connection is not None:
            self._connection.close()
        self._line = self._connection = None
        return how
