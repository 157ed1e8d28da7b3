"""A Tune experiment as a study of ours, result by result, so that it is ruled on as our own are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairway import feasibility
from fairway.errors import UsageError
from fairway.events import ABSENT
from fairway.problem import Problem
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.space import Space, Value
from fairway.stoppers.never import Never
from fairway.stoppers.stopper import Stopper
from fairway.storage.memory import MemoryLog
from fairway.study import Study
from fairway.terminators.terminator import Terminator
from fairway.trial import Trial

ROWS = "fairway"
"""Under what name a result carries what `report` measured."""


class Row(NamedTuple):
    """What one report measured; `train_ns` is ABSENT for a checkpoint of an earlier step whose checks came late."""

    step: int
    objective: float
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
        owner = self.study._owner
        for number in list(owner.ledger.running):  # Tune begins them again
            owner.give_up(number, "Tune went on without it", retry=0)

    def ask(self, trial_id: str) -> Mapping[str, Value]:
        """Begin a trial with what the sampler proposes."""
        trial = self.running[trial_id] = self.study.ask()
        return trial.params

    def begin(self, trial_id: str, params: Mapping[str, Value]) -> None:
        """Begin a trial whose parameters are given."""
        self.study.enqueue(params)
        self.running[trial_id] = self.study.ask()

    def hear(self, trial_id: str, result: Mapping[str, Any]) -> str:
        """Take in a result of a trial; why it stops, if it does."""
        trial = self.running[trial_id]
        for row in self._rows(trial, result):
            if trial.stopped:
                break
            if trial._begun < 0:
                trial._begin(None)
            if not math.isfinite(row.objective):
                trial._failure = f"{self.problem.objective.metric} is {row.objective} at step {row.step}"
                break
            loss = self.problem.objective.sign * row.objective
            amount = feasibility.violation(self.problem.constraints, row.values)
            trial._settle(row.step, row.objective, loss, row.values, row.prices, amount, row.train_ns, row.last)
        self._longest = max(self._longest, trial._last)
        if result.get("done"):
            self._done.add(trial_id)
        return trial._verdict or trial._failure

    def _rows(self, trial: Trial, result: Mapping[str, Any]) -> list[Row]:
        packed = result.get(ROWS)
        if isinstance(packed, str):
            rows = [Row(*row) for row in json.loads(packed)]
            return [row for row in rows if row.step > trial._last or row.train_ns == ABSENT]
        step = int(result["training_iteration"])
        if step <= trial._last:
            return []  # Tune says it once more when a trial is done
        objective, *constraints = self.problem.metrics
        if not _is_number(result.get(objective)):
            there = ", ".join(name for name, value in result.items() if _is_number(value) and "/" not in name)
            raise UsageError(f"the objective {objective!r} was not reported; what was: {there}")
        values = [result.get(name) for name in constraints]
        known = [float(value) if _is_number(value) and not math.isnan(value) else None for value in values]  # type: ignore[arg-type]
        prices = [ABSENT if value is None else 0 for value in known]
        train_ns = round(1e9 * float(result.get("time_this_iter_s", 0.0)))
        return [Row(step, float(result[objective]), known, prices, train_ns, bool(result.get("done", False)))]

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
    return hasattr(value, "__float__") and not isinstance(value, str | bytes)
