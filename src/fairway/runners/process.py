"""The owner's side of a worker process: it hands out trials, writes what comes back, and replaces a process that dies.

Processes are started fresh, never forked, and do not import the user's script again: functions travel by cloudpickle.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import cloudpickle

from fairway.errors import FairwayError, StudyFailed, UsageError
from fairway.runners.evaluate import describe
from fairway.runners.run import Outcome, Run, write_down
from fairway.runners.worker import NEWS_SECONDS, Begin, Done, News, Quit, Ready, Written
from fairway.seeds import trial_seed

if TYPE_CHECKING:
    from fairway.owner import Owner

_PATIENCE_SECONDS = 5.0  # for a process that was told to end
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class _RemoteTraceback(Exception):  # noqa: N818 - it is the cause that is shown beside the error itself
    """Where an exception was raised in a worker process."""


def pack(function: Callable[..., Any], catch: tuple[type[Exception], ...]) -> bytes:
    """A function, and which exceptions fail only their trial, on their way to worker processes."""
    if sys.platform == "win32":
        raise UsageError("backend='process' needs a POSIX system; use backend='thread'")
    try:
        packed: bytes = cloudpickle.dumps((function, catch))
    except Exception as error:
        raise UsageError(
            f"the function cannot be sent to worker processes ({error}): it holds something that belongs to this "
            "process, such as the study, a lock or an open file; make that inside the function, or use "
            "backend='thread'"
        ) from error
    return packed


class ProcessHand:
    """Runs trials in a process of its own."""

    def __init__(self, owner: Owner, run: Run, function: bytes, workers: int) -> None:
        self._owner, self._run, self._function = owner, run, function
        self._threads = str(max(1, (os.cpu_count() or 1) // workers))
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection
        self._worker = -1

    def run_one(self) -> Outcome:
        """Run a trial to its end, or until its process dies."""
        if self._process is None and not self._start():
            return Outcome(None)
        seconds, overtime = self._run.left()
        if seconds <= 0.0:  # that went into the start of the process
            return Outcome(None)
        asked = self._owner.assign(self._worker)
        number = asked.number
        try:
            seed = trial_seed(self._owner.seed, number)
            self._connection.send(Begin(number, dict(asked.params), seed, seconds, overtime))
            while not self._run.ending:
                if self._connection.poll(NEWS_SECONDS):
                    message = self._connection.recv()
                    if isinstance(message, Done):
                        return self._finish(message)
                    self._owner.append(*message)
                elif self._process is None or self._process.poll() is not None and not self._connection.poll():
                    raise EOFError  # noqa: TRY301 - a child of its own may still hold the connection
                self._pass_on_news()
        except (EOFError, ConnectionError):
            retry = 0 if self._run.ending else self._run.retry
            again = self._owner.give_up(number, f"lost its worker ({self._bury()})", retry=retry)
            self._owner.dismiss(self._worker)
            return Outcome(number, failed=True, again=again)
        except FairwayError as error:  # the log cannot be written, or not now
            write_down(partial(self._owner.give_up, number, describe(error), retry=0))
            raise
        self._owner.give_up(number, self._run.ending, retry=0)
        self.close()
        return Outcome(number, failed=True)

    def _finish(self, done: Done) -> Outcome:
        written = self._owner.tell_for(done.told, done.batch)
        with contextlib.suppress(ConnectionError):  # one that is gone is missed when the next trial is sent
            self._connection.send(Written(written))
        error: BaseException | None = None
        if done.trace:
            try:
                error = cloudpickle.loads(done.error)
            except Exception:  # noqa: BLE001 - it was made of something that is only there
                error = RuntimeError(done.told.reason)
            error.__cause__ = _RemoteTraceback(f"in a worker process\n{done.trace}")
        failed = not written or done.told.status == "failed"
        return Outcome(done.told.number, failed=failed, error=error, caught=done.caught)

    def _pass_on_news(self) -> None:
        """Send what others wrote, unless the process has not taken in the last of it."""
        _, free, _ = select.select([], [self._connection], [], 0)
        news = self._owner.news(self._worker) if free else None
        if news is not None:
            self._connection.send(News(*news))

    def _start(self) -> bool:
        """Start a process that knows all that the owner knows; False if the run ends meanwhile."""
        referee = self._owner.enlist()
        self._worker = referee.worker
        try:
            self._connection, theirs = Pipe()
        except OSError as error:
            raise StudyFailed(f"a worker process could not be started ({error})") from error
        code = "import sys; sys.path[:] = {!r}; from fairway.runners.worker import main; main({})"
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # of this thread, for the process until it is ready
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", code.format([str(folder) for folder in sys.path], theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**dict.fromkeys(_THREADS, self._threads), **os.environ},
            )
        try:
            self._connection.send_bytes(cloudpickle.dumps(referee))
            self._connection.send_bytes(self._function)
            while not self._connection.poll(NEWS_SECONDS):
                if self._run.ending:
                    return False
            ready = self._connection.recv()
        except (EOFError, ConnectionError):
            self._owner.dismiss(self._worker)
            raise StudyFailed(f"a worker process died before its first trial ({self._bury()})") from None
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise UsageError(f"the stopper cannot be sent to worker processes ({error})") from error
        assert isinstance(ready, Ready)
        if ready.problem:
            raise UsageError(f"a worker process could not load the function: {ready.problem}")
        return True

    def close(self) -> None:
        """End the process, gently if it is waiting for a trial; it is interrupted if it is running one."""
        if self._process is None:
            return
        try:
            if self._run.ending:
                self._process.terminate()
            else:
                self._connection.send(Quit())
            self._process.wait(_PATIENCE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self._bury(0.0)
        self._owner.dismiss(self._worker)

    def cut(self) -> None:
        """Nothing to do: a running trial looks at the run many times a second."""

    def abandon(self) -> None:
        """End the process at once."""
        process = self._process
        if process is not None:
            process.kill()

    def _bury(self, patience: float = 1.0) -> str:
        """Clear away a process, killing it if need be; how it ended."""
        process, self._process = self._process, None
        assert process is not None
        self._connection.close()
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code >= 0:
            return f"it exited with code {code}"
        known = -code in signal.Signals.__members__.values()
        return f"killed by {signal.Signals(-code).name}" if known else f"killed by signal {-code}"
