"""When reports reach the log."""

from __future__ import annotations

import gc
import threading
import weakref

from fairway.engine import durability
from fairway.engine.durability import start_pulse


class Pulsed:
    def __init__(self):
        self.beats, self.enough = 0, threading.Event()

    def pulse(self):
        self.beats += 1
        if self.beats == 3:
            self.enough.set()
        raise OSError("no route to the database")


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "fairway pulse"]


def test_a_pulse_goes_on_though_one_fails_and_ends_with_what_it_serves(monkeypatch, caplog):
    monkeypatch.setattr(durability, "PULSE_SECONDS", 0.001)
    before = set(threads())
    pulsed = Pulsed()
    start_pulse(pulsed)
    (thread,) = set(threads()) - before
    assert pulsed.enough.wait(30)
    assert "no route to the database" in caplog.text
    gone = weakref.ref(pulsed)
    del pulsed
    gc.collect()
    thread.join(30)
    assert gone() is None
    assert not thread.is_alive()


def test_what_a_worker_knows_of_others_is_less_than_a_tenth_of_a_second_old():
    assert durability.SEND_SECONDS + durability.NEWS_SECONDS < 0.1


def test_a_report_is_durable_within_a_second():
    assert durability.WAIT_NS / 1e9 + durability.PULSE_SECONDS < 1.0
