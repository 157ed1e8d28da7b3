from __future__ import annotations

import gc
import signal
import sys
import threading

import pytest

from fairway.engine.interrupts import is_pending, uninterrupted

pytestmark = pytest.mark.usefixtures("ctrl_c")


def press():
    signal.raise_signal(signal.SIGINT)


def press_and_note(done, times):
    with uninterrupted():
        for k in range(times):
            press()
            done.append(k)


def test_ctrl_c_waits_until_the_block_is_over():
    done = []
    with pytest.raises(KeyboardInterrupt):
        press_and_note(done, 1)
    assert done == [0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_comes_through_at_once():
    done = []
    with pytest.raises(KeyboardInterrupt):
        press_and_note(done, 2)
    assert done == [0]


def test_without_a_ctrl_c_nothing_happens_and_an_error_is_raised_as_it_is():
    with uninterrupted():
        pass
    with pytest.raises(ZeroDivisionError), uninterrupted():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_ignores_ctrl_c_goes_on_doing_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_is_never_interrupted_and_takes_no_signals_over():
    during = []

    def work():
        with uninterrupted():
            during.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert during == [signal.default_int_handler]


def test_a_second_ctrl_c_as_the_block_ends_leaves_nothing_behind():
    def press_at_the_end(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "__exit__":
            sys.setprofile(None)
            press()

    def interrupted_twice():
        with uninterrupted():
            press()
            sys.setprofile(press_at_the_end)

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    gc.collect()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not is_pending()
