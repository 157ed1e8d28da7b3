"""Turns what a user passes to `report` into numbers, and refuses what is no number in a clear sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from fairway import feasibility
from fairway.checks import short
from fairway.engine.events import ABSENT
from fairway.errors import UsageError
from fairway.folds import Folds
from fairway.measured import Measured
from fairway.problem import Constraint, Problem
from fairway.text import confidence

Given: TypeAlias = float | Folds | Callable[..., float | Folds]
"""A metric as the user reports it: a value (maybe `Measured`), or a callable that measures it."""

_CONFIDENCE = 0.95  # for taking an error from a bound, if the constraint has no confidence


class Spread(NamedTuple):
    """What the `Folds` of an objective add to their mean."""

    noise: float
    folds: int
    of: int  # folds in all


class Report(NamedTuple):
    """One report, before its constraints are paid for."""

    step: int
    objective: float
    loss: float
    offers: Mapping[str, Given]  # constraints by name, as values or callables
    checkpoint: Any  # what the user handed over with it
    train_ns: int
    lazy: bool  # some constraint came as a callable
    broken: bool  # some constraint came as a value beyond its limit
    last: bool  # no step follows
    spread: Spread | None = None

    @property
    def standing(self) -> tuple[int, bool, float]:
        """A key that sorts one trial's reports before they are checked; those with fewer folds missing come first."""
        missing = 0 if self.spread is None else self.spread.of - self.spread.folds
        return missing, self.broken, self.loss


class Observation(NamedTuple):
    """What one report measured, on its way to the referee and to the log."""

    step: int
    objective: float
    loss: float
    values: Sequence[float | None]  # by constraint; None: not measured
    prices: Sequence[int]  # by constraint: nanoseconds, or `ABSENT` or `SAVED`
    violation: float | None
    train_ns: int
    last: bool  # no step follows, so there is nothing left to stop
    spread: Spread | None = None
    payment: tuple[int, int] | None = None  # the act by which the worker chose to pay, and the log position seen
    errors: Sequence[float | None] = ()  # of the values, by constraint; empty if all are unknown

    @property
    def provisional(self) -> bool:
        """Whether the objective is the mean of some folds, with others to come."""
        return self.spread is not None and self.spread.folds < self.spread.of


def number(problem: Problem, name: str, given: Any) -> float:
    """A metric's value as a float."""
    if isinstance(given, Folds) and given.provisional and name != problem.objective.metric:
        raise UsageError(f"metric {name!r} is {given!r}: report a constraint when all its folds are there")
    try:
        if not isinstance(given, str | bytes):
            return float(given)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError(f"metric {name!r} is {short(given)}: a number is expected") from None


def measured(problem: Problem, constraint: Constraint, given: Any) -> tuple[float, float | None]:
    """A constraint's value, and its error if it is known.

    The error is scaled so that the bound lies z errors from the value, at the constraint's confidence or at 95%. It is
    the standard error, unless a `Measured` has a bound of its own: the bound of a largest gap covers the others too.
    """
    value = number(problem, constraint.metric, given)
    if math.isnan(value):
        return value, None
    if isinstance(given, Measured):
        return value, given.error_at(constraint.confidence or _CONFIDENCE, upper=constraint.sign > 0)
    if isinstance(given, Folds) and not math.isnan(given.noise):
        return value, given.noise
    if constraint.confidence and isinstance(given, Folds):
        raise UsageError(
            f"metric {constraint.metric!r} is one fold, which has no error, but its constraint has "
            f"confidence={constraint.confidence:g}: report at least two folds, or fw.Measured(value, error=...)"
        )
    if constraint.confidence:
        raise UsageError(
            f"metric {constraint.metric!r} is {short(given)}, but its constraint has "
            f"confidence={constraint.confidence:g}: return fw.Measured(value, error=...), or leave the confidence out"
        )
    return value, None


