"""Rules on every report: is a constraint worth paying for, is this the best feasible checkpoint, does the trial stop.

A worker decides with its own referee, in microseconds. Two referees that have replayed the same reports agree, whatever
the order in which the trials reached them (each trial's own reports in order), because they keep only ranks, counts,
integer sums and a minimum.
"""

from __future__ import annotations

import copy
import math
import threading
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from fairway import feasibility
from fairway.engine.columns import fitted
from fairway.engine.events import ABSENT, SAVED, Asked, Event, Remeasured, Reported, Told
from fairway.engine.forks import disowned_by_children
from fairway.engine.measurement import Observation, Report, Spread
from fairway.engine.pace import Pace
from fairway.engine.remeasurement import alone_metrics, newer
from fairway.engine.steadiness import Steadiness
from fairway.engine.tracked import Tracked
from fairway.problem import Constraint, Problem
from fairway.stoppers.stopper import Stopper, StopperState

STEP = 1 << 20
"""What a training step costs if costs are declared; a power of two, so that sums in steps scale without rounding."""
KNOWN = (
    "state",
    "incumbent",
    "contenders",
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
    "tracked",
)
"""The attributes that hold what a referee learns from reports."""


class Incumbent(NamedTuple):
    """The best feasible checkpoint so far; on equal loss the earlier trial, then the earlier step."""

    loss: float
    number: int
    step: int
    values: tuple[float | None, ...]
    errors: tuple[float | None, ...] = ()


_place = itemgetter(0, 1, 2)  # the key that sorts incumbents


