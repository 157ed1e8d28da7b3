"""What running a user's function on a trial comes to, whichever process or thread it runs in."""

from __future__ import annotations

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
    return trial.driver.finish(_metrics(trial, function(trial)))


def _metrics(trial: Trial, result: Any) -> Mapping[str, Any] | None:
    """What a function returned, as metrics by name."""
    metrics = trial.problem.metrics
    if result is None:
        if not trial.last_step and not trial.stopped:
            wanted = ", ".join(f"{metric!r}: ..." for metric in metrics)
            raise UsageError(
                f"trial {trial.number} reported nothing and returned nothing: return {{{wanted}}} or report"
            )
        return None
    if trial.last_step or trial.stopped:
        if is_measured(trial.problem, result):
            raise UsageError(
                f"trial {trial.number} reported its steps and returned {result!r}; "
                "a loop that reports returns nothing, or its model"
            )
        return None
    if isinstance(result, Mapping):
        return result
    if len(metrics) == 1 and is_measured(trial.problem, result):
        return {metrics[0]: result}
    raise UsageError(
        f"the function returned {result!r}: a dict with {', '.join(metrics)} is expected, or reports on the way"
    )


def is_measured(problem: Problem, result: Any) -> bool:
    """Whether a result is metrics of a problem, rather than a model, which may be a mapping too."""
    if isinstance(result, Mapping):
        return bool(result) and set(result) <= set(problem.metrics)
    return isinstance(result, Folds) or is_number(result)


def describe(error: BaseException) -> str:
    """An exception as a trial's reason: its kind, its text, and what was noted on it.

    >>> describe(ValueError("no such solver"))
    'ValueError: no such solver'
    """
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the user's
        text = ""
    return f"{type(error).__name__}: {text}{notes}" if text else f"{type(error).__name__}{notes}"
