"""When reports reach the log and other workers: every interval in one place, and the thread that keeps to them.

`tell` survives a kill when it returns, and takes the trial's waiting rows with it. Before that, rows wait in a batch:

- A report that comes `REPORT_NS` after its batch was last drained drains it.
- Where others may write to the log too, a thread looks every `PULSE_SECONDS`: it drains what has waited for `WAIT_NS`
  (so that a row is durable within a second, one look included), reads what others wrote, and renews the leases.
- A worker process sends what it has every `SEND_SECONDS`, and its owner passes on news every `NEWS_SECONDS`: what the
  workers of one owner know of each other is less than 100 ms old. Two owners share rows of running trials within a
  second, and the end of a trial at once.
- A batch is drained at once before its referee learns anything from others (`Journal.catch_up`, `append`).
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from fairway.logs import logger

REPORT_NS = 1_000_000_000
WAIT_NS = 800_000_000
PULSE_SECONDS = 0.1
SEND_SECONDS = 0.055
NEWS_SECONDS = 0.02


class Pulsed(Protocol):
    """What is kept up to date while trials run."""

    def pulse(self) -> None:
        """Do what is due; it is called every `PULSE_SECONDS`."""


def start_pulse(pulsed: Pulsed) -> None:
    """Keep an object up to date from a thread of its own, for as long as anybody else uses it."""
    stop = threading.Event()
    weakref.finalize(pulsed, stop.set)
    threading.Thread(target=_beat, args=(weakref.ref(pulsed), stop), name="fairway pulse", daemon=True).start()


def _beat(pulsed: weakref.ref[Pulsed], stop: threading.Event) -> None:
    said = ""
    while not stop.wait(PULSE_SECONDS):
        alive = pulsed()
        if alive is None:
            return
        try:
            alive.pulse()
        except Exception as error:  # noqa: BLE001 - the next one may get through; if none does, the lease runs out
            if str(error) != said:
                said = str(error)
                logger.warning("%s", said)  # a kept record must not keep what is served
        del alive
