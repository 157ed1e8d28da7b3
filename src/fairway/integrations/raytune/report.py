"""`report` inside a Tune trainable: constraints are called only when they are worth their price.

What that takes is known where the scheduler is: the best feasible objective, and what checks and steps have cost so
far. The scheduler posts it on a board, an actor of its own; a trainable reads it there, ten times a second at most and
only when something might be worth its price.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray import tune

from fairway.checks import whole
from fairway.engine.clock import WallClock
from fairway.engine.driver import Driver
from fairway.engine.measurement import Given, number
from fairway.engine.referee import Referee
from fairway.errors import UsageError
from fairway.integrations.raytune.results import MEASURED, Measured
from fairway.problem import Problem
from fairway.stoppers.stopper import Stopper, StopperState

_FRESH_SECONDS = 0.1  # for which what the board said is good enough


class _Posted(NamedTuple):
    """What decides whether a constraint is worth its price."""

    bar: float = math.inf
    train_ns: int = 0
    train_rows: int = 0
    check_ns: tuple[int, ...] = ()
    checks: tuple[int, ...] = ()
    violated: tuple[int, ...] = ()
    check_rounds: int = 0

    @classmethod
    def of(cls, referee: Referee) -> _Posted:
        check_ns, checks, violated = map(tuple, (referee.check_ns, referee.checks, referee.violated))
        return cls(referee.bar, referee.train_ns, referee.train_rows, check_ns, checks, violated, referee.check_rounds)

    def teach(self, referee: Referee) -> None:
        """Let a trainable's referee know it."""
        referee.bar = min(referee.bar, self.bar)
        if self.check_rounds:
            referee.train_ns, referee.train_rows = self.train_ns, self.train_rows
            referee.check_ns, referee.checks = list(self.check_ns), list(self.checks)
            referee.violated, referee.check_rounds = list(self.violated), self.check_rounds


class _BoardActor:
    """What holds the board, inside Ray."""

    def __init__(self, problem: Problem, stopper: Stopper) -> None:
        self._terms, self._posted = (problem, stopper), _Posted()
        self._expected: set[str] = set()

    def expect(self, trial_id: str) -> None:
        """A trial of this experiment will ask."""
        self._expected.add(trial_id)

    def terms(self, trial_id: str) -> tuple[Problem, Stopper] | None:
        """What the experiment is about, and who decides; nothing for a trial of another one."""
        return self._terms if trial_id in self._expected else None

    def post(self, posted: _Posted) -> None:
        """Replace what is known."""
        self._posted = posted

    def read(self) -> _Posted:
        """What is known."""
        return self._posted


class Board:
    """The scheduler's side of the board."""

    def __init__(self, experiment: str, problem: Problem, stopper: Stopper) -> None:
        # Experiments of one name may follow each other in a process, and an actor takes its time to go.
        name = f"{_name(experiment)}{secrets.token_hex(8)}"
        self._actor = ray.remote(_BoardActor).options(name=name, num_cpus=0).remote(problem, stopper)
        self._posted = _Posted()

    def expect(self, trial_id: str) -> None:
        """Let a trial ask, from when it begins."""
        ray.get(self._actor.expect.remote(trial_id))

    def post(self, referee: Referee) -> None:
        """Post what a referee knows, where a payment or a new best has changed it."""
        posted = _Posted.of(referee)
        if (posted.bar, posted.check_rounds) != (self._posted.bar, self._posted.check_rounds):
            self._posted = posted
            self._actor.post.remote(posted)


def _name(experiment: str) -> str:
    """How the names of an experiment's boards begin."""
    return f"fairway board of {experiment} "


@dataclass(frozen=True)
class _Pays(Stopper):
    """A stopper inside a trainable: it says when to pay as another one does, and leaves stopping to the scheduler."""

    other: Stopper | None = None

    @property
    def stop_probability(self) -> float:
        assert self.other is not None
        return self.other.stop_probability

    @property
    def longest(self) -> int | None:
        assert self.other is not None
        return self.other.longest

    def adapted(self, cost_ratio: float | None, total: int) -> int:
        assert self.other is not None
        return self.other.adapted(cost_ratio, total)

    def start(self, problem: Problem) -> StopperState:
        assert self.other is not None
        return _PaysState(self.other.start(problem))


