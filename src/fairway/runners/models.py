"""The models behind checkpoints: trained again, cut back to a step, or handed over by training itself.

A booster's first rounds do not change as it grows, so one training gives the models of all its rounds. Other training
functions hand over a `checkpoint` with each report; without either, each checkpoint takes a training of its own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from fairway.engine.measurement import Given, Observation
from fairway.engine.record import Best
from fairway.engine.trial import Trial
from fairway.problem import Problem
from fairway.runners.rebuild import Again, rebuild


class Row(NamedTuple):
    """What was measured at a step on the way."""

    step: int
    objective: float
    values: tuple[float, ...]
    errors: tuple[float | None, ...]


class Training:
    """One configuration, trained again up to a step, with its constraints measured at some steps on the way."""

    def __init__(
        self, last: Best, seed: int, problem: Problem, train: Callable[[Trial], Any], steps: Collection[int]
    ) -> None:
        driver = _Survey(last, problem, steps)
        self.model = rebuild(last, seed, problem, train, driver=driver)
        self.rows = driver.rows
        self._checkpoints, self._last = driver.checkpoints, last.step

    @property
    def cuts(self) -> bool:
        """Whether it gives a model for every step that was measured."""
        return all(self.at(row.step) is not None for row in self.rows[:1])

    def at(self, step: int) -> Any:
        """The model as it was at a step; None if this training cannot tell."""
        checkpoint = self._checkpoints.get(step)
        rounds = checkpoint if isinstance(checkpoint, int) else step
        shortened = self.model if step == self._last else cut(self.model, rounds)
        return checkpoint if shortened is None and not isinstance(checkpoint, int) else shortened


class _Survey(Again):
    """Measures constraints at some steps, and keeps the checkpoints that come with those reports."""

    def __init__(self, last: Best, problem: Problem, steps: Collection[int]) -> None:
        super().__init__(last, problem)
        self.rows: list[Row] = []
        self.checkpoints: dict[int, Any] = {}
        self._steps = set(steps)

    def measure(
        self,
        metrics: Mapping[str, Given] | None,
        named: dict[str, Given] | None = None,
        step: int | None = None,
        checkpoint: Any = None,
    ) -> Observation | None:
        at = step if step is not None else self.step or self.last_step + 1
        wanted = at in self._steps
        self.referee.bar = math.inf if wanted else -math.inf
        if wanted and checkpoint is not None:
            self.checkpoints[at] = checkpoint
        observation = super().measure(metrics, named, step, checkpoint)
        if wanted and observation is not None and None not in observation.values:
            errors = tuple(observation.errors) or (None,) * len(observation.values)
            values = tuple(value for value in observation.values if value is not None)
            self.rows.append(Row(observation.step, observation.objective, values, errors))
        return observation


def cut(model: Any, rounds: int) -> Any:
    """A boosted model's first rounds, as a model of its own; None for a model that cannot be cut back.

    With DART a round changes earlier ones, so those models cannot be cut.
    """
    library, kind = type(model).__module__.partition(".")[0], type(model).__name__
    if library == "lightgbm" and kind == "Booster":
        if any(model.params.get(alias) == "dart" for alias in ("boosting", "boosting_type", "boost")):
            return None
        return type(model)(model_str=model.model_to_string(num_iteration=rounds))
    if library == "xgboost" and kind == "Booster":
        return None if "dart" in model.save_config() and '"name":"dart"' in model.save_config() else model[:rounds]
    if library == "lightgbm" and hasattr(model, "booster_"):
        return _with_booster(model, "_Booster", cut(model.booster_, rounds), rounds)
    if library == "xgboost" and hasattr(model, "get_booster"):
        return _with_booster(model, "_Booster", cut(model.get_booster(), rounds), rounds)
    return None


def _with_booster(model: Any, name: str, booster: Any, rounds: int) -> Any:
    """A copy of a scikit-learn estimator around another booster."""
    if booster is None:
        return None
    made = copy.copy(model)
    setattr(made, name, booster)
    for attribute in ("_best_iteration", "best_iteration"):
        if attribute in vars(made):
            setattr(made, attribute, rounds)
    return made
