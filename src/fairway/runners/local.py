"""Runs trials one after another in this process."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fairway.checks import is_number, positive, whole
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
    if not callable(function):
        raise UsageError(f"optimize({function!r}): a function that takes a trial is expected")
    if trials is None and timeout is None:
        raise UsageError("optimize: say when to end, with trials=, timeout= or both")
    trials = None if trials is None else whole(trials, "trials")
    limits = _Limits(study, timeout, trial_timeout)
    kinds = catch if isinstance(catch, tuple) else (catch,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise UsageError(f"catch={catch!r}: an exception class or a tuple of them is expected")
    with show(study, trials, progress):
        try:
            reason = _run(study, function, trials, limits, kinds)
        except KeyboardInterrupt:
            reason = "interrupted"
        except BaseException as error:
            _write_down(study._owner.end, _describe(error))
            raise
    study._owner.end(reason)


def _run(
    study: Study,
    function: Callable[[Trial], Any],
    trials: int | None,
    limits: _Limits,
    catch: tuple[type[Exception], ...],
) -> str:
    """Run trials until there is a reason to end."""
    done = failed = 0
    while trials is None or done < trials:
        if limits.passed():
            return limits.reason
        trial = study.ask()
        limits.impose(trial)
        error = _run_one(study, trial, function, catch)
        done += 1
        failed += trial.status == "failed"
        if failed == done and (failed == _HOPELESS or done == trials) and not _succeeded(study):
            how = "1 trial failed" if failed == 1 else f"{failed} trials failed"
            why = study.trials[trial.number].reason
            raise StudyFailed(f"{how} and none succeeded; the last one: {why}") from error
    return "1 trial was run" if trials == 1 else f"{trials} trials were run"


def _run_one(
    study: Study, trial: Trial, function: Callable[[Trial], Any], catch: tuple[type[Exception], ...]
) -> Exception | None:
    """Run one trial to its end; the exception that failed it, if one did.

    A mistake in using fairway is raised at once while nothing has succeeded, and fails its trial like any other after
    that; a log that cannot be written ends the run.
    """
    try:
        result = function(trial)
        study.tell(trial, _metrics(study, trial, result))
    except BaseException as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else _describe(error)
        if trial.status == "running":
            _write_down(partial(study.tell, trial, failed=why))
        fatal = isinstance(error, FairwayError) and (not isinstance(error, UsageError) or not _succeeded(study))
        if fatal or not isinstance(error, catch):
            raise
        logger.warning("trial %d failed: %s", trial.number, why)
        logger.debug("where trial %d failed", trial.number, exc_info=error)
        return error
    return None


def _succeeded(study: Study) -> bool:
    counts = study.counts
    return counts["completed"] + counts["stopped"] > 0


def _write_down(write: Callable[..., object], *what: str) -> None:
    """Write what can still be written, while another error is on its way to the user."""
    try:
        write(*what)
    except FairwayError as error:
        logger.warning("%s", error)


class _Limits:
    """The moments at which a run, and each of its trials, is over."""

    def __init__(self, study: Study, timeout: float | None, trial_timeout: float | None) -> None:
        self._clock = study._owner.clock.ns
        seconds = math.inf if timeout is None else positive(timeout, "timeout", what="number of seconds")
        self._each = math.inf
        if trial_timeout is not None:
            self._each = positive(trial_timeout, "trial_timeout", what="number of seconds")
        self._end = self._clock() + seconds * 1e9
        self.reason = f"the timeout of {seconds:g} s has passed"

    def passed(self) -> bool:
        return self._clock() >= self._end

    def impose(self, trial: Trial) -> None:
        own = self._clock() + self._each * 1e9
        late = f"longer than trial_timeout={self._each:g} s"
        trial._deadline, trial._overtime = min((self._end, self.reason), (own, late))


def _metrics(study: Study, trial: Trial, result: Any) -> Mapping[str, Any] | None:
    """What a function returned, as metrics by name."""
    if result is None:
        if not trial._last and not trial.stopped:
            wanted = ", ".join(f"{metric!r}: ..." for metric in study.problem.metrics)
            raise UsageError(
                f"trial {trial.number} reported nothing and returned nothing: return {{{wanted}}} or report"
            )
        return None
    if trial._last or trial.stopped:
        raise UsageError(
            f"trial {trial.number} reported its steps and returned {result!r}; a loop that reports returns None"
        )
    if isinstance(result, Mapping):
        return result
    metrics = study.problem.metrics
    if is_number(result) and len(metrics) == 1:
        return {metrics[0]: float(result)}
    raise UsageError(
        f"the function returned {result!r}: a dict with {', '.join(metrics)} is expected, or reports on the way"
    )


def _describe(error: BaseException) -> str:
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    text = str(error)
    return f"{type(error).__name__}: {text}{notes}" if text else f"{type(error).__name__}{notes}"