class Referee:
    """One replica of the state that a study's decisions depend on."""

    def __init__(self, problem: Problem, stopper: Stopper, *, worker: int = 0, may_fall: bool = False) -> None:
        self._judge_by(problem)
        self.stopper = stopper
        self.state = stopper.start(problem)
        self._counts_costs = type(self.state).spend is not StopperState.spend
        self._reads_clock = stopper.interval == "adaptive"  # otherwise a step costs STEP, and a check what is declared
        self.lock = threading.RLock()  # trials of several threads may share a referee
        disowned_by_children(self)
        self.worker = worker
        self.acts = 0  # own acts so far: begin, commit, rule and finish are one each
        self.seen = 0  # the log position up to which others' events are replayed
        self.incumbent: Incumbent | None = None
        # All feasible checkpoints, best first, if the best may be measured again and found to break its limit.
        self.contenders: list[Incumbent] | None = [] if may_fall or alone_metrics(problem) else None
        self.bar = math.inf  # the loss that a report must reach before its constraints are worth paying for
        self.train_ns = 0
        self.train_rows = 0
        m = len(problem.constraints)
        self.check_ns = [0] * m
        self.checks = [0] * m
        self.violated = [0] * m
        self.check_rounds = 0  # reports at which something was paid for
        self._saved = [0] * m
        self._all_saved_rows = 0
        self.steadiness = Steadiness(m)  # of the limits; learned only for a frugal stopper
        self.tracked = Tracked()

    def _judge_by(self, problem: Problem) -> None:
        self.problem = problem
        self._tracks = bool(problem.tracked)
        self._declared = [round((constraint.cost or 0.0) * STEP) for constraint in problem.constraints]
        # Most reports pay for nothing; they share these two, so that ruling on them touches no list.
        self.unmeasured: tuple[float | None, ...] = (None,) * len(problem.constraints)
        self.all_saved = (SAVED,) * len(problem.constraints)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.RLock())
        disowned_by_children(self)

    def disown(self) -> None:
        """Free the lock in a forked child, where whoever held it is gone."""
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001 - what logging does with its own

    def replica(self, worker: int, seen: int) -> Referee:
        """A referee for another worker, which starts with everything that this one knows."""
        with self.lock:
            other = copy.deepcopy(self)
        other.worker, other.acts, other.seen = worker, 0, seen
        return other

    def known(self) -> dict[str, Any]:
        """Everything that it learned from reports, by attribute."""
        return {name: getattr(self, name) for name in KNOWN}

    def judge_by(self, problem: Problem, known: Mapping[str, Any]) -> None:
        """Judge by other limits from now on, and replace all it has learned by `known`, learned under those limits."""
        with self.lock:
            self._judge_by(problem)  # first: a reader without the lock compares the problem before the rest
            for name in KNOWN:
                setattr(self, name, known[name])

    def known_by(self, problem: Problem, events: Iterable[Event]) -> dict[str, Any]:
        """What a referee that judges by another problem knows after these events."""
        other = Referee(problem, self.stopper, may_fall=self.contenders is not None)
        other.tracked.aims = dict(self.tracked.aims)
        for event in events:
            if isinstance(event, Asked | Reported | Told | Remeasured):
                other.replay(event)
        other.restart_stopper()
        return other.known()

    def restart_stopper(self) -> None:
        """Restart the stopper with only the best checkpoint, because limits have changed.

        Otherwise it would compare a trial within the new limits with trials that were never checked for them, and that
        are often ahead because they break them.
        """
        self.state, best = self.stopper.start(self.problem), self.incumbent
        if best is not None:
            self.state.judge(best.number, best.step, best.loss, 0.0)
            self.state.finish(best.number, completed=True)

    def bar_of(self, number: int, step: int, *, last: bool) -> float:
        """The loss that a trial's report must reach before its constraints are worth paying for."""
        if not self._tracks or not self.stopper.skip or last:
            return self.bar
        return self.tracked.bar(number, step)

    def _tell_place(self, number: int, *, lost: bool = False) -> None:
        """Tell the stopper where a trial is among the tracked metrics, and the best loss that is known there."""
        place = self.tracked.place(self.problem, number)
        self.state.place(number, place, math.inf if lost else self.tracked.front.best(place))

    @property
    def saved(self) -> list[int]:
        """How often each constraint was offered and not called."""
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
        """Whether to pay for the constraints that a trial offers; asked live, and again by `verify`.

        They are paid for if the trial's pace allows a check, the objective reaches the bar (ACE's skip rule), no limit
        is known to be broken already (except for the first check, which teaches the price), and the stopper agrees. A
        steady limit that this trial was never checked for is paid for whatever the objective and the stopper.
        """
        if not report.lazy:
            return False
        unchecked = bool(self.steadiness.steady) and bool(self.steadiness.unchecked(number))
        bar = math.inf if unchecked else self.bar_of(number, report.step, last=report.last)
        if report.loss > bar or report.broken and self.check_rounds:
            return False
        return pace.allows(report.step, last=report.last) and (
            unchecked or pace.at_end or self._agrees(number, report, bar)
        )

    def _agrees(self, number: int, report: Report, bar: float) -> bool:
        """Whether the stopper wants a check; it is not asked, and counts as agreeing, if there is nothing to wait for.

        That is when training has ended (`train_ns` ABSENT) and, for a frugal stopper, at a last step better than the
        bar.
        """
        if report.train_ns == ABSENT or report.last and self.stopper.frugal and report.loss < bar:
            return True
        if self._tracks:
            self._tell_place(number, lost=self.tracked.is_lost(number, report.step))
        return self.state.due(number, report.step, report.loss, report.train_ns if self._reads_clock else STEP)

    def commit(self) -> tuple[int, int]:
        """Count the choice to pay as an act; return the act's number and the log position seen."""
        self.acts += 1
        return self.acts, self.seen

    def check_order(self, number: int, report: Report, offered: Collection[int]) -> Collection[int]:
        """The offered constraints to check, those with the highest chance of a violation per cost first.

        If the objective does not reach the bar, these are only steady ones that the trial was never checked for.
        """
        if report.loss > self.bar_of(number, report.step, last=report.last):
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
        """Rule on one row; return why the trial stops, or None, and whether it is now the best feasible checkpoint."""
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
        if self._tracks:
            self.tracked.learn(self.problem, number, observation)
            self._tell_place(number)
        if spread is not None and observation.provisional:
            return self.state.judge_folds(number, step, loss, violation), False
        improved = False
        if violation == 0.0:
            best = self.incumbent
            if best is None or (loss, number, step) < best[:3]:
                self.incumbent = Incumbent(loss, number, step, tuple(values), tuple(errors))
                improved = True
                if self.stopper.skip and not self._tracks:
                    self.bar = loss
            if self.contenders is not None:
                insort(self.contenders, Incumbent(loss, number, step, tuple(values), tuple(errors)), key=_place)
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
        """Why a trial stops that broke a steady limit; None if it broke none, or if no check found that limit kept."""
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
        """Count the checks paid and saved; return the cost of those paid. A late check was counted as saved before."""
        paid, is_paid = 0, False
        for i, price in enumerate(prices):
            if price > 0:
                is_paid = True
                paid += price if self._reads_clock else self._declared[i]
                self.check_ns[i] += price
                self.checks[i] += 1
                self._saved[i] -= late
                error = errors[i] if errors else None
                if feasibility.excess(self.problem.constraints[i], values[i], error):  # type: ignore[arg-type]
                    self.violated[i] += 1
            elif price == SAVED and not late:
                self._saved[i] += 1
        self.check_rounds += is_paid
        return paid

    def finish(self, number: int, *, completed: bool) -> int:
        """Note that a trial of this worker ended; return the number of this act."""
        self.acts += 1
        self.state.finish(number, completed=completed)
        self.steadiness.forget(number)
        self.tracked.finish(number)
        return self.acts

    def aim(self, number: int, aim: Mapping[str, float]) -> None:
        """Note the limits on tracked metrics that a trial aims at."""
        if aim:
            self.tracked.aims[number] = aim

    def replay(self, event: Asked | Reported | Told | Remeasured, after: int = -1) -> None:
        """Learn another referee's rulings, a second measurement, or what a trial aims at; this is no act of ours.

        Of the other referee's rulings, only those with an act after `after` count.
        """
        acts = self.acts
        if isinstance(event, Asked):
            self.aim(event.number, event.aim)
        elif isinstance(event, Remeasured):
            self._correct(fitted(event, self.problem))
        elif isinstance(event, Told):
            if event.act > after:
                self.finish(event.number, completed=event.status == "completed")
        else:
            for act, observation in zip(event.acts.tolist(), observations(event, self.problem), strict=True):
                if act > after:
                    self.rule(event.number, observation)
        self.acts = acts

    def _correct(self, event: Remeasured) -> None:
        """Apply the second measurement of a checkpoint; if it breaks a limit now, the next best takes its place.

        Under limits that changed since, the checkpoint's first values may break a limit that the newer ones keep. Then
        it is not among those known here, and is taken from the event.
        """
        known, stands = [self.incumbent] if self.contenders is None else self.contenders, event.checkpoint
        found = next((one for one in known if one is not None and one[1:3] == (event.number, event.step)), None)
        if found is None and stands is not None and stands.step == event.step:
            loss = self.problem.objective.sign * stands.objective
            found = Incumbent(loss, event.number, stands.step, stands.values, stands.errors)
        if found is None:
            return
        values, errors = newer(event, found.values, found.errors)
        left = [one for one in known if one is not None and one is not found]
        if feasibility.violation(self.problem.constraints, values, errors) == 0.0:
            insort(left, found._replace(values=values, errors=errors), key=_place)
        else:
            self.tracked.front.remove(event.number, event.step)
        if self.contenders is not None:
            self.contenders = left
        self.incumbent = left[0] if left else None
        if self.stopper.skip and not self._tracks:
            self.bar = left[0].loss if left else math.inf

    def reason(self, observation: Observation, why: str) -> str:
        """A sentence: what was measured, then why that stops the trial."""
        errors = observation.errors or self.unmeasured
        broken = [
            _breach(constraint, value, error)
            for constraint, value, error in zip(self.problem.constraints, observation.values, errors, strict=True)
            if value is not None and feasibility.excess(constraint, value, error)
        ]
        measured = " and ".join(broken) or f"{self.problem.objective.metric} {observation.objective:.4g}"
        return f"{measured}, {why}"


def _breach(constraint: Constraint, value: float, error: float | None) -> str:
    """In words, how a value, or its bound, breaks its limit."""
    number = feasibility.bound(constraint, value, error)
    sign = "+" if constraint.sign > 0 else "-"
    measured = f"{number:.4g} ({value:.4g} {sign} margin)" if constraint.z and number != value else f"{value:.4g}"
    return f"{constraint.metric} {measured} {constraint.breach} {constraint.threshold:g}"


def observations(event: Reported, problem: Problem) -> Iterator[Observation]:
    """Yield the rows of an event as observations under the limits of a problem."""
    event = fitted(event, problem)
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
