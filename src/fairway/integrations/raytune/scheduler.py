"""A stopper of ours as a Tune scheduler."""

from __future__ import annotations

import logging
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.utils import flatten_dict

from fairway.errors import UsageError
from fairway.integrations.raytune.report import Board
from fairway.integrations.raytune.results import TuneBridge, agree
from fairway.problem import Problem
from fairway.stoppers.stopper import Stopper
from fairway.study import Study

logger = logging.getLogger("fairway")


class StopperScheduler(FIFOScheduler):  # type: ignore[misc]
    """Stops trials as a stopper of ours says, and tells `report` when a constraint is worth its price.

    >>> import fairway as fw
    >>> scheduler = StopperScheduler(fw.ACE(), fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]))
    >>> scheduler.metric
    'auc'
    """

    def __init__(self, stopper: Stopper, problem: Problem) -> None:
        super().__init__()
        if not isinstance(stopper, Stopper) or not isinstance(problem, Problem):
            raise UsageError(
                f"StopperScheduler({stopper!r}, {problem!r}): a stopper and a Problem of fairway are expected"
            )
        self.stopper, self.problem = stopper, problem
        self._metric = problem.objective.metric
        self._bridge = self._fresh()
        self._board: Board | None = None
        self._experiment = ""
        self.reasons: dict[str, str] = {}
        """Why trials were stopped, by their ids."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_board": None}

    @property
    def study(self) -> Study:
        """The experiment as a study of ours: its `best` is the best feasible result, its `costs` what was saved."""
        return self._bridge.study

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Accept what `TuneConfig` says, if it is what the problem says."""
        del spec
        agree(self.problem, metric, mode)
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Begin it here too; the first one of an experiment puts up the board that `report` reads.

        Tune adds a trial again when it tries it again, and the finished ones of an experiment that it restores.
        """
        del tune_controller
        if trial.experiment_dir_name != self._experiment:
            if self._experiment:
                self._bridge = self._fresh()
            self._experiment, self._board = trial.experiment_dir_name, None
        if self._board is None and self.problem.constraints:
            self._board = Board(self._experiment, self.problem, self.stopper)
        if self._board is not None:
            self._board.expect(trial.trial_id)
        if trial.trial_id in self._bridge.running or trial.is_finished() and trial.trial_id in self._bridge.ended:
            return
        self._bridge.begin(trial.trial_id)
        if trial.is_finished():
            self._bridge.end_with(
                trial.trial_id, flatten_dict(trial.last_result or {}), error=trial.status == trial.ERROR
            )

    def _fresh(self) -> TuneBridge:
        return TuneBridge(self.problem, stopper=self.stopper)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Rule on a result."""
        del tune_controller
        if trial.trial_id not in self._bridge.running:
            return str(TrialScheduler.CONTINUE)
        reason = self._bridge.hear(trial.trial_id, result)
        if self._board is not None:
            self._board.post(self._bridge.study.owner.referee)
        if not reason:
            return str(TrialScheduler.CONTINUE)
        self.reasons[trial.trial_id] = reason
        logger.info("trial %s stopped: %s", trial.trial_id, reason)
        return str(TrialScheduler.STOP)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """It ended, by itself or by somebody's decision."""
        del tune_controller
        self._bridge.end_with(trial.trial_id, result)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """It failed."""
        del tune_controller
        self._bridge.end_with(trial.trial_id, error=True)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """It never ran."""
        del tune_controller
        self._bridge.end_with(trial.trial_id, error=True)

    def debug_string(self) -> str:
        """A line for Tune's status."""
        counts = self._bridge.study.counts
        return f"fairway {self.stopper}: {counts['stopped']} stopped, {counts['completed']} completed"
