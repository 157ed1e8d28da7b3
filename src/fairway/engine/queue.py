"""Configurations that wait to run, and the trials that were given up, whose configurations wait to run again.

A worker is silent while its machine sleeps or its network is gone. Others then end its trial as failed and put the
configuration back into the queue. If the worker comes back before that configuration has begun to run again, the end
that the worker reports holds (`Revived`), and the configuration is withdrawn from the queue.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fairway.engine.course import Course
from fairway.engine.events import Asked, Enqueued, Told
from fairway.errors import StorageError


@dataclass
class Lost:
    """A trial that was ended by a worker other than its own."""

    course: Course  # as if it still ran, with what was reported since
    failure: str  # the study's last failure after its end
    train_saved_ns: int  # what its end added to the study's saved training time
    runs_again: bool = False  # its configuration was taken from the queue since


@dataclass
class Queue:
    """The configurations that wait, in order, and the trials that were given up, by number."""

    waiting: deque[Enqueued] = field(default_factory=deque)
    lost: dict[int, Lost] = field(default_factory=dict)
    withdrawn: list[Enqueued] = field(default_factory=list)  # since the last trial began

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[Enqueued]:
        return iter(self.waiting)

    def still(self) -> Queue:
        """A snapshot; copies what may still change."""
        lost = {number: replace(each, course=copy.copy(each.course)) for number, each in self.lost.items()}
        return Queue(self.waiting.copy(), lost, list(self.withdrawn))

    def add(self, waiting: Enqueued) -> None:
        """Add a configuration; retries go before all that run for the first time."""
        retries = sum(each.is_retry for each in self.waiting) if waiting.is_retry else len(self.waiting)
        self.waiting.insert(retries, waiting)

    def take(self, asked: Asked) -> Enqueued:
        """Take what a trial runs, even if it was withdrawn before the trial's owner knew."""
        withdrawn, self.withdrawn = self.withdrawn, []
        if not asked.queued:
            return Enqueued(asked.params)
        found = next((each for each in (*self.waiting, *withdrawn) if _is_run_by(each, asked)), None)
        if found is None and not self.waiting:
            raise StorageError(f"the log takes trial {asked.number} from an empty queue: it is damaged")
        found = found or self.waiting[0]
        if found in self.waiting:
            self.waiting.remove(found)
            again = [self.lost[n] for n in self.revivable if _is_retry(found, n, self.lost[n].course)]
            for lost in again[:1]:
                lost.runs_again = True
        return found

    def lost_course(self, number: int) -> Course | None:
        """A trial that was given up, as if it still ran; None if it was not given up, or was revived."""
        lost = self.lost.get(number)
        return None if lost is None else lost.course

    @property
    def revivable(self) -> list[int]:
        """The trials that were given up and have not run again: their workers may come back."""
        return [number for number, lost in self.lost.items() if not lost.runs_again]

    def may_revive(self, told: Told) -> bool:
        """Whether a late end holds: it comes from the trial's own worker, and the configuration has not run again."""
        lost = self.lost.get(told.number)
        return lost is not None and not lost.runs_again and lost.course.worker == told.worker

    def revive(self, number: int) -> Lost | None:
        """Revive a trial that was given up, and withdraw its configuration from the queue; None if it is too late."""
        lost = self.lost.get(number)
        if lost is None:
            raise StorageError(f"the log revives trial {number}, which was not given up: it is damaged")
        if lost.runs_again:
            return None
        del self.lost[number]
        for waiting in [waiting for waiting in self.waiting if _is_retry(waiting, number, lost.course)][:1]:
            self.waiting.remove(waiting)
            self.withdrawn.append(waiting)
        return lost


def _is_run_by(waiting: Enqueued, asked: Asked) -> bool:
    """Whether a trial runs what waits in the queue, which may set only some of the parameters."""
    return all(name in asked.params and asked.params[name] == value for name, value in waiting.params.items())


def _is_retry(waiting: Enqueued, number: int, lost: Course) -> bool:
    """Whether what waits in the queue retries or continues a lost trial."""
    if waiting.continues is not None:
        return waiting.continues == number
    return waiting.times_lost == lost.times_lost + 1 and waiting.params == lost.params
