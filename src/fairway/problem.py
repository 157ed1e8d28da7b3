"""What a study optimises: one objective and any number of constraints.

A *constraint* is what the user declares, `AtMost("eod", 0.1)`; its *limit* is the number, 0.1. Inside fairway an
objective is always a loss (lower is better) and a constraint an excess over the limit (positive is violated); the two
signs defined here convert them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fairway.checks import MOST, confidence, is_finite, number, short
from fairway.errors import UsageError
from fairway.measured import quantile


@dataclass(frozen=True)
class Objective:
    """The metric to optimise: the base of `Minimize` and `Maximize`.

    `best` is the best possible value, if there is one: 1.0 for an accuracy. `GP` and the terminators that model the
    objective then work with the distance to it, which a log transform can resolve.
    """

    metric: str
    best: float | None = None
    sign: ClassVar[float]  # loss = sign * value

    def __post_init__(self) -> None:
        _check_metric(self, self.metric)
        if self.best is not None and not is_finite(self.best):
            raise UsageError(
                f"{type(self).__name__}({short(self.metric)}, best={short(self.best)}): a finite number is expected"
            )
        _as_float(self, "best")


@dataclass(frozen=True)
class Minimize(Objective):
    """An objective to minimise; `best` is a lower bound of the metric, if there is one.

    >>> import fairway as fw
    >>> fw.Minimize("loss")
    Minimize(metric='loss', best=None)
    """

    sign = 1.0


@dataclass(frozen=True)
class Maximize(Objective):
    """An objective to maximise; `best` is an upper bound of the metric, if there is one.

    >>> import fairway as fw
    >>> fw.Maximize("auc", best=1.0)
    Maximize(metric='auc', best=1.0)
    """

    sign = -1.0


@dataclass(frozen=True)
class Constraint:
    """A metric and its limit, `threshold`: the base of `AtMost` and `AtLeast`.

    `scale` is the unit in which the violations of several constraints are added up: by default |threshold|, or 1 if
    that is 0. It stays fixed during a study, so that ranks never change.

    With a `confidence`, such as 0.9, the metric comes as `Measured` (or `Folds`), and a checkpoint counts as feasible
    when the bound of its value at that confidence is within the limit: a margin for each checkpoint, computed from its
    own error. It is no guarantee, since a search picks the checkpoint that looks best; `study.certify` gives one.

    `cost` is the price of one check in training steps, such as 5.0. Where the stopper's interval is a number or "end",
    it stands in for measured seconds, so that no decision reads the clock: constraints are checked in the order of
    chance of violation per cost, one without a `cost` counting as a step, and `Pilot` keeps declared costs within its
    share `checks`. With an adaptive interval costs are measured.
    """

    metric: str
    threshold: float
    scale: float | None = None
    confidence: float | None = None
    cost: float | None = None
    sign: ClassVar[float]  # sign * (value - threshold) > 0 if the constraint is violated
    breach: ClassVar[str]  # the comparison that a violating value satisfies, for messages

    def __post_init__(self) -> None:
        _check_metric(self, self.metric)
        kind = type(self).__name__
        if not is_finite(self.threshold):
            raise UsageError(f"{kind}({short(self.metric)}, {short(self.threshold)}): a finite threshold is expected")
        if self.scale is not None and not (is_finite(self.scale) and self.scale > 0):
            raise UsageError(f"{kind}({short(self.metric)}): scale={short(self.scale)}: a positive number is expected")
        if self.confidence is not None:
            confidence(self.confidence, f"{kind}({short(self.metric)}): confidence")
        if self.cost is not None:
            number(self.cost, f"{kind}({short(self.metric)}): cost", what=_COST, within=lambda cost: 0 < cost <= MOST)
        _as_float(self, "threshold", "scale", "confidence", "cost")

    @cached_property
    def z(self) -> float:
        """The normal quantile of `confidence`, 0 without one: a value must stay so many errors within the limit."""
        return 0.0 if self.confidence is None else quantile(self.confidence)

    @cached_property
    def unit(self) -> float:
        """The excess over the limit that counts as a violation of 1."""
        return self.scale or abs(self.threshold) or 1.0


@dataclass(frozen=True)
class AtMost(Constraint):
    """The constraint that a metric is at most `threshold`.

    >>> import fairway as fw
    >>> fw.AtMost("eod", 0.25)
    AtMost(metric='eod', threshold=0.25, scale=None, confidence=None, cost=None)
    >>> round(fw.AtMost("eod", 0.25, confidence=0.9).z, 2)  # errors
    1.28
    """

    sign = 1.0
    breach = ">"


@dataclass(frozen=True)
class AtLeast(Constraint):
    """The constraint that a metric is at least `threshold`.

    >>> import fairway as fw
    >>> fw.AtLeast("recall", 0.9).unit
    0.9
    """

    sign = -1.0
    breach = "<"


@dataclass(frozen=True)
class Problem:
    """An objective and its constraints: all that a stopper knows about a study.

    >>> import fairway as fw
    >>> fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]).metrics
    ('auc', 'eod')
    """

    objective: Objective
    constraints: Sequence[Constraint] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Objective):
            raise UsageError(f"objective={short(self.objective)}: Minimize('metric') or Maximize('metric') is expected")
        given = [self.constraints] if isinstance(self.constraints, Constraint) else self.constraints
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UsageError(
                f"constraints={short(given)}: a list of AtMost('metric', limit) or AtLeast(...) is expected"
            )
        try:
            constraints = tuple(given)
        except TypeError:  # an array of no dimension says that it is iterable
            raise UsageError(f"constraints={short(given)}: a list of AtMost('metric', limit) is expected") from None
        for constraint in constraints:
            if not isinstance(constraint, Constraint):
                raise UsageError(
                    f"constraints: {short(constraint)}: AtMost('metric', limit) or AtLeast(...) is expected"
                )
        object.__setattr__(self, "constraints", constraints)
        for i, metric in enumerate(self.metrics):
            if metric in self.metrics[:i]:
                raise UsageError(f"two metrics are named {short(metric)}: a different name for each is expected")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The name of the objective's metric, then those of the constraints."""
        return (self.objective.metric, *(constraint.metric for constraint in self.constraints))


def _as_float(owner: object, *names: str) -> None:
    """Convert numbers of other types, which JSON cannot hold, to floats."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and type(value) not in (int, float):
            object.__setattr__(owner, name, float(value))


_COST = "a positive, finite number of training steps"
_RESERVED = ("step", "checkpoint", "failed")  # arguments of report and tell


def _check_metric(owner: object, metric: object) -> None:
    if not isinstance(metric, str) or not metric:
        raise UsageError(f"{type(owner).__name__}({short(metric)}): the name of a metric is expected")
    if metric in _RESERVED:
        raise UsageError(
            f"{type(owner).__name__}({short(metric)}): the name is reserved for an argument of report or tell"
        )
