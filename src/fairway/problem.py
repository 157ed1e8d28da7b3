"""What a study optimises: one objective and any number of constraints.

A *constraint* is what the user declares, `AtMost("eod", 0.1)`; its *limit* is the number, 0.1. Inside fairway an
objective is always a loss (lower is better) and a constraint an excess over the limit (positive is violated); the two
signs defined here convert them. A *tracked* metric, `Track("ms")`, is measured like a constraint's but has no limit
yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from fairway.checks import MOST, confidence, flag, is_finite, number, short
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
    """A metric and its limit, `threshold`: the base of `AtMost`, `AtLeast` and, without a limit, `Track`.

    `scale` is the unit in which the violations of several constraints are added up: by default |threshold|, or 1 if
    that is 0. It stays fixed during a study, also when `study.set_limit` changes the limit.

    With a `confidence`, such as 0.9, the metric comes as `Measured` (or `Folds`), and a checkpoint counts as feasible
    when the bound of its value at that confidence is within the limit: a margin for each checkpoint, computed from its
    own error. This is not a guarantee, since a search picks the checkpoint that looks best; `study.certify` gives one.

    `cost` is the price of one check in training steps, such as 5.0. If the stopper's interval is a number or "end",
    this cost replaces measured seconds, so that no decision depends on the clock: constraints are checked in order of
    their chance of violation per cost (one without a `cost` counts as one step), and `Pilot` keeps the declared costs
    within its share `checks`. With an adaptive interval, costs are measured.

    `alone` is for a metric such as a latency, which depends on what else the machine does. If the best checkpoint was
    measured while others ran, `optimize` trains it again when its workers are done, measures it with nothing beside it,
    and takes the new value, unless that is worse and other programs were running then too. If the new value violates
    the limit, the next best checkpoint is measured in the same way.
    """

    metric: str
    threshold: float
    scale: float | None = None
    confidence: float | None = None
    cost: float | None = None
    alone: bool = False
    sign: ClassVar[float]  # sign * (value - threshold) > 0 if the constraint is violated
    breach: ClassVar[str]  # the comparison that a violating value satisfies, for messages
    has_limit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_metric(self, self.metric)
        kind = type(self).__name__
        if self.has_limit and not is_finite(self.threshold):
            raise UsageError(f"{kind}({short(self.metric)}, {short(self.threshold)}): a finite threshold is expected")
        if self.scale is not None and not (is_finite(self.scale) and self.scale > 0):
            raise UsageError(f"{kind}({short(self.metric)}): scale={short(self.scale)}: a positive number is expected")
        if self.confidence is not None:
            confidence(self.confidence, f"{kind}({short(self.metric)}): confidence")
        if self.cost is not None:
            number(self.cost, f"{kind}({short(self.metric)}): cost", what=_COST, within=lambda cost: 0 < cost <= MOST)
        flag(self.alone, f"{kind}({short(self.metric)}): alone")
        _as_float(self, "threshold", "scale", "confidence", "cost")

    @cached_property
    def z(self) -> float:
        """The normal quantile of `confidence`, or 0 without one: how many errors a value must stay within the limit."""
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
    AtMost(metric='eod', threshold=0.25, scale=None, confidence=None, cost=None, alone=False)
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
class Track(Constraint):
    """A metric that is measured and has no limit yet; smaller is better, or larger with `larger=True`.

    The search then looks for the *front*: the checkpoints for which no other is at least as good in the objective and
    in every tracked metric. `study.front` lists it. Once you know which limit you want, `study.set_limit(ms=20.0)`
    turns the metric into a constraint, and the search continues under it. A tracked metric may be reported as a
    callable, like a constraint's; it is called where the checkpoint would be on the front. `cost` means the same as for
    a constraint. Terminators look only at the best objective, not at the front.

    >>> import fairway as fw
    >>> fw.Track("ms"), fw.Track("recall", larger=True)
    (Track(metric='ms', cost=None, larger=False), Track(metric='recall', cost=None, larger=True))
    """

    threshold: float = field(default=math.inf, init=False, repr=False)
    scale: float | None = field(default=None, init=False, repr=False)
    confidence: float | None = field(default=None, init=False, repr=False)
    cost: float | None = field(default=None, kw_only=True)
    alone: bool = field(default=False, init=False, repr=False)
    larger: bool = field(default=False, kw_only=True)
    has_limit: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        flag(self.larger, f"Track({short(self.metric)}): larger")
        sides = AtLeast if self.larger else AtMost
        for name, value in (("threshold", sides.sign * math.inf), ("sign", sides.sign), ("breach", sides.breach)):
            object.__setattr__(self, name, value)

    def limited(self, threshold: float) -> AtMost | AtLeast:
        """The constraint that sets this limit on the metric.

        >>> import fairway as fw
        >>> fw.Track("ms").limited(20.0)
        AtMost(metric='ms', threshold=20.0, scale=None, confidence=None, cost=None, alone=False)
        """
        return (AtLeast if self.larger else AtMost)(self.metric, threshold, cost=self.cost)


@dataclass(frozen=True)
class Problem:
    """An objective and its constraints: everything a stopper knows about a study.

    >>> import fairway as fw
    >>> fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]).metrics
    ('auc', 'eod')
    """

    objective: Objective
    constraints: Sequence[Constraint] = ()
    columns: Sequence[str] = field(default=(), repr=False)
    """The metrics that a log has columns for, beside the objective: the constraints', and those with a dropped limit.

    Constraints come in the order of their columns.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Objective):
            several = isinstance(self.objective, list | tuple)
            hint = "; of further metrics give limits in constraints, or fw.Track them there" if several else ""
            raise UsageError(
                f"objective={short(self.objective)}: Minimize('metric') or Maximize('metric') is expected{hint}"
            )
        given = [self.constraints] if isinstance(self.constraints, Constraint) else self.constraints
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UsageError(
                f"constraints={short(given)}: a list of AtMost('metric', limit) or AtLeast(...) is expected"
            )
        try:
            constraints = tuple(given)
        except TypeError:  # a 0-d array claims to be iterable
            raise UsageError(f"constraints={short(given)}: a list of AtMost('metric', limit) is expected") from None
        for constraint in constraints:
            if not isinstance(constraint, Constraint):
                raise UsageError(
                    f"constraints: {short(constraint)}: AtMost('metric', limit) or AtLeast(...) is expected"
                )
        object.__setattr__(self, "constraints", constraints)
        object.__setattr__(self, "columns", tuple(self.columns) or self.metrics[1:])
        self._refuse_twice()

    def _refuse_twice(self) -> None:
        for i, metric in enumerate(self.metrics):
            if metric not in self.metrics[:i]:
                continue
            if any(one.metric == metric for one in self.tracked):
                what = "the objective" if metric == self.objective.metric else "tracked twice, or limited too"
                raise UsageError(f"Track({short(metric)}): {short(metric)} is {what}; name each metric once")
            raise UsageError(f"two metrics are named {short(metric)}: a different name for each is expected")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The name of the objective's metric, then those of the constraints."""
        return (self.objective.metric, *(constraint.metric for constraint in self.constraints))

    @property
    def reportable(self) -> tuple[str, ...]:
        """Every metric that a report may contain, including those whose limit was dropped."""
        return (self.objective.metric, *self.columns)

    @cached_property
    def limits(self) -> tuple[Constraint, ...]:
        """The constraints that have a limit."""
        return tuple(one for one in self.constraints if one.has_limit)

    @cached_property
    def tracked(self) -> tuple[Track, ...]:
        """The metrics that have no limit yet."""
        return tuple(one for one in self.constraints if isinstance(one, Track))

    def aimed(self, aim: Mapping[str, float]) -> Problem:
        """The problem of a trial that aims at limits on tracked metrics.

        >>> import fairway as fw
        >>> fw.Problem(fw.Maximize("auc"), [fw.Track("ms")]).aimed({"ms": 20.0}).limits[0].threshold
        20.0
        """
        if not self.tracked or not aim:
            return self
        limited = [
            one.limited(aim[one.metric]) if isinstance(one, Track) and one.metric in aim else one
            for one in self.constraints
        ]
        return Problem(self.objective, limited, self.columns)

    @cached_property
    def places(self) -> tuple[int, ...] | None:
        """The column of each constraint; None if the columns are exactly the constraints'."""
        places = tuple(self.columns.index(constraint.metric) for constraint in self.constraints)
        return None if places == tuple(range(len(self.columns))) else places


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
