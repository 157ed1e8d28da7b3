"""The default stopper: three questions, each answered by what earlier trials showed.

*Is it among the best?* At rungs, steps that grow by `reduction`, all but the best 1/reduction of those that came so far
stop, by objective alone; never one at least as good as the best feasible checkpoint. While nothing feasible was found,
those beyond a limit are ranked by how far, and the others go on.

*Will a broken limit be met again?* Where violation only grows, a trial beyond a limit is lost; where it comes and goes,
the best models come from such trials. So it is learned: of all the times that a trial trained as long again while
beyond its limits, how many came back? With R that came back in D doublings of training, (R + 1) / (D + 1) is the
chance of the next one, and its price is what the trial has cost so far. A trial stops when a new trial promises
`persistence` times as much for that price: I trials found something feasible, at a cost of C in all, so I / C each
second. Before the first one, I counts as 1, for the next trial may be it.

*Is a check worth its price?* Only while the objective is better than the best feasible one (the skip rule of ACE, but
for ties), and after a check only once training has cost `wait` of its price: where checks are dear, few are made.

Where a trial is cross-validated fold by fold, means that break a limit are always ranked by how far, and no second
question is asked: a mean of some folds does not train its way back.

Everything it remembers is a rank, a count, a minimum or a sum of whole numbers, so that replicas agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import KW_ONLY, dataclass

from fairway.checks import positive, whole
from fairway.errors import UsageError
from fairway.problem import Problem
from fairway.stoppers.ranks import DUST, PairRanks, Ranks
from fairway.stoppers.stopper import Interval, Stopper, StopperState

_DOUBLING = 1 << 20  # doublings are counted in such parts, to be summed without rounding


@dataclass(frozen=True)
class Pilot(Stopper):
    """Weighs a trial's going on against beginning a new one; the default.

    `reduction`: at each rung all but the best 1/reduction stop, and the next rung is so many times as far; the first is
    at step `grace`. `persistence`: so many times less than a new trial may one beyond its limits promise, and go on.
    `interval="adaptive"`: a limit may be checked at every step, but after a check only once training has cost `wait` of
    its price. With a number or "end" it is checked so often, a step counts for a step, and no decision reads the clock.

    >>> import fairway as fw
    >>> fw.Pilot()
    Pilot(interval='adaptive', skip=True, reduction=1.75, persistence=7.0, wait=0.25, grace=1)
    >>> fw.Pilot(reduction=0.5)
    Traceback (most recent call last):
        ...
    fairway.errors.UsageError: reduction=0.5: a number above 1 is expected
    """

    _: KW_ONLY
    interval: Interval = "adaptive"
    reduction: float = 1.75
    persistence: float = 7.0
    wait: float = 0.25
    grace: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.reduction, "reduction", what="number")
        if self.reduction <= 1:
            raise UsageError(f"reduction={self.reduction}: a number above 1 is expected")
        positive(self.persistence, "persistence", what="number")
        if self.wait != 0:
            positive(self.wait, "wait", what="number")
        whole(self.grace, "grace")

    @property
    def stop_probability(self) -> float:
        """A rung ends all but one in `reduction`."""
        return 1 - 1 / self.reduction

    def adapted(self, cost_ratio: float | None, total: int) -> int:
        """Every step may be one to check at; the wait after a check weighs its price."""
        del cost_ratio, total
        return 1

    def start(self, problem: Problem) -> StopperState:
        """A fresh state."""
        return _PilotState(self, limited=bool(problem.constraints))


class _Course:
    """One running trial."""

    __slots__ = ("beyond", "broken", "found", "looked", "price", "rung", "since", "spent")

    def __init__(self, rung: int) -> None:
        self.rung = rung  # the next one
        self.spent = 0  # on training and checks
        self.since = 0  # on training, since the last check
        self.price = 0  # of the last check
        self.beyond = 0.0  # how far it was beyond its limits at the last check
        self.broken = 0  # the step at which a limit was found broken; 0 if the last check was valid
        self.looked = 0  # the step up to which its doublings are counted
        self.found = False  # something feasible


class _PilotState(StopperState):
    __slots__ = (
        "_back",
        "_bar",
        "_beyond",
        "_config",
        "_doublings",
        "_finders",
        "_limited",
        "_rungs",
        "_spent",
        "_timed",
        "_trials",
    )

    def __init__(self, config: Pilot, *, limited: bool) -> None:
        self._config, self._limited = config, limited
        self._timed = config.interval == "adaptive"
        self._trials: dict[int, _Course] = {}
        self._rungs: defaultdict[int, Ranks] = defaultdict(Ranks)
        self._beyond: defaultdict[int, PairRanks] = defaultdict(PairRanks)  # by how far
        self._bar = math.inf if limited else -math.inf  # the loss of the best feasible checkpoint; without limits, none
        self._spent = 0  # C, by all
        self._finders = 0  # I
        self._back = 0  # R
        self._doublings = 0  # D

    def due(self, number: int, step: int, loss: float, train_ns: int) -> bool:
        del step
        if self._config.skip and loss >= self._bar:  # as good as the best is no better
            return False
        course = self._trials.get(number)
        return course is None or not self._timed or course.since + train_ns >= self._config.wait * course.price

    def spend(self, number: int, train_ns: int, check_ns: int) -> None:
        if not self._timed:
            train_ns, check_ns = 1, 0
        course = self._course(number)
        course.spent += train_ns + check_ns
        self._spent += train_ns + check_ns
        course.since += train_ns
        if check_ns:
            course.since, course.price = 0, check_ns

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        course = self._course(number)
        if self._limited:
            self._learn(course, step, loss, violation)
        searching = self._bar == math.inf
        behind = self._is_behind(course, step, loss, by_limits=searching) if step >= course.rung else None
        if course.broken and self._is_hopeless(course):
            came = f"{self._back} of {self._doublings / _DOUBLING:.0f} that trained as long again came back"
            return f"a limit is broken since step {course.broken}, and {came}"
        return behind

    def judge_folds(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        course = self._course(number)
        course.beyond = violation or 0.0
        return self._is_behind(course, step, loss, by_limits=True) if step >= course.rung else None

    def _is_behind(self, course: _Course, step: int, loss: float, *, by_limits: bool) -> str | None:
        """Enter the rung that was reached; why it does not go on, if it is behind."""
        config, rung = self._config, course.rung
        while course.rung <= step:
            rung, course.rung = course.rung, max(course.rung + 1, round(course.rung * config.reduction))
        ranks = self._rungs[rung]
        rank, n = ranks.add(loss), len(ranks)
        if course.beyond:  # it is entered whether or not that counts now: replicas may learn in another order
            beyond = self._beyond[rung]
            place, m = beyond.add(course.beyond, loss), len(beyond)
            if by_limits and m - place >= self._kept(m):
                return f"not among the 1/{config.reduction:g} of {m} at step {rung} that are least beyond their limits"
        if loss <= self._bar or n - rank < self._kept(n):
            return None
        return f"not in the best 1/{config.reduction:g} of {n} at step {rung}"

    def _kept(self, n: int) -> int:
        """How many of n go on."""
        return max(1, math.floor(n / self._config.reduction + DUST))

    def _learn(self, course: _Course, step: int, loss: float, violation: float | None) -> None:
        if violation is not None:
            course.beyond = violation
        if violation == 0.0:
            self._back += course.broken > 0
            self._finders += not course.found
            self._bar = min(self._bar, loss)
            course.broken, course.found = 0, True
        elif violation and not course.broken:
            course.broken = course.looked = step
        if course.broken and step > course.looked:
            self._doublings += round(math.log2(step / course.looked) * _DOUBLING)
            course.looked = step

    def _is_hopeless(self, course: _Course) -> bool:
        """Whether training it as long again promises too little, beside what a new trial does for that price."""
        promise = self._config.persistence * (self._back + 1) * self._spent * _DOUBLING
        return promise < max(self._finders, 1) * course.spent * (self._doublings + _DOUBLING)

    def finish(self, number: int, *, completed: bool) -> None:
        del completed
        self._trials.pop(number, None)

    def _course(self, number: int) -> _Course:
        course = self._trials.get(number)
        if course is None:
            course = self._trials[number] = _Course(self._config.grace)
        return course
