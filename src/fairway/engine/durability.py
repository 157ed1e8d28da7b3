"""When reports reach the log and other workers: all intervals in one place, and the thread that keeps to them.

Once `tell` has returned, the trial's end and all its rows survive a kill. Before that, rows wait in a batch:

- A report that comes `REPORT_NS` or more after its batch was last drained drains it.
- If others may write to the log too, a thread wakes every `PULSE_SECONDS`: it drains batches that have waited for
  `WAIT_NS` (so that a row is durable within a second, the pulse included), reads what others wrote, and renews leases.
- A worker process sends what it has every `SEND_SECONDS`, and its owner passes on news every `NEWS_SECONDS`: what the
  workers of one owner know of each other is less than 100 ms old. Two owners share rows of running trials within a
  second, and the end of a trial at once.
- A batch is always drained before its referee learns anything from others (`Journal.catch_up`, `append`).
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from fairway.engine.awaited import Awaited
from fairway.logs import logger

REPORT_NS = 1_000_000_000
WAIT_NS = 800_000_000
PULSE_SECONDS = 0.1
SEND_SECONDS = 0.055
NEWS_SECONDS = 0.02


class Pulsed(Protocol):
    """An object that is kept up to date while trials run."""

    def pulse(self) -> None:
        """Do what is due; called every `PULSE_SECONDS`."""


def start_pulse(pulsed: Pulsed) -> None:
    """Pulse an object from a thread of its own, for as long as anybody else refers to it."""
    stop = threading.Event()
    weakref.finalize(pulsed, stop.set)
    threading.Thread(target=_beat, args=(weakref.ref(pulsed), stop), name="fairway pulse", daemon=True).start()


def _beat(pulsed: weakref.ref[Pulsed], stop: threading.Event) -> None:
    said, work = "", Awaited()
    while not stop.wait(PULSE_SECONDS):
        with work:
            alive = pulsed()
            if alive is None:
                break
            try:
                alive.pulse()
            except Exception as error:  # noqa: BLE001 - the next one may get through; if none does, the lease runs out
                if str(error) != said:
                    said = str(error)
                    logger.warning("%s", said)  # text only: a log record that is kept must not keep the object alive
            del alive  # which closes its connections if nobody else refers to it
    work.dismiss()
