"""`report` inside a Tune trainable: constraints are called only when the check is worth its cost.

That depends on what the scheduler knows: the best feasible objective, and what checks and steps have cost so far. The
scheduler posts it on a board, an actor of its own; a trainable reads it there, at most ten times a second and only when
a check might be worth its cost.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray import tune

from fairway.checks import whole
from fairway.engine.clock import WallClock
from fairway.engine.driver import Driver
from fairway.engine.measurement import Given, Observation, number
from fairway.engine.referee import Referee
from fairway.errors import UsageError
from fairway.problem import Problem
from fairway.stoppers.stopper import Stopper

MEASURED = "fairway"
"""The key under which a result carries what `report` measured."""

_FRESH_SECONDS = 0.1  # between two looks at the board
_COSTS = ("train_ns", "train_rows", "check_ns", "checks", "violated", "check_rounds")  # that a referee knows


class _BoardActor:
    """The actor that holds the board, inside Ray."""

    def __init__(self, problem: Problem, stopper: Stopper) -> None:
        self._terms = (problem, stopper)
        self._posted: dict[str, Any] = {}
        self._expected: set[str] = set()

    def expect(self, trial_id: str) -> None:
        self._expected.add(trial_id)

    def terms(self, trial_id: str) -> tuple[Problem, Stopper] | None:
        """The problem and the stopper of the experiment; None for a trial of another one."""
        return self._terms if trial_id in self._expected else None

    def post(self, posted: dict[str, Any]) -> None:
        self._posted = posted

    def read(self) -> dict[str, Any]:
        return self._posted


class Board:
    """The scheduler's side of the board."""

    def __init__(self, experiment: str, problem: Problem, stopper: Stopper) -> None:
        # Experiments of one name may follow each other in a process, and an actor takes its time to go.
        name = f"{_name(experiment)}{secrets.token_hex(8)}"
        self._actor = ray.remote(_BoardActor).options(name=name, num_cpus=0).remote(problem, stopper)
        self._posted = (math.inf, 0)

    def expect(self, trial_id: str) -> None:
        """Let a trial read the board, from when it begins."""
        ray.get(self._actor.expect.remote(trial_id))

    def post(self, referee: Referee) -> None:
        """Post what a referee knows, if a check or a new best has changed it."""
        if self._posted != (referee.bar, referee.check_rounds):
            self._posted = (referee.bar, referee.check_rounds)
            self._actor.post.remote({name: getattr(referee, name) for name in ("bar", *_COSTS)})


def _name(experiment: str) -> str:
    """How the names of an experiment's boards begin."""
    return f"fairway board of {experiment} "


class _TrainablesReferee(Referee):
    """Decides when to check as the scheduler's referee does, and leaves stopping to that one."""

    def read_board(self, posted: Mapping[str, Any]) -> None:
        """Take over what is posted there."""
        self.bar = min(self.bar, posted.get("bar", math.inf))
        if posted.get("check_rounds"):
            for name in _COSTS:
                setattr(self, name, posted[name])

    def rule(self, number: int, observation: Observation) -> tuple[str | None, bool]:
        return None, super().rule(number, observation)[1]


class _Reporter:
    """Reports for one trial of Tune."""

    def __init__(self, board: Any, problem: Problem, stopper: Stopper, total: int | None) -> None:
        self._board = board
        self._referee = _TrainablesReferee(problem, stopper)
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
            self._referee.read_board(ray.get(self._board.read.remote()))
            self._read = now

    def report(self, metrics: Mapping[str, Any], constraints: Mapping[str, Given], checkpoint: Any) -> None:
        """Report the metrics with the constraints that were worth checking, and NaN for the others."""
        problem = self._referee.problem
        metric, names = problem.objective.metric, problem.metrics[1:]
        if metric not in metrics:
            raise UsageError(f"report: the objective {metric!r} is missing; it has {', '.join(metrics)}")
        given = {name: metrics[name] for name in problem.metrics if name in metrics} | dict(constraints)
        if problem.objective.sign * number(problem, metric, metrics[metric]) <= self._referee.bar:
            self._refresh()
        known: dict[str, Any] = {}
        observed = self._driver.measure(given)
        if observed is not None:  # else the objective is not a number, which the scheduler sees for itself
            self._driver.settle(observed)
            values = zip(names, observed.values, strict=True)
            known = {name: math.nan if value is None else value for name, value in values}
            columns = (list(observed.values), list(observed.errors), list(observed.prices))
            known[MEASURED] = json.dumps([*columns, observed.train_ns, observed.last])
        tune.report({**metrics, **known}, checkpoint=checkpoint)
        self._driver.train_since()


_reporter: tuple[str, _Reporter | None] = ("", None)  # of the trial that runs in this process, by its id


def report(
    metrics: Mapping[str, Any],
    *,
    constraints: Mapping[str, Given] | None = None,
    total: int | None = None,
    checkpoint: Any = None,
) -> None:
    """`tune.report` with constraints as callables, which are called, and timed, only when the check is worth its cost.

    That takes a `StopperScheduler`; without one they are called every time. `total` is the number of steps the trial
    plans; knowing it, expensive checks can wait for the last one. A constraint that was not called is NaN.
    """
    global _reporter  # noqa: PLW0603 - one trial runs in a process at a time
    offered, trial_id = dict(constraints or {}), str(tune.get_context().get_trial_id())
    if _reporter[0] != trial_id:
        _reporter = (trial_id, _find(trial_id, total))
    reporter = _reporter[1]
    if reporter is not None:
        reporter.report(metrics, offered, checkpoint)
        return
    measured = {name: offer() if callable(offer) else offer for name, offer in offered.items()}
    tune.report({**metrics, **measured}, checkpoint=checkpoint)


def _find(trial_id: str, total: int | None) -> _Reporter | None:
    """The reporter of a trial; None if no scheduler of ours is in charge."""
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
