"""A study as it is looked at: its small events, the reports of its running trials, and of others on request.

A list of ten thousand trials must not cost a million reports, so the event that ends a trial (`Told`) sums them up.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.engine.certificate import Certificate, certificate
from fairway.engine.certification import latest
from fairway.engine.checkpoints import CheckpointReader, Checkpoints
from fairway.engine.course import Course
from fairway.engine.events import Event, Judged, LimitsChanged, Opened, Reported, Status, Told
from fairway.engine.identity import Identity
from fairway.engine.ledger import Ledger
from fairway.engine.log import Log
from fairway.engine.record import TrialRecord
from fairway.engine.snapshot import restore
from fairway.engine.soundness import fitting
from fairway.engine.what_if import WhatIf, what_if
from fairway.errors import StorageError, UsageError
from fairway.problem import Problem
from fairway.space import Space
from fairway.storage.sql import Database
from fairway.study import Study

STRATA: tuple[Literal["not evaluated", "feasible", "infeasible"], ...] = ("not evaluated", "feasible", "infeasible")
"""What the constraints say of a checkpoint, by the numbers in `Curve.stratum` and `View.stratum`."""


class Curve(NamedTuple):
    """What one trial reported: n rows in their order, without checks that were paid late."""

    step: NDArray[np.int64]  # (n,)
    objective: NDArray[np.float64]  # (n,)
    values: NDArray[np.float64]  # (n, m), NaN where a constraint was not measured
    stratum: NDArray[np.int64]  # (n,): places in STRATA
    seconds: NDArray[np.float64]  # (n,): training and checks, since the trial began
    errors: NDArray[np.float64]  # (n, m): of the values, NaN where unknown

    def thinned(self, most: int) -> Curve:
        """At most `most` of its rows: both ends, changes of stratum, and others, denser near the beginning."""
        n = len(self.step)
        if n <= most:
            return self
        share = max(most // 4, 2)
        rows = np.union1d(np.geomspace(1, n, share) - 1, np.linspace(0, n - 1, share)).astype(np.intp)
        turns = np.flatnonzero(np.diff(self.stratum)) + 1
        kept = np.linspace(0, len(turns) - 1, min(most - len(rows), len(turns))).round().astype(np.intp)
        rows = np.union1d(rows, turns[kept])
        return Curve(*(column[rows] for column in self))  # type: ignore[arg-type]


class View:
    """One study, read and never written: equal to a replay of its whole log.

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
        self._identity = Identity.from_json(self.config)
        self.space: Space = self._identity.space
        founding, seed = self._identity.problem, self._identity.seed or 0
        self._summaries, self._at = restore(self.log, self.space, founding, seed)  # and where in the log that is
        self.ledger = self._summaries
        self._from_snapshot = self._at > 0
        self._certificate: tuple[int, Certificate] | None = None  # the latest and its number; it never changes
        self._checkpoints = CheckpointReader(self.log, self.problem)
        self.update()

    @classmethod
    def read(cls, url: str, name: str) -> View:
        """A study in a database, which must be there and whose file must be sound."""
        database = Database(url, reading=True)
        view = cls(database.log(name, create=False), name)
        if not view.is_vouched_for:
            database.access.check_file()
        return view

    @classmethod
    def of(cls, study: Study | View) -> View:
        """A view of a study; a view stays as it is."""
        if isinstance(study, View):
            return study
        if not isinstance(study, Study):
            raise UsageError(f"{study!r}: a Study or a View is expected")
        return cls(study)

    def update(self) -> bool:
        """Read what was written since; whether there was anything."""
        with self._lock:
            events, position = self.log.summary(self._at)
            if position == self.position:
                return False
            self._at = position
            if _is_judged_otherwise(self._summaries, events):
                whole = self.log.read(0, position)
                self._summaries = Ledger(self.space, self._identity.problem, self._identity.seed or 0)
                self._summaries.extend(whole, lambda: whole)
                self._summaries.forget_reports()
            else:
                self._summaries.extend(events, list)
            ledger = self._summaries.still()
            for batch in self.log.reports(ledger.running):
                with fitting(batch):
                    ledger.replay(batch)
            self.ledger, self.position = ledger, position
            return True

    @property
    def problem(self) -> Problem:
        """The objective, and the constraints that hold now."""
        return self.ledger.problem

    @property
    def identity(self) -> Identity:
        """What the study is, with the constraints that hold now."""
        return replace(self._identity, problem=self.problem)

    @property
    def is_vouched_for(self) -> bool:
        """Whether all of it comes from a snapshot, which was checked, and from the events after that, which were too.

        Otherwise the indices of the database are trusted to name all rows.
        """
        return self._from_snapshot and not self.ledger.running

    def still(self) -> View:
        """A snapshot with a ledger of its own: this view may be updated or drawn while that one is drawn."""
        with self._lock:
            still = copy.copy(self)
            still.ledger = self.ledger.still()
            return still

    @property
    def courses(self) -> Sequence[Course]:
        """Every trial as the log tells it, by number."""
        return self.ledger.courses

    @property
    def trials(self) -> list[TrialRecord]:
        """Every trial, for people, by number."""
        return [self.ledger.record(number) for number in range(len(self.ledger.courses))]

    def stratum(self, number: int) -> int | None:
        """What the constraints say of the checkpoint that stands for a trial: a place in `STRATA`, None without one."""
        checkpoint = self.courses[number].checkpoint
        if checkpoint is None:
            return None
        amount = feasibility.known(self.problem, checkpoint)
        return 0 if amount is None else 1 if amount == 0.0 else 2

    @property
    def best_number(self) -> int | None:
        """The number of the trial with the best feasible checkpoint, or None while there is none."""
        return None if self.ledger.best is None else self.ledger.best[0]

    @property
    def best(self) -> TrialRecord | None:
        """The trial with the best feasible checkpoint, or None while there is none."""
        number = self.best_number
        return None if number is None else self.ledger.record(number)

    @property
    def certificate(self) -> Certificate | None:
        """What the last certification found, without its model; None before one."""
        over = latest(self.ledger.certifications)
        if over is None:
            return None
        known = self._certificate
        if known is None or known[0] != over.sealed.certification:
            known = over.sealed.certification, certificate(self.ledger.certified_limits(over), over, self.courses)
            self._certificate = known
        return known[1]

    @property
    def is_certificate_current(self) -> bool:
        """Whether the last certification speaks of the limits that hold now, and no better model was found since."""
        over = latest(self.ledger.certifications)
        return over is not None and self.ledger.is_current(over)

    @property
    def counts(self) -> dict[Status, int]:
        """How many trials are running, completed, stopped and failed."""
        return self.ledger.by_status

    @property
    def verdicts(self) -> Sequence[Judged]:
        """What the terminator said."""
        return self.ledger.verdicts

    @property
    def later(self) -> Mapping[int | None, Mapping[str, Any]]:
        """What was noted later, by trial; None is the study."""
        return self.ledger.later

    @property
    def ended(self) -> str | None:
        """Why the last run ended; None while the study runs, or if the run was cut off."""
        return self.ledger.ended

    def checkpoints(self) -> Checkpoints:
        """Every checkpoint, whatever its constraints; those of trials that ended are read once."""
        return self._checkpoints.read(self.ledger)

    def what_if(self, limits: Mapping[str, Any]) -> WhatIf:
        """The best checkpoint under other limits."""
        return what_if(self.ledger, self._checkpoints, self.log, limits)

    def curves(self, numbers: Collection[int]) -> dict[int, Curve]:
        """What some trials reported, by number; those that reported nothing are left out."""
        unknown = [number for number in numbers if not 0 <= number < len(self.courses)]
        if unknown:
            raise UsageError(f"the study {self.name!r} has no trial {unknown[0]}; it has {len(self.courses)}")
        return read_curves(self.log, self.ledger, numbers)


