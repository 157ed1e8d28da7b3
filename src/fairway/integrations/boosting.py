"""What fairway does inside a boosting library: each round is a report, and a round that becomes the best is saved.

LightGBM and XGBoost differ in how a callback is called and how a model is written; all else is here. A booster's first
rounds do not change as it grows, so a round's number is a checkpoint: a limit that is checked when training has ended
looks at the best round, not at the last. Where rounds do change (DART), it is the last state that can be checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fairway.engine.measurement import Given
from fairway.engine.trial import Trial
from fairway.errors import StorageError, UsageError
from fairway.parameters import Value
from fairway.runners.rebuild import Again
from fairway.seeds import trial_seed
from fairway.study import Study

Measure: TypeAlias = Callable[[Any, int], float]
"""What measures a constraint: called with the booster and how many of its rounds to predict with."""


class Evaluated(NamedTuple):
    """One number that the library measured in a round."""

    data: str  # the name of the data set
    metric: str
    value: float
    higher_is_better: bool | None  # None: unknown


@dataclass(frozen=True)
class Library:
    """What differs between the libraries."""

    name: str
    suffix: str  # of its model files
    count: Callable[[Any], int]  # the rounds that a booster has
    dump: Callable[[Any, int], bytes]  # its first rounds, as a file's content
    load: Callable[[Path], Any]


class Rounds:
    """The rounds of one training, as reports to one trial.

    `constraints` maps metrics to functions of the booster and the number of rounds to predict with; they are called
    only when that is worth its price. `valid` names the data set to judge by, `save_to` the folder for models.
    """

    def __init__(
        self,
        library: Library,
        trial: Trial,
        metric: str,
        *,
        constraints: Mapping[str, Measure | float] | None,
        valid: str | None,
        save_to: str | os.PathLike[str] | None,
    ) -> None:
        if not isinstance(trial, Trial):
            raise UsageError(f"callback({trial!r}): the trial that the function was called with is expected")
        if not isinstance(metric, str):
            raise UsageError(f"metric={metric!r}: the name of an evaluation metric of {library.name} is expected")
        self.trial = trial
        self._library = library
        self._metric = metric
        self._constraints = dict(constraints or {})
        self._valid = valid
        # What is built again is written nowhere.
        self._folder = None if save_to is None or isinstance(trial.driver, Again) else _folder(save_to)
        self._saved: Path | None = None
        self._booster: Any = None
        self._count_at: dict[int, int] = {}  # the rounds of the booster, by step
        self.value = math.nan  # of the objective in the last round
        trial.driver.on_best = self._save

    @property
    def over(self) -> bool:
        """Whether the trial takes no more reports."""
        return self.trial.driver.is_over

    @property
    def cut(self) -> bool:
        """Whether training is to end here though it had more rounds to come."""
        return self.trial.stopped or self.trial.driver.is_at_stoppers_end

    def begin(self, total: int | None, *, since: int | None = None) -> None:
        """So many rounds are meant to come; they began now, or at a time by the trial's clock."""
        driver = self.trial.driver
        if driver.last_step or driver.status != "running":
            raise UsageError(
                f"trial {self.trial.number} has reported a training already: one training a trial "
                f"({self._library.name}'s cv trains several folds at once)"
            )
        if not driver.has_begun:
            driver.begin(total)
        if since is not None:
            driver.train_since(since)

    def report(
        self, booster: Any, step: int, evaluated: Iterable[Evaluated], *, training: Collection[str], lasting: bool
    ) -> bool:
        """Report a round; whether the trial is to be stopped. `lasting`: later rounds leave this one as it is."""
        value, rounds = self._chosen(list(evaluated), training), self._library.count(booster)
        self.value, self._booster, self._count_at[step] = value, booster, rounds
        offers: dict[str, Given] = {self.trial.problem.objective.metric: value}
        for name, given in self._constraints.items():
            offers[name] = partial(self._check, given, booster, rounds) if callable(given) else given
        return self.trial.report(offers, step=step, checkpoint=rounds if lasting else None).stop

    def _check(self, measure: Measure, booster: Any, rounds: int, checkpoint: int | None = None) -> float:
        """The value of a constraint after so many rounds, now or when training has ended."""
        del checkpoint  # the rounds, if they last
        left = self._library.count(booster)
        if left < rounds:
            raise UsageError(
                f"round {rounds} is to be checked, and early stopping kept {left}: "
                f"have it look at {self._metric} alone, so that both mean the same round"
            )
        return measure(booster, rounds)

    def _save(self, step: int, value: float) -> None:
        """Save a round that has become the best of the study, in place of the one before."""
        if self._folder is None:
            return
        trial, booster, rounds = self.trial, self._booster, self._count_at[step]
        name = _file_name(trial.number, trial.seed, trial.params, step, value, self._library.suffix)
        target, content = self._folder / name, self._library.dump(booster, rounds)
        part = self._folder / f"{name}.{os.getpid()}.part"
        try:
            part.write_bytes(content)
            part.replace(target)
            if self._saved not in (None, target):
                self._saved.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"a model could not be saved: {error}") from error
        self._saved = target

    def _chosen(self, evaluated: list[Evaluated], training: Collection[str]) -> float:
        """The objective among what was measured."""
        sets = list(dict.fromkeys(each.data for each in evaluated))
        valid = self._valid if self._valid is not None else self._only([name for name in sets if name not in training])
        if valid not in sets:
            raise UsageError(f"valid={valid!r}: {self._library.name} evaluates {_named(sets)}")
        there = [each for each in evaluated if each.data == valid]
        found = [each for each in there if each.metric == self._metric]
        if not found:
            names = _named([each.metric for each in there])
            raise UsageError(f"metric={self._metric!r}: {self._library.name} evaluates {names} on {valid!r}")
        objective, higher = self.trial.problem.objective, found[0].higher_is_better
        if higher is not None and higher != (objective.sign < 0):
            raise UsageError(
                f"{self._metric} of {self._library.name} is better {'higher' if higher else 'lower'}, "
                f"and the study has {objective!r}"
            )
        return float(found[0].value)

    def _only(self, others: list[str]) -> str:
        if len(others) == 1:
            return others[0]
        if others:
            raise UsageError(f"{self._library.name} evaluates {_named(others)}: say which counts, valid={others[0]!r}")
        raise UsageError(
            f"{self._library.name} evaluates no data set beside the training set: hand one over to judge each round by"
        )


