"""From what a user passes to `report` to numbers: the words for it, and the sentences that refuse what is no number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

from fairway import feasibility
from fairway.engine.events import ABSENT, SAVED
from fairway.errors import UsageError
from fairway.folds import Folds
from fairway.problem import Problem

Given: TypeAlias = float | Folds | Callable[..., float | Folds]
"""A metric as the user reports it: a value, or a callable that measures it."""


class Spread(NamedTuple):
    """What the `Folds` of an objective add to their mean."""

    noise: float
    folds: int
    of: int  # folds there will be


class Report(NamedTuple):
    """One report, before its constraints are paid for."""

    step: int
    objective: float
    loss: float
    offers: Mapping[str, Given]  # constraints by name, as values or callables
    checkpoint: Any
    broken: bool  # a limit is known to be broken, by a value that came with it
    spread: Spread | None

    @property
    def standing(self) -> tuple[int, bool, float]:
        """A key that sorts one trial's reports before they are paid for; one with folds missing is no checkpoint."""
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
    payment: tuple[int, int] | None = None  # the act by which the worker chose to pay, and what it had seen

    @property
    def provisional(self) -> bool:
        """Whether the objective is the mean of some folds, with others to come."""
        return self.spread is not None and self.spread.folds < self.spread.of


class Checks:
    """The constraints of one report: those that came as values, and those that a check has to be paid for."""

    def __init__(self, problem: Problem, report: Report) -> None:
        self._problem, self._report = problem, report
        m = len(problem.constraints)
        self.values: list[float | None] = [None] * m
        self.prices = [ABSENT] * m
        self.offered: list[int] = []  # constraints that came as callables
        self.calling = ""  # the constraint that was called last
        for i, constraint in enumerate(problem.constraints):
            if constraint.metric not in report.offers:
                continue
            offer = report.offers[constraint.metric]
            if callable(offer):
                self.offered.append(i)
                self.prices[i] = SAVED
            else:
                self.values[i] = number(problem, constraint.metric, offer)
                self.prices[i] = 0

    def pay(self, order: Iterable[int], clock: Callable[[], int]) -> None:
        """Call constraints in an order, and time them, until one is violated."""
        checkpoint = self._report.checkpoint
        for i in order:
            constraint, began = self._problem.constraints[i], clock()
            offer: Any = self._report.offers[constraint.metric]
            self.calling = constraint.metric
            self.prices[i] = ABSENT  # until it has been measured
            value = number(self._problem, constraint.metric, offer() if checkpoint is None else offer(checkpoint))
            self.values[i], self.prices[i] = value, max(clock() - began, 1)
            if feasibility.excess(constraint, value):
                break

    def observed(
        self, violation: float | None, train_ns: int, payment: tuple[int, int] | None, *, last: bool
    ) -> Observation:
        """What was measured."""
        step, objective, loss, _, _, _, spread = self._report
        return Observation(step, objective, loss, self.values, self.prices, violation, train_ns, last, spread, payment)


def number(problem: Problem, name: str, given: Any) -> float:
    """A metric's value as a float."""
    if isinstance(given, Folds) and given.provisional and name != problem.objective.metric:
        raise UsageError(f"metric {name!r} is {given!r}: report a constraint when all its folds are there")
    try:
        if not isinstance(given, str | bytes):
            return float(given)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError(f"metric {name!r} is {repr(given)[:60]}: a number is expected") from None


def joined(problem: Problem, metrics: Mapping[str, Given], named: dict[str, Given]) -> dict[str, Given]:
    """The metrics of a mapping and those given by name, together."""
    if not isinstance(metrics, Mapping):
        example = f"{problem.objective.metric}=0.8"
        raise UsageError(f"{metrics!r} came as metrics: they are given by name, as in {example}")
    twice = [name for name in metrics if name in named]
    if twice:
        raise UsageError(f"metric {twice[0]!r} came twice, in the mapping and by name")
    return {**metrics, **named}


def is_broken(problem: Problem, offers: Mapping[str, Given]) -> bool:
    """Whether a constraint that came as a value is beyond its limit."""
    return any(
        constraint.metric in offers
        and not callable(offer := offers[constraint.metric])
        and feasibility.excess(constraint, number(problem, constraint.metric, offer))
        for constraint in problem.constraints
    )


def refuse_metric(problem: Problem, name: str) -> NoReturn:
    """Say that a metric was not declared."""
    declared = ", ".join(problem.metrics)
    raise UsageError(f"metric {name!r} was not declared: this study has {declared}; keep others with trial.note")
