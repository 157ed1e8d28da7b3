"""The common part of the MLflow, TensorBoard and Weights & Biases trackers, which log each trial of a study once.

A tracker is a callback, so it never holds up a trial. It reads a trial from the study's log when the trial has ended,
so reports by step cost nothing while the trial runs, wherever that is.
"""

from __future__ import annotations

import json
import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fairway.checks import flag
from fairway.engine.certificate import Certificate
from fairway.engine.events import Status
from fairway.engine.record import Best, TrialRecord
from fairway.errors import MissingDependency
from fairway.letters import plain
from fairway.logs import logger
from fairway.parameters import Value
from fairway.report import certificates, page
from fairway.report.view import View, read_curves
from fairway.runners.callbacks import Callback
from fairway.study import Study
from fairway.text import goal, limit, shown

_MOST_ROWS = 1000  # of a trial's reports; longer ones are thinned
_LONGEST = 500  # characters of a text


class Entry(NamedTuple):
    """A trial as it is logged."""

    number: int
    status: Status
    params: Mapping[str, Value]
    series: list[tuple[int, float, dict[str, float]]]  # step, time, and what was measured then
    result: dict[str, float]  # the metrics of the checkpoint that represents it, as best/NAME; its seconds
    texts: dict[str, str]  # its status, why it ended, whether it is feasible, what was noted
    began: float
    ended: float


