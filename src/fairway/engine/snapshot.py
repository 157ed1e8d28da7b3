"""The state after the first events of a log, kept beside it, so that a long study opens without replaying them all.

A snapshot is derived from the log, which stays the only truth. It says which position it reaches, identifies the event
before that position, and has a hash of each of its parts. One that does not fit the log, or was made by another version
of fairway, is not used, and the whole log is replayed. It holds JSON and plain arrays: reading one runs no code.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairway import __version__
from fairway.engine import courses, states
from fairway.engine.certification import Certification
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import Event
from fairway.engine.ledger import Ledger
from fairway.engine.limits import Limits
from fairway.engine.log import Log, Snapshots
from fairway.engine.queue import Lost
from fairway.engine.referee import KNOWN, Referee
from fairway.engine.remeasurement import SecondMeasurements
from fairway.engine.saves import Saves
from fairway.errors import StorageError
from fairway.logs import logger
from fairway.problem import Problem
from fairway.space import Space

VERSION = "8"
"""Version of what the names in a snapshot mean; raise it when a stopper's state changes between releases."""

_PLAIN = (
    *("workers", "opened", "counts", "last_stop", "last_failure", "ended", "train_saved_ns", "sums", "last_at"),
    *("dropped", "retries"),
)
_AT_ONCE = ("head", "ledger")  # parts that every reader needs
_BESTS = ("feasible", "ignoring_limits")
_EVENTS = ("verdicts", "searched", "carried")


def keep(log: Log, position: int, ledger: Ledger, referee: Referee) -> bool:
    """Keep a snapshot of a log's first events; return False if the log cannot keep one, or not all of it is plain."""
    if not isinstance(log, Snapshots):
        return False
    try:
        state = states.to_json(referee.known())
    except states.NotPlainError:
        return False  # a stopper of the user's own
    parts = _parts(ledger) | {"ledger": _json(_plain(ledger)), "referee": _json(state)}
    digests = {name: _digest(part) for name, part in parts.items()}
    head = {
        "made_of": _made_of(ledger),
        "position": position,
        "mark": log.mark(position),
        **_rules(referee),
        "trials": len(ledger.courses),
        "digests": digests,
    }
    log.keep({"head": _json(head), **parts})
    return True


def restore(
    log: Log, space: Space, problem: Problem, seed: int = 0, referee: Referee | None = None
) -> tuple[Ledger, int]:
    """A ledger from a log's snapshot, and the position that it reaches; an empty ledger and 0 if no snapshot fits.

    A fresh referee learns what the snapshot's referee knew. Without a referee, running trials come without their
    reports, as in a summary, and the trials and columns are read when they are needed: a glance at the study takes the
    same time however many there are.
    """
    found = None
    if isinstance(log, Snapshots):
        try:
            parts = log.kept(None if referee is not None else _AT_ONCE)
            if parts:
                whole = partial(Ledger, space, problem, seed)
                found = _restored(log, parts, _empty(parts, space, problem, seed), whole, referee)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the log has it all
            logger.debug("the snapshot is not used: %r", error)
    return found or (Ledger(space, problem, seed), 0)


def _empty(parts: Mapping[str, bytes], space: Space, problem: Problem, seed: int) -> Ledger:
    """An empty ledger that judges by the limits in force when the snapshot was made."""
    changes = [from_json(event) for event, _ in json.loads(parts["ledger"])["changes"]]
    problem = Limits.of(changes[-1]).problem(problem) if changes else problem  # type: ignore[arg-type]
    return Ledger(space, problem, seed, judged_by=len(changes))


def _restored(
    log: Snapshots,
    parts: Mapping[str, bytes],
    ledger: Ledger,
    whole: Callable[[], Ledger],
    referee: Referee | None,
) -> tuple[Ledger, int] | None:
    """The filled ledger and its position; None if the snapshot does not fit. `whole` makes a fresh ledger."""
    head = json.loads(parts["head"])
    position = int(head["position"])
    mark = log.mark(position)
    if head["made_of"] != _made_of(ledger) or mark is None or mark != head["mark"]:
        return None
    if referee is not None and any(head[name] != rule for name, rule in _rules(referee).items()):
        return None
    there = head["digests"] if referee is not None else _AT_ONCE[1:]
    if any(_digest(parts[name]) != head["digests"][name] for name in there):
        return None
    plain, later = json.loads(parts["ledger"]), _Later(log, head, dict(parts), whole)
    _fill(ledger, plain, head["trials"], later, with_reports=referee is not None)
    ledger.columns.fill(later.columns)
    if referee is not None:
        ledger.history()  # reads the columns: they are used at once
        referee.judge_by(ledger.problem, states.from_json(json.loads(parts["referee"])))
        referee.seen = position
    return ledger, position


