"""A terminator of ours as a Tune stopper."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ray.tune import Callback, Stopper
from ray.tune.utils import flatten_dict

from fairway.errors import UsageError
from fairway.integrations.raytune.results import TuneBridge
from fairway.integrations.raytune.spaces import Table
from fairway.parameters import Parameter
from fairway.problem import Problem
from fairway.space import Space
from fairway.terminators.terminator import Terminator

logger = logging.getLogger("fairway")


class TerminatorStopper(Stopper, Callback):  # type: ignore[misc]
    """Ends an experiment when a terminator of ours says so; `reason` is why.

    `space` is the one that is searched, ours or the Tuner's `param_space`. Tune tells a stopper of trials that end by
    themselves alone; where a scheduler stops some, give it as a callback too:
    `RunConfig(stop=ends, callbacks=[ends])`.

    >>> import fairway as fw
    >>> ends = TerminatorStopper(fw.Plateau(20), fw.Problem(fw.Maximize("auc")), {"rate": fw.Float(0.0, 1.0)})
    >>> ends.stop_all(), ends.reason
    (False, '')
    """

    def __init__(self, terminator: Terminator, problem: Problem, space: Space | Mapping[str, Any]) -> None:
        if not isinstance(terminator, Terminator) or not isinstance(problem, Problem):
            raise UsageError(
                f"TerminatorStopper({terminator!r}, {problem!r}): a terminator and a Problem of fairway are expected"
            )
        ours = not isinstance(space, Space) and all(isinstance(part, Parameter) for part in space.values())
        given = Space(space) if ours else space
        self._table = Table.of({}, given) if isinstance(given, Space) else Table.of(given)
        self._bridge = TuneBridge(problem, self._table.space, terminator=terminator)
        self.reason = ""

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Take a result in; a single trial is never stopped."""
        bridge = self._bridge
        if trial_id in bridge.ended:
            return False
        if trial_id not in bridge.running:
            try:
                bridge.begin(trial_id, self._table.to_ours(result.get("config", {})))
            except UsageError as error:  # a trial that is not of the space is no reason to end the others
                logger.warning("TerminatorStopper leaves trial %s out: %s", trial_id, error)
                bridge.ended.add(trial_id)
                return False
        bridge.hear(trial_id, flatten_dict(result))
        if result.get("done"):
            self._end(trial_id)
        return False

    def stop_all(self) -> bool:
        """Whether the terminator has said stop."""
        return bool(self.reason)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial ended, whoever ended it."""
        del iteration, trials, info
        self._end(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial failed."""
        del iteration, trials, info
        self._end(trial.trial_id, error=True)

    def _end(self, trial_id: str, *, error: bool = False) -> None:
        self._bridge.end_with(trial_id, error=error)
        said = self._bridge.study.owner.ledger.verdicts
        if said and said[-1].stop and not self.reason:
            self.reason = said[-1].reason
            logger.info("ended: %s", self.reason)
