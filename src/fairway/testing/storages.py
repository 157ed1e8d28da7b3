"""What any log must hold to: all or nothing, one order for all, events as they were written."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import numpy as np

from fairway.engine.event_json import to_json
from fairway.engine.events import (
    Asked,
    Carried,
    Ended,
    Enqueued,
    Event,
    Judged,
    LimitsChanged,
    Noted,
    Opened,
    Remeasured,
    Removed,
    Reported,
    Revived,
    Saved,
    Sealed,
    Searched,
    Surveyed,
    Tested,
    Told,
    claim,
)
from fairway.engine.log import Log
from fairway.feasibility import Checkpoint


def check_storage(make_log: Callable[[], Log]) -> None:
    """Check that logs append all or nothing, return events as they were written, and keep one order for all threads.

    `make_log` returns a new, empty log at each call.
    """
    _check_reading(make_log())
    _check_claims(make_log())
    _check_threads(make_log())


def _events() -> list[Event]:
    """One study's events, with the values that are easily lost: NaN, infinity, empty arrays, other alphabets."""

    def reported(number: int, step: list[int], values: list[list[float]]) -> Reported:
        n = len(step)
        ints, floats = np.arange(n), np.linspace(0.1, math.pi, n)
        noise = np.array([[0, 0.25, 2, 5]], float) if number else np.empty((0, 4))
        payments = np.array([[0, 3, 1]]) if number else np.empty((0, 3), np.int64)
        table, check_ns = np.array(values, float), np.full(np.shape(values), -2)
        errors = np.array([[0, 1, 0.01]]) if number else np.empty((0, 3))
        columns = (ints, np.array(step), floats, table, ints, check_ns, payments, noise)
        return Reported(number, 0, 2, 1, 0, None, 1, *columns, stop_reason="why", errors=errors)

    best = Checkpoint(2, 0.1 + 0.2, (None, math.nan, -math.inf), 0.5, 2, 5, (None, None, 0.1))
    return [
        Opened(0, {"space": {"größe": {"kind": "Float", "low": 1e-300, "high": 1.0}}, "seed": 7}),
        Enqueued({"größe": 0.1, "text": "naïve 树 🌳 'quoted' \\", "flag": True, "nothing": None}),
        Asked(0, {"größe": 0.1 + 0.2}, 1.5, 0),
        reported(0, [1, 2], [[math.nan, math.inf], [-math.inf, 0.1 + 0.2]]),
        Asked(1, {"größe": 5e-324}, 1.75, 0, queued=True),
        reported(1, [3], [[0.5, 0.25]]),
        reported(0, [3, 4, 5], [[], [], []]),
        Told(0, "completed", "", 2.5, 0, 9, best, means={1: 0.5, 2: 1 / 3}, notes={"note": [1, 2.5, None, "é"]}),
        Told(1, "failed", "ValueError: ß\n", 2.75, 0, 10, by_stopper=False),
        Revived(1, 1, 2.8),
        Told(1, "completed", "", 2.8, 1, 3, revived=True),
        Judged(0, 2, False, "too few", math.nan, math.inf, 3.0),
        Ended("2 trials were run", 4.0),
        Noted(1, {"größe": 0.1}, 5.0),
        Noted(None, {"text": "naïve"}, 5.5),
        LimitsChanged(0, [{"kind": "AtMost", "metric": "größe", "threshold": 0.1 + 0.2}], ["größe"], 5.7),
        Searched("AAAAAAAAAAAAAAAAAAAAAA==", ["ä", "b"]),
        Surveyed(0, [1, 2], [0.1, 0.1 + 0.2], [[0.5], [math.inf]], [[None], [0.1]], cuts=True),
        Remeasured(0, 2, (None, 0.1 + 0.2), (None, math.nan), best, None, best, 17, 5.75),
        Sealed(0, [(0, 2, 0.1 + 0.2, (math.inf,), (None,))], 0.95, 1, 10, None, None, 7, 6.0),
        Saved(0, 2, "/größe/trial-0-step-2-0123abcd.pt", 7.5),
        Removed(["/größe/trial-0-step-2-0123abcd.pt"]),
        Tested(0, 0, {"größe": {"kind": "exact", "value": 1.0}}, {"größe": 1.0}, None, 7.0),
        Carried(0, {"event": "Opened", "worker": 0, "config": {"name": "älter", "lacked": {}}}),
        Carried(0, {"event": "Asked", "number": 0, "params": {"größe": 0.1}, "at": 1.5, "worker": 0, "queued": False}),
    ]


