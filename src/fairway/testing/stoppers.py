"""What any stopper must hold to: it decides at every report, and its replicas agree."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Iterable
from dataclasses import FrozenInstanceError, asdict, replace
from typing import NamedTuple, TypeAlias

import cloudpickle
import numpy as np

from fairway.problem import AtLeast, AtMost, Minimize, Problem
from fairway.stoppers.stopper import Stopper, StopperState

CONSTRAINTS = (AtMost("cost", 0.5), AtLeast("gain", 0.2))
"""Of the problems that rules are tried on."""


def check_stopper(stopper: Stopper) -> None:
    """Check that a stopper is plain data, and that every replica of its state decides the same.

    Each worker decides from its own replica of the state. Replicas are copied, sent between processes, and record other
    workers' reports in different orders, so a stopper that depends on that order would make workers disagree.
    """
    _check_configuration(stopper)
    for constraints in (CONSTRAINTS, ()):
        _check_replicas(stopper, Problem(Minimize("loss"), constraints))
        _check_forgetting(stopper, Problem(Minimize("loss"), constraints))


class _Report(NamedTuple):
    number: int
    step: int
    loss: float
    violation: float | None
    train_ns: int
    check_ns: int
    provisional: bool


class _Finish(NamedTuple):
    number: int
    completed: bool


_FIRST = 8  # a stopper may treat its first trials differently
_APART = 2520  # and those whose number is a multiple of something up to 10
_Act: TypeAlias = _Report | _Finish


def _check_configuration(stopper: Stopper) -> None:
    name, declared = type(stopper).__name__, asdict(stopper)
    undeclared = set(vars(stopper)) - set(declared)
    assert not undeclared, f"{name}: {undeclared} are not fields of the dataclass, so they are lost in storage"
    try:
        setattr(stopper, "interval", stopper.interval)  # noqa: B010 - the type checker knows that it is frozen
    except FrozenInstanceError:
        pass
    else:
        raise AssertionError(f"{name}: its fields can be changed; decorate it with @dataclass(frozen=True)")
    try:
        stored = type(stopper)(**json.loads(json.dumps(declared, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{name}: its fields cannot be stored as JSON: {error}") from error
    assert (stored, repr(stored)) == (stopper, repr(stopper)), f"{name}: {stored} came back from JSON for {stopper}"
    assert 0 <= stopper.stop_probability <= 1, f"{name}: stop_probability={stopper.stop_probability} is not in [0, 1]"
    longest = stopper.longest
    assert longest is None or longest >= 1, f"{name}: longest={longest}: None or at least 1 is expected"
    for cost_ratio in (None, 0.0, 2.5, 1e6):
        interval = stopper.adapted(cost_ratio, 20)
        assert interval in range(1, 21), f"{name}: adapted({cost_ratio}, 20) is {interval}: 1 to 20 is expected"


def _check_replicas(stopper: Stopper, problem: Problem) -> None:
    trials, later = (_trials(seed, constrained=bool(problem.constraints)) for seed in (0, 1))
    acts, probes = _interleaved(trials, 0), [act for trial in later for act in trial]
    decisions = _decide(stopper.start(problem), acts + probes)
    for each in (stopper, replace(stopper)):
        same = _decide(each.start(problem), acts + probes) == decisions
        assert same, f"{stopper}: two states that saw the same reports decided differently"
    expected = decisions[-sum(isinstance(act, _Report) for act in probes) :]
    for order in range(6):  # the first is that of `acts`
        state = stopper.start(problem)
        _decide(state, _interleaved(trials, order), ask=False)
        cause = "the order in which different trials' reports arrived" if order else "calling due"
        assert _decide(state, probes) == expected, f"{stopper}: {cause} changed a later decision"
    state, half = stopper.start(problem), len(acts) // 2
    start = len(_decide(state, acts[:half]))
    try:
        copies = {"a deep copy": copy.deepcopy(state), "a pickled copy": cloudpickle.loads(cloudpickle.dumps(state))}
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise AssertionError(f"{stopper}: its state cannot be sent to a worker process: {error}") from error
    for name, copied in {**copies, "the original of a copy": state}.items():
        same = _decide(copied, acts[half:] + probes) == decisions[start:]
        assert same, f"{stopper}: {name} of the state decided differently"


def _check_forgetting(stopper: Stopper, problem: Problem) -> None:
    """A trial that reuses the number of a finished one is decided on like any other."""
    trials, later = (_trials(seed, constrained=bool(problem.constraints)) for seed in (0, 1))
    done = (acts[0].number for acts in trials if isinstance(acts[-1], _Finish) and len(acts) > 4)
    finished = next(number for number in done if number >= _FIRST)
    decisions = []
    for numbers in ([finished + _APART * (k + 1) for k in range(len(later))], [finished] * len(later)):
        acts = _interleaved(trials, 0)
        for number, trial in zip(numbers, later, strict=True):
            acts += [act._replace(number=number) for act in trial if isinstance(act, _Report)]
            acts.append(_Finish(number, completed=False))
        decisions.append(_decide(stopper.start(problem), acts))
    assert decisions[0] == decisions[1], f"{stopper}: finish did not forget a trial"


def _trials(seed: int, *, constrained: bool) -> list[list[_Act]]:
    """Synthetic trials, each a list of its own acts; some end without a report, some are still running."""
    rng = np.random.default_rng(seed)
    trials: list[list[_Act]] = []
    for number in range(100 * seed, 100 * seed + 24):
        acts: list[_Act] = []
        for step in range(1, int(rng.integers(1, 10))):
            violation = [None, 0.0, 0.3, 2.0, math.inf][int(rng.integers(5))] if constrained else 0.0
            check_ns = 0 if violation is None or not constrained else int(rng.integers(1, 3000))
            loss = int(rng.integers(16)) / 16
            acts.append(_Report(number, step, loss, violation, int(rng.integers(1, 1000)), check_ns, number % 6 == 5))
        late = next((act for act in acts if isinstance(act, _Report) and act.violation is None), None)
        if late is not None:  # a constraint of an earlier report is checked at the end
            acts.append(late._replace(violation=0.0 if number % 2 else 0.4, train_ns=0, check_ns=500))
        if not acts or number % 8 != 7:
            acts.append(_Finish(number, completed=number % 3 == 0))
        trials.append(acts)
    return trials


def _interleaved(trials: list[list[_Act]], seed: int) -> list[_Act]:
    """All acts in a random order, but each trial's own acts in theirs."""
    order = np.random.default_rng(seed).permutation([i for i, acts in enumerate(trials) for _ in acts])
    remaining = [iter(acts) for acts in trials]
    return [next(remaining[i]) for i in order]


def _decide(state: StopperState, acts: Iterable[_Act], *, ask: bool = True) -> list[str | None]:
    """Pass acts to a state as a study does; one that replays another worker's reports does not ask what is `due`."""
    decisions = []
    for act in acts:
        if isinstance(act, _Finish):
            state.finish(act.number, completed=act.completed)
            continue
        report = (act.number, act.step, act.loss)
        due = state.due(*report, act.train_ns) if ask else True
        assert isinstance(due, bool), f"{type(state).__name__}: due returned {due!r}; True or False is expected"
        state.spend(act.number, act.train_ns, act.check_ns)
        decision = (state.judge_folds if act.provisional else state.judge)(*report, act.violation)
        valid = decision is None or isinstance(decision, str) and decision != ""
        assert valid, f"{type(state).__name__}: judge returned {decision!r}; None or a non-empty reason is expected"
        decisions.append(decision)
    return decisions
