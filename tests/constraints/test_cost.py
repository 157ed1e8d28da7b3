from __future__ import annotations

import gc
import logging
import os
import pickle
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway import crowd
from fairway.constraints import (
    cost,
    latency,
    model_size,
)


class Clock:
    """A model that takes the next of given times to predict, on a clock of its own."""

    def __init__(self, monkeypatch, times):
        self.now, self.calls, self.times = 0.0, [], times
        monkeypatch.setattr(cost, "perf_counter", lambda: self.now)

    def predict(self, rows):
        self.calls.append(rows)
        self.now += self.times[len(self.calls) - 1] if len(self.calls) <= len(self.times) else self.times[-1]


def test_a_latency_is_a_quantile_of_one_call(monkeypatch):
    times = [50.0] * 3 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] * 5  # the warm-up is slow, and does not count
    assert latency(Clock(monkeypatch, times), [0], quantile=0.5) == 3.5
    assert latency(Clock(monkeypatch, times), [0], quantile=1) == 6.0
    assert latency(Clock(monkeypatch, times).predict, [0], quantile=0) == 1.0


def test_the_error_of_a_latency_is_that_of_a_median_of_five_blocks(monkeypatch):
    blocks = [1.0, 2.0, 4.0, 7.0, 100.0]  # one of them under load
    took = latency(Clock(monkeypatch, [0.0] * 3 + [time for time in blocks for _ in range(6)]), [0], quantile=0.5)
    assert (took, took.error) == (4.0, pytest.approx(0.54 * (7.0 - 2.0)))
    five = np.sort(np.random.default_rng(0).normal(size=(20_000, 5)))
    assert np.mean(0.54 * (five[:, 3] - five[:, 1])) == pytest.approx(five[:, 2].std(), rel=0.03)


@pytest.mark.parametrize(("share", "calls"), [(0.5, 30), (0.95, 200), (0.95, 1000), (0.5, 1000)])
def test_the_bounds_of_a_latency_hold_as_often_as_they_say(monkeypatch, share, calls):
    rng, true = np.random.default_rng(0), -np.log(1 - share)
    found = [
        latency(Clock(monkeypatch, rng.exponential(size=3 + 2 * calls)), [0], quantile=share, seconds=calls)
        for _ in range(150)
    ]
    assert np.mean([each.upper(0.9) >= true for each in found]) >= 0.9 - 2 * 0.025
    assert np.mean([each.lower(0.9) <= true for each in found]) >= 0.9 - 2 * 0.025


@settings(max_examples=50)
@given(
    times=st.lists(st.floats(0.001, 10.0), min_size=30, max_size=200),
    share=st.floats(0, 1),
    confidences=st.tuples(st.floats(0.001, 0.9999), st.floats(0.001, 0.9999)),
)
@example(
    times=[1.0] * 34 + [2.0] + [1.0] * 9 + [2.0] + [1.0, 1.0] + [0.5] + [1.0], share=0.0625, confidences=(0.5, 0.75)
)
def test_the_bounds_of_a_latency_enclose_it_and_widen_with_the_confidence(times, share, confidences):
    with pytest.MonkeyPatch.context() as patch:
        took = latency(Clock(patch, times), [0], quantile=share, seconds=sum(times))
    less, more = sorted(confidences)
    assert took.lower(more) <= took.lower(less) <= took <= took.upper(less) <= took.upper(more)
    assert pickle.loads(pickle.dumps(took)).upper(more) == took.upper(more)


def test_few_calls_bound_a_high_quantile_from_above_the_slowest(monkeypatch):
    times = [0.0] * 3 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] * 5
    took = latency(Clock(monkeypatch, times), [0], quantile=0.95)
    assert took.error == 0
    assert took.upper(0.9) == 6.0 > took


def test_a_size_is_exact():
    size = model_size([1, 2, 3])
    assert (size.error, size.upper(0.99), size.rows) == (0.0, size, None)