def _check_reading(log: Log) -> None:
    name, events = type(log).__name__, _events()
    _check_same(f"{name}.read() of a new log", log.read(), [])
    for start, end in ((0, 1), (1, 4), (4, len(events))):
        length = log.append(events[start:end])
        assert length == end, f"{name}.append returned {length}; the new length, {end}, is expected"
    length = log.append([])
    assert length == len(events), f"{name}.append([]) returned {length}; the length, {len(events)}, is expected"
    for since in range(len(events) + 2):
        _check_same(f"{name}.read({since})", log.read(since), events[since:])
        for most in (0, 1, 3, 99):
            _check_same(f"{name}.read({since}, {most})", log.read(since, most), events[since : since + most])
    for since in range(len(events) + 1):
        found, position = log.summary(since)
        expected = [event for event in events[since:] if not isinstance(event, Reported)]
        _check_same(f"{name}.summary({since})", found, expected)
        assert position == len(events), f"{name}.summary({since}) ends at {position}; {len(events)} is expected"
    for numbers in ([], [0], [1], [1, 0], [99]):
        reports = [event for event in events if isinstance(event, Reported) and event.number in numbers]
        _check_same(f"{name}.reports({numbers})", log.reports(numbers), reports)


def _check_claims(log: Log) -> None:
    name, ended = type(log).__name__, Ended("", 0.0)
    written: list[Event] = [Opened(0, {}), Asked(0, {}, 0.0, 0), Told(0, "completed", "", 0.0, 0, 1)]
    log.append(written)
    for taken in written:
        returned = log.append([ended, Asked(5, {}, 0.0, 0), taken])
        assert returned is None, f"{name}.append returned {returned}, but {claim(taken)!r} was taken: None is expected"
        _check_same(f"{name}.read() after a refused append", log.read(), written)
    length = log.append([Asked(5, {}, 0.0, 0)])
    assert length == 4, f"{name}.append returned {length} for a claim made by a refused append only: 4 is expected"


def _check_threads(log: Log, batches: int = 20) -> None:
    """Two threads append and claim the same numbers, while a third one reads."""
    name = type(log).__name__

    barrier = threading.Barrier(2, timeout=60)

    def write(writer: int) -> list[tuple[int | None, list[Event]]]:
        written: list[tuple[int | None, list[Event]]] = []
        for k in range(batches):
            barrier.wait()
            batch: list[Event] = [Enqueued({"writer": writer, "k": k, "part": part}) for part in range(3)]
            written += [(log.append(batch), batch)]
            asked: list[Event] = [Asked(k, {}, 0.0, writer)]
            written += [(log.append(asked), asked)]
        return written

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, writer) for writer in range(2)]
        snapshots = pool.submit(lambda: [list(log.read()) for _ in range(batches)]).result()
        written = [each for writer in writers for each in writer.result()]
    events = list(log.read())
    for length, batch in written:
        if length is not None:
            found = events[max(length - len(batch), 0) : length]
            _check_same(f"{name}.read() where two threads appended", found, batch)
    refused = sum(length is None for length, _ in written)
    assert refused == batches, f"{name}: of two threads that claimed {batches} numbers, {refused} claims were refused"
    assert len(events) == 7 * batches, f"{name}: {len(events)} events after two threads appended {7 * batches}"
    for snapshot in snapshots:
        _check_same(f"{name}.read() while others append", snapshot, events[: len(snapshot)])


def _check_same(call: str, found: Sequence[Event], expected: Sequence[Event]) -> None:
    assert len(found) == len(expected), f"{call}: {len(found)} events; {len(expected)} are expected"
    for one, other in zip(found, expected, strict=True):
        assert _content(one) == _content(other), f"{call}: {one} came back for {other}"


def _content(event: Event) -> tuple[Any, ...]:
    """All of an event in a form that compares NaN, types and shapes."""
    values = [getattr(event, item.name) for item in fields(event)]
    shapes = [(value.dtype, value.shape) for value in values if isinstance(value, np.ndarray)]
    return type(event), repr(to_json(event)), shapes
