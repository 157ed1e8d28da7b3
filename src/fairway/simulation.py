"""Replays recorded trainings in virtual time: a day of tuning in seconds, and bit for bit the same for the same seed.

Several virtual workers train asynchronously. A step costs its recorded seconds; a check costs its price times the mean
of that configuration's first 50 steps; past the recorded end of a curve a step costs 0.1 ms. A check's result is known
when the check ends, not when it starts; what finishes after the budget does not count.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from fairway.study import Study

_FLAT_NS = 100_000  # a step past the recorded end
_PRICED_STEPS = 50  # the mean of the first steps, up to this many, prices a check


@dataclass(frozen=True)
class Simulation:
    """The result of a simulated run.

    >>> Simulation(seconds=20.0, best_after=12.5, share_used=0.1, ended="the budget of 20 s is spent").best_after
    12.5
    """

    seconds: float
    best_after: float | None
    share_used: float
    ended: str


def simulate(
    study: Study,
    recording: Recording,
    *,
    workers: int = 4,
    budget: float = 20.0,
    constraint_price: float | Mapping[str, float] = 1.94,
    staleness: float = 0.0,
) -> Simulation:
    """Run a study on a recording in virtual time, until the budget (seconds) is spent or the recording is used up.

    The study's terminator may end it earlier: no more trials begin, and those running finish.

    Each trial takes a configuration from the queue or the sampler, and trains the nearest recorded one not yet run;
    `Random` draws uniformly from those left. `constraint_price` is the price of one check in mean steps: one number, or
    one for each constraint. Workers share one referee; with `staleness` (seconds), each has its own, and they exchange
    reports at that interval and when a trial begins or ends. A second call on the same study resumes with the recorded
    configurations that are left.

    >>> import fairway as fw, numpy as np
    >>> recording = fw.Recording(
    ...     space=fw.Space({"depth": fw.Int(1, 9)}), config=np.array([[3.0], [5.0]]), total_steps=np.array([2, 3]),
    ...     offset=np.array([0, 2, 4]), seconds=np.array([0.1, 0.1, 0.3, 0.3]),
    ...     metrics={"auc": np.array([0.6, 0.7, 0.7, 0.8]), "eod": np.array([0.1, 0.1, 0.2, 0.3])})
    >>> study = fw.Study(recording.space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> fw.simulate(study, recording, workers=1, budget=5.0).ended
    'the recording is used up'
    >>> study.best.metrics
    {'auc': 0.7, 'eod': 0.1}
    """
    return _Simulator(study.owner, recording, workers, budget, constraint_price, staleness).run()


class _Running(NamedTuple):
    """A trial in training: its owner, and the number of its recorded configuration."""

    owner: Owner
    trial: Trial
    k: int

    def close(self) -> None:
        self.owner.close(self.trial, *self.trial.driver.finish())


class _Simulator:
    def __init__(
        self,
        owner: Owner,
        recording: Recording,
        workers: int,
        budget: float,
        price: float | Mapping[str, float],
        staleness: float,
    ) -> None:
        self._owner, self._recording = owner, recording
        self._workers = whole(workers, "workers")
        if not is_finite(staleness) or staleness < 0:
            raise UsageError(f"staleness={staleness!r}: a number of virtual seconds of at least 0 is expected")
        self._exchange_ns = round(staleness * 1e9)  # between exchanges
        self._budget = positive(budget, "budget", what="number of virtual seconds")
        for metric in owner.problem.metrics:
            if metric not in recording.metrics:
                raise UsageError(f"the recording has no metric {metric!r}; it has {', '.join(recording.metrics)}")
        for constraint in owner.problem.constraints:
            if constraint.confidence is not None:
                raise UsageError(f"a recording has no errors: simulate with {constraint.metric!r} without a confidence")
        if dict(owner.space) != dict(recording.space):
            raise UsageError("the study's space is not the recording's; build the study with recording.space")
        self._prices = _prices(price, owner.problem.metrics[1:])
        self._clock = VirtualClock()
        self._left = np.ones(len(recording), bool)  # not run yet
        for course in owner.ledger.courses:
            self._left[recording.index.get(key(course.params), [])] = False
        self._running: dict[int, _Running] = {}
        incumbent = owner.referee.incumbent
        self._best_loss = math.inf if incumbent is None else incumbent.loss
        self._best_at: int | None = None
        self._events: list[tuple[int, int, _Running, Observation | None]] = []
        self._scheduled = 0
        self._judge = Judge(owner)

    def run(self) -> Simulation:
        """Train until the budget is spent, the recording is used up or the terminator says stop."""
        end, owner, events, clock = self._budget * 1e9, self._owner, self._events, self._clock
        owners = [owner, *(owner.another() for _ in range(self._workers - 1) if self._exchange_ns)]
        exchange = self._exchange_ns
        try:
            for each in owners:
                each.clock = clock
            for i in range(self._workers):
                self._start(owners[i % len(owners)])
            while events and events[0][0] <= end:
                if self._exchange_ns and events[0][0] >= exchange:
                    for each in owners:
                        each.journal.flush()
                    for each in owners:
                        each.journal.catch_up()
                    exchange = events[0][0] + self._exchange_ns
                clock.now, _, running, observation = heapq.heappop(events)
                if not self._advance(running, observation):
                    running.close()
                    del self._running[running.trial.number]
                    self._judge.ask(running.owner)
                    if not self._judge.reason:
                        self._start(running.owner)
            ended = self._judge.reason or "the recording is used up"
            if events:
                clock.now, ended = int(end), f"the budget of {self._budget:g} s is spent"
            for running in self._running.values():
                running.trial.driver.cut(ended)  # what finishes after the budget does not count
                running.close()
            owner.journal.catch_up()
            owner.end(ended)
        finally:
            owner.clock = WallClock()
        best_after = None if self._best_at is None else self._best_at / 1e9
        share = 1 - float(self._left.mean())
        return Simulation(seconds=clock.now / 1e9, best_after=best_after, share_used=share, ended=ended)

    def _start(self, owner: Owner) -> None:
        """Begin a trial with a recorded configuration that was not run yet, if one is left."""
        if not self._left.any():
            return
        sampler = self._owner.identity.sampler
        assert sampler is not None

        def propose(number: int, given: Mapping[str, Value], aim: Mapping[str, float]) -> Mapping[str, Value]:
            rng, left = stream(self._owner.seed, number, "sampler"), np.flatnonzero(self._left)
            place = sampler.next_recorded(owner.history(given, aim), self._recording.x[left], rng)
            return self._recording.params(int(left[place]))

        trial = owner.ask(propose)
        k = self._recording.index[key(trial.params)]
        self._left[k] = False
        running = self._running[trial.number] = _Running(owner, trial, k)
        trial.driver.begin(int(self._recording.total_steps[k]))
        self._train(running)

    def _schedule(self, at: int, running: _Running, observation: Observation | None) -> None:
        self._scheduled += 1  # breaks ties in the order of scheduling
        heapq.heappush(self._events, (at, self._scheduled, running, observation))

    def _train(self, running: _Running) -> None:
        """Begin a step; its report comes when the step is over."""
        row = self._recording.row(running.k, running.trial.last_step + 1)
        cost = _FLAT_NS if row is None else round(float(self._recording.seconds[row]) * 1e9)
        self._schedule(self._clock.now + cost, running, None)

    def _advance(self, running: _Running, observation: Observation | None) -> bool:
        """Handle the end of a step, or of the check that followed it; False if that ended the trial."""
        trial, driver, clock = running.trial, running.trial.driver, self._clock
        if observation is None:
            began, step = clock.now, trial.last_step + 1
            objective, *constraints = driver.problem.metrics
            metrics: dict[str, Given] = {name: partial(self._check, name, running.k) for name in constraints}
            metrics[objective] = self._recording.at(objective, running.k, step)
            observation = driver.measure(metrics, step=step, checkpoint=step)
            if observation is None:
                return False
            if clock.now > began:
                self._schedule(clock.now, running, observation)
                return True
        decision = driver.settle(observation)
        if decision.best and observation.loss < self._best_loss:  # of all workers, not only as far as this one knows
            self._best_at, self._best_loss = clock.now, observation.loss
        if not decision.stop and trial.last_step != trial.total:
            self._train(running)
            return True
        late = driver.look_back()
        if late is not None:
            self._schedule(clock.now, running, late)
        return late is not None

    def _check(self, name: str, k: int, step: int) -> float:
        """Measure a constraint; the clock moves on by the price of the check."""
        recording = self._recording
        first = recording.seconds[recording.offset[k] : recording.offset[k + 1]][:_PRICED_STEPS]
        self._clock.now += round(self._prices[name] * float(first.mean()) * 1e9)
        return recording.at(name, k, step)


def _prices(price: float | Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    prices = dict(price) if isinstance(price, Mapping) else dict.fromkeys(names, price)
    for name in prices:
        if name not in names:
            raise UsageError(f"constraint_price: {name!r} is no constraint of this study; it has {', '.join(names)}")
    for name in names:
        if not is_finite(prices.get(name)) or prices[name] < 0:
            raise UsageError(f"constraint_price={price!r}: a price of at least 0 is expected for {name!r}")
    return prices
