"""What any sampler and any terminator must hold to: they read a history, and propose or judge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fairway.engine.trial import Trial
from fairway.errors import SpaceExhausted
from fairway.history import History
from fairway.parameters import Choice, Float, Int, Parameter, Value
from fairway.problem import AtMost, Constraint, Minimize
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.stoppers.never import Never
from fairway.study import Study
from fairway.terminators.terminator import Terminator, Verdict
from fairway.testing.stoppers import CONSTRAINTS

MIXED: dict[str, Parameter] = {
    "rate": Float(1e-4, 1.0, log=True),
    "share": Float(0.0, 1.0, step=0.1),
    "depth": Int(1, 12),
    "trees": Int(4, 2048, log=True),
    "booster": Choice(["gbdt", "dart", "goss"]),
    "size": Choice(["s", "m", "l"], ordered=True),
    "drop": Float(0.0, 0.5, when={"booster": "dart"}),
}
"""A space with every kind of parameter, one of them conditional."""


def check_sampler(sampler: Sampler, *, trials: int = 40) -> None:
    """Check that a sampler is deterministic, copes with awkward histories and spaces, and never repeats itself."""
    _check_repetition(sampler, trials)
    for study in (*_awkward_histories(sampler), *_awkward_spaces(sampler)):
        _check_point(study, sampler)
    _check_a_finite_space(sampler)


def check_terminator(terminator: Terminator, *, trials: int = 40) -> None:
    """Check that a terminator's verdict depends on the finished trials alone, and copes with awkward histories."""
    study = _study(Random())
    _check_verdict(terminator, study.history)
    _tell(study, trials)
    history = study.history
    before = {name: value.copy() for name, value in vars(history).items() if isinstance(value, np.ndarray)}
    verdict = _check_verdict(terminator, history)
    same = all(np.array_equal(value, getattr(history, name), equal_nan=True) for name, value in before.items())
    assert same, f"{terminator}: it changed the history"
    assert str(replace(terminator).check(history)) == str(verdict), f"{terminator}: an equal terminator disagrees"
    finite = _study(Random(), {"k": Int(1, 30)}, [])
    for k, trial in enumerate(finite.ask(27)):
        if k < 24:  # the others are running
            finite.tell(trial, loss=float((k - 7) ** 2))
    for seen in (history, finite.history):
        assert len(seen.pending)
        same = str(terminator.check(seen)) == str(terminator.check(seen.first(len(seen))))
        assert same, f"{terminator}: running trials changed the verdict"
    for awkward in (*_awkward_histories(Random()), *_awkward_spaces(Random())):
        _check_verdict(terminator, awkward.history)


def _check_verdict(terminator: Terminator, history: History) -> Verdict:
    verdict = terminator.check(history)
    assert isinstance(verdict, Verdict), f"{terminator}: it returned {verdict!r}; a Verdict is expected"
    assert verdict.reason, f"{terminator}: its verdict has no reason"
    assert history.feasible.any() or not verdict.stop, f"{terminator}: it ends a search without a feasible trial"
    return verdict


def _study(
    sampler: Sampler, space: dict[str, Parameter] | None = None, constraints: Sequence[Constraint] = CONSTRAINTS
) -> Study:
    return Study(space or MIXED, Minimize("loss"), constraints, sampler=sampler, stopper=Never(), seed=3)


def _tell(study: Study, trials: int) -> list[dict[str, Value]]:
    """Run some trials of a synthetic function; a few fail, a few leave constraints unknown, a few stay running."""
    asked = []
    for k in range(trials):
        trial = study.ask()
        asked.append(dict(trial.params))
        study.space.check(trial.params)
        u = np.nan_to_num(study.space.encode(trial.params), nan=0.5)
        loss, cost, gain = float(((u - 0.4) ** 2).sum()), float(u[0]), float(u[-1])
        if k % 11 == 5:
            study.tell(trial, failed="on purpose")
        elif k % 7 == 3:
            study.tell(trial, loss=loss, cost=cost)
        elif k % 13 != 12:
            study.tell(trial, loss=loss, cost=cost, gain=gain)
    return asked


def _draw(study: Study, k: int) -> Trial:
    """A trial of a random configuration, whatever the sampler would propose."""
    study.enqueue(study.space.decode(np.random.default_rng(k).random(len(study.space))))
    return study.ask()


def _check_repetition(sampler: Sampler, trials: int) -> None:
    one, other = _study(sampler), _study(replace(sampler))
    assert _tell(one, trials) == _tell(other, trials), f"{sampler}: the same seed gave different proposals"
    samplers = (sampler, sampler, replace(sampler))
    x = one.history.x.copy()
    points = [each.next_point(one.history, np.random.default_rng(7)) for each in samplers]
    for point in points[1:]:
        assert np.array_equal(points[0], point, equal_nan=True), f"{sampler}: it keeps something between calls"
    assert np.array_equal(x, one.history.x, equal_nan=True), f"{sampler}: it changed the history"
    batch = one.ask(5)
    assert len({str(trial.params) for trial in batch}) == len(batch), f"{sampler}: a batch repeats a configuration"


def _awkward_histories(sampler: Sampler) -> Iterator[Study]:
    """A constant objective; all failed; all infeasible but one; NaN and unknown constraints; huge losses."""
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
                study.tell(trial, failed="on purpose")
            else:
                lucky = {"cost": 0.1, "gain": 0.9} if k == 20 and "cost" in outcome else {}
                study.tell(trial, {**outcome, **lucky})
        yield study


def _awkward_spaces(sampler: Sampler) -> Iterator[Study]:
    """Many dimensions; many options; one option; choices only; huge integers."""
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
    raise AssertionError(f"{sampler}: it proposed a configuration of a space in which all were tried")


def _check_point(study: Study, sampler: Sampler) -> None:
    x = sampler.propose(study.history, np.random.default_rng(1))
    u = np.nan_to_num(x, nan=0.5)
    inside = u.shape == (len(study.space),) and bool(((u >= 0.0) & (u <= 1.0)).all())
    assert inside, f"{sampler}: {x} is not a point of the unit cube"
    study.space.check(study.space.decode(u))