class _Later:
    """The parts of a snapshot that are read when they are needed; parts that are gone by then are made from the log."""

    def __init__(
        self, log: Snapshots, head: Mapping[str, Any], parts: dict[str, bytes], whole: Callable[[], Ledger]
    ) -> None:
        self._log, self._digests, self._position = log, head["digests"], int(head["position"])
        self._parts, self._whole = parts, whole  # parts read so far; makes a fresh ledger to replay the log

    def part(self, name: str) -> bytes:
        """A part as it was when the snapshot was kept, even if the study has kept another snapshot since."""
        if name not in self._parts:
            found = self._log.kept([name]).get(name, b"")
            self._parts |= {name: found} if _digest(found) == self._digests[name] else self._made_again()
        return self._parts[name]

    def columns(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """The columns that samplers see."""
        return _unarrays(self.part("columns"))

    def _made_again(self) -> dict[str, bytes]:
        assert isinstance(self._log, Log)
        events, ledger = self._log.read(0, self._position), self._whole()
        if len(events) < self._position:
            raise StorageError("the study was deleted while it was read")
        ledger.extend(events, lambda: events)
        return _parts(ledger)


def _parts(ledger: Ledger) -> dict[str, bytes]:
    """The parts that grow with the number of trials."""
    blocks = {f"trials {i}": block for i, block in enumerate(ledger.courses.packed())}
    return blocks | {"columns": _arrays(ledger.columns.rows())}


def _rules(referee: Referee) -> dict[str, Any]:
    """The settings that, besides reports, determine what a referee knows."""
    return {"stopper": states.to_json(referee.stopper), "contenders": referee.contenders is not None}


def _made_of(ledger: Ledger) -> list[str]:
    """The names of everything in a snapshot of this version: one that holds anything else is not used."""
    return [__version__, VERSION, *_PLAIN, *_BESTS, *_EVENTS, *courses.NAMES, *ledger.columns.rows(), *KNOWN]


def faults(log: Log, events: Sequence[Event], space: Space, problem: Problem) -> list[str]:
    """Sentences about where a log's snapshot differs from the log; none for a snapshot that is not used."""
    (found, position), whole = restore(log, space, problem), Ledger(space, problem)
    whole.extend(events[:position], lambda: events[:position])
    names = [] if _summary(found) == _summary(whole) else ["what it says of the study"]
    ended = [number for number in range(len(found.courses)) if number not in whole.running]
    if len(found.courses) != len(whole.courses):
        names.append("the number of trials")
    elif any(_json(courses.to_json(found.courses[k])) != _json(courses.to_json(whole.courses[k])) for k in ended):
        names.append("what it says of a trial")
    rows, expected = found.columns.rows(), whole.columns.rows()
    if any(not np.array_equal(rows[name], column, equal_nan=True) for name, column in expected.items()):
        names.append("a column that samplers see")
    return [f"the snapshot at position {position} is not what the log says: {name} differs" for name in names]


def _summary(ledger: Ledger) -> bytes:
    return _json({name: value for name, value in _plain(ledger).items() if name != "running"})


def _plain(ledger: Ledger) -> dict[str, Any]:
    """What a ledger knows, apart from its trials and columns."""
    lost, limits = ledger.queue.lost.items(), ledger.limits
    return {
        **{name: getattr(ledger, name) for name in _PLAIN},
        **{name: getattr(ledger.bests, name) for name in _BESTS},
        **{name: [to_json(event) for event in getattr(ledger, name)] for name in _EVENTS},
        "changes": [[to_json(one), begun] for one, begun in zip(limits.changes, limits.begun, strict=True)],
        "remeasured": [to_json(event) for event in ledger.remeasured.events],
        "terminators": [*ledger.terminators.items()],
        "later": [*ledger.later.items()],
        "certifications": [
            [one.limits, one.best, to_json(one.sealed), *map(to_json, one.tests)] for one in ledger.certifications
        ],
        "running": [[number, courses.to_json(course)] for number, course in ledger.running.items()],
        "saves": ledger.saves.to_json(),
        "queue": [to_json(waiting) for waiting in ledger.queue],
        "withdrawn": [to_json(waiting) for waiting in ledger.queue.withdrawn],
        "lost": [
            [number, courses.to_json(one.course), one.failure, one.train_saved_ns, one.runs_again]
            for number, one in lost
        ],
    }


def _fill(ledger: Ledger, plain: Mapping[str, Any], trials: int, later: _Later, *, with_reports: bool) -> None:
    for name in _PLAIN:
        setattr(ledger, name, plain[name])
    for name in _BESTS:
        found = plain[name]
        setattr(ledger.bests, name, found and (found[0], courses.checkpoint(found[1])))
    for name in _EVENTS:
        setattr(ledger, name, [from_json(event) for event in plain[name]])
    if ledger.opened is not None:
        ledger.limits.begin(ledger.opened)
    for change, begun in plain["changes"]:
        ledger.limits.add(from_json(change), begun)  # type: ignore[arg-type]
    ledger.remeasured = SecondMeasurements(from_json(event) for event in plain["remeasured"])  # type: ignore[misc]
    ledger.terminators = dict(plain["terminators"])
    ledger.later = dict(plain["later"])
    for limits, best, sealed, *tests in plain["certifications"]:
        made = Certification(from_json(sealed), [from_json(test) for test in tests], limits, best and tuple(best))  # type: ignore[arg-type, misc]
        ledger.certifications.append(made)
    ledger.saves = Saves.from_json(plain["saves"])
    ledger.queue.waiting.extend(from_json(waiting) for waiting in plain["queue"])  # type: ignore[misc]
    ledger.queue.withdrawn.extend(from_json(waiting) for waiting in plain["withdrawn"])  # type: ignore[misc]
    for number, course, *rest in plain["lost"]:
        ledger.queue.lost[number] = Lost(courses.from_json(course), *rest)
    names = [f"trials {i}" for i in range(-(-trials // courses.BLOCK))]
    blocks = [later.part(name) if with_reports else partial(later.part, name) for name in names]
    ledger.fill(
        blocks, trials, {number: courses.from_json(row) for number, row in plain["running"]}, with_reports=with_reports
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _digest(part: bytes) -> str:
    return hashlib.sha256(part).hexdigest()


def _arrays(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    written = io.BytesIO()
    np.savez(written, allow_pickle=False, **arrays)
    return written.getvalue()


def _unarrays(part: bytes) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(io.BytesIO(part), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