def test_a_busy_moment_does_not_count(monkeypatch):
    times = [1.0] * 3 + [1.0] * 6 + [100.0] * 10 + [1.0]
    assert latency(Clock(monkeypatch, times), [0]) == 1.0


@pytest.mark.parametrize(("seconds", "calls"), [(0.001, 30), (100.0, 100)])
def test_calls_go_on_for_so_long_and_are_thirty_at_the_least(monkeypatch, seconds, calls):
    model = Clock(monkeypatch, [1.0])
    latency(model, [0], seconds=seconds)
    assert len(model.calls) == 3 + calls


def test_calls_cycle_through_the_rows(monkeypatch):
    model = Clock(monkeypatch, [1.0])
    latency(model, ["a", "b", "c"], batch=2)
    assert model.calls[:4] == [["a", "b"], ["c", "a"], ["a", "b"], ["c", "a"]]
    model = Clock(monkeypatch, [1.0])
    latency(model, ["a", "b"], batch=5)
    assert model.calls[0] == ["a", "b", "a", "b", "a"]


def test_rows_may_be_arrays_and_frames(monkeypatch):
    pandas = pytest.importorskip("pandas")
    array = np.arange(6).reshape(3, 2)
    for rows in (array, pandas.DataFrame(array, columns=["a", "b"])):
        model = Clock(monkeypatch, [1.0])
        latency(model, rows, batch=2)
        assert type(model.calls[0]) is type(rows)
        assert np.asarray(model.calls[1]).tolist() == [[4, 5], [0, 1]]
        model = Clock(monkeypatch, [1.0])
        latency(model, rows, batch=None)
        assert all(call is rows for call in model.calls)


def test_many_rows_are_not_all_cut(monkeypatch):
    model = Clock(monkeypatch, [1.0])
    latency(model, np.arange(100_000), seconds=300.0)
    assert len({int(call[0]) for call in model.calls}) == 256


def test_garbage_is_not_collected_while_measuring_and_is_again_after_a_failure():
    states = []
    latency(lambda rows: states.append(gc.isenabled()), [0], seconds=0.001)
    assert (states[3:], gc.isenabled()) == ([False] * len(states[3:]), True)

    def breaks(rows):
        if not gc.isenabled():
            raise RuntimeError

    with pytest.raises(RuntimeError):
        latency(breaks, [0])
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("arguments", "more", "says"),
    [
        ((len, []), {}, "rows is empty"),
        ((3, [1]), {}, "model=3: an object with a predict method, or a function of rows, is expected"),
        ((len, [1]), {"quantile": 95}, "quantile=95: a fraction between 0 and 1 is expected; did you mean 0.95?"),
        ((len, [1]), {"batch": 0}, "batch=0: a whole number of at least 1"),
        ((len, [1]), {"seconds": 0}, "seconds=0: a positive number of seconds"),
    ],
)
def test_a_latency_that_cannot_be_measured_is_refused(arguments, more, says):
    with pytest.raises(fw.UsageError, match=says):
        latency(*arguments, **more)


@given(st.recursive(st.integers() | st.text() | st.binary(), st.lists))
def test_a_size_is_the_length_of_the_pickle(model):
    assert model_size(model) == len(pickle.dumps(model, protocol=5))


def test_large_arrays_count_in_full():
    assert model_size({"weights": np.zeros(10**6)}) == len(pickle.dumps({"weights": np.zeros(10**6)}, protocol=5))
    assert model_size({"weights": np.zeros(10**6)}) > 8 * 10**6


def test_boosters_and_scikit_learn_models_have_a_size_that_grows():
    lightgbm = pytest.importorskip("lightgbm")
    xgboost = pytest.importorskip("xgboost")
    forest = pytest.importorskip("sklearn.ensemble").ExtraTreesClassifier
    x = np.random.default_rng(0).random((200, 3))
    y = (x[:, 0] > 0.5).astype(int)
    quiet = {"verbosity": -1, "num_threads": 1}
    for train in (
        lambda n: lightgbm.train(quiet, lightgbm.Dataset(x, y, params=quiet), n),
        lambda n: xgboost.train({"nthread": 1}, xgboost.DMatrix(x, y), n),
        lambda n: forest(n, random_state=0).fit(x, y),
    ):
        assert 0 < model_size(train(2)) < model_size(train(20))


