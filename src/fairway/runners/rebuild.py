"""Training the best configuration again, to the very step that was best: from what a study found to a model.

A study keeps numbers, not models. A function that reports on the way and returns its model can be run once more with
the same parameters and seed; its reports are listened to, and end it where the best checkpoint was.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fairway.engine.clock import WallClock
from fairway.engine.decision import Decision
from fairway.engine.driver import Driver
from fairway.engine.measurement import Observation
from fairway.engine.referee import Referee
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.parameters import Value
from fairway.problem import Problem
from fairway.runners.evaluate import is_measured
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
    again = Again(found, problem)
    model = function(Trial(found.number, found.params, seed=seed, driver=again))
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


class Again(Driver):
    """Drives a trial up to a given step, calls no constraint and is written nowhere."""

    __slots__ = ("_until", "reached")

    def __init__(self, found: Found, problem: Problem) -> None:
        referee = Referee(problem, Never(skip=False))
        referee.bar = -math.inf  # no check is worth its price, and that stays so: the answers are known
        super().__init__(found.number, referee, WallClock())
        self._until = found.step
        self.reached: tuple[float | None, ...] | None = None  # the metrics at that step, as far as they were numbers

    def settle(self, observation: Observation) -> Decision:
        """Settle as ever, and end at the step that was best."""
        decision = super().settle(observation)
        if observation.step < self._until:
            return decision
        self.cut(f"step {self._until} was the best")
        self.reached = (observation.objective, *observation.values) if observation.step == self._until else None
        return Decision(stop=True, reason=self.reason, interval=decision.interval, best=True)
