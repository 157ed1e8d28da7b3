"""The default stopper: it weighs continuing a trial against starting a new one, by what earlier trials showed.

Trials are compared at rungs, steps that grow by the factor `spacing`: those that reached a rung are ranked by
objective, or by where their curves head, and the best share `keep` continues. A trial with no known violation is ranked
only among others like it. The rank does not stop a trial that is at least as good as the best feasible checkpoint (or
any trial while there is none), unless the trial is infeasible and not among the share `keep` of infeasible ones with
the least violation. What is ranked and which rungs count is learned (`fairway.stoppers.rungs`): a rung is trusted while
it orders at least the share `trust` of all pairs of trials as a rung three times later does. To measure that, some
trials, the probes, are not stopped before three times the first trusted rung.

Whether an infeasible trial will recover, and when to check it again, is learned too (`fairway.stoppers.recoveries`). So
is how much a trial may still gain: one that is too far behind the best to catch up stops (`fairway.stoppers.gains`).

If a trial is cross-validated fold by fold, means over 1, 2, 4, ... folds are compared, infeasible ones by violation,
and neither recovery nor gains are estimated: more folds are not more training. The state holds only ranks, counts,
extremes and integer sums, so that replicas agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from fairway.checks import checked, fraction, number, positive, whole
from fairway.problem import Problem
from fairway.stoppers.gains import MARGIN, Gains
from fairway.stoppers.ranks import DUST, Neighbours, PairRanks, Ranks
from fairway.stoppers.recoveries import Recoveries, Violations
from fairway.stoppers.rungs import Rungs, heading
from fairway.stoppers.stopper import Interval, Stopper, StopperState

_PRICED = 4  # checks that are made whatever they cost, to learn their price


@dataclass(frozen=True)
class Pilot(Stopper):
    """Stops a trial when a new one promises more; the default.

    - `keep`: the share of trials that continue at each rung that counts.
    - `spacing`: a rung's step is this many times that of the rung before; the first is at step `grace`.
    - `trust`: a rung counts if it orders this share of the pairs of trials as a rung three times later does.
    - `persistence`: an infeasible trial continues while its expected payoff is at least 1/`persistence` of a new one's.
    - `checks`: with `interval="adaptive"` any step may be checked, but checks take at most this share of all seconds;
      exempt are the first four checks, a trial's first check while nothing feasible is found, and its last step. With a
      number or "end" as the interval, costs are counted in steps (for checks, the `cost` of their constraints), and no
      decision depends on the clock.

    >>> import fairway as fw
    >>> fw.Pilot()
    Pilot(interval='adaptive', skip=True, keep=0.55, spacing=1.5, trust=0.75, persistence=7.0, checks=0.75, grace=1)
    >>> fw.Pilot(keep=1.5)
    Traceback (most recent call last):
        ...
    fairway.errors.UsageError: keep=1.5: a fraction between 0 and 1 is expected; did you mean 0.015?
    """

    frugal: ClassVar[bool] = True

    _: KW_ONLY
    interval: Interval = "adaptive"
    keep: float = field(default=0.55, metadata=checked(fraction))
    spacing: float = field(
        default=1.5, metadata=checked(number, what="a number above 1", within=lambda spacing: spacing > 1)
    )
    trust: float = field(
        default=0.75, metadata=checked(number, what="a number from 0 to 1", within=lambda trust: 0 <= trust <= 1)
    )
    persistence: float = field(default=7.0, metadata=checked(positive))
    checks: float = field(default=0.75, metadata=checked(fraction))
    grace: int = field(default=1, metadata=checked(whole))

    @property
    def stop_probability(self) -> float:
        return 1 - self.keep

    def adapted(self, cost_ratio: float | None, total: int) -> int:
        """1: any step may be checked, and `due` weighs the cost."""
        del cost_ratio, total
        return 1

    def start(self, problem: Problem) -> StopperState:
        return _PilotState(self, constrained=bool(problem.constraints))


@dataclass(slots=True)
class _Course(Violations):
    """One running trial."""

    next_step: int = 1  # of its next rung
    rung: int = -1  # the last one that it reached
    place: tuple[float, ...] | None = None  # its tracked metrics, if any: see `StopperState.place`
    to_beat: float = math.inf  # the best loss that is known there
    losses: dict[int, float] = field(default_factory=dict)  # by rung
    lowest: float = math.inf  # loss so far
    went_on: bool = False  # from its last rung


class _PilotState(StopperState):
    def __init__(self, config: Pilot, *, constrained: bool) -> None:
        self._config = config
        self._limits = Recoveries(config.persistence, constrained=constrained)
        self._trials: dict[int, _Course] = {}
        self._rungs = Rungs(config.grace, config.spacing, config.trust)
        self._constrained = constrained
        # By rung, and by loss (0) or heading (1): `Rungs` learns which of the two counts.
        self._ranks: defaultdict[tuple[int, int], Ranks] = defaultdict(Ranks)
        self._unviolated: defaultdict[tuple[int, int], Ranks] = defaultdict(Ranks)  # those that violate nothing there
        self._placed: defaultdict[tuple[int, int], Neighbours] = defaultdict(Neighbours)  # where metrics are tracked
        self._infeasible: defaultdict[int, PairRanks] = defaultdict(PairRanks)  # by rung: violation, then loss
        self._gains = Gains()
        self._check_cost = 0
        self._checks = 0

    def place(self, number: int, place: tuple[float, ...], best: float) -> None:
        course = self._course(number)
        course.place, course.to_beat = place, best

    def due(self, number: int, step: int, loss: float, train_ns: int) -> bool:
        course = self._course(number)
        best = self._best(course)
        if self._config.skip and loss >= best or step < course.next_check:
            return False
        if self._checks < _PRICED:
            return True
        if best == math.inf and not course.checked_at:
            return True
        price = self._check_cost / self._checks
        return self._check_cost + price <= self._config.checks * (self._limits.cost + train_ns + price)

    def spend(self, number: int, train_ns: int, check_ns: int) -> None:
        self._limits.spend(self._course(number), train_ns + check_ns)
        self._check_cost += check_ns
        self._checks += check_ns > 0

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        course = self._course(number)
        self._limits.learn(course, step, loss, violation)
        if loss < course.lowest:
            course.lowest = loss
            self._gains.lowest = min(self._gains.lowest, loss)
        course.went_on = step < course.next_step
        behind = None if course.went_on else self._is_behind(number, course, step, loss)
        return self._limits.why_hopeless(course) or behind

    def judge_folds(self, number: int, step: int, loss: float, violation: float | None) -> str | None:
        course = self._course(number)
        course.violation = violation or 0.0
        if step < course.next_step:
            return None
        rung, course.next_step = self._enter(course, step), 2 * step
        rank, n = self._rank(course, rung, loss)
        if course.violation:
            infeasible = self._infeasible[rung]
            place, m = infeasible.add(course.violation, loss), len(infeasible)
            if m - place >= self._kept(m):
                return f"not among the {self._share} of {m} that violate least at step {self._rungs.steps[rung]}"
        return None if loss <= self._best(course) else self._why_behind(rung, rank, n)

    def _best(self, course: _Course) -> float:
        """The best feasible loss; if metrics are tracked, the best known at the trial's place."""
        return self._limits.best_feasible if course.place is None else course.to_beat

    def _course(self, number: int) -> _Course:
        course = self._trials.get(number)
        if course is None:
            course = self._trials[number] = _Course(next_step=self._config.grace)
        return course

    def _enter(self, course: _Course, step: int) -> int:
        """The rung that a report has reached."""
        course.rung = rung = self._rungs.reached(step, course.rung)
        course.next_step = self._rungs.step(rung + 1)
        return rung

    def _is_behind(self, number: int, course: _Course, step: int, loss: float) -> str | None:
        """Enter the rung that was reached; why the trial stops there, or None."""
        rungs, rung = self._rungs, self._enter(course, step)
        rank, n = self._rank(course, rung, loss)
        course.near = True
        if course.violation:  # ranked even if unused now: another replica may know less, or more
            infeasible = self._infeasible[rung]
            place, m = infeasible.add(course.violation, loss), len(infeasible)
            course.near = m - place < self._kept(m)
        self._gains.go_on(course.losses, course.lowest)
        course.losses[rung] = loss
        if rungs.is_probe(number):
            rungs.learn(number, rung, course.losses)
            if rungs.steps[rung] < rungs.probed_to:
                return None
        if rungs.is_trusted(rung) and not (course.near and loss <= self._best(course)):  # infinite while there is none
            why = self._why_behind(rung, rank, n)
            if why is not None:
                return why
        return None if rungs.is_probe(number) else self._why_too_late(course, rung, loss)

    def _why_too_late(self, course: _Course, rung: int, loss: float) -> str | None:
        """Why a trial stops that is too far behind the best to catch up; None if it continues."""
        missing = loss - (self._best(course) if self._constrained else self._gains.lowest)
        if not missing > MARGIN * self._gains.most(rung):
            return None
        step = self._rungs.steps[rung]
        return f"{missing:.4g} behind the best, and no trial gained {1 / MARGIN:.0%} of that after step {step}"

    def _rank(self, course: _Course, rung: int, loss: float) -> tuple[int, int]:
        """Enter a trial at a rung; returns how many of the trials there are at least as bad, and how many there are.

        The trial is compared with those of similar tracked metrics, if any are tracked; else, if it violates nothing,
        with others that violate nothing; else with all.
        """
        way, keys = int(self._rungs.by_heading), (loss, heading(rung, loss, course.losses))
        if course.place is not None:
            return [self._placed[rung, i].add(course.place, key) for i, key in enumerate(keys)][way]
        found = [self._ranks[rung, i].add(key) for i, key in enumerate(keys)]
        if not self._constrained or course.violation:
            return found[way], len(self._ranks[rung, way])
        found = [self._unviolated[rung, i].add(key) for i, key in enumerate(keys)]
        return found[way], len(self._unviolated[rung, way])

    def _why_behind(self, rung: int, rank: int, n: int) -> str | None:
        """The reason to stop a trial that is at least as good as `rank` of `n`; None to continue."""
        if n - rank < self._kept(n):
            return None
        headed = "on course for" if self._rungs.by_heading else "among"
        return f"not {headed} the {self._share} of {n} at step {self._rungs.steps[rung]}"

    @property
    def _share(self) -> str:
        """The trials that continue, in words."""
        keep = self._config.keep
        return "better half" if keep == 0.5 else f"best {keep:.0%}"  # noqa: PLR2004

    def _kept(self, n: int) -> int:
        """How many of n trials continue."""
        return max(1, math.floor(n * self._config.keep + DUST))

    def finish(self, number: int, *, completed: bool) -> None:
        course = self._trials.pop(number, None)
        if completed and course is not None:
            if course.went_on:
                self._gains.go_on(course.losses, course.lowest)
            self._gains.complete()
