"""Measures the best checkpoint again at the end of a run, without the workers, if a constraint says `alone=True`.

A study keeps numbers, not models, so the best trial is trained again in this process, up to its best step, as `rebuild`
does. If it violates its limit now, the next best is measured, until one holds or none is left. If nothing is feasible,
the checkpoint nearest to the limits that violates no other constraint is measured again. If other programs use the
machine then too, a worse value does not count. Each measurement is logged before the next begins, so a run that is
killed on the way loses nothing; the next run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairway import crowd
from fairway.engine.columns import widened
from fairway.engine.events import Noted, Remeasured
from fairway.engine.measurement import Given, Observation
from fairway.engine.owner import Owner
from fairway.engine.record import Best
from fairway.engine.remeasurement import (
    Twice,
    alone_metrics,
    how_measured,
    nearest_broken,
    was_crowded,
    with_sums,
)
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.logs import logger
from fairway.problem import Problem
from fairway.runners.evaluate import describe, evaluate
from fairway.runners.rebuild import Again
from fairway.text import counted


def measure_alone(owner: Owner, function: Callable[[Trial], Any], say: Callable[[str], object] | None) -> None:
    """Measure the best (or nearest) checkpoint again if others ran beside it, and the next if it violates its limit.

    Whatever the function raises is logged, and leaves the best as it is.
    """
    names = alone_metrics(owner.problem)
    if not names:
        return
    owner.journal.catch_up()
    while (best := _crowded(owner)) is not None:
        which = f"trial {best.number}, step {best.step}"
        if owner.ledger.running:
            running = counted(len(owner.ledger.running), "trial")
            logger.warning(
                "%s is not measured again: %s still running; the last process to end does it", which, running
            )
            return
        if say is not None:
            say(f"measuring {which} again, alone: {', '.join(names)}")
        try:
            with crowd.run_of(1):
                again = _measured(owner, best, function)
        except Exception as error:  # noqa: BLE001 - the user's
            logger.warning("%s could not be measured again (%s): it keeps what it had", which, describe(error))
            return
        if not _write(owner, best, again):
            continue  # another process was first, and its values hold
        line = f"{which}: {'; '.join(map(str, again))}"
        if any(one.company or one.is_broken for one in again):
            logger.warning("%s", line)
        elif say is not None:
            say(line)


def _crowded(owner: Owner) -> Best | None:
    """The best checkpoint, or the nearest if there is none, if it has to be measured again.

    A checkpoint of a lost trial that may still be resumed has to wait.
    """
    with owner.lock:
        best = owner.best
        if best is None:
            nearest = nearest_broken(owner.problem, owner.ledger, alone_metrics(owner.problem))
            best = None if nearest is None else owner.named(*nearest)
        if best is None or owner.ledger.queue.lost_course(best.number) is not None:
            return None
        return best if was_crowded(owner.problem, owner.ledger, best.number, best.step) else None


def _measured(owner: Owner, best: Best, function: Callable[[Trial], Any]) -> list[Twice]:
    """The constraints that are to be measured alone, at a checkpoint that is trained again."""
    problem, driver = owner.problem, _Alone(best, owner.problem)
    evaluate(function, Trial(best.number, best.params, seed=owner.seed_of(best.number), driver=driver))
    found = driver.measured
    if found is None or all(value is None for value in found.values):
        names = " and ".join(alone_metrics(problem))
        raise UsageError(f"the function did not report {names} at step {best.step} this time")
    notes = (driver.notes.get(how_measured(metric)) for metric in alone_metrics(problem))
    company = next(filter(None, notes), "")
    now = zip(problem.constraints, found.values, found.errors or owner.referee.unmeasured, strict=True)
    first = ((best.metrics[each.metric], best.errors.get(each.metric)) for each in problem.constraints)
    return [
        Twice(each, was, before, value, error, company)
        for (each, value, error), (was, before) in zip(now, first, strict=True)
        if value is not None and was is not None
    ]


def _write(owner: Owner, best: Best, again: Sequence[Twice]) -> bool:
    """Write the values that count, and the trial's new totals; False if another process was first."""
    problem, counts = owner.problem, {one.constraint.metric: one for one in again if one.counts}
    count = [counts.get(constraint.metric) for constraint in problem.constraints]
    values, errors = [one and one.value for one in count], [one and one.error for one in count]
    owner.journal.catch_up()
    log, seen, at = owner.journal.log, owner.journal.position, owner.clock.at()
    event = Remeasured(best.number, best.step, values, errors, None, None, None, seen, at, again[0].company)
    again_of_it = [*owner.ledger.remeasured.of(best.number), widened(event, problem)]
    event = with_sums(problem, log.reports([best.number]), again_of_it)
    notes = {how_measured(one.constraint.metric): one.note(best.step) for one in again if not one.counts}
    noted = [Noted(best.number, notes, at)] if notes else []
    return owner.write(event, *noted)


class _Alone(Again):
    """Calls the constraints that are to be measured alone, at the last step, and no other."""

    def __init__(self, best: Best, problem: Problem) -> None:
        super().__init__(best, problem, steps=[best.step])
        self._wanted = {problem.objective.metric, *alone_metrics(problem)}
        self.measured: Observation | None = None

    def offered(self, offers: dict[str, Given]) -> dict[str, Given]:
        return {name: given for name, given in offers.items() if name in self._wanted}

    def heard(self, observation: Observation | None, step: int, checkpoint: Any) -> None:  # noqa: ARG002
        self.measured = observation
