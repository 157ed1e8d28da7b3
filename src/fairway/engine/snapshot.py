"""What follows from the first events of a log, kept beside it, so that a long study opens without replaying them all.

A snapshot is derived, and never a second truth. It says up to which position it reaches, how the event before that
reads, and what its parts hash to. One that does not fit the log, or was made by another version of fairway, is not
used, and the whole log is replayed. It holds JSON and plain arrays: reading one runs no code.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairway import __version__
from fairway.engine import courses, states
from fairway.engine.certification import Certification
from fairway.engine.events import Event, from_json, to_json
from fairway.engine.ledger import Ledger
from fairway.engine.log import Log, Snapshots
from fairway.engine.referee import KNOWN, Referee
from fairway.engine.revival import Lost
from fairway.problem import Problem
from fairway.space import Space

VERSION = "1"
"""Of what a snapshot says under its names; raise it when a stopper's state changes between releases."""

logger = logging.getLogger("fairway")

_PLAIN = (
    *("workers", "opened", "counts", "last_stop", "last_failure", "ended", "train_saved_ns", "sums", "last_at"),
    "dropped",
)
_BESTS = ("best", "best_ignoring_limits")
_EVENTS = ("verdicts", "searched")


def keep(log: Log, position: int, ledger: Ledger, referee: Referee) -> bool:
    """Keep what a log's first events led to; whether the log can, and all of it is plain."""
    if not isinstance(log, Snapshots):
        return False
    try:
        state = states.to_json(referee.known())
    except states.NotPlainError:
        return False  # a stopper of the user's own
    trials = ledger.courses.packed()
    parts = {f"trials {i}": block for i, block in enumerate(trials)}
    parts |= {"columns": _arrays(ledger.columns.rows()), "ledger": _json(_plain(ledger)), "referee": _json(state)}
    digests = {name: _digest(part) for name, part in parts.items()}
    head = {
        "made_of": _made_of(ledger),
        "position": position,
        "mark": log.mark(position),
        "stopper": states.to_json(referee.stopper),
        "trials": len(ledger.courses),
        "digests": digests,
    }
    log.keep({"head": _json(head), **parts})
    return True


def restore(
    log: Log, space: Space, problem: Problem, seed: int = 0, referee: Referee | None = None
) -> tuple[Ledger, int]:
    """A ledger from a log's snapshot, and the position that it reaches; an empty one and 0 if there is none that fits.

    A fresh referee learns what the snapshot's one knew. Without a referee, running trials come without their reports,
    as in a summary.
    """
    found = None
    if isinstance(log, Snapshots):
        try:
            parts = log.kept()
            found = _restored(log, parts, Ledger(space, problem, seed), referee) if parts else None
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the log has it all
            logger.debug("the snapshot is not used: %r", error)
    return found or (Ledger(space, problem, seed), 0)


def _restored(
    log: Snapshots, parts: Mapping[str, bytes], ledger: Ledger, referee: Referee | None
) -> tuple[Ledger, int] | None:
    """The ledger, filled, and the position; None if the snapshot does not fit."""
    head = json.loads(parts["head"])
    digests = {name: _digest(part) for name, part in parts.items() if name != "head"}
    position = int(head["position"])
    mark = log.mark(position)
    if head["made_of"] != _made_of(ledger) or head["digests"] != digests or mark is None or mark != head["mark"]:
        return None
    if referee is not None and head["stopper"] != states.to_json(referee.stopper):
        return None
    _fill(ledger, json.loads(parts["ledger"]), head["trials"], parts, with_reports=referee is not None)
    ledger.columns.fill(_unarrays(parts["columns"]))
    if referee is not None:
        referee.learn(states.from_json(json.loads(parts["referee"])))
        referee.seen = position
    return ledger, position


def _made_of(ledger: Ledger) -> list[str]:
    """What a snapshot of this version holds, by name: one that holds anything else is not used."""
    return [__version__, VERSION, *_PLAIN, *_BESTS, *_EVENTS, *courses.NAMES, *ledger.columns.rows(), *KNOWN]


def faults(log: Log, events: Sequence[Event], space: Space, problem: Problem) -> list[str]:
    """What a log's snapshot says and the log does not, in sentences; a snapshot that is not used says nothing."""
    (found, position), whole = restore(log, space, problem), Ledger(space, problem)
    for event in events[:position]:
        whole.replay(event)
    names = [] if _summary(found) == _summary(whole) else ["what it says of the study"]
    ended = [number for number in range(len(found.courses)) if number not in whole.running]
    if len(found.courses) != len(whole.courses):
        names.append("the number of trials")
    elif any(courses.to_json(found.courses[k]) != courses.to_json(whole.courses[k]) for k in ended):
        names.append("what it says of a trial")
    rows, expected = found.columns.rows(), whole.columns.rows()
    if any(not np.array_equal(rows[name], column, equal_nan=True) for name, column in expected.items()):
        names.append("a column that samplers see")
    return [f"the snapshot at position {position} is not what the log says: {name} differs" for name in names]


def _summary(ledger: Ledger) -> bytes:
    return _json({name: value for name, value in _plain(ledger).items() if name != "running"})


def _plain(ledger: Ledger) -> dict[str, Any]:
    """What a ledger knows, apart from its trials and columns."""
    lost = ledger.given_up.lost.items()
    return {
        **{name: getattr(ledger, name) for name in _PLAIN},
        **{name: getattr(ledger, name) for name in _BESTS},
        **{name: [to_json(event) for event in getattr(ledger, name)] for name in _EVENTS},
        "terminators": [*ledger.terminators.items()],
        "later": [*ledger.later.items()],
        "certifications": [[to_json(one.sealed), *map(to_json, one.tests)] for one in ledger.certifications],
        "running": [[number, courses.to_json(course)] for number, course in ledger.running.items()],
        "queue": [to_json(waiting) for waiting in ledger.queue],
        "withdrawn": [to_json(waiting) for waiting in ledger.given_up.withdrawn],
        "lost": [
            [number, courses.to_json(one.course), one.failure, one.train_saved_ns, one.runs_again]
            for number, one in lost
        ],
    }


def _fill(
    ledger: Ledger, plain: Mapping[str, Any], trials: int, parts: Mapping[str, bytes], *, with_reports: bool
) -> None:
    for name in _PLAIN:
        setattr(ledger, name, plain[name])
    for name in _BESTS:
        found = plain[name]
        setattr(ledger, name, found and (found[0], courses.checkpoint(found[1])))
    for name in _EVENTS:
        setattr(ledger, name, [from_json(event) for event in plain[name]])
    ledger.terminators = dict(plain["terminators"])
    ledger.later = dict(plain["later"])
    for sealed, *tests in plain["certifications"]:
        ledger.certifications.append(Certification(from_json(sealed), [from_json(test) for test in tests]))  # type: ignore[arg-type, misc]
    ledger.queue.extend(from_json(waiting) for waiting in plain["queue"])  # type: ignore[misc]
    ledger.given_up.withdrawn.extend(from_json(waiting) for waiting in plain["withdrawn"])  # type: ignore[misc]
    for number, course, *rest in plain["lost"]:
        ledger.given_up.keep(number, Lost(courses.from_json(course), *rest))
    blocks = [parts[f"trials {i}"] for i in range(-(-trials // courses.BLOCK))]
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
