"""The vocabulary of a study's log, and its JSON. History, ranks, costs and the best checkpoint are folds of these.

Times are integer nanoseconds, so that sums do not depend on the order of adding. What was never measured is told apart
from what was measured as NaN by the price paid for it: see `ABSENT` and `SAVED`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.feasibility import Checkpoint
from fairway.space import Value

ABSENT = -1
"""A `check_ns` that says: this constraint was not offered at this report."""
SAVED = -2
"""A `check_ns` that says: this constraint was offered as a callable, and not called."""

Status: TypeAlias = Literal["running", "completed", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A configuration that waits to be run before the sampler is asked again."""

    params: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial began."""

    number: int
    params: Mapping[str, Value]
    at: float
    queued: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Reported:
    """Reports of one trial, n rows since its last flush.

    `worker` ruled on them; `acts` numbers its rulings, and `seen` is the log position up to which it had folded in
    what others wrote: enough to rule again and compare. A row without training (`train_ns` ABSENT) is a constraint
    paid later for a checkpoint reported before.
    """

    number: int
    worker: int
    seen: int
    begun: int  # the worker's act at which the trial's interval was fixed
    total: int | None
    interval: int | None
    acts: NDArray[np.int64]  # (n,)
    step: NDArray[np.int64]  # (n,)
    objective: NDArray[np.float64]  # (n,)
    values: NDArray[np.float64]  # (n, m)
    train_ns: NDArray[np.int64]  # (n,)
    check_ns: NDArray[np.int64]  # (n, m): what was paid, or ABSENT or SAVED
    stopped: str | None = None  # the reason, where the last row ended the trial


@dataclass(frozen=True, slots=True)
class Told:
    """A trial ended; `row` is the checkpoint that stands for it, None if it measured nothing."""

    number: int
    status: Status
    reason: str
    at: float
    worker: int
    act: int
    row: Checkpoint | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """A run of the study ended; a later `Asked` says that it went on."""

    reason: str
    at: float


Event: TypeAlias = Enqueued | Asked | Reported | Told | Ended
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Enqueued, Asked, Reported, Told, Ended)}
_COLUMNS = {
    "acts": np.int64,
    "step": np.int64,
    "objective": np.float64,
    "values": np.float64,
    "train_ns": np.int64,
    "check_ns": np.int64,
}


def to_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON values; numbers that JSON lacks become the strings "nan", "inf" and "-inf"."""
    return {"event": type(event).__name__, **{name: _plain(value) for name, value in asdict(event).items()}}


def from_json(data: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote."""
    fields = dict(data)
    kind = _KINDS.get(fields.pop("event", ""))
    if kind is None:
        raise UsageError(f"{str(data)[:80]!r}: no event of a fairway log")
    if kind is Reported:
        width = len(fields["check_ns"][0])
        for name, dtype in _COLUMNS.items():
            shape = (-1, width) if name in ("values", "check_ns") else (-1,)
            fields[name] = np.array(fields[name], dtype).reshape(len(fields["step"]), *shape[1:])
    if kind is Told:
        fields["reason"] = str(fields["reason"])
        if fields["row"] is not None:
            step, objective, values = fields["row"]
            numbers = tuple(None if value is None else float(value) for value in values)
            fields["row"] = Checkpoint(step, float(objective), numbers)
    event: Event = kind(**fields)
    return event


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
