"""The owner's side of a worker elsewhere: hands out trials, writes what comes back, replaces a worker that dies.

A worker is a process that runs `fairway.runners.worker` at the other end of a connection. Subclasses of `RemoteHand`
say how each kind is started, found dead and cleared away. Those of this machine are started fresh, never forked,
without running the user's script again; `fairway.runners.ray` has the others.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from abc import abstractmethod
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import ClassVar

import cloudpickle

from fairway.engine.durability import NEWS_SECONDS
from fairway.engine.owner import Owner
from fairway.engine.referee import Referee
from fairway.errors import StudyFailed, UsageError
from fairway.logs import logger
from fairway.runners import times
from fairway.runners.evaluate import describe
from fairway.runners.exchange import Exchange, Line
from fairway.runners.run import Hand, Outcome, Run, write_down
from fairway.runners.times import Watch
from fairway.runners.worker import Begin, Checking, Done, Trouble, Work

_LOOK_SECONDS = 1.0  # between looks whether a silent worker is alive
_PATIENCE_SECONDS = 1.0  # for the news of how a worker ended
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_CODE = "import sys; sys.path[:] = {!r}; from fairway.runners.worker import main; main({})"


class _RemoteTraceback(Exception):  # noqa: N818 - it is the cause that is shown beside the error itself
    """Where an exception was raised in a worker."""


def pack(work: Work) -> bytes:
    """The work of the workers, pickled."""
    try:
        packed: bytes = cloudpickle.dumps(work)
    except Exception as error:
        raise UsageError(
            f"the function cannot be sent to worker processes ({error}): it holds something that belongs to this "
            "process, such as the study, a lock or an open file; make that inside the function, or use "
            "backend='thread'"
        ) from error
    return packed


class RemoteHand(Hand):
    """Runs trials in a worker of its own."""

    kind: ClassVar[str]  # in words
    deaths: ClassVar[int]  # in a row, before a first trial, that fail the run

    def __init__(self, owner: Owner, run: Run, exchange: Exchange) -> None:
        self._owner, self._run, self._exchange = owner, run, exchange
        self._connection: Connection | None = None
        self._line: Line | None = None  # once the worker is ready
        self._worker = -1

    @abstractmethod
    def _launch(self) -> Connection | None:
        """Start a worker and connect to it; None if the run is over first. May raise EOFError or OSError."""

    @abstractmethod
    def _is_gone(self) -> bool:
        """Whether the worker is dead, as far as is known."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Interrupt the running trial, and have the worker end."""

    @abstractmethod
    def _clear(self, patience: float) -> str:
        """Wait `patience` seconds for the worker's end, then kill it; returns how it ended."""

    def ready(self) -> bool:
        """Make sure of a worker that knows everything the owner knows; False if the run is over first."""
        died = 0
        while self._connection is None and self._run.continues:
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
            if not self._run.continues:
                return False
            if self._is_gone() and not connection.poll():
                raise EOFError
        problem = connection.recv()
        if problem:
            raise UsageError(f"{self.kind} could not load the function: {problem}")
        self._line = Line(connection, self._worker)
        self._exchange.add(self._line)
        return True

    def run_one(self) -> Outcome:
        """Run a trial to its end, until its worker dies, or until it must be killed."""
        asked = self._owner.assign(self._worker, total=self._run.total)
        number, line, allowance = asked.number, self._line, self._run.times.allow()
        assert line is not None
        try:
            place = self._owner.keeper.place(number)
            line.send(Begin(number, dict(asked.params), self._owner.seed_of(number), allowance, place, asked.aim))
            watch = self._run.times.watch(allowance)
            while not self._run.ending:
                left = self._seconds_left(number, watch)
                if left <= 0:
                    return self._kill(number, watch)
                message: Checking | Trouble | Done | BaseException | None
                try:
                    message = line.inbox.get(timeout=min(left, _LOOK_SECONDS))
                except queue.Empty:  # a child of the worker may still hold the connection of a dead one
                    message = EOFError() if self._is_gone() else None
                if isinstance(message, Done):
                    return self._finish(line, message)
                if isinstance(message, Checking):
                    watch.note_check(message.metric)
                elif isinstance(message, Trouble):
                    self._owner.keeper.warn(message.sentence)
                elif message is None:
                    self._owner.keeper.tidy()
                else:
                    raise message  # noqa: TRY301 - as if it had been raised here
            self._exchange.catch_up(line)
        except (EOFError, OSError):
            retry = 0 if self._run.ending else self._run.retry_lost
            again = self._owner.give_up(number, f"lost its worker ({self._bury()})", retry=retry)
            self._owner.dismiss(self._worker)  # not before: nobody else may find its trial lost
            return Outcome(number, failed=True, again=again)
        except Exception as error:  # above all, that the log cannot be written
            write_down(partial(self._owner.give_up, number, describe(error), retry=0))
            raise
        while not line.inbox.empty():  # it may be done, and not be heard yet
            message = line.inbox.get()
            if isinstance(message, Done):
                return self._finish(line, message)
        self._owner.give_up(number, self._run.ending, retry=0, paused=True)
        self.close()
        return Outcome(number, failed=True)

    def _seconds_left(self, number: int, watch: Watch) -> float:
        """The seconds left before the worker of a trial past its time is killed: a grace, or two steps if longer."""
        course = self._owner.ledger.courses[number]
        step = (course.train_ns + course.check_ns) / 1e9 / max(course.steps, 1)
        return max(times.GRACE_SECONDS, 2 * step) - watch.overdue()[0]

    def _kill(self, number: int, watch: Watch) -> Outcome:
        """End a trial that is past its time with its worker, which may clean up for a moment."""
        overdue, why = watch.overdue()
        with contextlib.suppress(OSError):
            self._interrupt()
        self._bury()
        reason, over = f"{why}; its worker was killed {overdue:.2g} s later", self._run.times.are_over
        again = self._owner.give_up(number, reason, retry=0 if over else self._run.retry_late)
        self._owner.dismiss(self._worker)
        if again or over:  # otherwise the run counts it, and warns then
            logger.warning("trial %d failed: %s", number, reason)
        return Outcome(number, failed=True, again=again, cut=over)

    def _finish(self, line: Line, done: Done) -> Outcome:
        written = self._owner.tell_for(done.told, done.rows)
        with contextlib.suppress(OSError):  # a dead worker is noticed when the next trial is sent
            line.send(written)
        error: BaseException | None = None
        if done.trace:
            try:
                error = cloudpickle.loads(done.error)
            except Exception:  # noqa: BLE001 - it was made of something that exists only there
                error = RuntimeError(done.told.reason)
            error.__cause__ = _RemoteTraceback(f"in {self.kind}\n{done.trace}")
        failed = self._owner.ledger.courses[done.told.number].status == "failed"
        return Outcome(done.told.number, failed=failed, error=error, caught=done.caught)

    def close(self) -> None:
        """End the worker: gently if it waits for a trial, by an interrupt if it runs one."""
        if self._line is None:
            return
        with contextlib.suppress(OSError):
            if self._run.ending:
                self._interrupt()
            else:
                self._line.send(None)
        self._retire(_PATIENCE_SECONDS * 5)

    def cut(self) -> None:
        """Have `run_one` look at the run now."""
        line = self._line
        if line is not None:
            line.inbox.put(None)

    def _retire(self, patience: float = _PATIENCE_SECONDS) -> str:
        """Clear away a worker without a trial, and keep no more news for it; returns how it ended."""
        how = self._bury(patience)
        self._owner.dismiss(self._worker)
        return how

    def _bury(self, patience: float = _PATIENCE_SECONDS) -> str:
        """Clear away what is left of a worker; returns how it ended."""
        how = self._clear(patience)  # first: it ends a send to a worker that does not listen
        if self._line is not None:
            self._exchange.remove(self._line)
        if self._connection is not None:
            self._connection.close()
        self._line = self._connection = None
        return how


