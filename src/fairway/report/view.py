"""A study as it is looked at: by its small events, and by the reports of those trials that are asked for.

A list of ten thousand trials must not cost a million reports, so what ends a trial (`Told`) says what they come to.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine.events import Judged, Opened, Reported, Status
from fairway.engine.identity import Identity
from fairway.engine.ledger import Course, Ledger
from fairway.engine.log import Log
from fairway.engine.record import TrialRecord
from fairway.errors import StorageError, UsageError
from fairway.problem import Problem
from fairway.space import Space
from fairway.storage.sql import Database
from fairway.study import Study

STRATA = ("not evaluated", "valid", "invalid")
"""By the numbers in `Curve.stratum`."""


class Curve(NamedTuple):
    """What one trial reported: n rows in their order, without checks that were paid late."""

    step: NDArray[np.int64]  # (n,)
    objective: NDArray[np.float64]  # (n,)
    values: NDArray[np.float64]  # (n, m), NaN where a constraint was not measured
    stratum: NDArray[np.int64]  # (n,): places in STRATA
    seconds: NDArray[np.float64]  # (n,): training and checks, since the trial began

    def thinned(self, most: int) -> Curve:
        """At most so many of its rows, evenly, with its first, its last and every change of stratum as far as fits."""
        n = len(self.step)
        if n <= most:
            return self
        even = np.linspace(0, n - 1, most // 2 if most > 3 else most).round().astype(np.intp)  # noqa: PLR2004
        turns = np.flatnonzero(np.diff(self.stratum)) + 1
        room = max(most - len(even), 0)
        turns = turns[np.linspace(0, len(turns) - 1, min(room, len(turns))).round().astype(np.intp)]
        rows = np.union1d(even, turns)
        return Curve(*(column[rows] for column in self))  # type: ignore[arg-type]


class View:
    """One study, read and never written.

    >>> import fairway as fw
    >>> from fairway.report.view import View
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> view = View(study)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=3)
    >>> view.update(), len(view.trials), view.best.number
    (True, 3, 1)
    """

    def __init__(self, study: Study | Log, name: str = "study") -> None:
        self.log: Log = study.log if isinstance(study, Study) else study
        self.name = study.name if isinstance(study, Study) else name
        self._lock = threading.Lock()
        self.position = 0  # of the log, up to which it is known
        events = self.log.read(0, 1)
        if not events or not isinstance(events[0], Opened):
            raise StorageError(f"the study {self.name!r} is empty: nobody has opened it yet")
        self.config: Mapping[str, Any] = events[0].config
        self.identity = Identity.from_json(self.config)
        self.ledger = Ledger(self.space, self.problem)
        self.update()

    @classmethod
    def read(cls, url: str, name: str) -> View:
        """A study in a database, which must be there."""
        return cls(Database(url, reading=True).log(name, create=False), name)

    @property
    def space(self) -> Space:
        """Of parameters."""
        return self.identity.space

    @property
    def problem(self) -> Problem:
        """The objective and the limits."""
        return self.identity.problem

    def update(self) -> bool:
        """Take in what was written since; whether there was anything."""
        with self._lock:
            events, position = self.log.summary(self.position)
            for event in events:
                self.ledger.replay(event)
            self.position = position
        return bool(events)

    def still(self) -> View:
        """It as it is now; this one may be updated while that one is drawn."""
        with self._lock:
            view = copy.copy(self)
            view.ledger, view._lock = self.ledger.still(), threading.Lock()
            return view

    @property
    def courses(self) -> Sequence[Course]:
        """Every trial as the log tells it, by number."""
        return self.ledger.courses

    @property
    def trials(self) -> list[TrialRecord]:
        """Every trial, for people, by number."""
        return [self.ledger.record(number) for number in range(len(self.ledger.courses))]

    @property
    def best(self) -> TrialRecord | None:
        """The trial with the best feasible checkpoint, or None while there is none."""
        sign = self.problem.objective.sign
        losses = [
            (sign * course.checkpoint.objective, number, course.checkpoint.step)
            for number, course in enumerate(self.courses)
            if course.checkpoint is not None and feasibility.known(self.problem, course.checkpoint) == 0.0
        ]
        return self.ledger.record(min(losses)[1]) if losses else None

    @property
    def counts(self) -> dict[Status, int]:
        """How many trials are running, completed, stopped and failed."""
        return {"running": len(self.ledger.running), **self.ledger.counts}

    @property
    def verdicts(self) -> Sequence[Judged]:
        """What the terminator said."""
        return self.ledger.verdicts

    @property
    def ended(self) -> str | None:
        """Why the last run ended; None while the study is going on, or if it was cut off."""
        return self.ledger.ended

    def curves(self, numbers: Collection[int]) -> dict[int, Curve]:
        """What some trials reported, by number; those that reported nothing are left out."""
        unknown = [number for number in numbers if not 0 <= number < len(self.courses)]
        if unknown:
            raise UsageError(f"the study {self.name!r} has no trial {unknown[0]}; it has {len(self.courses)}")
        batches: dict[int, list[Reported]] = {}
        for batch in self.log.reports(numbers):
            batches.setdefault(batch.number, []).append(batch)
        return {number: _curve(self.problem, batches[number]) for number in sorted(batches)}


def _curve(problem: Problem, batches: Sequence[Reported]) -> Curve:
    """One trial's batches, joined; a check that was paid late joins the row of its step."""
    names = ("step", "objective", "values", "train_ns", "check_ns")
    step, objective, values, train_ns, check_ns = (
        np.concatenate([getattr(batch, name) for batch in batches]) for name in names
    )
    late = np.flatnonzero(train_ns < 0)
    for row in late:
        at = np.flatnonzero((step == step[row]) & (train_ns >= 0))
        if len(at):
            paid = check_ns[row] >= 0
            values[at[-1], paid], check_ns[at[-1], paid] = values[row, paid], check_ns[row, paid]
    kept = train_ns >= 0
    if not kept.any():  # told without a loop
        kept[:] = True
    step, objective, values, train_ns, check_ns = (
        column[kept] for column in (step, objective, values, train_ns, check_ns)
    )
    paid = check_ns >= 0
    amount = feasibility.violations(problem, values, paid)
    stratum = np.where(np.isnan(amount), 0, np.where(amount == 0.0, 1, 2))
    spent = np.maximum(train_ns, 0) + np.where(paid, check_ns, 0).sum(axis=1)
    return Curve(step, objective, np.where(paid, values, np.nan), stratum, np.cumsum(spent) / 1e9)
