"""The rows of one trial that wait to be written to the log. Reports add rows; whoever writes the log drains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

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
        if not self._over:  # a check made after training (ns < 0) does not show that it was over
            self._over = any(is_last and ns >= 0 for is_last, ns in zip(last, train_ns, strict=True))
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
            values=np.array(values, np.float64),
            train_ns=np.array(train_ns, np.int64),
            check_ns=np.array(prices, np.int64),
            payments=np.array(_given(paid), np.int64) if any(paid) else _NO_PAYMENTS,
            noise=np.array(_given(spread), np.float64) if any(spread) else _NO_NOISE,
            errors=_errors(errors_of) if any(errors_of) else _NO_ERRORS,
            stop_reason=self.stop_reason or None,
            over=self._over,
        )
        return widened(event, self._referee.problem)

    def forget(self, act: int) -> None:
        """Forget the rows up to this act: they have been written."""
        self._rows = [row for row in self._rows if row[0] > act]


def _given(column: Sequence[tuple[float, ...] | None]) -> list[tuple[float, ...]]:
    """What a column has where it is not None, each with its row."""
    return [(row, *one) for row, one in enumerate(column) if one is not None]


def _errors(column: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """The errors of the values in each row, as `Reported.errors` has them."""
    known = [(i, j, error) for i, row in enumerate(column) for j, error in enumerate(row) if error is not None]
    return np.array(known, np.float64).reshape(-1, 3)


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
