"""Runs a user's function on a trial, in whichever process or thread."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from fairway.checks import is_number, short
from fairway.engine.events import Status
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.folds import Folds
from fairway.problem import Problem

_LONGEST = 10_000  # letters of a reason in the log


def evaluate(function: Callable[[Trial], Any], trial: Trial) -> tuple[Status, str]:
    """Run a function on a trial to its end: how it ended, and why."""
    result, metrics = _call(function, trial), trial.problem.metrics
    if trial.last_step or trial.stopped:
        if result is not None and is_measured(trial.problem, result):
            raise UsageError(
                f"trial {trial.number} reported its steps and returned {short(result)}; "
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
        f"the function returned {short(result)}: a dict with {', '.join(metrics)} is expected, or reports on the way"
    )


def _call(function: Callable[[Trial], Any], trial: Trial) -> Any:
    """What the function returns; a child that it forked ends where the function ends, and runs no more trials."""
    process = os.getpid()
    try:
        result = function(trial)
    except BaseException as error:
        if os.getpid() != process:
            _end_child(error)
        raise
    if os.getpid() != process:
        _end_child(None)
    return result


def _end_child(error: BaseException | None) -> NoReturn:
    """End a forked process as Python would end it, but without what belongs to its parent."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        code = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF)


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
    except (Exception, SystemExit):  # noqa: BLE001 - the user's
        text = ""
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return f"{type(error).__name__}: {text}{notes}" if text else f"{type(error).__name__}{notes}"


def located(error: BaseException) -> str:
    """A raised exception, described, with the file and the line it comes from; a syntax error names them itself."""
    if isinstance(error, SyntaxError):
        return describe(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{describe(error)} ({last.filename}, line {last.lineno})"
