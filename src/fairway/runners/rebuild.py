"""Training the best configuration again, to the very step that was best: from what a study found to a model.

A study keeps numbers, not models. A function that reports on the way and returns its model can be run once more with
the same parameters and seed; its reports are listened to, and end it where the best checkpoint was.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fairway.engine.clock import WallClock
from fairway.engine.events import Reported
from fairway.engine.referee import Referee
from fairway.engine.trial import Decision, Trial
from fairway.errors import UsageError
from fairway.problem import Problem
from fairway.runners.evaluate import is_measured
from fairway.space import Value
from fairway.stoppers.never import Never


class Found(Protocol):
    """What is to be built again: a checkpoint of a trial, as `study.best` is."""

    @property
    def number(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def params(self) -> Mapping[str, Value]: ...
    @property
    def metrics(self) -> Mapping[str, float | None]: ...


def rebuild(found: Found, seed: int, problem: Problem, function: Callable[[Trial], Any]) -> Any:
    """What a function returns when it is run again up to a checkpoint; a warning where that comes out differently."""
    again = Again(found, seed, problem)
    model = function(again)
    name = problem.objective.metric
    if model is None or is_measured(problem, model):
        raise UsageError(
            f"the function returned {'nothing' if model is None else 'its metrics'}: "
            "to build a model, report the metrics on the way and return the model"
        )
    if again.reached is None:
        raise UsageError(
            f"the function did not report step {found.step} this time, where {name} was {found.metrics[name]}"
        )
    for metric, now in zip(problem.metrics, again.reached, strict=True):
        then = found.metrics[metric]
        if now is not None and then is not None and not math.isclose(now, then, rel_tol=1e-6, abs_tol=1e-15):
            warnings.warn(
                f"built again, trial {found.number} has {metric} {now:.6g} at step {found.step} where it had "
                f"{then:.6g}: training does not depend on its parameters and trial.seed alone",
                stacklevel=3,
            )
    return model


class Again(Trial):
    """A trial that ends at a given step, calls no constraint and is written nowhere."""

    __slots__ = ("_until", "reached")

    def __init__(self, found: Found, seed: int, problem: Problem) -> None:
        referee = Referee(problem, Never(skip=False))
        referee.bar = -math.inf  # no check is worth its price, and that stays so: the answers are known
        super().__init__(found.number, found.params, seed=seed, referee=referee, send=_forget, clock=WallClock())
        self._until = found.step
        self.reached: tuple[float | None, ...] | None = None  # the metrics at that step, as far as they were numbers

    def _settle(self, step: int, objective: float, loss: float, values: Sequence[float | None], *rest: Any) -> Decision:
        decision = super()._settle(step, objective, loss, values, *rest)
        if step < self._until:
            return decision
        self._cut = f"step {self._until} was the best"
        self.reached = (objective, *values) if step == self._until else None
        return Decision(stop=True, reason=self._cut, interval=decision.interval, best=True)


def _forget(batch: Reported) -> None:
    """What is reported again was written when it was reported first."""
