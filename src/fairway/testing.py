"""Conformance suites for samplers, stoppers, terminators and storages of your own.

Each raises an AssertionError that says what does not hold.

>>> import fairway as fw
>>> from fairway.storage.memory import MemoryLog
>>> check_sampler(fw.Random())
>>> check_stopper(fw.ACE())
>>> check_terminator(fw.Plateau(30))
>>> check_storage(MemoryLog)
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, fields
from typing import Any, NamedTuple, TypeAlias, TypeVar

import cloudpickle
import numpy as np

from fairway.engine.events import Asked, Ended, Enqueued, Event, Judged, Opened, Reported, Told, claim, to_json
from fairway.engine.log import Log
from fairway.engine.trial import Trial
from fairway.errors import SpaceExhausted
from fairway.feasibility import Checkpoint
from fairway.history import History
from fairway.problem import AtLeast, AtMost, Constraint, Minimize, Problem
from fairway.samplers.random import Random
from fairway.samplers.sampler import Sampler
from fairway.space import Choice, Float, Int, Parameter, Value
from fairway.stoppers.never import Never
from fairway.stoppers.stopper import Stopper, StopperState
from fairway.study import Study
from fairway.terminators.terminator import Terminator, Verdict

_T = TypeVar("_T")

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

_CONSTRAINTS = (AtMost("cost", 0.5), AtLeast("gain", 0.2))


def check_sampler(sampler: Sampler, *, trials: int = 40) -> None:
    """Check that a sampler is deterministic, copes with awkward histories and spaces, and never repeats itself."""
    _check_repetition(sampler, trials)
    for study in (*_awkward_histories(sampler), *_awkward_spaces(sampler)):
        _check_point(study, sampler)
    _check_a_finite_space(sampler)


def check_stopper(stopper: Stopper) -> None:
    """Check that a stopper is plain data, and that every replica of its state decides the same.

    Each worker decides from its own replica of the state. Replicas are copied, sent between processes, and record other
    workers' reports in different orders, so a stopper that depends on that order would make workers disagree.
    """
    _check_configuration(stopper)
    for constraints in (_CONSTRAINTS, ()):
        _check_replicas(stopper, Problem(Minimize("loss"), constraints))
        _check_forgetting(stopper, Problem(Minimize("loss"), constraints))


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
    assert str(_fresh(terminator).check(history)) == str(verdict), f"{terminator}: an equal terminator disagrees"
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


def check_storage(make_log: Callable[[], Log]) -> None:
    """Check that logs append all or nothing, return events as they were written, and keep one order for all threads.

    `make_log` returns a new, empty log at each call.
    """
    _check_reading(make_log())
    _check_claims(make_log())
    _check_threads(make_log())


def _fresh(part: _T) -> _T:
    """An equal configuration, built from the fields."""
    return type(part)(**{item.name: getattr(part, item.name) for item in fields(part)})  # type: ignore[arg-type]


def _check_verdict(terminator: Terminator, history: History) -> Verdict:
    verdict = terminator.check(history)
    assert isinstance(verdict, Verdict), f"{terminator}: it returned {verdict!r}; a Verdict is expected"
    assert verdict.reason, f"{terminator}: its verdict has no reason"
    assert history.feasible.any() or not verdict.stop, f"{terminator}: it ends a search without a feasible trial"
    return verdict


def _study(
    sampler: Sampler, space: dict[str, Parameter] | None = None, constraints: Sequence[Constraint] = _CONSTRAINTS
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
    one, other = _study(sampler), _study(_fresh(sampler))
    assert _tell(one, trials) == _tell(other, trials), f"{sampler}: the same seed gave different proposals"
    samplers = (sampler, sampler, _fresh(sampler))
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


_Act: TypeAlias = _Report | _Finish


def _check_configuration(stopper: Stopper) -> None:
    name, declared = type(stopper).__name__, {item.name: getattr(stopper, item.name) for item in fields(stopper)}
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
    for each in (stopper, _fresh(stopper)):
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
    finished = next(acts[0].number for acts in trials if isinstance(acts[-1], _Finish) and len(acts) > 4)
    decisions = []
    for numbers in (range(1000, 1000 + len(later)), [finished] * len(later)):
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


def _events() -> list[Event]:
    """One study's events, with the values that are easily lost: NaN, infinity, empty arrays, other alphabets."""

    def reported(number: int, step: list[int], values: list[list[float]]) -> Reported:
        n = len(step)
        ints, floats = np.arange(n), np.linspace(0.1, math.pi, n)
        noise = np.array([[0, 0.25, 2, 5]], float) if number else np.empty((0, 4))
        payments = np.array([[0, 3, 1]]) if number else np.empty((0, 3), np.int64)
        table, check_ns = np.array(values, float), np.full(np.shape(values), -2)
        return Reported(
            number, 0, 2, 1, 0, None, 1, ints, np.array(step), floats, table, ints, check_ns, payments, noise, "why"
        )

    best = Checkpoint(2, 0.1 + 0.2, (None, math.nan, -math.inf), 0.5, 2, 5)
    return [
        Opened(0, {"space": {"größe": {"kind": "Float", "low": 1e-300, "high": 1.0}}, "seed": 7}),
        Enqueued({"größe": 0.1, "text": "naïve 树 🌳 'quoted' \\", "flag": True, "nothing": None}),
        Asked(0, {"größe": 0.1 + 0.2}, 1.5, 0),
        reported(0, [1, 2], [[math.nan, math.inf], [-math.inf, 0.1 + 0.2]]),
        Asked(1, {"größe": 5e-324}, 1.75, 0, queued=True),
        reported(1, [3], [[0.5, 0.25]]),
        reported(0, [3, 4, 5], [[], [], []]),
        Told(0, "completed", "", 2.5, 0, 9, best, means={1: 0.5, 2: 1 / 3}, notes={"note": [1, 2.5, None, "é"]}),
        Told(1, "failed", "ValueError: ß\n", 2.75, 0, 10, by_stopper=False),
        Judged(0, 2, False, "too few", math.nan, math.inf, 3.0),
        Ended("2 trials were run", 4.0),
    ]


