"""Rules on every report: is a constraint worth paying for, is this the best feasible checkpoint, does the trial stop.

A worker decides from its own referee in microseconds. Two referees that have replayed the same reports agree, whatever
the order in which the trials reached them (each trial's own reports in order): they keep only ranks, counts, integer
sums and a minimum.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairway import feasibility
from fairway.engine import payment
from fairway.engine.events import ABSENT, SAVED, Reported, Told
from fairway.engine.forks import disowned_by_children
from fairway.engine.measurement import Observation, Report, Spread
from fairway.engine.payment import Pace
from fairway.engine.steadiness import Steadiness
from fairway.problem import Constraint, Problem
from fairway.stoppers.stopper import Stopper, StopperState

STEP = 1 << 20
"""What a training step costs where costs are declared; a power of two, so that sums in steps scale without rounding."""
KNOWN = (
    "state",
    "incumbent",
    "bar",
    "train_ns",
    "train_rows",
    "check_ns",
    "checks",
    "violated",
    "check_rounds",
    "_saved",
    "_all_saved_rows",
    "steadiness",
)
"""What a referee learns from reports, by the names of its attributes."""


class Incumbent(NamedTuple):
    """The best feasible checkpoint so far; on equal loss the earlier trial, then the earlier step."""

    loss: float
    number: int
    step: int
    values: tuple[float | None, ...]
    errors: tuple[float | None, ...] = ()


class Referee:
    """One replica of what a study's decisions depend on."""

    def __init__(self, problem: Problem, stopper: Stopper, *, worker: int = 0) -> None:
        self.problem = problem
        self.stopper = stopper
        self.state = stopper.start(problem)
        self._counts_costs = type(self.state).spend is not StopperState.spend
        self._reads_clock = stopper.interval == "adaptive"  # otherwise a step costs STEP, and a check what is declared
        self._declared = [round((constraint.cost or 0.0) * STEP) for constraint in problem.constraints]
        self.lock = threading.RLock()  # trials of several threads may share a referee
        disowned_by_children(self)
        self.worker = worker
        self.acts = 0  # own acts so far: begin, commit, rule and finish are one each
        self.seen = 0  # the log position up to which others' events are replayed
        self.incumbent: Incumbent | None = None
        self.bar = math.inf  # the loss that a report must reach before its constraints are worth paying for
        self.train_ns = 0
        self.train_rows = 0
        m = len(problem.constraints)
        self.check_ns = [0] * m
        self.checks = [0] * m
        self.violated = [0] * m
        self.check_rounds = 0  # reports at which something was paid for
        self._saved = [0] * m
        # Most reports pay for nothing; they share these two, so that ruling on them touches no list.
        self.unmeasured: tuple[float | None, ...] = (None,) * m
        self.all_saved = (SAVED,) * m
        self._all_saved_rows = 0
        self.steadiness = Steadiness(m)  # of the limits, if the stopper makes use of it

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.RLock())
        disowned_by_children(self)

    def disown(self) -> None:
        """Free the lock in a forked child, where whoever held it is gone."""
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001 - what logging does with its own

    def replica(self, worker: int, seen: int) -> Referee:
        """One for another worker, which starts from all that this one knows."""
        with self.lock:
            other = copy.deepcopy(self)
        other.worker, other.acts, other.seen = worker, 0, seen
        return other

    def known(self) -> dict[str, Any]:
        """All that it learned from reports."""
        return {name: getattr(self, name) for name in KNOWN}

    def learn(self, known: Mapping[str, Any]) -> None:
        """Know what another one did (`known`), and nothing else."""
        for name, value in [(name, known[name]) for name in KNOWN]:
            setattr(self, name, value)

    @property
    def saved(self) -> list[int]:
        """By constraint: how often it was offered and not called."""
        return [saved + self._all_saved_rows for saved in self._saved]

    def cost_ratio(self) -> float | None:
        """Mean price of a round of checks over the mean price of a step: r of Theorem 1; None while unknown."""
        if not self.check_rounds or not self.train_rows:
            return None
        return sum(self.check_ns) * self.train_rows / (max(self.train_ns, 1) * self.check_rounds)

    def begin(self, total: int | None) -> Pace:
        """Fix a trial's pace, given the number of steps it plans."""
        self.acts += 1
        longest = self.stopper.longest
        if longest is not None:
            total = longest if total is None else min(total, longest)
        interval = self.stopper.interval if self.problem.constraints else 1
        if interval == "end":
            return Pace(total, total, at_end=total != 1)
        if interval != "adaptive":
            return Pace(total, interval, at_end=False)
        if total is None:
            return Pace(total, 1, at_end=False)
        best = self.stopper.adapted(self.cost_ratio(), total)
        return Pace(total, best, at_end=best > 1)

    def pays(self, number: int, pace: Pace, report: Report) -> bool:
        """Whether the constraints that a trial offers are paid for, as far as this referee knows.

        When training has ended (`train_ns` ABSENT), and for a frugal stopper at the last step, there is nothing to
        wait for and the stopper is not asked. A steady limit that this trial was never checked for is paid for
        whatever the objective.
        """
        if not report.lazy:
            return False
        if self.steadiness.steady and self.steadiness.unchecked(number):
            return payment.pays(pace, math.inf, report, agreed=True, priced=self.check_rounds > 0)
        if report.loss > self.bar:  # by far the most common case
            return False
        train_ns = report.train_ns
        ending = train_ns == ABSENT or report.last and self.stopper.frugal and report.loss < self.bar
        cost = train_ns if self._reads_clock else STEP
        agreed = ending or self.state.due(number, report.step, report.loss, cost)
        return payment.pays(pace, self.bar, report, agreed=agreed, priced=self.check_rounds > 0)

    def commit(self) -> tuple[int, int]:
        """Make the choice to pay an act of this referee: its number, and the log position seen."""
        self.acts += 1
        return self.acts, self.seen

    def check_order(self, number: int, loss: float, offered: Collection[int]) -> Collection[int]:
        """The constraints to check of those offered, the likeliest to be violated per cost of a check first.

        If the objective does not reach the bar, only steady ones that the trial was never checked for.
        """
        if loss > self.bar:
            offered = [i for i in self.steadiness.unchecked(number) if i in offered]
        if len(offered) == 1:
            return offered

        def promise(i: int) -> float:
            chance = (self.violated[i] + 1) / (self.checks[i] + 2)
            if not self._reads_clock:
                return chance / (self.problem.constraints[i].cost or 1.0)
            return chance * self.checks[i] / max(self.check_ns[i], 1) if self.checks[i] else math.inf

        return sorted(offered, key=lambda i: (-promise(i), i))

    def rule(self, number: int, observation: Observation) -> tuple[str | None, bool]:
        """Take in one row: why the trial stops (or None), and whether this is now the best feasible checkpoint."""
        step, _, loss, values, prices, violation, train_ns, _, spread, _, errors = observation
        self.acts += 1
        if train_ns >= 0:
            self.train_ns += train_ns
            self.train_rows += 1
        if prices is self.all_saved:
            self._all_saved_rows += 1
            paid = 0
        else:
            paid = self._tally(values, errors, prices, late=train_ns == ABSENT)
            if self.stopper.frugal:
                self._learn_changes(number, step, values, prices)
        if self._counts_costs:
            self.state.spend(number, max(train_ns, 0) if self._reads_clock else STEP, paid)
        if spread is not None and observation.provisional:
            return self.state.judge_folds(number, step, loss, violation), False
        improved = False
        if violation == 0.0:
            best = self.incumbent
            if best is None or (loss, number, step) < best[:3]:
                self.incumbent = Incumbent(loss, number, step, tuple(values), tuple(errors))
                improved = True
                if self.stopper.skip:
                    self.bar = loss
        why = self.state.judge(number, step, loss, violation)
        if violation and self.steadiness.steady:
            why = self._why_lost(values, errors) or why
        return why, improved

    def _learn_changes(self, number: int, step: int, values: Sequence[float | None], prices: Sequence[int]) -> None:
        for i, price in enumerate(prices):
            value = values[i]
            if price > 0 and value is not None and not self.problem.constraints[i].z:
                self.steadiness.learn(number, step, i, value)

    def _why_lost(self, values: Sequence[float | None], errors: Sequence[float | None]) -> str | None:
        """Why a trial stops whose limit is broken and steady; not while no trial has kept that limit."""
        for i in self.steadiness.steady:
            value, error = values[i], errors[i] if errors else None
            kept = self.violated[i] < self.checks[i]
            if value is not None and kept and feasibility.excess(self.problem.constraints[i], value, error):
                return f"and training never changes {self.problem.constraints[i].metric}"
        return None

    def _tally(
        self,
        values: Sequence[float | None],
        errors: Sequence[float | None],
        prices: Sequence[int],
        *,
        late: bool,
    ) -> int:
        """Count what was paid and saved, and sum its costs; what is paid late was counted as saved before."""
        paid = 0
        for i, price in enumerate(prices):
            if price > 0:
                paid += price if self._reads_clock else self._declared[i]
                self.check_ns[i] += price
                self.checks[i] += 1
                self._saved[i] -= late
                error = errors[i] if errors else None
                if feasibility.excess(self.problem.constraints[i], values[i], error):  # type: ignore[arg-type]
                    self.violated[i] += 1
            elif price == SAVED and not late:
                self._saved[i] += 1
        self.check_rounds += max(prices, default=0) > 0
        return paid

    def finish(self, number: int, *, completed: bool) -> int:
        """A trial of this worker ended; the number of this act."""
        self.acts += 1
        self.state.finish(number, completed=completed)
        self.steadiness.forget(number)
        return self.acts

    def replay(self, event: Reported | Told) -> None:
        """Learn what another referee ruled on; that is no act of this one."""
        acts = self.acts
        if isinstance(event, Told):
            self.finish(event.number, completed=event.status == "completed")
        else:
            for observation in observations(event, self.problem):
                self.rule(event.number, observation)
        self.acts = acts

    def reason(self, observation: Observation, verdict: str) -> str:
        """A sentence: what was measured, then why that stops the trial."""
        errors = observation.errors or self.unmeasured
        broken = [
            _breach(constraint, value, error)
            for constraint, value, error in zip(self.problem.constraints, observation.values, errors, strict=True)
            if value is not None and feasibility.excess(constraint, value, error)
        ]
        measured = " and ".join(broken) or f"{self.problem.objective.metric} {observation.objective:.4g}"
        return f"{measured}, {verdict}"


