"""Workers that are processes of this machine: started fresh, never forked, without the user's script run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from fairway.engine.owner import Owner
from fairway.errors import StudyFailed, UsageError
from fairway.runners.exchange import Exchange
from fairway.runners.remote import RemoteHand
from fairway.runners.run import Run

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_CODE = "import sys; sys.path[:] = {!r}; from fairway.runners.worker import main; main({})"


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
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # of this thread, for the process until it is ready
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
        """End the process at once."""
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