def _is_judged_otherwise(ledger: Ledger, events: Sequence[Event]) -> bool:
    """Whether the ends of trials are not by the limits that hold after these events, so that their reports matter."""
    known = len(ledger.limits.changes)
    changes = known + sum(isinstance(event, LimitsChanged) for event in events)
    return changes > known or any(isinstance(event, Told) and event.limits < changes for event in events)


def read_curves(log: Log, ledger: Ledger, numbers: Collection[int]) -> dict[int, Curve]:
    """What some trials reported, by number, with the newer values of what was measured again.

    Those that reported nothing are left out.
    """
    batches: dict[int, list[Reported]] = {}
    for batch in ledger.remeasured.corrected(ledger.problem, log.reports(numbers)):
        batches.setdefault(batch.number, []).append(batch)
    return {number: _curve(ledger.problem, batches[number]) for number in sorted(batches)}


def _curve(problem: Problem, batches: Sequence[Reported]) -> Curve:
    """One trial's batches, joined; a check that was paid late joins the row of its step."""
    names = ("step", "objective", "values", "train_ns", "check_ns")
    columns = [np.concatenate([getattr(batch, name) for batch in batches]) for name in names]
    columns.append(np.concatenate([batch.error_table() for batch in batches]))
    step, _, values, train_ns, check_ns, errors = columns
    for row in np.flatnonzero(train_ns < 0):
        paid = check_ns[row] >= 0
        for at in np.flatnonzero((step == step[row]) & (train_ns >= 0))[-1:]:
            for column in (values, errors, check_ns):
                column[at, paid] = column[row, paid]
    kept = train_ns >= 0 if (train_ns >= 0).any() else slice(None)  # none is where it was told without a loop
    step, objective, values, train_ns, check_ns, errors = (column[kept] for column in columns)
    paid = check_ns >= 0
    amount = feasibility.violations(problem, values, paid, errors)
    stratum = np.where(np.isnan(amount), 0, np.where(amount == 0.0, 1, 2))
    spent = np.maximum(train_ns, 0) + np.where(paid, check_ns, 0).sum(axis=1)
    return Curve(step, objective, np.where(paid, values, np.nan), stratum, np.cumsum(spent) / 1e9, errors)
