"""The models behind checkpoints: trained again, cut back to a step, or handed over by training itself.

A booster's first rounds do not change as it grows, so one training gives the models of all its rounds. Other training
functions hand over a `checkpoint` with each report; without either, each checkpoint takes a training of its own.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection
from numbers import Integral
from typing import Any, NamedTuple

from fairway.engine.measurement import Observation
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
        """Whether it can give the models of earlier steps, judged by the first measured step."""
        return all(self.at(row.step) is not None for row in self.rows[:1])

    def at(self, step: int) -> Any:
        """The model as it was at a step; None if this training cannot tell.

        A whole number that came as a checkpoint is a number of rounds. Without one, steps are taken for rounds if the
        model has as many of them as there were steps: a loop may as well train ten rounds a step.
        """
        if step == self._last:
            return self.model
        checkpoint = self._checkpoints.get(step)
        if isinstance(checkpoint, Integral):
            return cut(self.model, int(checkpoint))
        shortened = cut(self.model, step) if rounds_of(self.model) == self._last else None
        return checkpoint if shortened is None and self._is_model(checkpoint) else shortened

    def _is_model(self, checkpoint: Any) -> bool:
        """Whether a checkpoint is a model itself, and not where or how one is kept: a path, an epoch, a dictionary."""
        return isinstance(checkpoint, type(self.model)) or callable(checkpoint) or hasattr(checkpoint, "predict")


class _Survey(Again):
    """Measures constraints at some steps, and keeps the checkpoints that come with those reports."""

    def __init__(self, last: Best, problem: Problem, steps: Collection[int]) -> None:
        super().__init__(last, problem, steps=steps)
        self.rows: list[Row] = []
        self.checkpoints: dict[int, Any] = {}

    def heard(self, observation: Observation | None, step: int, checkpoint: Any) -> None:
        if checkpoint is not None:
            self.checkpoints[step] = checkpoint
        if observation is not None and None not in observation.values:
            errors = tuple(observation.errors) or (None,) * len(observation.values)
            values = tuple(value for value in observation.values if value is not None)
            self.rows.append(Row(observation.step, observation.objective, values, errors))


def cut(model: Any, rounds: int) -> Any:
    """A boosted model's first rounds, as a model of its own; None for a model that cannot be cut back.

    It predicts what the booster predicted when it had as many rounds, to the last bit. With DART a round changes
    earlier ones, and in a linear booster all share their weights, so those models cannot be cut.
    """
    trained = rounds_of(model)
    if trained is None or not 0 < rounds <= trained:
        return None
    if type(model).__name__ != "Booster":
        return _with_booster(model, cut(_booster(model), rounds), rounds)
    if _library(model) == "lightgbm":
        if any(model.params.get(alias) == "dart" for alias in ("boosting", "boosting_type", "boost")):
            return None
        return type(model)(model_str=model.model_to_string(num_iteration=rounds))
    kind = json.loads(model.save_config())["learner"]["gradient_booster"]["name"]
    return model[:rounds] if kind == "gbtree" else None


def rounds_of(model: Any) -> int | None:
    """The rounds that a boosted model of LightGBM or XGBoost has; None for any other model."""
    booster = _booster(model)
    if booster is None:
        return None
    return int(booster.current_iteration() if _library(model) == "lightgbm" else booster.num_boosted_rounds())


def _booster(model: Any) -> Any:
    """The booster of an estimator, or the booster itself; None for any other model."""
    if type(model).__name__ == "Booster" and _library(model) in ("lightgbm", "xgboost"):
        return model
    if _library(model) == "lightgbm":
        return getattr(model, "booster_", None)
    return model.get_booster() if _library(model) == "xgboost" and hasattr(model, "get_booster") else None


def _library(model: Any) -> str:
    return type(model).__module__.partition(".")[0]


def _with_booster(model: Any, booster: Any, rounds: int) -> Any:
    """A copy of a scikit-learn estimator around another booster."""
    if booster is None:
        return None
    made = copy.copy(model)
    vars(made)["_Booster"] = booster  # both libraries keep it there, and neither has a way to set it
    if "_best_iteration" in vars(made):  # LightGBM's; XGBoost asks the booster
        vars(made)["_best_iteration"] = rounds
    return made