def test_functions_made_on_the_way_have_a_size():
    assert model_size(lambda rows: rows) > 0


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(fw.UsageError, match="model_size: a lock cannot be pickled: cannot pickle"):
        model_size(threading.Lock())


def test_a_prediction_that_was_not_made_has_no_latency():
    with pytest.raises(fw.UsageError, match="predict returned a generator, which has computed nothing yet"):
        latency(lambda rows: (row for row in rows), ["x"])
    for rows in ((row for row in "xy"), {1, 2}, {0: 1}, np.array(3.0)):
        with pytest.raises(fw.UsageError, match="an array, a DataFrame or a list is expected"):
            latency(len, rows)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no such call")
def test_a_pinned_latency_keeps_all_threads_to_its_cores_and_restores_them():
    before, seen, done = os.sched_getaffinity(0), [], threading.Event()
    first = min(before)
    other = threading.Thread(target=done.wait)
    other.start()
    started = []

    def predict(rows):
        seen.append((os.sched_getaffinity(0), os.sched_getaffinity(other.native_id)))
        if not started:
            started.append(threading.Thread(target=done.wait))
            started[0].start()

    def breaks(rows):
        predict(rows)
        raise RuntimeError("no such model")

    try:
        for pin in (first, [first], {first}, np.int64(first)):
            latency(predict, [0], seconds=0.001, pin=pin)
        with pytest.raises(RuntimeError, match="no such model"):
            latency(breaks, [0], pin=first)
        assert set(map(str, seen)) == {str(({first}, {first}))}
        threads = (0, other.native_id, started[0].native_id)
        assert [os.sched_getaffinity(thread) for thread in threads] == [before] * 3
    finally:
        done.set()


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        (-1, "pin=-1: a whole number of at least 0"),
        (True, "pin=True: a whole number"),
        ("0", "pin='0': a whole number"),
        ([0.5], "pin=0.5: a whole number"),
        ([], "some of the cores that this process may use are expected"),
        (10**6, "some of the cores that this process may use are expected: .*0"),
    ],
)
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no such call")
def test_cores_that_are_not_there_are_refused(pin, says):
    with pytest.raises(fw.UsageError, match=says):
        latency(len, [0], pin=pin)


def test_a_system_that_cannot_pin_says_so(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(fw.UsageError, match="pin=0: this system cannot keep a process to some cores; leave pin out"):
        latency(len, [0], pin=0)


def test_a_latency_in_a_crowd_says_so_in_another_unit_and_process_too():
    with crowd.run_of(3):
        took = latency(len, [0], seconds=0.001)
    assert pickle.loads(pickle.dumps(1000 * took)).note == "beside 2 other workers"
    assert latency(len, [0], seconds=0.001).note == ""


def test_runs_of_several_threads_may_end_in_any_order(monkeypatch):
    monkeypatch.setattr(crowd, "_runs", [])
    first, second = crowd.run_of(2), crowd.run_of(3)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert "beside 2 other workers" in crowd.Watch().company()
    second.__exit__(None, None, None)
    assert not crowd.in_run()


def test_a_busy_machine_is_noticed_and_warned_of_once(caplog, monkeypatch):
    monkeypatch.setattr(cost, "_said", [])
    monkeypatch.setattr(crowd, "_runs", [])  # a thread of another test may still take part in one
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        with caplog.at_level(logging.WARNING, "fairway"):
            found = [latency(len, [0], seconds=0.3) for _ in range(3)]
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert all(re.fullmatch(r"while others used [\d.]+ of \d+ cores?", took.note) for took in found)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == f"a latency was measured {found[0].note}: it may be longer than it is alone"
