"""The vocabulary of a study's log. Everything else about a study is replayed from these events.

Durations are integer nanoseconds, so that sums do not depend on the order of adding. The price of a constraint tells a
value that was never measured from one measured as NaN: see `ABSENT` and `SAVED`. `event_json` turns events into JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar, dataclass_transform, final

import numpy as np
from numpy.typing import NDArray

from fairway.feasibility import Checkpoint
from fairway.parameters import Value

ABSENT = -1
"""The price of a constraint that was not offered at a report. As a training time: there was no training."""
SAVED = -2
"""The price of a constraint that was offered as a callable and not called."""

Status: TypeAlias = Literal["running", "completed", "stopped", "failed"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _event(*, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """Make a class an event. mypy refuses to change one; a frozen dataclass takes four times as long to make."""
    return dataclass(slots=True, eq=eq)


@_event()
class Opened:
    """A worker joined the study; `config` describes the study: space, objective, constraints, seed, algorithms."""

    worker: int
    config: Mapping[str, Any]


@_event()
class Enqueued:
    """A configuration that waits to run before the sampler is asked again."""

    params: Mapping[str, Value]
    times_lost: int = 0  # how often a trial of it was lost with its worker
    continues: int | None = None  # the lost or paused trial whose last saved checkpoint it continues

    @property
    def is_retry(self) -> bool:
        """Whether this retries a trial that was lost or interrupted."""
        return self.times_lost > 0 or self.continues is not None


@_event()
class Asked:
    """A worker began a trial.

    `aim` gives the limits on tracked metrics that sampler and stopper judge this trial by.
    """

    number: int
    params: Mapping[str, Value]
    at: float
    worker: int
    queued: bool = False
    aim: Mapping[str, float] = field(default_factory=dict)


@_event(eq=False)
class Reported:
    """Reports of one trial, n rows since its last flush.

    `worker` ruled on them; `acts` numbers its rulings, and `seen` is the log position up to which it had replayed what
    others wrote: that is enough to rule again and compare. Fixing the trial's interval and choosing to pay are acts
    too, and come before the ruling. A row without training (`train_ns` ABSENT) is a late check of a checkpoint that was
    reported before.
    """

    number: int
    worker: int
    seen: int
    begun: int  # the worker's act at which the trial's interval was fixed
    begun_seen: int  # and the log position that it had seen then
    total: int | None
    interval: int | None
    acts: NDArray[np.int64]  # (n,)
    step: NDArray[np.int64]  # (n,)
    objective: NDArray[np.float64]  # (n,)
    values: NDArray[np.float64]  # (n, m)
    train_ns: NDArray[np.int64]  # (n,)
    check_ns: NDArray[np.int64]  # (n, m): what was paid, or ABSENT or SAVED
    payments: NDArray[np.int64]  # (k, 3): a row at which the worker chose to pay, its act, the log position seen
    noise: NDArray[np.float64]  # (k, 4): a row whose objective came as `Folds`, its noise, folds so far, folds in all
    stop_reason: str | None = None  # the stopper's reason, if it ended the trial at the last row
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
        """A mask (n,) of the rows that are means of some folds, with others to come."""
        rows = np.zeros(len(self.step), np.bool_)
        if not len(self.noise):
            return rows
        rows[self.noise[self.noise[:, 2] < self.noise[:, 3], 0].astype(np.intp)] = True
        return rows


@final
@_event()
class Told:
    """A trial ended; `checkpoint` stands for it, None if it measured nothing.

    The event sums up the trial's reports, so that readers need not read them. `peak` is the checkpoint with the best
    objective, whatever its constraints; `checks` counts constraints paid for, `saved` those offered and not called.
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
    left: int = 0  # steps that were left when the stopper ended it
    interval: int | None = None
    train_ns: int = 0
    check_ns: int = 0
    checks: int = 0
    saved: int = 0
    last_step: int = 0  # 0 in older logs
    late: Checkpoint | None = None  # of its later half: the most complete, then least violating check; see `course`
    by_stopper: bool | None = None  # whether the stopper ended it; None in older logs
    revived: bool = False  # it is the second end of a trial that was given up: see `Revived`
    means: Mapping[int, float] = field(default_factory=dict)  # the objective by number of folds, while some are missing
    notes: Mapping[str, Any] = field(default_factory=dict)
    traceback: str = ""  # where the user's code raised, a line for each frame; empty in older logs
    limits: int = 0  # how often the limits had changed when `checkpoint` and `late` were judged by them
    halfway: tuple[int, float] | None = None  # the last step before its last two octaves; the lowest loss until then


@_event()
class Revived:
    """A trial was given up as lost, but its worker is alive: its end is withdrawn, and the next one holds.

    If the trial's configuration had begun to run again by then, this event and the end after it are void.
    """

    number: int
    worker: int  # whose trial it is
    at: float


@_event()
class Judged:
    """The terminator's verdict on the first `finished` trials to finish; `verify` asks it again and compares."""

    worker: int  # whose terminator it is
    finished: int
    stop: bool
    reason: str
    value: float
    threshold: float
    at: float
    seen: int | None = None  # the log position that it was based on; None in older logs: the verdict's own


@_event()
class Ended:
    """A run of the study ended; a later `Asked` says that it was resumed."""

    reason: str
    at: float


@_event()
class Noted:
    """Notes added after the search, about a trial, or about the study if `number` is None."""

    number: int | None
    notes: Mapping[str, Any]
    at: float