def best_model(
    library: Library,
    study: Study,
    train: Callable[[Trial], Any],
    saved_in: str | os.PathLike[str] | None,
) -> Any:
    """The best model: loaded if it was saved, trained again if not."""
    best = study.best
    if saved_in is not None and best is not None:
        if not Path(saved_in).is_dir():
            raise UsageError(f"saved_in={str(saved_in)!r}: there is no such folder")
        seed = trial_seed(study.seed, best.number)
        value = best.metrics[study.problem.objective.metric]
        path = Path(saved_in) / _file_name(best.number, seed, best.params, best.step, value, library.suffix)
        if path.is_file():
            try:
                return library.load(path)
            except Exception as error:  # noqa: BLE001 - whatever a broken file leads to
                why = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(f"{path} cannot be read ({why}): the model is trained again", stacklevel=3)
    return study.rebuild(train)


def _file_name(number: int, seed: int, params: Mapping[str, Value], step: int, value: float | None, suffix: str) -> str:
    """Of one checkpoint; what it came to tells studies apart that were given the same folder."""
    digest = hashlib.sha256(json.dumps([seed, dict(params), repr(value)], sort_keys=True).encode()).hexdigest()
    return f"trial{number}-round{step}-{digest[:12]}{suffix}"


def _folder(path: str | os.PathLike[str]) -> Path:
    """A folder that can be written to, made if it is not there."""
    try:
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f".{os.getpid()}.part").write_bytes(b"")
        (folder / f".{os.getpid()}.part").unlink()
    except (OSError, ValueError) as error:
        raise UsageError(f"save_to={str(path)!r}: models cannot be saved there ({error})") from None
    return folder


def _named(names: Iterable[str]) -> str:
    return ", ".join(map(repr, dict.fromkeys(names))) or "nothing"
