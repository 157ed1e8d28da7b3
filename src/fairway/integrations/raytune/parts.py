"""Our parts in a Tuner: a stopper as its scheduler, a sampler as its searcher, a terminator as its stopper.

Each holds a bridge, a study of ours whose trials have Tune's ids and report by Tune's results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
from ray.tune import Callback
from ray.tune import Stopper as TuneStopper
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.utils import flatten_dict

from fairway import feasibility
from fairway.engine.events import ABSENT
from fairway.engine.measurement import Observation, measured
from fairway.errors import SpaceExhausted, UsageError
from fairway.integrations.bridge import Bridge
from fairway.integrations.raytune.report import MEASURED, Board
from fairway.integrations.raytune.spaces import Table
from fairway.logs import logger
from fairway.parameters import Parameter, Value
from fairway.problem import Problem
from fairway.samplers.sampler import Sampler
from fairway.space import Declared, Space
from fairway.stoppers.stopper import Stopper
from fairway.study import Study
from fairway.terminators.terminator import Terminator


class TuneBridge(Bridge[str]):
    """A bridge whose trials report by Tune's results, and have Tune's ids."""

    def __init__(self, problem: Problem, *given: Any, **rules: Any) -> None:
        super().__init__(problem, *given, **rules)
        self._done: set[str] = set()  # trials that said so themselves, and are about to end
        self._longest = 0  # steps of any trial

    def hear(self, trial_id: str, result: Mapping[str, Any]) -> str:
        """Take in a result of a trial; returns why the trial stops, or an empty string."""
        driver, problem = self.running[trial_id].driver, self.problem
        step = int(result.get("training_iteration", 0))  # none if it reported nothing
        if result.get("done"):
            self._done.add(trial_id)
        if step <= driver.last_step or driver.reason:  # nothing new: Tune repeats the last result when a trial is done
            return driver.reason
        metric = problem.objective.metric
        if not _is_number(result.get(metric)):
            there = ", ".join(name for name, value in result.items() if _is_number(value) and "/" not in name)
            raise UsageError(f"the objective {metric!r} was not reported; what was: {there}")
        objective, (values, errors, prices, train_ns, last) = float(result[metric]), self._measured(result)
        if not driver.has_begun:
            driver.begin(None)
        if math.isfinite(objective):
            loss = problem.objective.sign * objective
            amount = feasibility.violation(problem.constraints, values, errors)
            last = last or step == driver.total
            row = (step, objective, loss, values, prices, amount, train_ns, last)
            driver.settle(Observation(*row, errors=errors))
        else:
            driver.fail(f"{metric} is {objective} at step {step}")
        self._longest = max(self._longest, step)
        if driver.total is not None and step >= driver.total:  # the stopper's own
            self._done.add(trial_id)
            return driver.reason or f"step {step} is the last that the stopper allows"
        return driver.reason

    def _measured(
        self, result: Mapping[str, Any]
    ) -> tuple[list[float | None], list[float | None], list[int], int, bool]:
        """What `report` measured, or a plain result says: values, errors, prices, training time, if it is the last."""
        if isinstance(result.get(MEASURED), str):
            values, errors, prices, train_ns, last = json.loads(result[MEASURED])
            return values, errors, prices, train_ns, last
        pairs: list[tuple[float | None, float | None]] = []
        for constraint in self.problem.constraints:
            given = result.get(constraint.metric)
            known = _is_number(given) and not math.isnan(given)  # type: ignore[arg-type]
            pairs.append(measured(self.problem, constraint, given) if known else (None, None))
        train_ns = round(1e9 * float(result.get("time_this_iter_s", 0.0)))
        prices = [ABSENT if value is None else 0 for value, _ in pairs]
        return [v for v, _ in pairs], [e for _, e in pairs], prices, train_ns, bool(result.get("done", False))

    def end_with(self, trial_id: str, result: Mapping[str, Any] | None = None, *, error: bool = False) -> None:
        """End a trial, with an error or after a last result.

        Tune does not say what ended it. A trial that said it was done, or that took as many steps as any other, is
        complete; any other was stopped.
        """
        complete = trial_id in self._done
        if trial_id in self.running and result is not None and not error:
            self.hear(trial_id, result)
        self._done.discard(trial_id)
        trial = self.running.get(trial_id)
        short = trial is not None and not complete and trial.last_step < self._longest
        self.end(trial_id, failed="failed in Tune" if error else "", cut="stopped in Tune" if short else "")


class StopperScheduler(FIFOScheduler):  # type: ignore[misc]
    """Stops trials as a stopper of fairway decides, and tells `report` when a constraint is worth checking.

    >>> import fairway as fw
    >>> scheduler = StopperScheduler(fw.ACE(), fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]))
    >>> scheduler.metric
    'auc'
    """

    def __init__(self, stopper: Stopper, problem: Problem) -> None:
        super().__init__()
        _check_parts(self, stopper, Stopper, problem)
        self.stopper, self.problem = stopper, problem
        self._metric = problem.objective.metric
        self._bridge = TuneBridge(problem, stopper=stopper)
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

    def set_search_properties(self, metric: str | None, mode: str | None, **_spec: Any) -> bool:
        _agree(self.problem, metric, mode)
        return True

    def on_trial_add(self, _controller: Any, trial: Any) -> None:
        """Begin a trial here too; the first one of an experiment creates the board that `report` reads.

        Tune adds a trial again when it retries it, and adds the finished ones of an experiment that it restores.
        """
        name, bridge = trial.trial_id, self._bridge
        if trial.experiment_dir_name != self._experiment:
            if self._experiment:
                bridge = self._bridge = TuneBridge(self.problem, stopper=self.stopper)
            self._experiment, self._board = trial.experiment_dir_name, None
        if self._board is None and self.problem.constraints:
            self._board = Board(self._experiment, self.problem, self.stopper)
        if self._board is not None:
            self._board.expect(name)
        if name in bridge.running or trial.is_finished() and name in bridge.ended:
            return
        bridge.begin(name)
        if trial.is_finished():
            bridge.end_with(name, flatten_dict(trial.last_result or {}), error=trial.status == trial.ERROR)

    def on_trial_result(self, _controller: Any, trial: Any, result: dict[str, Any]) -> str:
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

    def on_trial_complete(self, _controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self._bridge.end_with(trial.trial_id, result)

    def on_trial_error(self, _controller: Any, trial: Any) -> None:
        self._bridge.end_with(trial.trial_id, error=True)

    on_trial_remove = on_trial_error  # one that never ran

    def debug_string(self) -> str:
        counts = self._bridge.study.counts
        return f"fairway {self.stopper}: {counts['stopped']} stopped, {counts['completed']} completed"


class SamplerSearch(Searcher):  # type: ignore[misc]
    """Proposes configurations by a sampler of fairway, in a `space` of ours or in Tune's `param_space`.

    >>> import fairway as fw
    >>> problem = fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)])
    >>> search = SamplerSearch(fw.CTPE(), problem, space={"rate": fw.Float(0.01, 1.0, log=True)}, seed=0)
    >>> search.suggest("a")
    {'rate': 0.4181923704}
    """

    def __init__(
        self,
        sampler: Sampler,
        problem: Problem,
        *,
        space: Declared | None = None,
        seed: int | None = None,
    ) -> None:
        _check_parts(self, sampler, Sampler, problem)
        super().__init__(metric=problem.objective.metric, mode=_mode(problem))
        self.sampler, self.problem, self.seed = sampler, problem, seed
        self._table: Table | None = None
        self._bridge: TuneBridge | None = None
        self._params: dict[str, Mapping[str, Value]] = {}  # by Tune's ids
        self._space = None if space is None else Space(space)
        if self._space is not None:
            self._prepare({})

    def _prepare(self, config: Mapping[str, Any]) -> None:
        self._table = Table.of(config, self._space)
        self._bridge = TuneBridge(self.problem, self._table.space, sampler=self.sampler, seed=self.seed)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **_spec: Any
    ) -> bool:
        """Take Tune's search space, unless one of ours was given."""
        _agree(self.problem, metric, mode)
        before = self._table
        if self._bridge is None or not len(self._bridge.study.history):
            self._prepare(config)
        elif before is not None and Table.of(config, self._space).space != before.space:
            raise UsageError("SamplerSearch has searched another param_space before; make another one")
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        if self._bridge is None or self._table is None:
            raise UsageError("SamplerSearch has no search space: give space=, or the Tuner a param_space")
        try:
            params = self._params[trial_id] = self._bridge.ask(trial_id).params
        except SpaceExhausted:
            return str(Searcher.FINISHED)
        return self._table.to_theirs(params)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        bridge = self._running(trial_id)
        if bridge is not None:
            bridge.hear(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        bridge = self._running(trial_id)
        if bridge is not None:
            bridge.end_with(trial_id, result, error=error)
            if not error:  # one that failed may be tried again
                del self._params[trial_id]

    def _running(self, trial_id: str) -> TuneBridge | None:
        """The bridge if the trial runs there; a trial of ours that Tune retries or resumes begins again."""
        bridge = self._bridge
        if bridge is not None and trial_id not in bridge.running and trial_id in self._params:
            bridge.begin(trial_id, self._params[trial_id])
        return bridge if bridge is not None and trial_id in bridge.running else None

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_bytes(cloudpickle.dumps((self._table, self._bridge, self._params)))

    def restore(self, checkpoint_path: str) -> None:
        self._table, self._bridge, self._params = cloudpickle.loads(Path(checkpoint_path).read_bytes())


class TerminatorStopper(TuneStopper, Callback):  # type: ignore[misc]
    """Ends an experiment when a terminator of fairway says so; `reason` is why.

    `space` is the one that is searched, ours or the Tuner's `param_space`. Tune tells a stopper only of trials that end
    by themselves; if a scheduler stops trials, give it as a callback too: `RunConfig(stop=ends, callbacks=[ends])`.

    >>> import fairway as fw
    >>> ends = TerminatorStopper(fw.Plateau(20), fw.Problem(fw.Maximize("auc")), {"rate": fw.Float(0.0, 1.0)})
    >>> ends.stop_all(), ends.reason
    (False, '')
    """

    def __init__(self, terminator: Terminator, problem: Problem, space: Space | Mapping[str, Any]) -> None:
        _check_parts(self, terminator, Terminator, problem)
        parts = [each for part in space.values() for each in (part if isinstance(part, list | tuple) else [part])]
        is_ours = all(isinstance(part, Parameter) for part in parts)
        self._table = Table.of({}, Space(space)) if is_ours else Table.of(space)
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
            except UsageError as error:  # a trial outside the space is no reason to end the others
                logger.warning("TerminatorStopper leaves trial %s out: %s", trial_id, error)
                bridge.ended.add(trial_id)
                return False
        bridge.hear(trial_id, flatten_dict(result))
        if result.get("done"):
            self._end(trial_id)
        return False

    def stop_all(self) -> bool:
        return bool(self.reason)

    def on_trial_complete(self, trial: Any, **_info: Any) -> None:
        self._end(trial.trial_id)

    def on_trial_error(self, trial: Any, **_info: Any) -> None:
        self._end(trial.trial_id, error=True)

    def _end(self, trial_id: str, *, error: bool = False) -> None:
        self._bridge.end_with(trial_id, error=error)
        verdicts = self._bridge.study.owner.ledger.verdicts
        if verdicts and verdicts[-1].stop and not self.reason:
            self.reason = verdicts[-1].reason
            logger.info("ended: %s", self.reason)


def _is_number(value: Any) -> bool:
    """Whether a result's value can be read as a number; arrays and tensors of one element can."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str | bytes)


def _check_parts(user: object, part: object, kind: type, problem: object) -> None:
    if not isinstance(part, kind) or not isinstance(problem, Problem):
        wanted = f"a {kind.__name__.lower()} and a Problem of fairway are expected"
        raise UsageError(f"{type(user).__name__}({part!r}, {problem!r}): {wanted}")


def _mode(problem: Problem) -> str:
    return "max" if problem.objective.sign < 0 else "min"


def _agree(problem: Problem, metric: str | None, mode: str | None) -> None:
    """Refuse a metric or mode of `TuneConfig` that is not the problem's objective."""
    objective = problem.objective
    if metric not in (None, objective.metric) or mode not in (None, _mode(problem)):
        raise UsageError(f"TuneConfig(metric={metric!r}, mode={mode!r}) is not the problem's objective, {objective}")
