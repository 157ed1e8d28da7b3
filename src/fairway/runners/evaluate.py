"""Runs a user's function on a trial, in whichever process or thread."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fairway.checks import is_number, short
from fairway.engine.events import Status
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.folds import Folds
from fairway.problem import Problem
from fairway.text import shown

_MOST_FRAMES = 8  # of a traceback
_LONGEST_LINE = 300  # characters of one of them
_FAIRWAY = str(Path(__file__).parents[1]) + os.sep
_PYTHON = (sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep, "<frozen ")

_LONGEST = 10_000  # characters of a reason in the log


def evaluate(function: Callable[[Trial], Any], trial: Trial) -> tuple[Status, str]:
    """Run a function on a trial to its end; returns how it ended, and why."""
    result, metrics = _call(function, trial), trial.problem.metrics
    if trial.driver.has_reported or trial.stopped:
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
        return bool(result) and set(result) <= set(problem.reportable)
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
    frames = _frames(error) or traceback.extract_tb(error.__traceback__)
    return f"{describe(error)} ({_place(frames[-1])})"


def traced(error: BaseException) -> str:
    """Where the user's code raised an exception: a line for each of its frames, the last one raised.

    >>> try:
    ...     {}["rate"]
    ... except KeyError as error:
    ...     ", line 2, in <module>" in traced(error)
    True
    """
    lines = (f"{_place(frame)}, in {frame.name}{': ' if frame.line else ''}{frame.line}" for frame in _frames(error))
    return "\n".join(shown(line, _LONGEST_LINE) for line in lines)


def _place(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}, line {frame.lineno}"


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The last of the user's frames, or of other packages where there are none; never fairway's own."""
    found = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_FAIRWAY)]
    users = [frame for frame in found if not _is_installed(frame.filename)]
    return (users or found)[-_MOST_FRAMES:]


def _is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to a package that was installed."""
    return file.startswith(_PYTHON) or any(folder in Path(file).parts for folder in ("site-packages", "dist-packages"))
