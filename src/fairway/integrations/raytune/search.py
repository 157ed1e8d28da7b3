"""A sampler of ours as a Tune searcher."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
from ray.tune.search import Searcher

from fairway.errors import SpaceExhausted, UsageError
from fairway.integrations.raytune.results import TuneBridge, agree, mode_of
from fairway.integrations.raytune.spaces import Table
from fairway.parameters import Parameter, Value
from fairway.problem import Problem
from fairway.samplers.sampler import Sampler
from fairway.space import Space


class SamplerSearch(Searcher):  # type: ignore[misc]
    """Proposes configurations as a sampler of ours does, in a `space` of ours or in Tune's `param_space`.

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
        space: Space | Mapping[str, Parameter] | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(sampler, Sampler) or not isinstance(problem, Problem):
            raise UsageError(
                f"SamplerSearch({sampler!r}, {problem!r}): a sampler and a Problem of fairway are expected"
            )
        super().__init__(metric=problem.objective.metric, mode=mode_of(problem))
        self.sampler, self.problem, self.seed = sampler, problem, seed
        self._table: Table | None = None
        self._bridge: TuneBridge | None = None
        self._params: dict[str, Mapping[str, Value]] = {}  # by Tune's ids
        self._space = Space(space) if isinstance(space, Mapping) and not isinstance(space, Space) else space
        if self._space is not None:
            self._prepare({})

    def _prepare(self, config: Mapping[str, Any]) -> None:
        self._table = Table.of(config, self._space)
        self._bridge = TuneBridge(self.problem, self._table.space, sampler=self.sampler, seed=self.seed)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Take Tune's search space, unless one of ours was given."""
        del spec
        agree(self.problem, metric, mode)
        before = self._table
        if self._bridge is None or not len(self._bridge.study.history):
            self._prepare(config)
        elif before is not None and Table.of(config, self._space).space != before.space:
            raise UsageError("SamplerSearch has searched another param_space before; make another one")
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """The next configuration, or that there is none left."""
        if self._bridge is None or self._table is None:
            raise UsageError("SamplerSearch has no search space: give space=, or the Tuner a param_space")
        try:
            params = self._params[trial_id] = self._bridge.ask(trial_id).params
        except SpaceExhausted:
            return str(Searcher.FINISHED)
        return self._table.to_theirs(params)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Learn from a result on the way."""
        if self._bridge is not None and self._is_running(trial_id):
            self._bridge.hear(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Learn how a trial ended."""
        if self._bridge is not None and self._is_running(trial_id):
            self._bridge.end_with(trial_id, result, error=error)
            if not error:  # one that failed may be tried again
                del self._params[trial_id]

    def _is_running(self, trial_id: str) -> bool:
        """Whether a trial runs; one of ours that Tune tries again, or resumes, begins again."""
        assert self._bridge is not None
        if trial_id not in self._bridge.running and trial_id in self._params:
            self._bridge.begin(trial_id, self._params[trial_id])
        return trial_id in self._bridge.running

    def save(self, checkpoint_path: str) -> None:
        """Keep all that was learned in a file."""
        Path(checkpoint_path).write_bytes(cloudpickle.dumps((self._table, self._bridge, self._params)))

    def restore(self, checkpoint_path: str) -> None:
        """Resume from such a file."""
        self._table, self._bridge, self._params = cloudpickle.loads(Path(checkpoint_path).read_bytes())
