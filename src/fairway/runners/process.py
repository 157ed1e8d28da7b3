"""The owner's side of a worker process: it hands out trials, writes what comes back, and replaces a process that dies.

Processes are started fresh, never forked, and do not import the user's script again: functions travel by cloudpickle.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import cloudpickle

from fairway.errors import StudyFailed, UsageError
from fairway.runners.run import Outcome, Run
from fairway.runners.worker import NEWS_SECONDS, Begin, Done, News, Quit, Ready, Settled
from fairway.seeds import trial_seed

if TYPE_CHECKING:
    from fairway.owner import Owner

_PATIENCE_SECONDS = 5.0  # for a process that was told to end
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class _RemoteTraceback(Exception):  # noqa: N818 - it is the cause that is shown beside the error itself
    """Where an exception was raised in a worker process."""


def pack(function: Callable[..., Any]) -> bytes:
    """A function on its way to worker processes."""
    if sys.platform == "win32":
        raise UsageError("backend='process' needs a POSIX system; use backend='thread'")
    try:
        packed: bytes = cloudpickle.dumps(function)
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
        asked = self._owner.assign(self._worker)
        number = asked.number
        seconds, overtime = self._run.left()
        try:
            seed = trial_seed(self._owner.seed, number)
            self._connection.send(Begin(number, dict(asked.params), seed, seconds, overtime))
            while not self._run.ending:
                if self._connection.poll(NEWS_SECONDS):
                    message = self._connection.recv()
                    if isinstance(message, Done):
                        return self._finish(message)
                    self._owner.append(*message)
                self._pass_on_news()
        except (EOFError, ConnectionError):
            again = self._owner.give_up(number, f"lost its worker ({self._bury()})", again=not self._run.ending)
            return Outcome(number, failed=True, again=again)
        self._owner.give_up(number, self._run.ending, again=False)
        self.close()
        return Outcome(number, failed=True)

    def _finish(self, done: Done) -> Outcome:
        written = self._owner.settle(done.batch, done.told)
        self._connection.send(Settled(written))
        error: BaseException | None = None
        if done.trace:
            error = RuntimeError(done.told.reason) if done.error is None else cloudpickle.loads(done.error)
            error.__cause__ = _RemoteTraceback(f"in a worker process\n{done.trace}")
        return Outcome(done.told.number, failed=not written or done.told.status == "failed", error=error)

    def _pass_on_news(self) -> None:
        news = self._owner.news(self._worker)
        if news is not None:
            self._connection.send(News(*news))

    def _start(self) -> bool:
        """Start a process that knows all that the owner knows; False if the run ends meanwhile."""
        referee = self._owner.enlist()
        self._worker = referee.worker
        self._connection, theirs = Pipe()
        code = "import sys; sys.path[:] = {!r}; from fairway.runners.worker import main; main({})"
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", code.format(sys.path, theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**dict.fromkeys(_THREADS, self._threads), **os.environ},
        )
        theirs.close()
        try:
            self._connection.send_bytes(cloudpickle.dumps(referee))
            self._connection.send_bytes(self._function)
            while not self._connection.poll(NEWS_SECONDS):
                if self._run.ending:
                    return False
            ready = self._connection.recv()
        except (EOFError, ConnectionError):
            raise StudyFailed(f"a worker process died before its first trial ({self._bury()})") from None
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
        self._bury()

    def cut(self) -> None:
        """Nothing to do: a running trial looks at the run many times a second."""

    def abandon(self) -> None:
        """End the process at once."""
        process = self._process
        if process is not None:
            process.kill()

    def _bury(self) -> str:
        """Clear away a process, killing it if need be; how it ended."""
        process, self._process = self._process, None
        self._owner.dismiss(self._worker)
        self._connection.close()
        if process is None:
            return "gone"
        try:
            code = process.wait(_PATIENCE_SECONDS if self._run.ending else 1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"it exited with code {code}"
