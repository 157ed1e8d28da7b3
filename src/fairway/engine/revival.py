"""Trials that were given up as lost although their worker lived: what is kept of them, in case it comes back.

A worker is silent while its machine sleeps or its network is gone. Others then end its trial as failed and put the
configuration back into the queue. If the worker comes back before that configuration has begun to run again, its end
holds after all (`Revived`), and the queue's is withdrawn.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from fairway.engine.events import Asked, Enqueued, Told
from fairway.errors import StorageError
from fairway.parameters import Value


class Ran(Protocol):
    """What is known of a trial that ran."""

    params: Mapping[str, Value]
    worker: int
    times_lost: int


Course = TypeVar("Course", bound=Ran)


@dataclass
class Lost(Generic[Course]):
    """A trial that another than its worker ended."""

    course: Course  # as if it still ran, with what was reported since
    failure: str  # what its end added to the study: the last failure
    train_saved_ns: int  # and this
    runs_again: bool = False  # its configuration was taken from the queue since


class GivenUp(Generic[Course]):
    """The trials that were given up, by number, and the queue in which their configurations wait."""

    def __init__(self) -> None:
        self.queue: deque[Enqueued] = deque()
        self.lost: dict[int, Lost[Course]] = {}
        self.withdrawn: list[Enqueued] = []  # from the queue, since the last trial began

    def still(self) -> GivenUp[Course]:
        """A snapshot; copies what may still change."""
        other = GivenUp[Course]()
        other.queue.extend(self.queue)
        other.withdrawn.extend(self.withdrawn)
        for number, lost in self.lost.items():
            other.keep(number, replace(lost, course=copy.copy(lost.course)))
        return other

    def keep(self, number: int, lost: Lost[Course]) -> None:
        """Keep a trial that was given up."""
        self.lost[number] = lost

    def course(self, number: int) -> Course | None:
        """A trial that was given up, as if it still ran; None if it was not given up, or was revived."""
        lost = self.lost.get(number)
        return None if lost is None else lost.course

    def may_revive(self, told: Told) -> bool:
        """Whether a late end holds: it is that of the trial's own worker, and the trial has not run again."""
        lost = self.lost.get(told.number)
        return lost is not None and not lost.runs_again and lost.course.worker == told.worker

    def add(self, waiting: Enqueued) -> None:
        """Have a configuration wait: one that is tried again before all that run for the first time."""
        retries = sum(each.is_retry for each in self.queue) if waiting.is_retry else len(self.queue)
        self.queue.insert(retries, waiting)

    def take(self, asked: Asked) -> Enqueued:
        """Take from the queue what a trial runs; or what was withdrawn from it before the trial's owner knew."""
        withdrawn, self.withdrawn = self.withdrawn, []
        if not asked.queued:
            return Enqueued(asked.params)
        waiting = next((each for each in (*self.queue, *withdrawn) if _is_run_by(each, asked)), None)
        if waiting is None and not self.queue:
            raise StorageError(f"the log takes trial {asked.number} from an empty queue: it is damaged")
        waiting = waiting or self.queue[0]
        if waiting in self.queue:
            self.queue.remove(waiting)
            again = [
                lost for n, lost in self.lost.items() if not lost.runs_again and _is_retry(waiting, n, lost.course)
            ]
            for lost in again[:1]:
                lost.runs_again = True
        return waiting

    def revive(self, number: int) -> Lost[Course] | None:
        """Take a trial back that was given up, and its configuration from the queue; None if it came too late."""
        lost = self.lost.get(number)
        if lost is None:
            raise StorageError(f"the log revives trial {number}, which was not given up: it is damaged")
        if lost.runs_again:
            return None
        del self.lost[number]
        for waiting in [waiting for waiting in self.queue if _is_retry(waiting, number, lost.course)][:1]:
            self.queue.remove(waiting)
            self.withdrawn.append(waiting)
        return lost


def _is_run_by(waiting: Enqueued, asked: Asked) -> bool:
    """Whether a trial runs what waits in the queue: a configuration, or a part of one."""
    return all(name in asked.params and asked.params[name] == value for name, value in waiting.params.items())


def _is_retry(waiting: Enqueued, number: int, lost: Ran) -> bool:
    """Whether what waits in the queue is a lost trial's configuration, to be tried again or continued."""
    if waiting.continues is not None:
        return waiting.continues == number
    return waiting.times_lost == lost.times_lost + 1 and waiting.params == lost.params
