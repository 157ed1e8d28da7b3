"""Our samplers as Optuna samplers."""

from __future__ import annotations

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


class FairwaySampler(BaseSampler):
    """Any sampler of ours as an Optuna sampler; constraints are those that trials set with `trial.set_constraint`.

    Parameters that only some trials have are sampled at random, as all are until there are trials to learn from.

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
        """Take another seed: Optuna asks for it in each of several processes."""
        self.seed = fresh_seed()

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all trials have had so far."""
        del trial
        space = self._search_space.calculate(study)
        return {name: each for name, each in space.items() if not each.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """What our sampler proposes."""
        if not search_space:
            return {}
        table = Table.of(search_space)
        trials = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        history = history_of(study, trials, table, self.seed)
        try:
            x = self.sampler.next_point(history, stream(self.seed, trial.number, "sampler"))
        except SpaceExhausted:  # an Optuna study goes on, with what was tried before
            return {}
        return table.to_theirs(table.space.decode(np.nan_to_num(x, nan=0.5)))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """One parameter at random."""
        del study
        table = Table.of({param_name: param_distribution})
        x = stream(self.seed, trial.number, f"sampler {param_name}").random(1)
        return table.to_theirs(table.space.decode(x))[param_name]


def CTPESampler(*, seed: int | None = None, **settings: Any) -> FairwaySampler:  # noqa: N802 - named as its peers there
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
