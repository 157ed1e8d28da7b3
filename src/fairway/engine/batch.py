"""The rows of one trial that wait to be written to the log. Reports add rows; whoever writes the log drains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from fairway.engine.columns import widened
from fairway.engine.events import Reported
from fairway.engine.measurement import Observation
from fairway.engine.pace import Pace
from fairway.engine.referee import Referee

_NO_PAYMENTS, _NO_NOISE, _NO_ERRORS = np.empty((0, 3), np.int64), np.empty((0, 4)), np.empty((0, 3))


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
        """Add an observation that the referee has just ruled on."""
        self._rows.append((self._referee.acts, observation))

    def event(self) -> Reported | None:
        """The rows as an event of the log, or None if there are none."""
        if not self._rows:
            return None
        acts, rows = zip(*self._rows, strict=True)
        step, objective, _, values, prices, _, train_ns, last, spread, paid, errors_of = zip(*rows, strict=True)
        ended = zip(last, train_ns, strict=True)  # a check made after training (ns < 0) does not show that it was over
        self._over = self._over or any(is_last and ns >= 0 for is_last, ns in ended)
        shape = (len(rows), len(self._referee.problem.constraints))
        payments = [(i, *payment) for i, payment in enumerate(paid) if payment is not None]
        spreads = [(i, *one) for i, one in enumerate(spread) if one is not None]
        errors = [(i, j, error) for i, row in enumerate(errors_of) for j, error in enumerate(row) if error is not None]
        event = Reported(
            number=self.number,
            worker=self._referee.worker,
            seen=self._referee.seen,
            begun=self.begun,
            begun_seen=self._begun_seen,
            total=self.pace.total,
            interval=self.pace.interval,
            acts=np.array(acts, np.int64),
            step=np.array(step, np.int64),
            objective=np.array(objective, np.float64),
            values=np.array(values, np.float64).reshape(shape),
            train_ns=np.array(train_ns, np.int64),
            check_ns=np.array(prices, np.int64).reshape(shape),
            payments=np.array(payments, np.int64) if payments else _NO_PAYMENTS,
            noise=np.array(spreads, np.float64) if spreads else _NO_NOISE,
            errors=np.array(errors, np.float64) if errors else _NO_ERRORS,
            stop_reason=self.stop_reason or None,
            over=self._over,
        )
        return widened(event, self._referee.problem)

    def forget(self, act: int) -> None:
        """Forget the rows up to this act: they have been written."""
        self._rows = [row for row in self._rows if row[0] > act]


@contextmanager
def drained(batches: Iterable[Batch], now: int) -> Iterator[list[Reported]]:
    """Yield the rows of some batches as events for the block to write; if the block raises, the rows stay."""
    full = []
    for batch in batches:
        batch.drained_ns = now
        event = batch.event()
        if event is not None:
            full.append((batch, event))
    yield [event for _, event in full]
    for batch, event in full:
        batch.forget(int(event.acts[-1]))