def _check_reading(log: Log) -> None:
    name, events = type(log).__name__, _events()
    _check_same(f"{name}.read() of a new log", log.read(), [])
    for start, end in ((0, 1), (1, 4), (4, len(events))):
        length = log.append(events[start:end])
        assert length == end, f"{name}.append returned {length}; the new length, {end}, is expected"
    for since in range(len(events) + 2):
        _check_same(f"{name}.read({since})", log.read(since), events[since:])
        for most in (0, 1, 3, 99):
            _check_same(f"{name}.read({since}, {most})", log.read(since, most), events[since : since + most])
    for since in range(len(events) + 1):
        found, position = log.summary(since)
        expected = [event for event in events[since:] if not isinstance(event, Reported)]
        _check_same(f"{name}.summary({since})", found, expected)
        assert position == len(events), f"{name}.summary({since}) ends at {position}; {len(events)} is expected"
    for numbers in ([], [0], [1], [1, 0], [99]):
        reports = [event for event in events if isinstance(event, Reported) and event.number in numbers]
        _check_same(f"{name}.reports({numbers})", log.reports(numbers), reports)


def _check_claims(log: Log) -> None:
    name, ended = type(log).__name__, Ended("", 0.0)
    written: list[Event] = [Opened(0, {}), Asked(0, {}, 0.0, 0), Told(0, "completed", "", 0.0, 0, 1)]
    log.append(written)
    for taken in written:
        returned = log.append([ended, Asked(5, {}, 0.0, 0), taken])
        assert returned is None, f"{name}.append returned {returned}, but {claim(taken)!r} was taken: None is expected"
        _check_same(f"{name}.read() after a refused append", log.read(), written)
    length = log.append([Asked(5, {}, 0.0, 0)])
    assert length == 4, f"{name}.append returned {length} for a claim made by a refused append only: 4 is expected"


def _check_threads(log: Log, batches: int = 20) -> None:
    """Two threads append and claim the same numbers, while a third one reads."""
    name = type(log).__name__

    barrier = threading.Barrier(2, timeout=60)

    def write(writer: int) -> list[tuple[int | None, list[Event]]]:
        written: list[tuple[int | None, list[Event]]] = []
        for k in range(batches):
            barrier.wait()
            batch: list[Event] = [Enqueued({"writer": writer, "k": k, "part": part}) for part in range(3)]
            written += [(log.append(batch), batch)]
            asked: list[Event] = [Asked(k, {}, 0.0, writer)]
            written += [(log.append(asked), asked)]
        return written

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, writer) for writer in range(2)]
        snapshots = pool.submit(lambda: [list(log.read()) for _ in range(batches)]).result()
        written = [each for writer in writers for each in writer.result()]
    events = list(log.read())
    for length, batch in written:
        if length is not None:
            found = events[max(length - len(batch), 0) : length]
            _check_same(f"{name}.read() where two threads appended", found, batch)
    refused = sum(length is None for length, _ in written)
    assert refused == batches, f"{name}: of two threads that claimed {batches} numbers, {refused} claims were refused"
    assert len(events) == 7 * batches, f"{name}: {len(events)} events after two threads appended {7 * batches}"
    for snapshot in snapshots:
        _check_same(f"{name}.read() while others append", snapshot, events[: len(snapshot)])


def _check_same(call: str, found: Sequence[Event], expected: Sequence[Event]) -> None:
    assert len(found) == len(expected), f"{call}: {len(found)} events; {len(expected)} are expected"
    for one, other in zip(found, expected, strict=True):
        assert _content(one) == _content(other), f"{call}: {one} came back for {other}"


def _content(event: Event) -> tuple[Any, ...]:
    """All of an event in a form that compares NaN, types and shapes."""
    values = [getattr(event, item.name) for item in fields(event)]
    shapes = [(value.dtype, value.shape) for value in values if isinstance(value, np.ndarray)]
    return type(event), repr(to_json(event)), shapes
