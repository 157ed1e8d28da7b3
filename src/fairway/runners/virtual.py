"""Replays recorded trainings in virtual time: a day of tuning in seconds, and bit for bit the same for the same seed.

Several virtual workers train asynchronously. A step costs its recorded seconds; a check costs its price times the mean
of that configuration's first 50 steps; past the recorded end of a curve a step costs 0.1 ms. What is measured becomes
known when the check is over, not when it begins; what finishes after the budget does not count.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairway.checks import is_finite, positive, whole
from fairway.engine.clock import VirtualClock, WallClock
from fairway.engine.measurement import Given, Observation
from fairway.engine.owner import Owner
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.parameters import Value
from fairway.runners.recording import Recording, key
from fairway.runners.run import Judge
from fairway.seeds import stream

_FLAT_NS = 100_000  # a step past the recorded end
_PRICED_STEPS = 50  # the first so many steps set the price of a check


@dataclass(frozen=True)
class Simulation:
    """What a simulated run came to.

    >>> Simulation(seconds=20.0, best_after=12.5, share_used=0.1, ended="the budget of 20 s is spent").best_after
    12.5
    """

    seconds: float
    best_after: float | None
    share_used: float
    ended: str


class _Running(NamedTuple):
    """A trial in training: whose it is, and which recorded configuration."""

    owner: Owner
    trial: Trial
    k: int

    def close(self) -> None:
        """Bring it to its end."""
        self.owner.close(self.trial, *self.trial.driver.finish())


class Simulator:
    """Runs an owner's study on a recording."""

    def __init__(
        self,
        owner: Owner,
        recording: Recording,
        workers: int,
        budget: float,
        price: float | Mapping[str, float],
        staleness: float,
    ) -> None:
        self.owner, self.recording = owner, recording
        self.workers = whole(workers, "workers")
        if not is_finite(staleness) or staleness < 0:
            raise UsageError(f"staleness={staleness!r}: a number of virtual seconds of at least 0 is expected")
        self.exchange_ns = round(staleness * 1e9)  # between exchanges
        self.budget = positive(budget, "budget", what="number of virtual seconds")
        for metric in owner.problem.metrics:
            if metric not in recording.metrics:
                raise UsageError(f"the recording has no metric {metric!r}; it has {', '.join(recording.metrics)}")
        if dict(owner.space) != dict(recording.space):
            raise UsageError("the study's space is not the recording's; build the study with recording.space")
        self.prices = _prices(price, [constraint.metric for constraint in owner.problem.constraints])
        self.clock = VirtualClock()
        self.left = np.ones(len(recording), bool)  # not run yet
        for course in owner.ledger.courses:
            self.left[recording.index.get(key(course.params), [])] = False
        for waiting in owner.ledger.queue:
            self._find(waiting.params)
        self.running: dict[int, _Running] = {}
        incumbent = owner.referee.incumbent
        self.best_loss = math.inf if incumbent is None else incumbent.loss
        self.events: list[tuple[int, int, _Running, Observation | None]] = []
        self.scheduled = 0
        self.best_at: int | None = None
        self.judge = Judge(owner)

    def run(self) -> Simulation:
        """Train in virtual time until the budget is spent, the recording is used up or the terminator says stop."""
        end, owner, exchange = self.budget * 1e9, self.owner, self.exchange_ns
        owners = [owner, *(owner.another() for _ in range(self.workers - 1) if self.exchange_ns)]
        try:
            for each in owners:
                each.clock = self.clock
            for i in range(self.workers):
                self._start(owners[i % len(owners)])
            while self.events and self.events[0][0] <= end:
                if self.exchange_ns and self.events[0][0] >= exchange:
                    _exchange(owners)
                    exchange = self.events[0][0] + self.exchange_ns
                self.clock.now, _, running, observation = heapq.heappop(self.events)
                if not self._advance(running, observation):
                    del self.running[running.trial.number]
                    self.judge.ask(running.owner)
                    if not self.judge.reason:
                        self._start(running.owner)
            ended = self.judge.reason or "the recording is used up"
            if self.events:
                self.clock.now, ended = int(end), f"the budget of {self.budget:g} s is spent"
            for running in self.running.values():
                running.trial.driver.cut(ended)  # what finishes after the budget does not count
                running.close()
            owner.journal.catch_up()
            owner.end(ended)
        finally:
            owner.clock = WallClock()
        best_after = None if self.best_at is None else self.best_at / 1e9
        share = 1 - float(self.left.mean())
        return Simulation(seconds=self.clock.now / 1e9, best_after=best_after, share_used=share, ended=ended)

    def _start(self, owner: Owner) -> None:
        """Begin a trial with a recorded configuration that was not run yet, if one is left."""
        if not self.left.any():
            return
        sampler = self.owner.identity.sampler
        assert sampler is not None

        def propose(number: int) -> Mapping[str, Value]:
            rng, left = stream(self.owner.seed, number, "sampler"), np.flatnonzero(self.left)
            place = sampler.choose(owner.ledger.history(), self.recording.x[left], rng)
            return self.recording.params(int(left[place]))

        trial = owner.ask(propose)
        k = self._find(trial.params)
        self.left[k] = False
        running = self.running[trial.number] = _Running(owner, trial, k)
        trial.driver.begin(int(self.recording.total_steps[k]))
        self._train(running)

    def _find(self, params: Mapping[str, Value]) -> int:
        """The recorded configuration, not yet run, with these parameters."""
        k = self.recording.index.get(key(params))
        if k is None or not self.left[k]:
            raise UsageError(f"the recording has no configuration {params!r} left; enqueue one of recording.params(k)")
        return k

    def _schedule(self, at: int, running: _Running, observation: Observation | None) -> None:
        self.scheduled += 1  # breaks ties in the order of scheduling
        heapq.heappush(self.events, (at, self.scheduled, running, observation))

    def _train(self, running: _Running) -> None:
        """Begin a step; its report comes when it is over."""
        row = self.recording.row(running.k, running.trial.last_step + 1)
        cost = _FLAT_NS if row is None else round(float(self.recording.seconds[row]) * 1e9)
        self._schedule(self.clock.now + cost, running, None)

    def _advance(self, running: _Running, observation: Observation | None) -> bool:
        """A step, or the check that followed it, is over; False when that ended the trial."""
        trial, driver = running.trial, running.trial.driver
        if observation is None:
            began, step = self.clock.now, trial.last_step + 1
            observation = driver.measure(self._metrics(step, running.k), step=step, checkpoint=step)
            if observation is None:
                running.close()
                return False
            if self.clock.now > began:
                self._schedule(self.clock.now, running, observation)
                return True
        decision = driver.settle(observation)
        if decision.best and observation.loss < self.best_loss:  # not only as far as its worker knows
            self.best_at, self.best_loss = self.clock.now, observation.loss
        if not decision.stop and trial.last_step != trial.total:
            self._train(running)
            return True
        late = driver.look_back()
        if late is not None:
            self._schedule(self.clock.now, running, late)
            return True
        running.close()
        return False

    def _metrics(self, step: int, k: int) -> dict[str, Given]:
        """The objective at a step, and constraints that take virtual time to check."""
        objective, *constraints = self.owner.problem.metrics
        checks = {name: self._check(name, k) for name in constraints}
        return {objective: self.recording.at(objective, k, step), **checks}

    def _check(self, name: str, k: int) -> Callable[[int], float]:
        def check(step: int) -> float:
            first = self.recording.seconds[self.recording.offset[k] : self.recording.offset[k + 1]][:_PRICED_STEPS]
            self.clock.now += round(self.prices[name] * float(first.mean()) * 1e9)
            return self.recording.at(name, k, step)

        return check


def _exchange(owners: list[Owner]) -> None:
    for owner in owners:
        owner.journal.flush()
    for owner in owners:
        owner.journal.catch_up()


def _prices(price: float | Mapping[str, float], names: list[str]) -> dict[str, float]:
    prices = dict(price) if isinstance(price, Mapping) else dict.fromkeys(names, price)
    for name in prices:
        if name not in names:
            raise UsageError(f"constraint_price: {name!r} is no constraint of this study; it has {', '.join(names)}")
    for name in names:
        if not is_finite(prices.get(name)) or prices[name] < 0:
            raise UsageError(f"constraint_price={price!r}: a price of at least 0 is expected for {name!r}")
    return prices
