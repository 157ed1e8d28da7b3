"""What fairway does inside a boosting library: each round is a report, and a round that becomes the best is saved.

LightGBM and XGBoost differ in how they call a callback, predict and write a model; everything else is here. A booster's
first rounds do not change as it grows, so a round's number is a checkpoint: a constraint checked after training is
measured at the best round, not the last. Where earlier rounds do change (DART), only the last one can be checked.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fairway.checks import whole
from fairway.engine.measurement import Given
from fairway.engine.record import Best
from fairway.engine.trial import Trial
from fairway.errors import StorageError, UsageError
from fairway.parameters import Value
from fairway.runners.rebuild import Again, rebuild
from fairway.study import Study

Measure: TypeAlias = Callable[[Any, int], float]
"""Measures a constraint; called with the booster and the number of rounds to predict with."""


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
    folds: Callable[[Any], Sequence[Any] | None]  # the boosters of a cross-validation; None for one booster

    def file_name(self, number: int, seed: int, params: Mapping[str, Value], step: int, value: float | None) -> str:
        """The name of a saved round; its hash tells apart studies that share a folder."""
        digest = hashlib.sha256(json.dumps([seed, dict(params), repr(value)], sort_keys=True).encode()).hexdigest()
        return f"trial{number}-round{step}-{digest[:12]}{self.suffix}"


def _refuse_other_arguments(name: str, measure: Measure | float) -> None:
    """Refuse a function that cannot be called with a booster and a number of rounds."""
    try:
        if callable(measure):
            inspect.signature(measure).bind(None, 1)
    except TypeError:
        raise UsageError(
            f"the constraint on {name!r} is measured by a function of two arguments, the booster and the number of "
            f"rounds: lambda booster, rounds: ..."
        ) from None
    except ValueError:  # it does not say what it takes
        pass


class Rounds:
    """The rounds of one training as reports to one trial, set up by the arguments of the libraries' `callback`."""

    def __init__(
        self,
        library: Library,
        trial: Trial,
        metric: str,
        constraints: Mapping[str, Measure | float] | None,
        valid: str | None,
        save_to: str | os.PathLike[str] | None,
    ) -> None:
        if not isinstance(trial, Trial):
            raise UsageError(f"callback({trial!r}): the trial that the function was called with is expected")
        if not isinstance(metric, str):
            raise UsageError(f"metric={metric!r}: the name of an evaluation metric of {library.name} is expected")
        for name, given in (constraints or {}).items():
            _refuse_other_arguments(name, given)
        self.driver = trial.driver
        self.rebuilds = isinstance(trial.driver, Again)
        self.value = math.nan  # of the objective in the last round
        self._trial, self._library, self._metric, self._valid = trial, library, metric, valid
        self._constraints = dict(constraints or {})
        self._folder = None if save_to is None or self.rebuilds else _folder(save_to)
        self._saved: Path | None = None
        self._booster: Any = None
        self._count_at: dict[int, int] = {}  # the rounds of the booster, by step
        trial.driver.on_best = self._save

    @property
    def cut(self) -> bool:
        """Whether training must end now, although more rounds were planned."""
        return bool(self.driver.reason) or self.driver.is_at_stoppers_end

    def begin(self, total: int | None, *, since: int | None = None) -> None:
        """Fix the number of rounds; training starts now, or started at a time by the trial's clock."""
        driver = self.driver
        if driver.has_reported or driver.status != "running":
            raise UsageError(
                f"trial {driver.number} has reported a training already: one training per trial "
                f"({self._library.name}'s cv trains several folds at once)"
            )
        if not driver.has_begun:
            driver.begin(total)
        if since is not None:
            driver.train_since(since)

    def report(
        self, booster: Any, step: int, evaluated: Iterable[Evaluated], *, training: Collection[str], lasting: bool
    ) -> bool:
        """Report a round; returns whether to stop the trial. With `lasting`, later rounds do not change this one."""
        value, rounds = self._objective(list(evaluated), training), self._library.count(booster)
        self.value, self._booster, self._count_at[step] = value, booster, rounds
        offers: dict[str, Given] = {self.driver.problem.objective.metric: value}
        for name, given in self._constraints.items():
            offers[name] = partial(self._check, given, booster, rounds) if callable(given) else given
        return self._trial.report(offers, step=step, checkpoint=rounds if lasting else None).stop

    def _check(self, measure: Measure, booster: Any, rounds: int, checkpoint: int | None = None) -> float:
        """Measure a constraint at a round, now or after training; a checkpoint is that same round."""
        del checkpoint
        left = self._library.count(booster)
        if left < rounds:
            raise UsageError(
                f"round {rounds} is to be checked, but early stopping kept {left}: "
                f"have it look at {self._metric} alone, so that both mean the same round"
            )
        return measure(booster, rounds)

    def _save(self, step: int, value: float) -> None:
        """Save a round that has become the best of the study, in place of the trial's earlier one."""
        if self._folder is None:
            return
        trial = self._trial
        name = self._library.file_name(trial.number, trial.seed, trial.params, step, value)
        target, content = self._folder / name, self._library.dump(self._booster, self._count_at[step])
        part = self._folder / f"{name}.{os.getpid()}.part"
        try:
            part.write_bytes(content)
            part.replace(target)
            if self._saved not in (None, target):
                self._saved.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"a model could not be saved: {error}") from error
        self._saved = target

    def _objective(self, evaluated: list[Evaluated], training: Collection[str]) -> float:
        """The objective's value in a round."""
        library, sets = self._library.name, list(dict.fromkeys(each.data for each in evaluated))
        valid = self._valid
        if valid is None:
            others = [name for name in sets if name not in training]
            if not others:
                raise UsageError(f"{library} evaluates no data set beside the training set: pass it one for validation")
            valid = others[0]
            if len(others) > 1:
                raise UsageError(f"{library} evaluates {_named(others)}: say which counts, valid={valid!r}")
        if valid not in sets:
            raise UsageError(f"valid={valid!r}: {library} evaluates {_named(sets)}")
        on_valid = [each for each in evaluated if each.data == valid]
        found = next((each for each in on_valid if each.metric == self._metric), None)
        if found is None:
            names = _named(each.metric for each in on_valid)
            raise UsageError(
                f"metric={self._metric!r}: {library} evaluates {names} on {valid!r}; name one of these, or have "
                f"{library} evaluate {self._metric!r} too"
            )
        objective, higher = self.driver.problem.objective, found.higher_is_better
        if higher is not None and higher != (objective.sign < 0):
            way = "higher" if higher else "lower"
            raise UsageError(f"{self._metric} of {library} is better {way}, but the study has {objective!r}")
        return float(found.value)


