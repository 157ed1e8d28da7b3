"""What is asked for: one objective and any number of limits, each a metric with a direction.

Inside fairway an objective is always a loss (lower is better) and a constraint an overrun (positive is violated); what
turns one into the other are the two signs defined here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fairway.checks import is_finite
from fairway.errors import UsageError


@dataclass(frozen=True)
class Objective:
    """The metric to optimise; `Minimize` and `Maximize` are the kinds.

    `best` is a value that cannot be surpassed, if there is one: 1.0 for an accuracy. `GP` and the terminators that
    model the objective then look at what is left to gain by orders of magnitude.
    """

    metric: str
    best: float | None = None
    sign: ClassVar[float]  # loss = sign * value

    def __post_init__(self) -> None:
        _check_metric(self, self.metric)
        if self.best is not None and not is_finite(self.best):
            raise UsageError(f"{type(self).__name__}({self.metric!r}, best={self.best!r}): a finite number is expected")
        _as_float(self, "best")


@dataclass(frozen=True)
class Minimize(Objective):
    """The smaller this metric, the better; `best` is a value that it cannot fall below, if there is one.

    >>> import fairway as fw
    >>> fw.Minimize("loss")
    Minimize(metric='loss', best=None)
    """

    sign = 1.0


@dataclass(frozen=True)
class Maximize(Objective):
    """The larger this metric, the better; `best` is a value that it cannot exceed, if there is one.

    >>> import fairway as fw
    >>> fw.Maximize("auc", best=1.0)
    Maximize(metric='auc', best=1.0)
    """

    sign = -1.0


@dataclass(frozen=True)
class Constraint:
    """A limit on a metric; `AtMost` and `AtLeast` are the kinds.

    `scale` is the unit in which violation is counted when there are several: by default |threshold|, or 1 where that
    is 0. It is fixed for a study's life, so that what was ranked stays ranked.
    """

    metric: str
    threshold: float
    scale: float | None = None
    sign: ClassVar[float]  # sign * (value - threshold) is positive where the limit is broken
    breach: ClassVar[str]  # how a value that breaks the limit compares with the threshold, for people

    def __post_init__(self) -> None:
        _check_metric(self, self.metric)
        if not is_finite(self.threshold):
            raise UsageError(
                f"{type(self).__name__}({self.metric!r}, {self.threshold!r}): a finite threshold is expected"
            )
        if self.scale is not None and not (is_finite(self.scale) and self.scale > 0):
            raise UsageError(
                f"{type(self).__name__}({self.metric!r}): scale={self.scale!r}: a positive number is expected"
            )
        _as_float(self, "threshold", "scale")

    @cached_property
    def unit(self) -> float:
        """How far beyond the threshold counts as a violation of 1."""
        return self.scale or abs(self.threshold) or 1.0


@dataclass(frozen=True)
class AtMost(Constraint):
    """The metric must be the threshold or less.

    >>> import fairway as fw
    >>> fw.AtMost("eod", 0.25)
    AtMost(metric='eod', threshold=0.25, scale=None)
    """

    sign = 1.0
    breach = ">"


@dataclass(frozen=True)
class AtLeast(Constraint):
    """The metric must be the threshold or more.

    >>> import fairway as fw
    >>> fw.AtLeast("recall", 0.9).unit
    0.9
    """

    sign = -1.0
    breach = "<"


@dataclass(frozen=True)
class Problem:
    """An objective and its constraints: all that a stopper knows of a study.

    >>> import fairway as fw
    >>> fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]).metrics
    ('auc', 'eod')
    """

    objective: Objective
    constraints: Sequence[Constraint] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Objective):
            raise UsageError(f"objective={self.objective!r}: Minimize('metric') or Maximize('metric') is expected")
        given = [self.constraints] if isinstance(self.constraints, Constraint) else self.constraints
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UsageError(f"constraints={given!r}: a list of AtMost('metric', limit) or AtLeast(...) is expected")
        constraints = tuple(given)
        for constraint in constraints:
            if not isinstance(constraint, Constraint):
                raise UsageError(f"constraints: {constraint!r}: AtMost('metric', limit) or AtLeast(...) is expected")
        object.__setattr__(self, "constraints", constraints)
        for i, metric in enumerate(self.metrics):
            if metric in self.metrics[:i]:
                raise UsageError(f"two metrics are called {metric!r}: each needs a name of its own")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The objective's name, then the constraints'."""
        return (self.objective.metric, *(constraint.metric for constraint in self.constraints))


def _as_float(owner: object, *names: str) -> None:
    """Numbers of other kinds, which JSON does not know, as floats."""
    for name in names:
        value = getattr(owner, name)
        if value is not None and type(value) not in (int, float):
            object.__setattr__(owner, name, float(value))


_TAKEN = ("step", "checkpoint", "failed")  # arguments of report and tell


def _check_metric(owner: object, metric: object) -> None:
    if not isinstance(metric, str) or not metric:
        raise UsageError(f"{type(owner).__name__}({metric!r}): the name of a metric is expected")
    if metric in _TAKEN:
        raise UsageError(f"{type(owner).__name__}({metric!r}): the name is taken by an argument of report or tell")