class _PaysState(StopperState):
    def __init__(self, other: StopperState) -> None:
        self._other = other

    def judge(self, number: int, step: int, loss: float, violation: float | None) -> None:
        self._other.judge(number, step, loss, violation)

    def judge_folds(self, number: int, step: int, loss: float, violation: float | None) -> None:
        self._other.judge_folds(number, step, loss, violation)

    def due(self, number: int, step: int, loss: float, train_ns: int) -> bool:
        return self._other.due(number, step, loss, train_ns)

    def spend(self, number: int, train_ns: int, check_ns: int) -> None:
        self._other.spend(number, train_ns, check_ns)


class _Reporter:
    """What reports for one trial of Tune."""

    def __init__(self, board: Any, problem: Problem, stopper: Stopper, total: int | None) -> None:
        self._board = board
        pays = _Pays(interval=stopper.interval, skip=stopper.skip, other=stopper)
        self.problem = problem
        self._referee = Referee(problem, pays)
        self._read = -math.inf
        self._refresh()
        self._driver = Driver(0, self._referee, WallClock())  # what it measures goes to Tune
        if total is None and stopper.longest is None and stopper.interval not in (1, "adaptive"):
            raise UsageError(f"report: with interval={stopper.interval!r} say how many steps there are, with total=")
        if total is not None:
            self._driver.begin(whole(total, "total"))

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._read >= _FRESH_SECONDS:
            ray.get(self._board.read.remote()).teach(self._referee)
            self._read = now

    def measure(self, metrics: Mapping[str, Any], constraints: Mapping[str, Given]) -> dict[str, Any]:
        """The metrics with the constraints that were worth it, NaN for those that were not."""
        objective, names = self.problem.objective, [limit.metric for limit in self.problem.constraints]
        if objective.metric not in metrics:
            raise UsageError(f"report: the objective {objective.metric!r} is missing; it has {', '.join(metrics)}")
        given = {name: metrics[name] for name in (objective.metric, *names) if name in metrics} | dict(constraints)
        if objective.sign * number(self.problem, objective.metric, metrics[objective.metric]) <= self._referee.bar:
            self._refresh()
        observed = self._driver.measure(given)
        if observed is None:
            return dict(metrics)  # the scheduler sees for itself that it is no number
        self._driver.settle(observed)
        known = {name: math.nan if value is None else value for name, value in zip(names, observed.values, strict=True)}
        measured = Measured(list(observed.values), list(observed.prices), observed.train_ns, observed.last)
        return {**metrics, **known, MEASURED: json.dumps(measured)}

    def resume(self) -> None:
        """Tune has taken the report: what follows is training."""
        self._driver.train_since()


_reporter: tuple[str, _Reporter | None] = ("", None)  # of the trial that runs in this process, by its id


def report(
    metrics: Mapping[str, Any],
    *,
    constraints: Mapping[str, Given] | None = None,
    total: int | None = None,
    checkpoint: Any = None,
) -> None:
    """`tune.report` with constraints as callables, which are called, and timed, only when they are worth it.

    With `StopperScheduler` in charge; without it they are called every time. `total` is how many steps the trial means
    to take: where checks are expensive, it lets them wait for the last one. A constraint that was not called is NaN.
    """
    global _reporter  # noqa: PLW0603 - one trial runs in a process at a time
    offered = dict(constraints or {})
    trial_id = str(tune.get_context().get_trial_id())
    if _reporter[0] != trial_id:
        _reporter = (trial_id, _find(trial_id, total))
    reporter = _reporter[1]
    if reporter is None:
        measured = {name: offer() if callable(offer) else offer for name, offer in offered.items()}
        tune.report({**metrics, **measured}, checkpoint=checkpoint)
    else:
        tune.report(reporter.measure(metrics, offered), checkpoint=checkpoint)
        reporter.resume()


def _find(trial_id: str, total: int | None) -> _Reporter | None:
    """What reports for a trial; None where no scheduler of ours is in charge."""
    prefix = _name(tune.get_context().get_experiment_name())
    for name in ray.util.list_named_actors():
        if name.startswith(prefix):
            with contextlib.suppress(ValueError, ray.exceptions.RayActorError):  # that of an earlier experiment
                board = ray.get_actor(name)
                terms = ray.get(board.terms.remote(trial_id))
                if terms is not None:
                    problem, stopper = terms
                    return _Reporter(board, problem, stopper, total)
    return None