class Tracker(Callback, ABC):
    """A callback that logs a study elsewhere; a subclass says how.

    If a trial cannot be logged, say while a server is down, that is tried again when the run ends. When a study is
    resumed, it continues where it was logged: trials that are there already are not logged again, and those that are
    missing are. `report` says whether the report of the study is logged too, where there is room for it.
    """

    def __init__(self, *, report: bool = True) -> None:
        flag(report, "report")
        self._report = report
        self._key = ""  # of the study that it has opened
        self._logged: set[int] = set()
        self._missed: list[int] = []

    # What a subclass says

    @abstractmethod
    def open(self, study: Study, key: str) -> Collection[int]:
        """Begin or continue to log a study; returns the trials already logged. No other study has its key."""

    @abstractmethod
    def log_trial(self, entry: Entry) -> None:
        """Log a trial that has ended; if this raises, it is called again."""

    def log_best(self, best: Best) -> None:
        """Log that there is a new best checkpoint."""

    def log_end(self, results: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """Log how a run ended: counts of trials and seconds; the reason, and the best configuration."""

    def log_file(self, path: Path) -> None:
        """Store a file: the report or the certificate."""

    def close(self) -> None:
        """A run or a certification is over; another may follow."""

    # What a run tells

    def on_run_start(self, study: Study) -> None:
        """Log trials of earlier runs that are missing, but not those of other processes that may log them now."""
        self._missed = []
        if self._is_open(study):
            theirs = _living_others(study)
            for number, course in enumerate(study.owner.ledger.courses):
                if course.status != "running" and course.worker not in theirs:
                    self._log_once(study, study.owner.ledger.record(number))

    def on_new_best(self, study: Study, best: Best) -> None:
        if self._is_open(study):
            self.log_best(best)

    def on_trial_end(self, study: Study, trial: TrialRecord) -> None:
        self._missed.append(trial.number)
        self._log_once(study, trial)
        self._missed.remove(trial.number)

    def on_run_end(self, study: Study, reason: str) -> None:
        if not self._is_open(study):
            return
        while self._missed:
            self._log_once(study, study.owner.ledger.record(self._missed[0]))
            del self._missed[0]
        self.log_end(*_results(study, reason))
        if self._report:
            self._log_report(study)
        self.close()

    def on_certificate(self, study: Study, certificate: Certificate) -> None:
        if not self._is_open(study):
            return
        document = {"certificate": str(certificate), **certificates.to_json(certificate)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "certificate.json"
            path.write_text(json.dumps(document, indent=2), encoding="utf-8")
            self.log_file(path)
        if self._report:
            self._log_report(study)
        self.close()

    def _is_open(self, study: Study) -> bool:
        """Open the study if need be; False while it has no trial, whose start tells it from others of its name."""
        courses = study.owner.ledger.courses
        if not courses:
            return False
        key = f"{plain(study.name)}-{datetime.fromtimestamp(courses[0].began, UTC):%Y%m%d-%H%M%S-%f}"
        if key != self._key:
            self._logged, self._key = set(self.open(study, key)), key
        return True

    def _log_once(self, study: Study, trial: TrialRecord) -> None:
        if self._is_open(study) and trial.number not in self._logged:
            self.log_trial(_entry(study, trial))
            self._logged.add(trial.number)

    def _log_report(self, study: Study) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            try:
                page.write(View(study), path)
            except MissingDependency as error:
                logger.info("%s logs no report: %s", type(self).__name__, error)
                return
            self.log_file(path)


def described(study: Study) -> dict[str, str]:
    """What a study is, by name: its goal, limits and algorithms, its seed, and each parameter of its space."""
    algorithms = {"sampler": study.sampler, "stopper": study.stopper, "terminator": study.terminator}
    return {
        "goal": goal(study.problem),
        **{f"limit.{plain(each.metric)}": limit(each) for each in study.problem.limits},
        **{name: shown(repr(each), _LONGEST) for name, each in algorithms.items() if each is not None},
        "seed": str(study.seed),
        **{f"space.{plain(name)}": shown(repr(parameter), _LONGEST) for name, parameter in study.space.items()},
    }


def measured_at(best: Best) -> dict[str, float]:
    """The metrics of a new best checkpoint, as they are logged for the study."""
    return {f"best/{plain(name)}": value for name, value in best.metrics.items() if value is not None}


def _living_others(study: Study) -> set[int]:
    """The workers of other processes that are alive."""
    owner = study.owner
    mine = {owner.referee.worker, *owner.journal.roster.further}
    others = {course.worker for course in owner.ledger.courses} - mine
    return set() if study.log.leases is None else others - owner.lost(others)


def _entry(study: Study, trial: TrialRecord) -> Entry:
    course, metrics = study.owner.ledger.courses[trial.number], [plain(name) for name in study.problem.metrics]
    curves = read_curves(study.log, study.owner.ledger, [trial.number])
    series: list[tuple[int, float, dict[str, float]]] = []
    if trial.number in curves:
        curve = curves[trial.number].thinned(_MOST_ROWS)
        rows = zip(
            curve.step.tolist(), curve.seconds.tolist(), curve.objective.tolist(), curve.values.tolist(), strict=True
        )
        for step, seconds, objective, values in rows:
            known = zip(metrics, (objective, *values), strict=True)
            series.append((step, course.began + seconds, {name: v for name, v in known if math.isfinite(v)}))
    result = {f"best/{plain(name)}": value for name, value in trial.metrics.items() if value is not None}
    result |= {} if trial.step is None else {"best/step": float(trial.step)}
    feasible = {None: "unknown", True: "yes", False: "no"}[trial.feasible]
    return Entry(
        trial.number,
        trial.status,
        {plain(name): plain(v) if isinstance(v, str) else v for name, v in trial.params.items()},
        series,
        result | {"training_seconds": trial.training_seconds, "check_seconds": trial.check_seconds},
        {"status": trial.status, "reason": shown(trial.reason, _LONGEST), "feasible": feasible}
        | {f"note.{plain(name)}": shown(note, _LONGEST) for name, note in trial.notes.items()},
        course.began,
        course.ended,
    )


def _results(study: Study, reason: str) -> tuple[dict[str, float], dict[str, str]]:
    best, spent = study.best, study.costs
    numbers = {f"trials/{status}": float(n) for status, n in study.counts.items() if status != "running"}
    numbers |= {name: float(value) for name, value in vars(spent).items()}
    texts = {"ended": shown(reason, _LONGEST)}
    if best is not None:
        texts |= {"best.trial": str(best.number), "best.step": str(best.step)}
        texts |= {f"best.params.{plain(name)}": shown(value, _LONGEST) for name, value in best.params.items()}
    return numbers, texts
