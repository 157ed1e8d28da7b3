"""Loads a study and its function from a Python file, for `fairway run`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.runners.evaluate import describe
from fairway.study import Study

_FUNCTIONS = ("train", "objective", "evaluate")


def load(target: str, function: str | None = None) -> tuple[Study, Callable[[Trial], Any]]:
    """The study and the function to optimise in "file.py" or "file.py:name".

    The name, by default `study`, is that of a `Study` or of a function that returns one. The function to optimise is
    the one given, or the first of `train`, `objective` and `evaluate` in the file. Code below
    `if __name__ == "__main__":` does not run.
    """
    path, _, name = target.partition(":")
    module = _module(Path(path))
    found = _attribute(module, name or "study", path)
    study = found() if inspect.isfunction(found) and not inspect.signature(found).parameters else found
    if not isinstance(study, Study):
        raise UsageError(f"{name or 'study'} in {path} is {type(study).__name__}: a fairway.Study is expected")
    names = [function] if function else [name for name in _FUNCTIONS if hasattr(module, name)]
    if not names:
        raise UsageError(f"{path} has none of the functions {', '.join(_FUNCTIONS)}: name yours with --function")
    chosen = _attribute(module, names[0], path)
    if not callable(chosen):
        raise UsageError(f"{names[0]} in {path} is {type(chosen).__name__}: a function of a trial is expected")
    return study, chosen


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
        last = traceback.extract_tb(error.__traceback__)[-1]
        line = error.lineno if isinstance(error, SyntaxError) else last.lineno
        raise UsageError(f"{path} could not be loaded: {describe(error)} ({last.filename}, line {line})") from error
    cloudpickle.register_pickle_by_value(module)  # worker processes cannot import it
    return module


def _attribute(module: ModuleType, name: str, path: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        studies = [each for each, value in vars(module).items() if isinstance(value, Study)]
        hint = f"; it has {', '.join(studies)}" if studies else ""
        raise UsageError(f"{path} has no {name!r}{hint}") from None
