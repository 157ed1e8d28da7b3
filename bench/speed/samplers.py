"""One proposal, milliseconds of CPU: c-TPE against Optuna's TPE, Compass and GP against Optuna's GPSampler.

Eight mixed dimensions, two constraints; for Compass, every other trial was stopped early, and each took a second. Peers
and we take turns on the same trials; ratios are medians over the turns.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

import fairway as fw

SPACE: dict[str, fw.Float | fw.Int | fw.Choice] = {
    **{f"x{k}": fw.Float(0.0, 1.0) for k in range(3)},
    "rate": fw.Float(1e-4, 1.0, log=True),
    "depth": fw.Int(1, 100),
    "trees": fw.Int(4, 2048, log=True),
    "kind": fw.Choice(["a", "b", "c"]),
    "size": fw.Choice(["s", "m", "l", "xl"]),
}
TURNS = 5

Rows: TypeAlias = list[tuple[dict[str, Any], float, list[float]]]


def main() -> None:
    print("one proposal, 8 mixed dimensions, CPU")
    for n, limits, ours, peer, name, bar in (
        (1000, 2, fw.CTPE(), "TPESampler", "c-TPE, Optuna's TPE, 2 constraints", 10),
        (10000, 2, fw.CTPE(), "TPESampler", "c-TPE, Optuna's TPE, 2 constraints", 10),
        (20, 2, fw.Compass(), "GPSampler", "Compass, Optuna's GP, 2 constraints", 3),
        (100, 2, fw.Compass(), "GPSampler", "Compass, Optuna's GP, 2 constraints", 3),
        (400, 2, fw.Compass(), "GPSampler", "Compass, Optuna's GP, 2 constraints", 3),
        (200, 0, fw.GP(), "GPSampler", "GP, Optuna's GP, no constraint", 2),
        (200, 2, fw.GP(), "GPSampler", "GP, Optuna's GP, 2 constraints", 3),
    ):
        rows = make_rows(n, limits)
        compare(f"{name}, {n:6,} trials", _propose(rows, limits, ours), _suggest(rows, limits, peer), bar)


def compare(name: str, ours: Callable[[int], object], theirs: Callable[[int], object], bar: float) -> None:
    """Print the CPU time of two calls that take turns, and the median of their ratios."""
    ours(0)
    theirs(0)
    pairs = [(_cpu(ours, k), _cpu(theirs, k)) for k in range(1, TURNS + 1)]
    mine, peers = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(other / one for one, other in pairs)
    print(f"  {name}: {mine:7.1f} ms, {peers:7.1f} ms: x {ratio:.1f}   (bar: at least {bar:g})")


def _cpu(call: Callable[[int], object], k: int) -> float:
    began = time.process_time()
    call(k)
    return (time.process_time() - began) * 1e3


def make_rows(n: int, limits: int) -> Rows:
    """Finished trials of a made-up function: parameters, loss, constraints."""
    space, rng = fw.Space(SPACE), np.random.default_rng(0)
    rows = []
    for x in rng.random((n, len(space))):
        loss = float(((x - 0.4) ** 2).sum() + 0.1 * rng.normal())
        rows.append((space.decode(x), loss, [float(x[k] - 0.5) for k in range(limits)]))
    return rows


def fill_ours(rows: Rows, limits: int) -> fw.Study:
    """A study of ours that holds the rows."""
    constraints = [fw.AtMost(f"c{k}", 0.0) for k in range(limits)]
    study = fw.Study(SPACE, fw.Minimize("loss"), constraints, stopper=fw.Never(), seed=0)
    for params, loss, values in rows:
        study.enqueue(params)
        study.tell(study.ask(), {"loss": loss, **{f"c{k}": value for k, value in enumerate(values)}})
    return study


def _propose(rows: Rows, limits: int, sampler: fw.Sampler) -> Callable[[int], object]:
    study = fill_ours(rows, limits)
    history = study.history
    if isinstance(sampler, fw.Compass):
        history = replace(history, partial=np.arange(len(history)) % 2 == 0, seconds=np.ones(len(history)))
    return lambda k: study.space.decode(np.nan_to_num(sampler.next_point(history, np.random.default_rng(k)), nan=0.5))


def fill_optuna(rows: Rows, sampler: Any) -> tuple[Any, dict[str, Any]]:
    """An Optuna study that holds the rows, and its distributions."""
    import optuna  # noqa: PLC0415 - the peer

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    distributions: dict[str, Any] = {}
    for name, parameter in SPACE.items():
        if isinstance(parameter, fw.Choice):
            distributions[name] = optuna.distributions.CategoricalDistribution(parameter.options)
        elif isinstance(parameter, fw.Int):
            distributions[name] = optuna.distributions.IntDistribution(parameter.low, parameter.high, log=parameter.log)
        else:
            distributions[name] = optuna.distributions.FloatDistribution(
                parameter.low, parameter.high, log=parameter.log
            )
    study = optuna.create_study(sampler=sampler)
    for params, loss, values in rows:
        trial = optuna.trial.create_trial(
            params=params,
            distributions=distributions,
            value=loss,
            user_attrs={"constraints": values},
            system_attrs={"constraints": values},
        )
        study.add_trial(trial)
    return study, distributions


def _suggest(rows: Rows, limits: int, kind: str) -> Callable[[int], object]:
    import optuna  # noqa: PLC0415 - the peer

    more: dict[str, Any] = {"constraints_func": lambda trial: trial.user_attrs["constraints"]} if limits else {}
    if kind == "TPESampler":
        more["multivariate"] = True
    study, distributions = fill_optuna(rows, getattr(optuna.samplers, kind)(seed=0, **more))
    storage = study.ask().storage
    key = storage.get_study_id_from_name(study.study_name)

    def suggest(k: int) -> object:
        del k
        trial = study.ask(distributions)
        which = storage.get_trial_id_from_study_id_trial_number(key, trial.number)
        storage.set_trial_state_values(which, optuna.trial.TrialState.FAIL)  # without what `tell` does beside it
        return trial.params

    return suggest


if __name__ == "__main__":
    main()
