"""Our terminators as a callback of an Optuna study."""

from __future__ import annotations

from collections.abc import Callable

import optuna
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial

from fairway.errors import UsageError
from fairway.integrations.optuna.history import Table, history_of
from fairway.terminators.terminator import Terminator


def terminate_when(terminator: Terminator) -> Callable[[optuna.Study, FrozenTrial], None]:
    """A callback that stops an Optuna study when our terminator says so; the reason is its user attribute "ended".

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
    search_space = IntersectionSearchSpace(include_pruned=True)
    last = 0

    def callback(study: optuna.Study, trial: FrozenTrial) -> None:
        nonlocal last
        del trial
        distributions = {name: each for name, each in search_space.calculate(study).items() if not each.single()}
        trials = study.get_trials(deepcopy=False)
        finished = sum(each.state.is_finished() for each in trials)
        if not distributions or last and finished < last + terminator.pause(last):
            return
        last = finished
        verdict = terminator.check(history_of(study, trials, Table.of(distributions), seed=0))
        if verdict:
            study.set_user_attr("ended", verdict.reason)
            study.stop()

    return callback
