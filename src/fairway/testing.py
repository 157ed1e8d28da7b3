"""Conformance suites: what any sampler or terminator must hold to, whoever wrote it.

A check that fails is an AssertionError.

>>> import fairway as fw
>>> check_sampler(fw.Random())
>>> check_terminator(fw.Plateau(30))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fairway.engine.trial import Trial
from fairway.errors import SpaceExhausted
from fairway.history import History
from fairway.problem import AtLeast, AtMost, Constraint, Minimize
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.space import Choice, Float, Int, Parameter, Value
from fairway.stoppers.never import Never
from fairway.study import Study
from fairway.terminators.terminator import Terminator, Verdict

MIXED: dict[str, Parameter] = {
    "rate": Float(1e-4, 1.0, log=True),
    "share": Float(0.0, 1.0, step=0.1),
    "depth": Int(1, 12),
    "trees": Int(4, 2048, log=True),
    "booster": Choice(["gbdt", "dart", "goss"]),
    "size": Choice(["s", "m", "l"], ordered=True),
    "drop": Float(0.0, 0.5, when={"booster": "dart"}),
}
"""A space with every kind of parameter, and one that is not always there."""

_LIMITS = (AtMost("cost", 0.5), AtLeast("gain", 0.2))


def check_sampler(sampler: Sampler, *, trials: int = 40) -> None:
    """Run every check on a sampler."""
    _check_that_it_repeats_itself(sampler, trials)
    _check_awkward_histories(sampler)
    _check_a_finite_space(sampler)


def check_terminator(terminator: Terminator, *, trials: int = 40) -> None:
    """Run every check on a terminator."""
    study = _study(Random())
    _check_verdict(terminator, study.history)
    _tell(study, trials)
    history = study.history
    before = {name: value.copy() for name, value in vars(history).items() if isinstance(value, np.ndarray)}
    verdict = _check_verdict(terminator, history)
    same = all(np.array_equal(value, getattr(history, name), equal_nan=True) for name, value in before.items())
    assert same, f"{terminator}: it changed the history"
    fresh = type(terminator)(**vars(terminator))
    assert str(fresh.check(history)) == str(verdict), f"{terminator}: a fresh instance says otherwise"
    alone = history.first(len(history))
    assert len(history.pending)
    assert not len(alone.pending)
    assert str(terminator.check(alone)) == str(verdict), f"{terminator}: running trials made a difference"
    finite = _study(Random(), {"k": Int(1, 30)}, [])
    for k, trial in enumerate(finite.ask(27)):
        if k < 24:  # the others are running
            finite.tell(trial, loss=float((k - 7) ** 2))
    seen = finite.history
    same = str(terminator.check(seen)) == str(terminator.check(seen.first(len(seen))))
    assert same, f"{terminator}: running trials made a difference"
    for awkward in (*_awkward_histories(Random()), *_awkward_spaces(Random())):
        _check_verdict(terminator, awkward.history)


def _check_verdict(terminator: Terminator, history: History) -> Verdict:
    verdict = terminator.check(history)
    assert isinstance(verdict, Verdict), f"{terminator}: {verdict!r} is no Verdict"
    assert verdict.reason, f"{terminator}: it does not say why"
    assert history.feasible.any() or not verdict.stop, f"{terminator}: it ends a search that found nothing feasible"
    return verdict


def _study(
    sampler: Sampler, space: dict[str, Parameter] | None = None, limits: Sequence[Constraint] = _LIMITS
) -> Study:
    return Study(space or MIXED, Minimize("loss"), limits, sampler=sampler, stopper=Never(), seed=3)


def _tell(study: Study, trials: int) -> list[dict[str, Value]]:
    """Run some trials of a made-up function; a few fail, a few leave constraints unknown, a few are running."""
    asked = []
    for k in range(trials):
        trial = study.ask()
        asked.append(dict(trial.params))
        study.space.check(trial.params)  # nothing outside the space
        u = np.nan_to_num(study.space.encode(trial.params), nan=0.5)
        loss, cost, gain = float(((u - 0.4) ** 2).sum()), float(u[0]), float(u[-1])
        if k % 11 == 5:
            study.tell(trial, failed="made to fail")
        elif k % 7 == 3:
            study.tell(trial, loss=loss, cost=cost)
        elif k % 13 != 12:
            study.tell(trial, loss=loss, cost=cost, gain=gain)
    return asked


def _draw(study: Study, k: int) -> Trial:
    """A trial at random, whatever the sampler would propose."""
    study.enqueue(study.space.decode(np.random.default_rng(k).random(len(study.space))))
    return study.ask()


def _check_that_it_repeats_itself(sampler: Sampler, trials: int) -> None:
    one, other = _study(sampler), _study(type(sampler)(**vars(sampler)))
    first, second = _tell(one, trials), _tell(other, trials)
    assert first == second, f"{sampler}: the same seed gave other proposals"
    fresh = type(sampler)(**vars(sampler))
    points = [each.next_point(one.history, np.random.default_rng(7)) for each in (sampler, sampler, fresh)]
    for point in points[1:]:
        assert np.array_equal(points[0], point, equal_nan=True), f"{sampler}: a fresh instance proposes otherwise"
    x = one.history.x.copy()
    sampler.next_point(one.history, np.random.default_rng(8))
    assert np.array_equal(x, one.history.x, equal_nan=True), f"{sampler}: it changed the history"
    batch = one.ask(5)
    assert len({str(trial.params) for trial in batch}) == len(batch), f"{sampler}: a batch repeats a configuration"


def _awkward_histories(sampler: Sampler) -> Iterator[Study]:
    """A constant objective; all failed; all infeasible but one; infinite and unknown constraints; huge losses."""
    for outcome in (
        {"loss": 1.0, "cost": 0.1, "gain": 0.9},
        None,
        {"loss": 1.0, "cost": 0.9, "gain": 0.1},
        {"loss": 1.0, "cost": math.nan, "gain": 0.9},
        {"loss": 1e300, "cost": 0.1, "gain": 0.9},
        {"loss": 1.0},
    ):
        study = _study(sampler)
        for k in range(25):
            trial = _draw(study, k)
            if outcome is None:
                study.tell(trial, failed="made to fail")
            else:
                lucky = {"cost": 0.1, "gain": 0.9} if k == 20 and "cost" in outcome else {}
                study.tell(trial, {**outcome, **lucky})
        yield study


def _awkward_spaces(sampler: Sampler) -> Iterator[Study]:
    """Many dimensions, many options, one option, choices alone, integers without end."""
    spaces: tuple[dict[str, Parameter], ...] = (
        {f"x{k}": Float(0.0, 1.0) for k in range(50)},
        {"option": Choice(range(3000)), "x": Float(0.0, 1.0)},
        {"only": Choice(["this"]), "x": Float(0.0, 1.0)},
        {"a": Choice([*"abcdefgh"]), "b": Choice([*"abcdefgh"]), "c": Choice([*"abc"], ordered=True)},
        {"k": Int(0, 2**45), "n": Int(1, 2**30, log=True)},
    )
    for space in spaces:
        study = _study(sampler, space, [AtMost("cost", 0.5)])
        for k in range(25):
            study.tell(_draw(study, k), loss=float(k % 5), cost=k / 25)
        yield study


def _check_awkward_histories(sampler: Sampler) -> None:
    for study in (*_awkward_histories(sampler), *_awkward_spaces(sampler)):
        _check_point(study, sampler)


def _check_a_finite_space(sampler: Sampler) -> None:
    space: dict[str, Parameter] = {"a": Int(1, 3), "b": Choice(["x", "y"]), "c": Int(1, 3, when={"b": "y"})}
    study, seen = _study(sampler, space, []), set()
    for k in range(12):  # 3 with b = x, 9 with b = y
        trial = study.ask()
        seen.add(str(trial.params))
        study.tell(trial, loss=float(k))
    assert len(seen) == 12, f"{sampler}: of 12 configurations it tried {len(seen)} in 12 trials"
    try:
        study.ask()
    except SpaceExhausted:
        return
    raise AssertionError(f"{sampler}: it found a thirteenth of 12 configurations")


def _check_point(study: Study, sampler: Sampler) -> None:
    x = sampler.propose(study.history, np.random.default_rng(1))
    u = np.nan_to_num(x, nan=0.5)
    inside = u.shape == (len(study.space),) and bool(((u >= 0.0) & (u <= 1.0)).all())
    assert inside, f"{sampler}: {x} is no point of the unit cube"
    study.space.check(study.space.decode(u))