def _breach(constraint: Constraint, value: float, error: float | None) -> str:
    """How a value breaks its limit, or its bound does."""
    number = feasibility.bound(constraint, value, error)
    sign = "+" if constraint.sign > 0 else "-"
    measured = f"{value:.4g}" if number == value else f"{number:.4g} ({value:.4g} {sign} margin)"
    return f"{constraint.metric} {measured} {constraint.breach} {constraint.threshold:g}"


def observations(event: Reported, problem: Problem) -> Iterator[Observation]:
    """The rows of an event as they were ruled on."""
    sign, constraints = problem.objective.sign, problem.constraints
    columns = (event.step, event.objective, event.values, event.check_ns, event.train_ns)
    spreads = {int(row): Spread(noise, int(folds), int(of)) for row, noise, folds, of in event.noise.tolist()}
    payments = {row: (act, seen) for row, act, seen in event.payments.tolist()}
    trained = event.step[event.train_ns >= 0]
    final = int(trained.max()) if event.over and len(trained) else event.total
    errors: dict[int, list[float | None]] = {}
    for row, constraint, error in event.errors.tolist():
        errors.setdefault(int(row), [None] * len(constraints))[int(constraint)] = error
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (step, objective, row, prices, train_ns) in enumerate(rows):
        values = [value if price >= 0 else None for value, price in zip(row, prices, strict=True)]
        violation = feasibility.violation(constraints, values, errors.get(i, ()))
        last = step in (final, event.total) or train_ns == ABSENT
        yield Observation(
            step,
            objective,
            sign * objective,
            values,
            prices,
            violation,
            train_ns,
            last,
            spreads.get(i),
            payments.get(i),
            errors.get(i, ()),
        )
