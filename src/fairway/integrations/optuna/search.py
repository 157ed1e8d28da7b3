"""Our samplers as Optuna samplers, and our terminators as a callback: both see an Optuna study's history as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial

from fairway.errors import SpaceExhausted, UsageError
from fairway.integrations.optuna.history import Table, history_of
from fairway.samplers.gp import GP
from fairway.samplers.sampler import Sampler
from fairway.samplers.tpe import CTPE
from fairway.seeds import fresh_seed, stream
from fairway.terminators.terminator import Terminator


class FairwaySampler(BaseSampler):
    """Any sampler of fairway as an Optuna sampler; constraints are those that trials set with `trial.set_constraint`.

    Parameters that only some trials have are sampled at random; so are all others until there are finished trials.

    >>> import fairway as fw, optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=FairwaySampler(fw.TPE(), seed=0))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2, n_trials=40)
    >>> abs(study.best_params["x"]) < 0.05
    True
    """

    def __init__(self, sampler: Sampler, *, seed: int | None = None) -> None:
        if not isinstance(sampler, Sampler):
            raise UsageError(f"FairwaySampler({sampler!r}): a sampler of fairway is expected")
        self.sampler = sampler
        self.seed = fresh_seed() if seed is None else seed
        self._search_space = IntersectionSearchSpace(include_pruned=True)

    def reseed_rng(self) -> None:
        self.seed = fresh_seed()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        del trial
        return _varying(self._search_space, study)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        table = Table.of(search_space)
        trials = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        history = history_of(study, trials, table, self.seed)
        try:
            x = self.sampler.next_point(history, stream(self.seed, trial.number, "sampler"))
        except SpaceExhausted:  # an Optuna study continues, and repeats configurations
            return {}
        return table.to_theirs(table.space.decode(np.nan_to_num(x, nan=0.5)))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        del study
        table = Table.of({param_name: param_distribution})
        x = stream(self.seed, trial.number, f"sampler {param_name}").random(1)
        return table.to_theirs(table.space.decode(x))[param_name]


def CTPESampler(*, seed: int | None = None, **settings: Any) -> FairwaySampler:  # noqa: N802 - named like Optuna's
    """c-TPE as an Optuna sampler; `settings` are those of `fw.CTPE`.

    >>> CTPESampler(seed=0, start=5).sampler.start
    5
    """
    return FairwaySampler(CTPE(**settings), seed=seed)


def GPSampler(*, seed: int | None = None, **settings: Any) -> FairwaySampler:  # noqa: N802
    """The constrained Gaussian process as an Optuna sampler; `settings` are those of `fw.GP`.

    >>> GPSampler(seed=0, start=5).sampler.start
    5
    """
    return FairwaySampler(GP(**settings), seed=seed)


def terminate_when(terminator: Terminator) -> Callable[[optuna.Study, FrozenTrial], None]:
    """A callback that stops an Optuna study when our terminator says so; the user attribute "ended" says why.

    >>> import fairway as fw, optuna
    >>> from fairway.integrations.optuna import CTPESampler
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=CTPESampler(seed=0))
    >>> objective = lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2
    >>> study.optimize(objective, n_trials=500, callbacks=[terminate_when(fw.Plateau(20))])
    >>> study.user_attrs["ended"]
    'nothing better for 20 trials, after 37 trials'
    """
    if not isinstance(terminator, Terminator):
        raise UsageError(f"terminate_when({terminator!r}): a terminator of fairway is expected")
    search_space, last = IntersectionSearchSpace(include_pruned=True), 0

    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        nonlocal last
        del trial
        distributions, trials = _varying(search_space, study), study.get_trials(deepcopy=False)
        finished = sum(each.state.is_finished() for each in trials)
        if not distributions or last and finished < last + terminator.pause(last):
            return
        last = finished
        verdict = terminator.check(history_of(study, trials, Table.of(distributions), seed=0))
        if verdict:
            study.set_user_attr("ended", verdict.reason)
            study.stop()

    return callback


def _varying(search_space: IntersectionSearchSpace, study: optuna.Study) -> dict[str, BaseDistribution]:
    """The parameters that all trials have had so far, and that can take more than one value."""
    return {name: each for name, each in search_space.calculate(study).items() if not each.single()}
