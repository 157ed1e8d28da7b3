"""Runs trials one after another in this process."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from fairway.errors import FairwayError, StudyFailed, UsageError
from fairway.runners.progress import show

if TYPE_CHECKING:
    from fairway.study import Study
    from fairway.trial import Trial

logger = logging.getLogger("fairway")

_HOPELESS = 3  # so many failures before any success, and the function is broken rather than unlucky


def run(
    study: Study,
    function: Callable[[Trial], Any],
    *,
    trials: int | None,
    timeout: float | None,
    trial_timeout: float | None,
    catch: type[Exception] | tuple[type[Exception], ...],
    progress: bool | None,
) -> None:
    """The loop behind `Study.optimize`."""
    _check(function, trials, timeout, trial_timeout)
    deadline = None if timeout is None else time.perf_counter_ns() + int(timeout * 1e9)
    done = failed = 0
    goal = None if trials is None else trials + sum(study.counts.values())
    with show(study, goal, progress):
        while True:
            if trials is not None and done >= trials:
                reason = f"{trials} trials were run"
                break
            if deadline is not None and time.perf_counter_ns() >= deadline:
                reason = f"the timeout of {timeout:g} s has passed"
                break
            trial = study.ask()
            trial._deadline, trial._overtime = _nearest(deadline, timeout, trial_timeout)
            try:
                error = _run_one(study, trial, function, catch)
            except KeyboardInterrupt:
                reason = "interrupted"
                break
            done += 1
            failed += error is not None
            if failed == done and (failed == _HOPELESS or done == trials):
                reason = f"the first {failed} trials all failed" if failed > 1 else "the only trial failed"
                study._end(reason)
                raise StudyFailed(f"{reason}: {_describe(error)}") from error
    study._end(reason)


def _run_one(
    study: Study, trial: Trial, function: Callable[[Trial], Any], catch: type[Exception] | tuple[type[Exception], ...]
) -> Exception | None:
    """Run one trial to its end; the exception that failed it, if one did."""
    try:
        result = function(trial)
        study.tell(trial, _metrics(study, trial, result))
    except BaseException as error:
        if trial.status == "running":
            interrupted = isinstance(error, KeyboardInterrupt)
            study.tell(trial, failed="interrupted" if interrupted else _describe(error))
        if not isinstance(error, catch) or isinstance(error, FairwayError):
            raise
        logger.warning("trial %d failed: %s", trial.number, _describe(error), exc_info=error)
        return error
    return None


def _metrics(study: Study, trial: Trial, result: Any) -> Mapping[str, Any] | None:
    """What a function returned, as metrics by name."""
    if result is None:
        return None
    if trial._last or trial.stopped:
        raise UsageError(
            f"trial {trial.number} reported its steps and returned {result!r}; a loop that reports returns None"
        )
    if isinstance(result, Mapping):
        return result
    metrics = study.problem.metrics
    if isinstance(result, Real) and len(metrics) == 1:
        return {metrics[0]: float(result)}
    raise UsageError(
        f"the function returned {result!r}: a dict with {', '.join(metrics)} is expected, or reports on the way"
    )


def _nearest(deadline: int | None, timeout: float | None, trial_timeout: float | None) -> tuple[float, str]:
    """The moment at which a trial's next report ends it, with the reason."""
    ends: list[tuple[float, str]] = [(math.inf, "")]
    if deadline is not None:
        ends.append((deadline, f"the study's timeout of {timeout:g} s has passed"))
    if trial_timeout is not None:
        ends.append(
            (time.perf_counter_ns() + int(trial_timeout * 1e9), f"longer than trial_timeout={trial_timeout:g} s")
        )
    return min(ends)


def _describe(error: BaseException | None) -> str:
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    text = str(error)
    return f"{type(error).__name__}: {text}{notes}" if text else f"{type(error).__name__}{notes}"


def _check(function: object, trials: int | None, timeout: float | None, trial_timeout: float | None) -> None:
    if not callable(function):
        raise UsageError(f"optimize({function!r}): a function that takes a trial is expected")
    if trials is None and timeout is None:
        raise UsageError("optimize: say when to end, with trials=, timeout= or both")
    if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int) or trials < 1):
        raise UsageError(f"trials={trials!r}: a whole number of at least 1 is expected")
    for name, seconds in (("timeout", timeout), ("trial_timeout", trial_timeout)):
        if seconds is not None and not (isinstance(seconds, Real) and seconds > 0):
            raise UsageError(f"{name}={seconds!r}: a positive number of seconds is expected")
