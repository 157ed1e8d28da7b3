"""The vocabulary of a study's log, and its JSON. Everything else that is known of a study is replayed from these.

Times are integer nanoseconds, so that sums do not depend on the order of adding. The price of a
constraint tells what was never measured from what was measured as NaN: see `ABSENT` and `SAVED`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.feasibility import Checkpoint
from fairway.parameters import Value

ABSENT = -1
"""A price that says: this constraint was not offered at this report (or, for training: there was none)."""
SAVED = -2
"""A price that says: this constraint was offered as a callable, and not called."""

Status: TypeAlias = Literal["running", "completed", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A worker joined the study; `config` says of what: space, objective, constraints, seed, algorithms."""

    worker: int
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A configuration that waits to be run before the sampler is asked again."""

    params: Mapping[str, Value]
    times_lost: int = 0  # how often a trial of it was lost with its worker


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial began, in the hands of a worker."""

    number: int
    params: Mapping[str, Value]
    at: float
    worker: int
    queued: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Reported:
    """Reports of one trial, n rows since its last flush.

    `worker` ruled on them; `acts` numbers its rulings, and `seen` is the log position up to which it had replayed what
    others wrote: enough to rule again and compare. Fixing the trial's interval and choosing to pay are acts too, and
    come before the ruling. A row without training (`train_ns` ABSENT) is a check, made later, of a checkpoint that was
    reported before.
    """

    number: int
    worker: int
    seen: int
    begun: int  # the worker's act at which the trial's interval was fixed
    begun_seen: int  # and what it had seen then
    total: int | None
    interval: int | None
    acts: NDArray[np.int64]  # (n,)
    step: NDArray[np.int64]  # (n,)
    objective: NDArray[np.float64]  # (n,)
    values: NDArray[np.float64]  # (n, m)
    train_ns: NDArray[np.int64]  # (n,)
    check_ns: NDArray[np.int64]  # (n, m): what was paid, or ABSENT or SAVED
    payments: NDArray[np.int64]  # (k, 3): a row at which the worker chose to pay, its act, what it had seen then
    noise: NDArray[np.float64]  # (k, 4): a row whose objective came as `Folds`, its noise, how many folds, of how many
    stop_reason: str | None = None  # the stopper's reason, where it ended the trial at the last row
    over: bool = False  # the trial had no step left after these, so that there was nothing to stop
    errors: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 3)))
    """(e, 3): a row, a constraint, and the error of the value that was measured there."""

    def error_table(self) -> NDArray[np.float64]:
        """The errors of `values`, (n, m); NaN if unknown."""
        table = np.full_like(self.values, np.nan)
        if len(self.errors):
            row, constraint = self.errors[:, :2].astype(np.intp).T
            table[row, constraint] = self.errors[:, 2]
        return table

    @property
    def provisional(self) -> NDArray[np.bool_]:
        """Which rows (n,) are means of some folds, with others to come."""
        rows = np.zeros(len(self.step), np.bool_)
        if not len(self.noise):
            return rows
        rows[self.noise[self.noise[:, 2] < self.noise[:, 3], 0].astype(np.intp)] = True
        return rows


@dataclass(frozen=True, slots=True)
class Told:
    """A trial ended; `checkpoint` stands for it, None if it measured nothing. The sums spare readers its reports.

    `peak` is its best objective, whatever its constraints; `checks` were paid for, `saved` offered and not called.
    """

    number: int
    status: Status
    reason: str
    at: float
    worker: int
    act: int
    checkpoint: Checkpoint | None = None
    peak: Checkpoint | None = None
    steps: int = 0
    total: int | None = None  # steps that were planned
    left: int = 0  # of those, when the stopper ended it
    interval: int | None = None
    train_ns: int = 0
    check_ns: int = 0
    checks: int = 0
    saved: int = 0
    last_step: int = 0  # 0 in older logs
    late: Checkpoint | None = None  # the least violating check in the later half of its training; None in older logs
    by_stopper: bool | None = None  # whether the stopper ended it; None in older logs
    revived: bool = False  # it is the second end of a trial that was given up: see `Revived`
    means: Mapping[int, float] = field(default_factory=dict)  # the objective after so many folds, with others to come
    notes: Mapping[str, Any] = field(default_factory=dict)
    traceback: str = ""  # where the user's code raised, a line for each frame; empty in older logs


@dataclass(frozen=True, slots=True)
class Revived:
    """A trial that was given up as lost had a living worker: its end is withdrawn, and the one after this holds.

    It is void if the trial's configuration had begun to run again before it, and so is the end after it.
    """

    number: int
    worker: int  # whose trial it is
    at: float


@dataclass(frozen=True, slots=True)
class Judged:
    """The terminator's verdict on the first `finished` trials to finish; asked again, it must agree."""

    worker: int  # whose terminator it is
    finished: int
    stop: bool
    reason: str
    value: float
    threshold: float
    at: float
    seen: int | None = None  # the log position that it looked at; None in older logs, where it is the verdict's own


@dataclass(frozen=True, slots=True)
class Ended:
    """A run of the study ended; a later `Asked` says that it was resumed."""

    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that was learned after the search: of a trial, or of the study if `number` is None."""

    number: int | None
    notes: Mapping[str, Any]
    at: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """A repair left an event out here, so that those after it keep their places; it began a trial if `number` is one.

    Decisions that rest on what was left out cannot be made again.
    """

    what: str  # was left out, and why
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """Rows that the search trained or judged by; `hashes` are those of `fairway.hashing`, packed."""

    hashes: str
    groups: Sequence[str] | None = None  # that occur among them, where there are groups


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Checkpoints of a finished trial, measured after the search on the rows that the search judged by."""

    number: int
    step: Sequence[int]  # (n,)
    objective: Sequence[float]  # (n,)
    values: Sequence[Sequence[float]]  # (n, m)
    errors: Sequence[Sequence[float | None]]  # (n, m); None if unknown
    cuts: bool  # one training gave the models of all these steps


