"""The results of a Tune experiment, on their way over the bridge."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairway import feasibility
from fairway.engine.events import ABSENT
from fairway.engine.measurement import Observation
from fairway.errors import UsageError
from fairway.integrations.bridge import Bridge
from fairway.problem import Problem

MEASURED = "fairway"
"""Under what name a result carries what `report` measured."""


class Measured(NamedTuple):
    """What one report measured: constraints where they were paid for, prices, the time since the last report."""

    values: Sequence[float | None]
    prices: Sequence[int]
    train_ns: int
    last: bool


class TuneBridge(Bridge[str]):
    """A bridge whose trials report by Tune's results, and have Tune's ids."""

    def __init__(self, problem: Problem, *given: Any, **rules: Any) -> None:
        super().__init__(problem, *given, **rules)
        self._done: set[str] = set()  # trials that said so themselves, and are about to end
        self._longest = 0  # steps of any trial

    def hear(self, trial_id: str, result: Mapping[str, Any]) -> str:
        """Take in a result of a trial; why it stops, if it does."""
        driver = self.running[trial_id].driver
        step = int(result.get("training_iteration", 0))  # none if it reported nothing
        if result.get("done"):
            self._done.add(trial_id)
        if step <= driver.last_step or driver.reason:  # nothing new: Tune says it once more when a trial is done
            return driver.reason
        objective, measured = self._objective(result), self._measured(result)
        if not driver.has_begun:
            driver.begin(None)
        if math.isfinite(objective):
            loss = self.problem.objective.sign * objective
            amount = feasibility.violation(self.problem.constraints, measured.values)
            last = measured.last or step == driver.total
            values, prices, train_ns, _ = measured
            driver.settle(Observation(step, objective, loss, values, prices, amount, train_ns, last))
        else:
            driver.fail(f"{self.problem.objective.metric} is {objective} at step {step}")
        self._longest = max(self._longest, step)
        if driver.total is not None and step >= driver.total:  # the stopper's own
            self._done.add(trial_id)
            return driver.reason or f"step {step} is the last that the stopper allows"
        return driver.reason

    def _objective(self, result: Mapping[str, Any]) -> float:
        metric = self.problem.objective.metric
        if not _is_number(result.get(metric)):
            there = ", ".join(name for name, value in result.items() if _is_number(value) and "/" not in name)
            raise UsageError(f"the objective {metric!r} was not reported; what was: {there}")
        return float(result[metric])

    def _measured(self, result: Mapping[str, Any]) -> Measured:
        packed = result.get(MEASURED)
        if isinstance(packed, str):
            return Measured(*json.loads(packed))
        values = [result.get(constraint.metric) for constraint in self.problem.constraints]
        known = [float(value) if _is_number(value) and not math.isnan(value) else None for value in values]  # type: ignore[arg-type]
        prices = [ABSENT if value is None else 0 for value in known]
        train_ns = round(1e9 * float(result.get("time_this_iter_s", 0.0)))
        return Measured(known, prices, train_ns, bool(result.get("done", False)))

    def end_with(self, trial_id: str, result: Mapping[str, Any] | None = None, *, error: bool = False) -> None:
        """A trial ended, with an error or after a last result.

        Tune does not say who ended it. A trial that said itself that it was done, or that went as far as any, is
        complete; another one was stopped by somebody.
        """
        complete = trial_id in self._done
        if trial_id in self.running and result is not None and not error:
            self.hear(trial_id, result)
        self._done.discard(trial_id)
        trial = self.running.get(trial_id)
        short = trial is not None and not complete and trial.last_step < self._longest
        self.end(trial_id, failed="failed in Tune" if error else "", cut="stopped in Tune" if short else "")


def _is_number(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def mode_of(problem: Problem) -> str:
    """What Tune calls the direction of the objective."""
    return "max" if problem.objective.sign < 0 else "min"


def agree(problem: Problem, metric: str | None, mode: str | None) -> None:
    """Refuse a metric or mode of `TuneConfig` that is not the problem's objective."""
    objective = problem.objective
    if metric not in (None, objective.metric) or mode not in (None, mode_of(problem)):
        raise UsageError(f"TuneConfig(metric={metric!r}, mode={mode!r}) is not the problem's objective, {objective}")