class ProcessHand(RemoteHand):
    """Runs trials in a process of its own."""

    kind = "a worker process"
    deaths = 1

    def __init__(self, owner: Owner, run: Run, exchange: Exchange, function: bytes, workers: int) -> None:
        if sys.platform == "win32":
            raise UsageError("backend='process' needs a POSIX system; use backend='thread'")
        super().__init__(owner, run, exchange)
        self._function = function
        self._threads = str(max(1, (os.cpu_count() or 1) // workers))
        self._process: subprocess.Popen[bytes] | None = None

    def _launch(self) -> Connection:
        try:
            ours, theirs = Pipe()
        except OSError as error:
            raise StudyFailed(f"a worker process could not be started ({error})") from error
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the process inherits it, until it is ready
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", _CODE.format([str(folder) for folder in sys.path], theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**dict.fromkeys(_THREADS, self._threads), **os.environ},
            )
        try:
            ours.send_bytes(self._function)
        except OSError:
            ours.close()
            raise
        return ours

    def _is_gone(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _interrupt(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def abandon(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def _clear(self, patience: float) -> str:
        process, self._process = self._process, None
        if process is None:
            return ""
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code >= 0:
            return f"it exited with code {code}"
        known = -code in signal.Signals.__members__.values()
        return f"killed by {signal.Signals(-code).name}" if known else f"killed by signal {-code}"