@dataclass(frozen=True, slots=True)
class Sealed:
    """What will be tested on fresh rows, and how: written before anything is evaluated on them."""

    certification: int  # counted from 0
    candidates: Sequence[Sequence[Any]]  # in order: trial, step, objective, values and errors of each
    confidence: float
    uses: int  # certifications that may share these rows, each at its part of the level
    at_most: int
    hashes: str | None  # of the fresh rows, packed; None: not known
    overlap: int | None  # fresh rows equal to one of the search; None: not checked
    seen: int  # the log position from before which the candidates follow
    at: float


@dataclass(frozen=True, slots=True)
class Tested:
    """What the fresh rows say of one candidate: for each limit the evidence as JSON, and its p-value."""

    certification: int
    place: int  # among the candidates
    evidence: Mapping[str, Mapping[str, Any]]
    p_values: Mapping[str, float]
    digest: str | None  # of the model's decisions
    at: float


Event: TypeAlias = (
    Opened
    | Enqueued
    | Asked
    | Reported
    | Told
    | Revived
    | Judged
    | Ended
    | Noted
    | Dropped
    | Searched
    | Surveyed
    | Sealed
    | Tested
)
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_RENAMED = {"losses": "times_lost", "verdict": "stop_reason"}  # as the first version called them
_COLUMNS = {
    "acts": np.int64,
    "step": np.int64,
    "objective": np.float64,
    "values": np.float64,
    "train_ns": np.int64,
    "check_ns": np.int64,
    "payments": np.int64,
    "noise": np.float64,
    "errors": np.float64,
}
_LATER = ("noise", "errors")  # columns that the first logs do not have


def claim(event: Event) -> str | None:
    """What only one event of a log may have: a worker's number, a trial's number, a trial's end.

    >>> claim(Asked(number=7, params={}, at=0.0, worker=0))
    'asked 7'
    """
    if isinstance(event, Opened):
        return f"worker {event.worker}"
    if isinstance(event, Asked) or isinstance(event, Dropped) and event.number is not None:
        return f"asked {event.number}"
    if isinstance(event, Sealed):
        return f"sealed {event.certification}"
    if isinstance(event, Tested):
        return f"tested {event.certification} {event.place}"
    if isinstance(event, Revived):
        return f"revived {event.number}"
    if isinstance(event, Told):
        return f"told {event.number}{' revived' if event.revived else ''}"
    return None


def to_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values; numbers that JSON lacks become the strings "nan", "inf" and "-inf"."""
    return {"event": type(event).__name__, **{item.name: _plain(getattr(event, item.name)) for item in fields(event)}}


def from_json(data: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote."""
    try:
        content = dict(data)
        kind = _KINDS[content.pop("event")]
        for old, new in _RENAMED.items():
            if old in content:
                content[new] = content.pop(old)
        if kind is Reported:
            for name, dtype in _COLUMNS.items():
                content[name] = np.array(content.get(name, []) if name in _LATER else content[name], dtype)
            content["payments"] = content["payments"].reshape(-1, 3)
            content["noise"] = _of_all(content["noise"])
            content["errors"] = content["errors"].reshape(-1, 3)
        if kind is Told:
            given = [name for name in ("checkpoint", "peak", "late") if content.get(name)]
            content |= {name: _checkpoint(*content[name]) for name in given}
            content["means"] = {int(folds): float(mean) for folds, mean in content.get("means", {}).items()}
        if kind is Judged:
            content |= {name: float(content[name]) for name in ("value", "threshold")}
            content |= {name: int(content[name]) for name in ("worker", "finished")}
        if kind is Surveyed:
            content["objective"] = [float(value) for value in content["objective"]]
            content["values"] = [[float(value) for value in row] for row in content["values"]]
            content["errors"] = [_numbers(row) for row in content["errors"]]
        if kind is Sealed:
            content["candidates"] = [
                (*each[:2], float(each[2]), *map(_numbers, each[3:])) for each in content["candidates"]
            ]
        if kind is Tested:
            content["p_values"] = {name: float(p) for name, p in content["p_values"].items()}
        event: Event = kind(**content)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{str(data)[:80]!r}: no event of a fairway log") from error
    return event


def _checkpoint(
    step: Any, objective: Any, values: Any, noise: Any = None, folds: Any = 1, of: Any = None, errors: Any = ()
) -> Checkpoint:
    """A checkpoint from its JSON; older logs have no errors, no noise, or not the number of folds in all."""
    of = folds if of is None else of
    spread = None if noise is None else float(noise)
    return Checkpoint(int(step), float(objective), _numbers(values), spread, int(folds), int(of), _numbers(errors))


def _numbers(values: Any) -> tuple[float | None, ...]:
    return tuple(None if value is None else float(value) for value in values)


def _of_all(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """The column of that name (k, 4); an older log does not say how many folds there are in all."""
    if noise.ndim == 2 and noise.shape[1] == 3:  # noqa: PLR2004
        return np.column_stack([noise, noise[:, 2]])
    return noise.reshape(-1, 4)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        odd = ~np.isfinite(value)
        if not odd.any():
            return value.tolist()
        plain = value.astype(object)
        plain[odd] = value[odd].astype(str)
        return plain.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
