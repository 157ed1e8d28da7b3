"""Runs a user's function on a trial, in whichever process or thread."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from fairway.checks import is_number
from fairway.engine.events import Status
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.folds import Folds
from fairway.problem import Problem


def evaluate(function: Callable[[Trial], Any], trial: Trial) -> tuple[Status, str]:
    """Run a function on a trial to its end: how it ended, and why."""
    result, metrics = function(trial), trial.problem.metrics
    if trial.last_step or trial.stopped:
        if result is not None and is_measured(trial.problem, result):
            raise UsageError(
                f"trial {trial.number} reported its steps and returned {result!r}; "
                "a loop that reports returns nothing, or its model"
            )
        return trial.driver.finish()
    if result is None:
        wanted = ", ".join(f"{metric!r}: ..." for metric in metrics)
        raise UsageError(f"trial {trial.number} reported nothing and returned nothing: return {{{wanted}}} or report")
    if isinstance(result, Mapping):
        return trial.driver.finish(result)
    if len(metrics) == 1 and is_measured(trial.problem, result):
        return trial.driver.finish({metrics[0]: result})
    raise UsageError(
        f"the function returned {result!r}: a dict with {', '.join(metrics)} is expected, or reports on the way"
    )


def is_measured(problem: Problem, result: Any) -> bool:
    """Whether a result is metrics of a problem, rather than a model, which may be a mapping too."""
    if isinstance(result, Mapping):
        return bool(result) and set(result) <= set(problem.metrics)
    return isinstance(result, Folds) or is_number(result)


def describe(error: BaseException) -> str:
    """An exception as a trial's reason: its class, its text, and the notes added to it.

    >>> describe(ValueError("no such solver"))
    'ValueError: no such solver'
    """
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the user's
        text = ""
    return f"{type(error).__name__}: {text}{notes}" if text else f"{type(error).__name__}{notes}"


def located(error: BaseException) -> str:
    """A raised exception, described, with the file and the line it comes from; a syntax error names them itself."""
    if isinstance(error, SyntaxError):
        return describe(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{describe(error)} ({last.filename}, line {last.lineno})"
