"""The constraints of one running trial: which reports are worth a check, and what the checks find.

The referee holds the rules for all trials (`Referee.pays`, `Referee.check_order`). A checker applies them to one trial:
it takes the constraints that were reported as values, calls those that were reported as functions when they are paid
for, and keeps the report that is to be checked when training ends.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fairway import feasibility
from fairway.engine import measurement
from fairway.engine.events import ABSENT, SAVED
from fairway.engine.measurement import Given, Observation, Report
from fairway.engine.pace import Pace
from fairway.engine.referee import Referee
from fairway.engine.remeasurement import how_measured
from fairway.folds import Folds
from fairway.measured import Measured
from fairway.problem import Problem


class Checker:
    """Checks the constraints of one trial; `notes` are the trial's, and get what a value says of its measurement."""

    __slots__ = (
        *("busy", "columns", "on_check", "overran", "slowest"),
        *("_awaited", "_clock", "_notes", "_number", "_problem", "_referee", "_saw_values"),
    )

    def __init__(self, number: int, referee: Referee, clock: Callable[[], int], notes: dict[str, Any]) -> None:
        self.busy = False  # inside a constraint's function
        self.on_check: Callable[[str], object] | None = None  # hears which constraint is called; "" when it is over
        self.slowest = math.inf  # seconds that one check may take
        self.overran = ""  # why the trial should end: a check took longer than that
        self._number, self._referee, self._clock, self._notes = number, referee, clock, notes
        self._awaited: Report | None = None  # to be checked when training ends, unless a better one comes
        self._saw_values = False  # a constraint was reported as a value
        self.judge_by(referee.problem)

    def judge_by(self, problem: Problem) -> None:
        """Take over the referee's limits, which may change while the trial trains."""
        self._problem = problem
        self.columns = {constraint.metric: i for i, constraint in enumerate(problem.constraints)}
        if self._awaited is not None:
            self._awaited = measurement.offered_again(self._awaited, problem)

    # Which reports are checked

    def choose(self, report: Report, pace: Pace) -> tuple[int, int] | None:
        """The choice to pay for this report, as an act of the referee; None if it is not checked now.

        A report that is not checked now may wait for the end of training.
        """
        kept = self._awaited
        if pace.interval != 1:
            better = report.lazy and (kept is None or report.standing < kept.standing)
            if pace.at_end and kept is not None and kept.checkpoint is not None and not better:
                return None  # an earlier checkpoint is better
            # Without checkpoints it is the last state that counts; one that offers nothing leaves nothing to check.
            self._awaited = report if report.lazy and not pace.allows(report.step, last=report.last) else None
        return self.commit(report, pace)

    def commit(self, report: Report, pace: Pace) -> tuple[int, int] | None:
        """The choice to pay, as an act of the referee; None if it is not worth it, or if limits have just changed."""
        referee = self._referee
        with referee.lock:
            if self._problem is not referee.problem or not referee.pays(self._number, pace, report):
                return None
            return referee.commit()

    def take_awaited(self) -> Report | None:
        """The report that waits for the end of training, if there is one; it no longer waits."""
        awaited, self._awaited = self._awaited, None
        return awaited

    def carry(self, named: dict[str, Given], step: int, loss: float) -> bool:
        """Fill in the values of limits that training never changes; True if one of them was never checked here.

        A report that may be the best is measured all the same.
        """
        referee, steadiness = self._referee, self._referee.steadiness
        if self._problem is not referee.problem:
            return False
        if loss > referee.bar_of(self._number, step, last=False):
            for i, value in steadiness.carried(self._number, step).items():
                name = self._problem.constraints[i].metric
                if callable(named.get(name)):
                    named[name] = value
        return bool(steadiness.unchecked(self._number))

    # What a check finds

    def check(
        self, report: Report, payment: tuple[int, int] | None, *, keep: Callable[[Observation], object]
    ) -> Observation:
        """Take the constraints that came as values; if the report is paid for, call the others until one is violated.

        If one raises, `keep` is called with what is known of the report by then.
        """
        problem, constraints = self._problem, self._problem.constraints
        values: list[float | None] = [None] * len(constraints)
        errors: list[float | None] = [None] * len(constraints)
        prices = [ABSENT] * len(constraints)
        lazy: dict[int, Callable[..., float | Folds]] = {}
        for name, offer in report.offers.items():
            i = self.columns[name]
            if callable(offer):
                lazy[i], prices[i] = offer, SAVED
            else:
                values[i], errors[i] = measurement.measured(problem, constraints[i], offer)
                prices[i] = 0
                self._note(i, offer)
                if not self._number and not self._saw_values:  # the first values of all
                    self._warn_if_hopeless(i, offer, errors[i])
        self._saw_values = self._saw_values or len(lazy) < len(report.offers)
        for i in self._order(report, lazy) if payment is not None else ():
            began = self._clock()
            try:
                given = self._call(constraints[i].metric, lazy[i], report)
                values[i], errors[i] = measurement.measured(problem, constraints[i], given)
            except Exception as raised:
                raised.add_note(f"raised by constraint {constraints[i].metric!r} {self._where(report, raised)}")
                prices[i] = ABSENT
                keep(measurement.observed(report, values, prices, None, payment, errors))
                raise
            prices[i] = max(self._clock() - began, 1)
            self._note(i, given)
            if prices[i] > self.slowest * 1e9:
                self.overran = slow_check(constraints[i].metric, self.slowest)
            if self._is_first_check(i):
                self._warn_if_hopeless(i, given, errors[i])
            if feasibility.excess(constraints[i], values[i], errors[i]):  # type: ignore[arg-type]
                break
        amount = feasibility.violation(constraints, values, errors)
        return measurement.observed(report, values, prices, amount, payment, errors)

    def _order(self, report: Report, lazy: Mapping[int, object]) -> Collection[int]:
        """The constraints to check, in their order; as they come if the limits changed since the choice to pay."""
        if len(lazy) == 1:
            return lazy.keys()
        with self._referee.lock:
            same = self._problem is self._referee.problem
            return self._referee.check_order(self._number, report, lazy.keys()) if same else lazy.keys()

    def _call(self, metric: str, function: Callable[..., Any], report: Report) -> Any:
        """What a constraint's function returns, called with the checkpoint if there is one."""
        self.busy = True
        if self.on_check is not None:
            self.on_check(metric)
        try:
            return function() if report.checkpoint is None else function(report.checkpoint)
        finally:
            self.busy = False
            if self.on_check is not None:
                self.on_check("")

    def _where(self, report: Report, raised: Exception) -> str:
        """Where a check raised, and what to do about one that takes an argument and was called without any."""
        if report.checkpoint is not None:
            return f"of trial {self._number} at step {report.step}, called with the checkpoint"
        where = f"of trial {self._number} at step {report.step}"
        entered = raised.__traceback__ and raised.__traceback__.tb_next and raised.__traceback__.tb_next.tb_next
        if entered or not isinstance(raised, TypeError):
            return where
        return f"{where}, called without arguments: report(..., checkpoint=model) has it called with the model"

    def _is_first_check(self, i: int) -> bool:
        checks = self._referee.checks  # as many as there are limits, which may have changed by now
        return i < len(checks) and not checks[i]

    def _note(self, i: int, given: Any) -> None:
        """Keep what a measured value says of how it was measured."""
        if isinstance(given, Measured) and given.note:
            self._notes[how_measured(self._problem.constraints[i].metric)] = given.note

    def _warn_if_hopeless(self, i: int, given: Any, error: float | None) -> None:
        warning = measurement.hopeless_warning(self._problem.constraints[i], given, error)
        if warning:
            warnings.warn(warning, stacklevel=2)


def slow_check(metric: str, seconds: float) -> str:
    """Why a trial ends whose check of a constraint took too long."""
    return f"the check of {metric} took longer than check_timeout={seconds:g} s"