class RowPredictor(ABC):
    """Predicts the same rows at one round after another; each library says how to do so without starting over."""

    def __init__(self, library: Library, rows: Any) -> None:
        self._library, self._rows = library, rows

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._rows,)  # what is kept of a booster stays in the process that trains it

    def __call__(self, booster: Any, rounds: int | None = None) -> Any:
        """The predictions of the rows by the first rounds of a booster, by default by all; a list in cross-validation.

        Arrays are the caller's own: a later call changes none of them.
        """
        folds = self._library.folds(booster)
        if folds is not None:
            return [self(each, rounds) for each in folds]
        count = self._library.count(booster)
        if rounds is not None and whole(rounds, "rounds") > count:
            raise UsageError(f"rounds={rounds}: the booster has {count}")
        return self._predict(booster, count if rounds is None else int(rounds))

    @abstractmethod
    def _predict(self, booster: Any, rounds: int) -> Any:
        """What the booster's own `predict` gives with this many rounds."""


def best_model(
    library: Library,
    study: Study,
    train: Callable[[Trial], Any],
    saved_in: str | os.PathLike[str] | None,
    best: Best | None,
) -> Any:
    """The model of a checkpoint, by default the best: loaded if it was saved, trained again if not."""
    if best is not None and not isinstance(best, Best):
        raise UsageError(f"best={repr(best)[:80]}: a checkpoint of this study is expected, as certify(models=...) gets")
    best = study.best if best is None else best
    if saved_in is not None and best is not None:
        if not Path(saved_in).is_dir():
            raise UsageError(f"saved_in={str(saved_in)!r}: there is no such folder")
        seed, value = study.owner.seed_of(best.number), best.metrics[study.problem.objective.metric]
        path = Path(saved_in) / library.file_name(best.number, seed, best.params, best.step, value)
        if path.is_file():
            try:
                return library.load(path)
            except Exception as error:  # noqa: BLE001 - whatever a broken file leads to
                why = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(f"{path} cannot be read ({why}): the model is trained again", stacklevel=3)
    if best is None:
        return study.rebuild(train)  # which says that there is none
    return rebuild(best, study.owner.seed_of(best.number), study.problem, train)


def _folder(path: str | os.PathLike[str]) -> Path:
    """A folder that can be written to, created if missing."""
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