@_event()
class LimitsChanged:
    """From here on other limits hold, for past trials too; stopped trials stay stopped.

    The event lists all limits, changed or not. Reports and ends have a column for each constraint that the study ever
    had, in this order; those written before one was added have fewer.
    """

    change: int  # counted from 0
    constraints: Sequence[Mapping[str, Any]]  # by column, as JSON
    dropped: Sequence[str]  # metrics whose limits no longer hold
    at: float


@_event()
class Dropped:
    """Stands in for an event that a repair left out, so that later events keep their positions.

    `number` is the trial that the event began, if it began one. Decisions that rest on it cannot be made again.
    """

    what: str  # what was left out, and why
    number: int | None = None


@_event()
class Searched:
    """Rows that the search trained on or judged by; `hashes` are those of `fairway.hashing`, packed."""

    hashes: str
    groups: Sequence[str] | None = None  # the groups that occur among the rows, if rows have groups


@_event()
class Surveyed:
    """Checkpoints of a finished trial, measured after the search on the rows that the search judged by."""

    number: int
    step: Sequence[int]  # (n,)
    objective: Sequence[float]  # (n,)
    values: Sequence[Sequence[float]]  # (n, m)
    errors: Sequence[Sequence[float | None]]  # (n, m); None if unknown
    cuts: bool  # one training gave the models of all these steps


@final
@_event()
class Remeasured:
    """A checkpoint was measured again at the end of a run, when no other worker ran; these values hold.

    It was the best, or the nearest if nothing was within the limits. `checkpoint`, `peak` and `late` replace those of
    the trial's `Told`.
    """

    number: int
    step: int
    values: Sequence[float | None]  # (m,): None if not measured again, or if worse while others used the machine
    errors: Sequence[float | None]  # (m,): None if unknown
    checkpoint: Checkpoint | None
    peak: Checkpoint | None
    late: Checkpoint | None
    seen: int  # the log position at which it was the best
    at: float
    company: str = ""  # who else used the machine then; empty if nobody is known to


@_event()
class Sealed:
    """What will be tested on fresh rows, and how: written before anything is evaluated on them."""

    certification: int  # counted from 0
    candidates: Sequence[Sequence[Any]]  # in order: trial, step, objective, values and errors of each
    confidence: float
    uses: int  # certifications that may share these rows, each at its part of the level
    at_most: int
    hashes: str | None  # of the fresh rows, packed; None: not known
    overlap: int | None  # fresh rows identical to a row of the search; None: not checked
    seen: int  # the candidates follow from the log up to this position
    at: float
    best: tuple[int, int] | None = None  # trial and step of the study's best then; older logs do not say it


@_event()
class Tested:
    """What the fresh rows say about one candidate: for each limit, the evidence as JSON and the p-value."""

    certification: int
    place: int  # of the candidate in the sealed order
    evidence: Mapping[str, Mapping[str, Any]]
    p_values: Mapping[str, float]
    digest: str | None  # of the model's decisions
    at: float


@_event()
class Carried:
    """An event of an earlier study that this one starts from, copied when this one began."""

    study: int  # its place in `start_from`; the first copy of each study is its `Opened`
    copy: Mapping[str, Any]  # the event as JSON


@_event()
class Saved:
    """A trial saved a checkpoint: a file or a folder, which fairway may delete."""

    number: int
    step: int
    path: str
    at: float


@_event()
class Removed:
    """Saved checkpoints were deleted, since better ones are kept."""

    paths: Sequence[str]


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
    | LimitsChanged
    | Dropped
    | Searched
    | Surveyed
    | Remeasured
    | Sealed
    | Tested
    | Carried
    | Saved
    | Removed
)


def claim(event: Event) -> str | None:
    """What only one event of a log may claim, such as a worker's number, a trial's number or its end; else None.

    >>> claim(Asked(number=7, params={}, at=0.0, worker=0))
    'asked 7'
    """
    make = _CLAIMS.get(type(event))
    return None if make is None else make(event)


_CLAIMS: Mapping[type, Callable[[Any], str | None]] = {
    Opened: lambda event: f"worker {event.worker}",
    Asked: lambda event: f"asked {event.number}",
    Dropped: lambda event: None if event.number is None else f"asked {event.number}",
    LimitsChanged: lambda event: f"limits {event.change}",
    Sealed: lambda event: f"sealed {event.certification}",
    Tested: lambda event: f"tested {event.certification} {event.place}",
    Remeasured: lambda event: f"remeasured {event.number} {event.step}",
    Carried: lambda event: f"carried {event.study}" if event.copy.get("event") == Opened.__name__ else None,
    Revived: lambda event: f"revived {event.number}",
    Told: lambda event: f"told {event.number}{' revived' if event.revived else ''}",
}


def last_act(event: Reported | Told) -> int:
    """The number of the last act in an event, counted by its worker."""
    return int(event.acts[-1]) if isinstance(event, Reported) else event.act


def is_news(event: Event, worker: int) -> TypeGuard[Asked | Reported | Told | Remeasured]:
    """Whether a worker's referee learns an event from the log.

    It learns the rulings of other workers, second measurements, and what trials aim at.
    """
    if isinstance(event, (Reported, Told)):
        return event.worker != worker
    return isinstance(event, Remeasured) or isinstance(event, Asked) and bool(event.aim)
