"""A Tune experiment as a study of ours, result by result, so that it is ruled on as our own are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairway import feasibility
from fairway.engine.events import ABSENT
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.problem import Problem
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.space import Space, Value
from fairway.stoppers.never import Never
from fairway.stoppers.stopper import Stopper
from fairway.storage.memory import MemoryLog
from fairway.study import Study
from fairway.terminators.terminator import Terminator

MEASURED = "fairway"
"""Under what name a result carries what `report` measured."""


class Measured(NamedTuple):
    """What one report measured: constraints where they were paid for, prices, the time since the last report."""

    values: Sequence[float | None]
    prices: Sequence[int]
    train_ns: int
    last: bool


class Mirror:
    """A study without a function: trials of Tune begin, report and end in it, by their ids."""

    def __init__(
        self,
        space: Space,
        problem: Problem,
        *,
        sampler: Sampler | None = None,
        stopper: Stopper | None = None,
        terminator: Terminator | None = None,
        seed: int | None = None,
    ) -> None:
        self._parts = {
            "sampler": sampler or Random(),
            "stopper": stopper or Never(),
            "terminator": terminator,
        }
        self.problem = problem
        self._open(space, MemoryLog(), seed)

    def _open(self, space: Space, log: MemoryLog, seed: int | None) -> None:
        objective, constraints = self.problem.objective, self.problem.constraints
        self.study = Study(space, objective, constraints, storage=log, seed=seed, **self._parts)  # type: ignore[arg-type]
        self.running: dict[str, Trial] = {}
        self.ended: set[str] = set()  # by Tune's ids, as the others
        self._done: set[str] = set()  # those that said so themselves, and are about to end
        self._longest = 0  # steps of any trial

    def __getstate__(self) -> dict[str, Any]:
        return {
            "parts": self._parts,
            "problem": self.problem,
            "space": self.study.space,
            "seed": self.study.seed,
            "events": list(self.study.log.read(0)),
            "ended": self.ended,
            "longest": self._longest,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._parts, self.problem = state["parts"], state["problem"]
        log = MemoryLog()
        log.append(state["events"])
        self._open(state["space"], log, state["seed"])
        self.ended, self._longest = set(state["ended"]), state["longest"]
        owner = self.study.owner
        for number in list(owner.ledger.running):  # Tune begins them again
            owner.give_up(number, "Tune went on without it", retry=0)

    def ask(self, trial_id: str) -> Mapping[str, Value]:
        """Begin a trial with what the sampler proposes."""
        trial = self.running[trial_id] = self.study.ask()
        return trial.params

    def begin(self, trial_id: str, params: Mapping[str, Value]) -> None:
        """Begin a trial whose parameters are given; one that ended in Tune may begin again there."""
        self.ended.discard(trial_id)
        self.study.enqueue(params)
        self.running[trial_id] = self.study.ask()

    def hear(self, trial_id: str, result: Mapping[str, Any]) -> str:
        """Take in a result of a trial; why it stops, if it does."""
        trial = self.running[trial_id]
        step = int(result.get("training_iteration", 0))  # none if it reported nothing
        if result.get("done"):
            self._done.add(trial_id)
        if step <= trial._last or trial.stopped:  # nothing new: Tune says it once more when a trial is done
            return trial._verdict or trial._failure
        objective, measured = self._objective(result), self._measured(result)
        if trial._begun < 0:
            trial._begin(None)
        if math.isfinite(objective):
            loss = self.problem.objective.sign * objective
            amount = feasibility.violation(self.problem.constraints, measured.values)
            last = measured.last or step == trial._pace.total
            trial._settle(step, objective, loss, measured.values, measured.prices, amount, measured.train_ns, last)
        else:
            trial._failure = f"{self.problem.objective.metric} is {objective} at step {step}"
        self._longest = max(self._longest, step)
        most = trial._pace.total  # the stopper's own
        if most is not None and step >= most:
            self._done.add(trial_id)
            return trial._verdict or trial._failure or f"step {step} is the last that the stopper allows"
        return trial._verdict or trial._failure

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

    def end(self, trial_id: str, result: Mapping[str, Any] | None = None, *, error: bool = False) -> None:
        """A trial ended, with an error or after a last result.

        Tune does not say who ended it. A trial that said itself that it was done, or that went as far as any, is
        complete; another one was stopped by somebody.
        """
        trial = self.running.get(trial_id)
        complete = trial_id in self._done
        if trial is not None and result is not None and not error:
            self.hear(trial_id, result)
        self.running.pop(trial_id, None)
        self._done.discard(trial_id)
        self.ended.add(trial_id)
        if trial is None:
            return
        if trial._failure or error or not trial._last:
            why = trial._failure or ("failed in Tune" if error else "reported nothing")
            self.study.tell(trial, failed=why)
            return
        if not trial.stopped and not complete and trial._last < self._longest:
            trial._cut = "stopped in Tune"
        self.study.tell(trial)


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
