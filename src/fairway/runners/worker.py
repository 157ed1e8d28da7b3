"""Inside a worker process: it runs trials, decides from its own referee, and exchanges batches in the background.

One thread sends, another receives, and neither holds the referee while it waits for the other side: so the training
loop and the exchange never block each other. After the referee and the function, the messages to a worker are `Begin`,
`News`, a bool (the end of its trial is in the log, unless another worker was first) and None (no more trials). Those
from a worker are a string (why it cannot start; empty if it can), `Reports`, `Checking`, `Trouble` and `Done`.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

import cloudpickle

from fairway import crowd
from fairway.engine.batch import Batch, drained
from fairway.engine.clock import WallClock
from fairway.engine.driver import Driver
from fairway.engine.durability import SEND_SECONDS
from fairway.engine.events import Asked, Reported, Saved, Status, Told, last_act
from fairway.engine.referee import Referee
from fairway.engine.roster import Rejudged
from fairway.engine.saver import Place, Saver
from fairway.engine.trial import Trial
from fairway.parameters import Value
from fairway.runners.evaluate import describe, evaluate, traced
from fairway.runners.times import Allowance

_GRACE_SECONDS = 5.0  # for cleaning up, once the owner is gone

Work: TypeAlias = tuple[Callable[[Trial], Any], tuple[type[Exception], ...], int]
"""A function, the exceptions that fail only their trial, and the number of workers."""


class Begin(NamedTuple):
    """Run this trial."""

    number: int
    params: Mapping[str, Value]
    seed: int
    allowance: Allowance  # if it limits checks, the owner hears of each one
    place: Place  # where it saves checkpoints, and what it may continue
    aim: Mapping[str, float]  # limits on tracked metrics that it is judged by


class News(NamedTuple):
    """What others wrote since the last news, up to a position of the log."""

    events: list[bytes]  # pickled; the first may be a `Rejudged`
    position: int
    written: int  # the worker's last act that is in the log by now


class Reports(NamedTuple):
    """What a worker has reported and saved since the last ones."""

    events: Sequence[Reported | Saved]


class Checking(NamedTuple):
    """A worker's trial calls a constraint; an empty name says that the call is over."""

    metric: str


class Trouble(NamedTuple):
    """A checkpoint could not be saved, in a sentence."""

    sentence: str


class Done(NamedTuple):
    """A worker's trial ended, with its last reports; the pickled exception, if one ended it, and its traceback."""

    rows: Reported | None
    told: Told
    error: bytes
    trace: str
    caught: bool  # it fails its trial and not the run


