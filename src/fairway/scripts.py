"""Loads a study and its functions from a Python file, for `fairway run` and `fairway certify`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.fresh import FreshRows
from fairway.runners.certify import Evaluate
from fairway.runners.evaluate import located
from fairway.study import Study

_FUNCTIONS = ("train", "objective", "evaluate")
_FRESH = ("fresh", "evaluate_fresh")


def load(target: str, function: str | None = None) -> tuple[Study, Callable[[Trial], Any]]:
    """The study and the function to optimise in "file.py" or "file.py:name".

    The name, by default `study`, is that of a `Study` or of a function that returns one. The function to optimise is
    the one given, or the first of `train`, `objective` and `evaluate` in the file. Code below
    `if __name__ == "__main__":` does not run.
    """
    study, module = _study(target)
    return study, _function(module, function, "--function")


def load_fresh(
    target: str, evaluate: str | None = None, train: str | None = None
) -> tuple[Study, Evaluate, Callable[[Trial], Any]]:
    """The study in "file.py" or "file.py:name", its evaluator of models on fresh rows, and the function optimised.

    The evaluator is the one given, or `fresh` or `evaluate_fresh` in the file, or else its only `fw.FreshRows`. A
    function without parameters may return it, so that the rows are loaded only when they are needed.
    """
    study, module = _study(target)
    name = evaluate or _first(module, _FRESH) or _only_fresh_rows(module)
    given = _made(_attribute(module, name, lambda value: isinstance(value, FreshRows) or _is_own(module, value)))
    if not callable(given):
        kind = type(given).__name__
        raise UsageError(f"{name} in {module.__file__} is {kind}: fw.FreshRows or a function of a model is expected")
    return study, given, _function(module, train, "--train")


def _study(target: str) -> tuple[Study, ModuleType]:
    path, _, name = target.partition(":")
    module = _module(Path(path))
    study = _made(_attribute(module, name or "study", lambda value: isinstance(value, Study)))
    if not isinstance(study, Study):
        raise UsageError(f"{name or 'study'} in {path} is {type(study).__name__}: a fairway.Study is expected")
    return study, module


def _made(found: Any) -> Any:
    """What a function without parameters returns; anything else unchanged."""
    return found() if inspect.isfunction(found) and not inspect.signature(found).parameters else found


def _function(module: ModuleType, given: str | None, option: str) -> Callable[[Trial], Any]:
    path, name = module.__file__, given or _first(module, _FUNCTIONS)
    if name is None:
        raise UsageError(f"{path} has none of the functions {', '.join(_FUNCTIONS)}: name yours with {option}")
    chosen = _attribute(module, name, lambda value: _is_own(module, value))
    if not callable(chosen):
        raise UsageError(f"{name} in {path} is {type(chosen).__name__}: a function of a trial is expected")
    return chosen  # type: ignore[no-any-return]


def _first(module: ModuleType, names: Iterable[str]) -> str | None:
    """The first of some names that a module has."""
    return next((name for name in names if hasattr(module, name)), None)


def _only_fresh_rows(module: ModuleType) -> str:
    """The name of the one `fw.FreshRows` in a module; the same object under two names counts once."""
    found = {id(value): name for name, value in reversed(vars(module).items()) if isinstance(value, FreshRows)}
    if len(found) == 1:
        return next(iter(found.values()))
    names = f"several fw.FreshRows ({', '.join(sorted(found.values()))})"
    has = names if found else f"no fw.FreshRows and no {_FRESH[0]}"
    raise UsageError(f"{module.__file__} has {has}: name what evaluates a model on fresh rows with --evaluate")


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: a Python file is expected")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # as Python does when it runs the file
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} could not be loaded: {located(error)}") from error
    cloudpickle.register_pickle_by_value(module)  # worker processes cannot import it
    return module


def _is_own(module: ModuleType, value: Any) -> bool:
    """Whether a value is a function that a module defines."""
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _attribute(module: ModuleType, name: str, fits: Callable[[Any], bool]) -> Any:
    """The attribute of a module; if it is missing, the error lists the names of those that would fit."""
    try:
        return getattr(module, name)
    except AttributeError:
        others = [each for each, value in vars(module).items() if fits(value)]
        raise UsageError(f"{module.__file__} has no {name!r}; it has {', '.join(others) or 'none'}") from None
