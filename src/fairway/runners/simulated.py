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
from typing import TYPE_CHECKING, Any

import numpy as np

from fairway.checks import is_finite, positive, whole
from fairway.engine.clock import VirtualClock, WallClock
from fairway.errors import UsageError
from fairway.runners.recording import Recording, key
from fairway.runners.run import Judge
from fairway.seeds import stream
from fairway.space import Value

if TYPE_CHECKING:
    from fairway.engine.owner import Owner
    from fairway.engine.trial import Trial
    from fairway.study import Study

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

    The study's terminator may end it before: no trial is begun any more, and those running finish.

    The sampler proposes, and the nearest recorded configuration not yet run is trained; `Random` draws uniformly from
    those left. `constraint_price` is the price of one check in mean steps, one number or one for each constraint. With
    `staleness` (seconds) each worker decides from a referee of its own, and they exchange reports so often, and where a
    trial begins or ends; without it they share one. A second call on the same study goes on with what was not run yet.

    >>> import fairway as fw, numpy as np
    >>> recording = fw.Recording(
    ...     space=fw.Space({"depth": fw.Int(1, 9)}), config=np.array([[3.0], [5.0]]), total_steps=np.array([2, 3]),
    ...     offset=np.array([0, 2, 4]), seconds=np.array([0.1, 0.1, 0.3, 0.3]),
    ...     metrics={"auc": np.array([0.6, 0.7, 0.7, 0.8]), "eod": np.array([0.1, 0.1, 0.2, 0.3])})
    >>> study = fw.Study(recording.space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> fw.simulate(study, recording, workers=1, budget=5.0).ended
    'the recording is used up'
    >>> study.best.metrics
    {'auc': 0.7, 'eod': 0.2}
    """
    return _Simulator(study, recording, workers, budget, constraint_price, staleness).run()


class _Simulator:
    def __init__(
        self,
        study: Study,
        recording: Recording,
        workers: int,
        budget: float,
        price: float | Mapping[str, float],
        staleness: float,
    ) -> None:
        self.study, self.recording = study, recording
        self.workers = whole(workers, "workers")
        if not is_finite(staleness) or staleness < 0:
            raise UsageError(f"staleness={staleness!r}: a number of virtual seconds of at least 0 is expected")
        self.exchange_ns = round(staleness * 1e9)  # between exchanges
        self.budget = positive(budget, "budget", what="number of virtual seconds")
        for metric in study.problem.metrics:
            if metric not in recording.metrics:
                raise UsageError(f"the recording has no metric {metric!r}; it has {', '.join(recording.metrics)}")
        if dict(study.space) != dict(recording.space):
            raise UsageError("the study's space is not the recording's; build the study with recording.space")
        self.prices = _prices(price, [constraint.metric for constraint in study.problem.constraints])
        self.clock = VirtualClock()
        self.left = np.ones(len(recording), bool)  # not run yet
        for trial in study.trials:
            self.left[recording.index.get(key(trial.params), [])] = False
        for waiting in study._owner.ledger.queue:
            self._find(waiting.params)
        self.trials: dict[int, tuple[Owner, Trial]] = {}  # running
        self.best_loss = math.inf if study._owner.referee.incumbent is None else study._owner.referee.incumbent.loss
        self.events: list[tuple[int, int, Trial, int, Any]] = []
        self.scheduled = 0
        self.best_at: int | None = None
        self.judge = Judge(study._owner)

    def run(self) -> Simulation:
        study, end = self.study, self.budget * 1e9
        owner, exchange = study._owner, self.exchange_ns
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
                self.clock.now, _, trial, k, observation = heapq.heappop(self.events)
                if not self._advance(trial, k, observation):
                    each, _ = self.trials.pop(trial.number)
                    self.judge.ask(each)
                    if not self.judge.reason:
                        self._start(each)
            ended = self.judge.reason or "the recording is used up"
            if self.events:
                self.clock.now, ended = int(end), f"the budget of {self.budget:g} s is spent"
            for each, trial in self.trials.values():
                trial._cut, trial._candidate = ended, None  # what finishes after the budget does not count
                each.close(trial, *trial._end())
            owner.catch_up()
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

        def propose(number: int) -> Mapping[str, Value]:
            rng, left = stream(self.study.seed, number, "sampler"), np.flatnonzero(self.left)
            place = self.study.sampler.choose(owner.ledger.history(), self.recording.x[left], rng)
            return self.recording.params(int(left[place]))

        trial = owner.ask(propose)
        k = self._find(trial.params)
        self.left[k] = False
        self.trials[trial.number] = (owner, trial)
        trial._begin(int(self.recording.total_steps[k]))
        self._train(trial, k)

    def _find(self, params: Mapping[str, Value]) -> int:
        """The recorded configuration, not yet run, with these parameters."""
        k = self.recording.index.get(key(params))
        if k is None or not self.left[k]:
            raise UsageError(f"the recording has no configuration {params!r} left; enqueue one of recording.params(k)")
        return k

    def _schedule(self, at: int, trial: Trial, k: int, observation: Any) -> None:
        self.scheduled += 1  # breaks ties in the order of scheduling
        heapq.heappush(self.events, (at, self.scheduled, trial, k, observation))

    def _train(self, trial: Trial, k: int) -> None:
        """Begin a step; its report comes when it is over."""
        trial._step += 1
        row = self.recording.row(k, trial._step)
        cost = _FLAT_NS if row is None else round(float(self.recording.seconds[row]) * 1e9)
        self._schedule(self.clock.now + cost, trial, k, None)

    def _advance(self, trial: Trial, k: int, observation: Any) -> bool:
        """A step, or the check that followed it, is over; False when that ended the trial."""
        if observation is None:
            began = self.clock.now
            observation = trial._observe(self._metrics(trial._step, k), None, trial._step, {})
            if observation is None:
                self._end(trial)
                return False
            if self.clock.now > began:
                self._schedule(self.clock.now, trial, k, observation)
                return True
        decision = trial._settle(*observation)
        if decision.best and observation[2] < self.best_loss:  # not only as far as its worker knows
            self.best_at, self.best_loss = self.clock.now, observation[2]
        if not decision.stop and trial._last != trial._pace.total:
            self._train(trial, k)
            return True
        late = trial._look_back()
        if late is not None:
            self._schedule(self.clock.now, trial, k, late)
            return True
        self._end(trial)
        return False

    def _end(self, trial: Trial) -> None:
        owner, _ = self.trials[trial.number]
        owner.close(trial, *trial._end())

    def _metrics(self, step: int, k: int) -> dict[str, Any]:
        """The objective at a step, and constraints that take virtual time to check."""
        objective, *constraints = self.study.problem.metrics
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
        owner.flush()
    for owner in owners:
        owner.catch_up()


def _prices(price: float | Mapping[str, float], names: list[str]) -> dict[str, float]:
    prices = dict(price) if isinstance(price, Mapping) else dict.fromkeys(names, price)
    for name in prices:
        if name not in names:
            raise UsageError(f"constraint_price: {name!r} is no constraint of this study; it has {', '.join(names)}")
    for name in names:
        if not is_finite(prices.get(name)) or prices[name] < 0:
            raise UsageError(f"constraint_price={price!r}: a price of at least 0 is expected for {name!r}")
    return prices