def main(handle: int) -> None:
    """Serve the owner at the other end of a pipe: what a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the owner decides
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the function can clean up
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    connection = Connection(handle)
    with contextlib.suppress(KeyboardInterrupt, OSError, EOFError):
        serve(connection, connection.recv_bytes(), alone=True)


def serve(connection: Connection, function: bytes, *, alone: bool) -> None:
    """Run trials for the owner at the other end of a connection, until it has no more or is gone.

    Call it in the main thread, with a SIGTERM handler that raises KeyboardInterrupt, which interrupts a trial. `alone`:
    the process has no other purpose, so it ends when its owner is gone, whatever threads the function left behind.
    """
    with contextlib.suppress(KeyboardInterrupt, OSError, EOFError):
        packed = connection.recv_bytes()
        try:
            referee, work = map(cloudpickle.loads, (packed, function))
        except Exception as error:  # noqa: BLE001 - whatever the user's modules raise
            connection.send(describe(error))
            return
        connection.send("")
        _Worker(connection, referee, work, alone=alone).run()


class _Worker:
    def __init__(self, connection: Connection, referee: Referee, work: Work, *, alone: bool) -> None:
        self._connection, self._referee, self._alone = connection, referee, alone
        self._sending = threading.Lock()
        self._function, self._catch, self._workers = work
        self._batch: Batch | None = None  # of the trial that runs
        self._over = False  # nobody listens any more
        self._orders: queue.SimpleQueue[Begin | bool | None] = queue.SimpleQueue()
        self._events: list[Reported | Saved] = []  # that wait to be sent
        self._own: list[Reported | Told] = []  # that the log may not hold yet: to be learned again if limits change
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()

    def run(self) -> None:
        for loop in (self._send, self._receive):
            threading.Thread(target=loop, name=f"fairway {loop.__name__}", daemon=True).start()
        try:
            with crowd.run_of(self._workers):
                self._run_all()
        finally:
            self._over = True

    def _run_all(self) -> None:
        while isinstance(begin := self._orders.get(), Begin):
            told = self._run_one(begin)
            written = self._orders.get()
            if written is None:
                return
            if written:
                with self._referee.lock:
                    self._referee.finish(told.number, completed=told.status == "completed")
                    self._own.append(told)

    def _run_one(self, begin: Begin) -> Told:
        clock, referee = WallClock(), self._referee
        referee.aim(begin.number, begin.aim)
        driver = Driver(begin.number, referee, clock)
        limited = begin.allowance.check_seconds < math.inf
        begin.allowance.impose(driver, (lambda metric: self._tell(Checking(metric))) if limited else None)
        saved = partial(self._tell_saved, begin.number)
        driver.saver = Saver(begin.number, begin.place, saved, lambda sentence: self._tell(Trouble(sentence)))
        trial = Trial(begin.number, begin.params, seed=begin.seed, driver=driver)
        self._batch = driver.batch
        status: Status
        error, trace, where, caught = b"", "", "", False
        try:
            status, reason = evaluate(self._function, trial)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - the owner decides which ones end the study
            status, reason, error, trace = "failed", describe(problem), _packed(problem), traceback.format_exc()
            where = traced(problem)
            caught = isinstance(problem, self._catch)
        with referee.lock:
            rows, self._batch = driver.batch.event(), None
            self._own += [] if rows is None else [rows]
            by = clock.at(), referee.worker, referee.acts + 1
            told = Told(begin.number, status, reason, *by, notes=driver.notes, traceback=where)
        driver.status = status
        self._done.put(Done(rows, told, error, trace, caught))
        return told

    def _tell(self, message: Checking | Trouble) -> None:
        """Send a message at once: the constraint that is called next may hold Python's lock, so that no thread can."""
        with contextlib.suppress(OSError), self._sending:
            self._connection.send(message)

    def _tell_saved(self, number: int, step: int, path: str) -> None:
        """Say at once that a checkpoint was saved, after what was reported before: it is worth nothing otherwise."""
        with self._referee.lock:
            self._drain()
            self._events.append(Saved(number, step, path, WallClock().at()))
        with contextlib.suppress(OSError):
            self._send_all(None)

    def _drain(self) -> None:
        """Queue the rows of the running trial for sending, with what the referee had seen when it ruled on them."""
        with self._referee.lock:
            if self._batch is not None:
                with drained([self._batch], WallClock.ns()) as events:
                    self._events += events
                    self._own += events

    def _send(self) -> None:
        while not self._over:
            try:
                done = self._done.get(timeout=SEND_SECONDS)
            except queue.Empty:
                done = None
            try:
                self._send_all(done)
            except OSError:
                return

    def _send_all(self, done: Done | None) -> None:
        """Send what was reported, in its order, and the end of the trial after it."""
        with self._sending:
            with self._referee.lock:
                self._drain()
                events, self._events = self._events, []
            if events:
                self._connection.send(Reports(events))
            if done is not None:
                self._connection.send(done)

    def _receive(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                return self._leave()
            if not isinstance(message, News):
                self._orders.put(message)
                continue
            with self._referee.lock:
                self._drain()
                for event in message.events:
                    self._learn(pickle.loads(event))  # noqa: S301 - the owner's
                self._referee.seen = message.position
                self._own = [event for event in self._own if last_act(event) > message.written]

    def _learn(self, news: Asked | Reported | Told | Rejudged) -> None:
        """Learn what others wrote; after a change of limits, everything again, with what this worker did since."""
        if not isinstance(news, Rejudged):
            self._referee.replay(news)
            return
        self._referee.judge_by(news.problem, news.known)
        for event in self._own:
            self._referee.replay(event, after=news.written[self._referee.worker])

    def _leave(self) -> None:
        """The owner is gone: interrupt the function, and wait for it a few seconds only."""
        if not self._over:
            os.kill(os.getpid(), signal.SIGTERM)
        if self._alone or not self._over:
            time.sleep(_GRACE_SECONDS)
        if self._alone or not self._over:
            os._exit(1)


def _packed(error: BaseException) -> bytes:
    """An exception pickled; empty if it cannot be unpickled."""
    try:
        packed: bytes = cloudpickle.dumps(error)
        pickle.loads(packed)  # noqa: S301 - our own
    except (Exception, SystemExit):  # noqa: BLE001 - whatever the user's exception raises when it is built
        return b""
    return packed
