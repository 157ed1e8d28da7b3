"""Earlier studies that a new study starts from: their trials are copied into its log and read in its own space.

The copies are the earlier study's own events, with every report, so nothing is lost if that study changes or vanishes.
Only samplers look at the copies. A stopper never does: losses on other data are not comparable with its trials'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fairway.buffers import Columns
from fairway.engine.course import add_row
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import (
    Asked,
    Carried,
    Dropped,
    Enqueued,
    Event,
    LimitsChanged,
    Opened,
    Remeasured,
    Reported,
    Revived,
    Told,
)
from fairway.engine.identity import Identity
from fairway.engine.ledger import Ledger
from fairway.errors import StorageError, UsageError
from fairway.history import History
from fairway.parameters import Value
from fairway.problem import Problem
from fairway.samplers.portfolio import portfolio
from fairway.space import Space

_COPIED = (Asked, Reported, Told, Revived, Enqueued, Dropped, LimitsChanged, Remeasured)  # events of trials and limits
_LACKED = "lacked"  # key in a carried study's configuration: values for the parameters that it lacks


class Source(NamedTuple):
    """A study to start from: its name in errors, its events, and values for the parameters that it lacks."""

    name: str
    events: Sequence[Event]
    lacked: Mapping[str, Value]


def carry(sources: Sequence[Source], space: Space, problem: Problem) -> list[Event]:
    """The events that start a study from others: copies of their trials, then a few of the best to run first.

    Raises a `UsageError` if a source is empty, has another objective, or has no trial that fits the space.
    """
    copies: list[Carried] = []
    for place, source in enumerate(sources):
        first = source.events[0] if source.events else None
        if not isinstance(first, Opened):
            raise UsageError(f"start_from: the study {source.name} is empty: there is nothing to learn from")
        _refuse_another_objective(source.name, first, problem)
        lacked = _checked(source, space, Identity.from_json(first.config).space)
        config = {**first.config, "name": source.name, _LACKED: lacked}
        events = [Opened(0, config), *(event for event in source.events if isinstance(event, _COPIED))]
        copies += [Carried(place, to_json(event)) for event in events]
    found = histories(copies, space, problem)
    for source, history in zip(sources, found, strict=True):
        if not len(history):
            raise UsageError(f"start_from: {_why_nothing_fits(source, space)}")
    runs_first = [space.decode_some(x) for x in portfolio(found)]
    return [*copies, *(Enqueued(params) for params in runs_first if params)]


def histories(copies: Sequence[Carried], space: Space, problem: Problem) -> tuple[History, ...]:
    """The carried studies as columns in this study's space, each judged by its own last limits.

    Trials outside the space are left out, and so are limits that this study does not have.
    """
    return tuple(_seen_from(place, events, space, problem) for place, events in _by_study(copies).items())


def unreadable(copies: Sequence[Carried], space: Space, problem: Problem) -> dict[int, str]:
    """The reasons why carried studies cannot be read, by their places in `start_from`."""
    found: dict[int, str] = {}
    for place, events in _by_study(copies).items():
        try:
            _seen_from(place, events, space, problem)
        except StorageError as error:
            found[place] = str(error)
    return found


def _by_study(copies: Sequence[Carried]) -> dict[int, list[Event]]:
    """The events of each carried study, by its place in `start_from`."""
    found: dict[int, list[Event]] = {}
    for event in copies:
        found.setdefault(event.study, []).append(from_json(event.copy))
    return found


def _seen_from(place: int, events: Sequence[Event], space: Space, problem: Problem) -> History:
    """A carried study as columns, judged as if it had dropped the constraints that this study does not have."""
    first = events[0]
    if not isinstance(first, Opened):
        raise StorageError(f"the log has trials of study {place} to start from, and not that study: it is damaged")
    identity = Identity.from_json(first.config)
    ledger = Ledger(identity.space, identity.problem)
    ledger.extend(events, lambda: events)
    limits, known = ledger.limits.now, {one.metric for one in problem.constraints}
    foreign = {one.metric for one in limits.in_force} - known
    if foreign:
        drops = replace(limits, dropped=limits.dropped | foreign).event(len(ledger.limits.changes), ledger.last_at)
        ledger.extend([drops], lambda: [*events, drops])
    columns, lacked = Columns(space, ledger.problem, 0), first.config.get(_LACKED, {})
    for number in ledger.history().number.tolist():
        course = ledger.courses[number]
        shared = _shared(space, course.params)
        try:
            x = space.encode_some({**lacked, **shared})
        except UsageError:
            continue
        if not shared:
            continue
        add_row(columns, number, x, course)
    return columns.snapshot([])


def _checked(source: Source, space: Space, theirs: Space) -> dict[str, Value]:
    for name in source.lacked:
        if name in theirs.declared:
            raise UsageError(f"start_from: the study {source.name} has {name!r}; give only parameters that it lacks")
    try:
        return space.check_some(source.lacked)
    except UsageError as error:
        raise UsageError(f"start_from: of the study {source.name}, {error}") from None


def _shared(space: Space, params: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in params.items() if name in space.declared}


def _refuse_another_objective(name: str, opened: Opened, problem: Problem) -> None:
    theirs, ours = Identity.from_json(opened.config).problem.objective, problem.objective
    if (theirs.metric, theirs.sign) != (ours.metric, ours.sign):
        raise UsageError(
            f"start_from: the study {name} has another objective, {type(theirs).__name__}({theirs.metric!r}); "
            f"one with {type(ours).__name__}({ours.metric!r}) is expected"
        )


def _why_nothing_fits(source: Source, space: Space) -> str:
    """A sentence that says why no trial of a study can be carried over."""
    asked = {event.number: event.params for event in source.events if isinstance(event, Asked)}
    told = [event.number for event in source.events if isinstance(event, Told)]
    if not told:
        return f"the study {source.name} has no finished trial: there is nothing to learn from"
    some = _shared(space, asked.get(told[0], {}))
    if not some:
        return f"the study {source.name} has no parameter of this space, which has {', '.join(map(repr, space.names))}"
    try:
        space.check_some(some)
    except UsageError as error:
        return f"no trial of the study {source.name} fits this space ({error}); widen the space, or leave it out"
    return f"no trial of the study {source.name} fits this space; widen the space, or leave it out"
