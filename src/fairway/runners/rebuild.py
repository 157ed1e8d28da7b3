"""Trains the best configuration again, up to its best step: from what a study found to a model.

A study keeps numbers, not models. A function that reports on the way and returns its model can run once more with the
same parameters and seed; its reports are heard, and end it at the best checkpoint.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fairway.engine.clock import WallClock
from fairway.engine.decision import Decision
from fairway.engine.driver import Driver
from fairway.engine.measurement import Given, Observation, joined
from fairway.engine.record import Best
from fairway.engine.referee import Referee
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.problem import Problem
from fairway.runners.evaluate import is_measured
from fairway.stoppers.never import Never


def rebuild(
    best: Best, seed: int, problem: Problem, function: Callable[[Trial], Any], *, driver: Again | None = None
) -> Any:
    """What a function returns when it runs again up to a checkpoint; warns if its metrics come out differently."""
    again = driver or Again(best, problem)
    model = function(Trial(best.number, best.params, seed=seed, driver=again))
    name = problem.objective.metric
    if model is None or is_measured(problem, model):
        raise UsageError(
            f"the function returned {'nothing' if model is None else 'its metrics'}: "
            "to build a model, report the metrics on the way and return the model"
        )
    if again.reached is None:
        raise UsageError(
            f"the function did not report step {best.step} this time, where {name} was {best.metrics[name]}"
        )
    crowded = {constraint.metric for constraint in problem.constraints if constraint.alone}
    for metric, now in zip(problem.metrics, again.reached, strict=True):
        then = None if metric in crowded else best.metrics[metric]
        if now is not None and then is not None and not math.isclose(now, then, rel_tol=1e-6, abs_tol=1e-15):
            warnings.warn(
                f"built again, trial {best.number} has {metric} {now:.6g} at step {best.step} where it had "
                f"{then:.6g}: training does not depend on its parameters and trial.seed alone",
                stacklevel=3,
            )
    return model


class Again(Driver):
    """Drives a trial up to a given step and writes nothing; constraints are called at `steps` alone, by default never.

    A subclass may choose what is `offered` to be measured there, and is told of each such report (`heard`).
    """

    __slots__ = ("_steps", "reached", "until")

    def __init__(self, best: Best, problem: Problem, *, steps: Collection[int] = ()) -> None:
        super().__init__(best.number, Referee(problem, Never(skip=False)), WallClock())
        self._steps, self.until = frozenset(steps), best.step
        self.reached: tuple[float | None, ...] | None = None  # the metrics at that step, as far as they were numbers

    def offered(self, offers: dict[str, Given]) -> dict[str, Given]:
        """What of a report is measured, by metric."""
        return offers

    def heard(self, observation: Observation | None, step: int, checkpoint: Any) -> None:
        """A report came at one of the steps; without an observation, its trial failed."""

    def measure(
        self,
        metrics: Mapping[str, Given] | None,
        named: dict[str, Given] | None = None,
        step: int | None = None,
        checkpoint: Any = None,
    ) -> Observation | None:
        at = self.next_step if step is None else step
        wanted = at in self._steps
        self.referee.bar = math.inf if wanted else -math.inf  # every check is worth its price, or none
        offers = self.offered(joined(self.problem, {} if metrics is None else metrics, named or {}))
        observation = super().measure(None, offers, step, checkpoint)
        if wanted:
            self.heard(observation, at, checkpoint)
        return observation

    def settle(self, observation: Observation) -> Decision:
        decision = super().settle(observation)
        if observation.step < self.until:
            return decision
        self.cut(f"step {self.until} was the best")
        self.reached = (observation.objective, *observation.values) if observation.step == self.until else None
        return Decision(stop=True, reason=self.reason, interval=decision.interval, best=True)
