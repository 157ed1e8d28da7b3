"""The rows of one trial that wait to be written to the log: added to at every report, drained by whoever writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from fairway.engine.events import Reported
from fairway.engine.measurement import Observation
from fairway.engine.payment import Pace
from fairway.engine.referee import Referee


class Batch:
    """What a trial has reported since its rows were last drained. The referee's lock guards it."""

    __slots__ = ("_begun_seen", "_over", "_referee", "_rows", "begun", "drained_ns", "number", "pace", "stop_reason")

    def __init__(self, number: int, referee: Referee, now: int) -> None:
        self.number = number
        self.drained_ns = now  # when it was last drained, by the trial's clock
        self.pace = Pace(None, None, at_end=False)
        self.stop_reason = ""  # why the stopper ended the trial
        self._referee = referee
        self.begun = self._begun_seen = -1  # the act that fixed the pace, and what the worker had seen; -1: not yet
        self._over = False  # no step is left
        self._rows: list[tuple[int, Observation]] = []

    def begin(self, pace: Pace) -> None:
        """Keep the pace that the referee has just fixed."""
        self.pace = pace
        self.begun, self._begun_seen = self._referee.acts, self._referee.seen

    def add(self, observation: Observation) -> None:
        """Keep what the referee has just ruled on."""
        self._rows.append((self._referee.acts, observation))

    def event(self) -> Reported | None:
        """The rows as an event of the log, or None if there are none."""
        if not self._rows:
            return None
        rows = [observation for _, observation in self._rows]
        self._over = self._over or any(row.last for row in rows)
        shape = (len(rows), len(self._referee.problem.constraints))
        payments = [(i, *row.payment) for i, row in enumerate(rows) if row.payment is not None]
        spreads = [(i, *row.spread) for i, row in enumerate(rows) if row.spread is not None]
        errors = [
            (i, j, error) for i, row in enumerate(rows) for j, error in enumerate(row.errors) if error is not None
        ]
        return Reported(
            number=self.number,
            worker=self._referee.worker,
            seen=self._referee.seen,
            begun=self.begun,
            begun_seen=self._begun_seen,
            total=self.pace.total,
            interval=self.pace.interval,
            acts=np.array([act for act, _ in self._rows], np.int64),
            step=np.array([row.step for row in rows], np.int64),
            objective=np.array([row.objective for row in rows], np.float64),
            values=np.array([row.values for row in rows], np.float64).reshape(shape),
            train_ns=np.array([row.train_ns for row in rows], np.int64),
            check_ns=np.array([row.prices for row in rows], np.int64).reshape(shape),
            payments=np.array(payments, np.int64).reshape(-1, 3),
            noise=np.array(spreads, np.float64).reshape(-1, 4),
            errors=np.array(errors, np.float64).reshape(-1, 3),
            stop_reason=self.stop_reason or None,
            over=self._over,
        )

    def forget(self, act: int) -> None:
        """Forget the rows up to this act: they have been written."""
        self._rows = [row for row in self._rows if row[0] > act]


@contextmanager
def drained(batches: Iterable[Batch], now: int) -> Iterator[list[Reported]]:
    """The rows of some batches as events, to be written in the block; a block that fails leaves the rows in place."""
    full = []
    for batch in batches:
        batch.drained_ns = now
        event = batch.event()
        if event is not None:
            full.append((batch, event))
    yield [event for _, event in full]
    for batch, event in full:
        batch.forget(int(event.acts[-1]))