def hopeless_warning(constraint: Constraint, given: Any, error: float | None) -> str:
    """A warning if no value could keep a limit with an error as large as this one; else empty.

    The best possible value is taken to be 0 for an `AtMost` limit and 1 for an `AtLeast` limit.
    """
    room = constraint.sign * (constraint.threshold - (0.0 if constraint.sign > 0 else 1.0))
    needed = constraint.z * (error or 0.0)
    if constraint.confidence is None or not 0.0 < room < needed:
        return ""
    times = (needed / room) ** 2
    rows = given.rows if isinstance(given, Measured) else None
    more = (
        f"{times:.1f} times as many rows" if rows is None else f"about {math.ceil(times * rows):,} rows, not {rows:,},"
    )
    return (
        f"{constraint.metric} is known to ± {needed:.3g} at {confidence(constraint.confidence)} confidence, more than "
        f"the limit of {constraint.threshold:g} leaves: no model can pass on these rows; {more} would be needed"
    )


def joined(problem: Problem, metrics: Mapping[str, Given] | None, named: dict[str, Given]) -> dict[str, Given]:
    """The metrics of a mapping and those given by name, together."""
    if not isinstance(metrics, Mapping):
        example = f"{problem.objective.metric}=0.8"
        raise UsageError(f"{short(metrics)} came as metrics: they are given by name, as in {example}")
    twice = [name for name in metrics if name in named]
    if twice:
        raise UsageError(f"metric {twice[0]!r} came twice, in the mapping and by name")
    return {**metrics, **named}


def is_broken(problem: Problem, offers: Mapping[str, Given]) -> bool:
    """Whether a constraint that came as a value is beyond its limit."""
    return any(
        constraint.metric in offers
        and not callable(offer := offers[constraint.metric])
        and feasibility.excess(constraint, *measured(problem, constraint, offer))
        for constraint in problem.constraints
    )


def refuse_without_objective(problem: Problem, trial: int, named: Mapping[str, object]) -> NoReturn:
    """Raise a `UsageError` that says that a report lacks the objective, and what it has."""
    has = f", which has {', '.join(map(repr, named))}" if named else ""
    raise UsageError(f"trial {trial}: the objective {problem.objective.metric!r} is missing from the report{has}")


def refuse_metric(problem: Problem, name: str) -> NoReturn:
    """Raise a `UsageError` that says that a metric was not declared."""
    declared = ", ".join(problem.reportable)
    raise UsageError(f"metric {name!r} was not declared: this study has {declared}; keep others with trial.note")


def observed(
    report: Report,
    values: list[float | None],
    prices: list[int],
    violation: float | None,
    payment: tuple[int, int] | None,
    errors: list[float | None],
) -> Observation:
    """The observation of a report, once its constraints were measured or skipped."""
    step, objective, loss, _, _, train_ns, _, _, last, spread = report
    row = (step, objective, loss, values, prices, violation, train_ns, last, spread, payment, _known(errors))
    return tuple.__new__(Observation, row)


def offered_again(report: Report, problem: Problem) -> Report | None:
    """A report that waits for its check, under the limits of another problem; None if nothing is left to check."""
    offers = {name: offer for name, offer in report.offers.items() if name in problem.metrics}
    if not any(map(callable, offers.values())):
        return None
    return report._replace(offers=offers, broken=is_broken(problem, offers))


def judged_again(observation: Observation, before: Problem, now: Problem) -> Observation:
    """An observation made under the limits of one problem, judged by another's, because limits changed in between.

    A check that was not paid for counts as not offered: whether it is worth its price under the new limits is unknown.
    """
    columns = zip(observation.values, observation.prices, observation.errors or observation.values, strict=False)
    known = dict(zip(before.metrics[1:], columns, strict=False))
    values = list[float | None]([None] * len(now.constraints))
    prices, errors = [ABSENT] * len(values), list[float | None]([None] * len(values))
    for i, metric in enumerate(now.metrics[1:]):
        value, price, error = known.get(metric, (None, ABSENT, None))
        if price >= 0 or observation.payment is not None:
            values[i], prices[i], errors[i] = value, price, error if observation.errors else None
    violation = feasibility.violation(now.constraints, values, errors)
    return observation._replace(values=values, prices=prices, violation=violation, errors=_known(errors))


def _known(errors: list[float | None]) -> Sequence[float | None]:
    return errors if errors.count(None) < len(errors) else ()
