"""Makes every ruling of a study again from its log, and compares.

Each worker's referee is rebuilt: before each of its acts, what others had written up to the position it had seen is
folded in. So a decision that was taken on stale knowledge is checked against just that knowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairway import feasibility
from fairway.errors import StorageError
from fairway.events import ABSENT, SAVED, Event, Opened, Reported, Told
from fairway.identity import Identity
from fairway.problem import Problem
from fairway.referee import Referee
from fairway.stoppers.stopper import Stopper


@dataclass
class Verification:
    """What verifying a log came to: how many rulings were made again, and what did not agree."""

    rulings: int = 0
    faults: list[str] = field(default_factory=list)

    def expect(self, *, holds: bool, otherwise: str) -> None:
        """Count one comparison."""
        if not holds:
            self.faults.append(otherwise)


class _Act(NamedTuple):
    number: int  # in the order of its worker's acts
    event: Reported | Told
    row: int | None  # of a Reported; None: its trial's beginning


def verify(events: Sequence[Event]) -> Verification:
    """Check every interval, payment, verdict and reason in a log."""
    result = Verification()
    for event in events:
        if isinstance(event, Opened):
            identity = Identity.from_json(event.config)
            if identity.stopper is None:
                kind = event.config["stopper"]["kind"]
                raise StorageError(
                    f"worker {event.worker} ran a stopper of its own, {kind}: it cannot be verified here"
                )
            _verify_worker(event.worker, events, identity.problem, identity.stopper, result)
    return result


def _acts(worker: int, events: Sequence[Event]) -> list[_Act]:
    acts, begun = [], set()
    for event in events:
        if isinstance(event, Reported) and event.worker == worker:
            if event.number not in begun:
                begun.add(event.number)
                acts.append(_Act(event.begun, event, None))
            acts += [_Act(act, event, i) for i, act in enumerate(event.acts.tolist())]
        elif isinstance(event, Told) and event.worker == worker:
            acts.append(_Act(event.act, event, None))
    return sorted(acts, key=lambda act: act.number)


def _verify_worker(
    worker: int, events: Sequence[Event], problem: Problem, stopper: Stopper, result: Verification
) -> None:
    referee, folded, verdicts = Referee(problem, stopper), 0, dict[int, str]()
    for _, event, row in _acts(worker, events):
        result.rulings += 1
        trial = f"trial {event.number}"
        if isinstance(event, Told):
            stopped = verdicts.get(event.number)
            agrees = stopped is None or (event.status, event.reason) == ("stopped", stopped)
            agrees = agrees or event.status == "failed"
            result.expect(holds=agrees, otherwise=f"{trial} ended as {event.status}, but was stopped: {stopped}")
            referee.finish(event.number, completed=event.status == "completed")
            continue
        while folded < min(event.seen, len(events)):
            other = events[folded]
            if isinstance(other, Reported | Told) and other.worker != worker:
                referee.fold(other)
            folded += 1
        if row is None:
            pace = referee.begin(event.total)
            same = (pace.total, pace.interval) == (event.total, event.interval)
            result.expect(
                holds=same, otherwise=f"{trial} has interval {event.interval}, which should be {pace.interval}"
            )
        else:
            _verify_row(referee, event, row, result, verdicts)


def _verify_row(referee: Referee, event: Reported, i: int, result: Verification, verdicts: dict[int, str]) -> None:
    problem, step, objective = referee.problem, int(event.step[i]), float(event.objective[i])
    where = f"trial {event.number}, step {step}"
    loss, prices = problem.objective.sign * objective, event.check_ns[i].tolist()
    values = [value if price >= 0 else None for value, price in zip(event.values[i].tolist(), prices, strict=True)]
    late = event.train_ns[i] == ABSENT
    if event.interval == 1 and not late and SAVED in prices and not any(price >= 0 for price in prices):
        worth = referee.worth(event.number, step, loss)
        result.expect(holds=not worth, otherwise=f"{where}: constraints were not paid for, and should have been")
    if any(price > 0 for price in prices):
        result.expect(
            holds=loss <= referee.bar, otherwise=f"{where}: constraints were paid for, and need not have been"
        )
    amount = feasibility.violation(problem.constraints, values)
    verdict, _ = referee.rule(event.number, step, loss, amount, values, prices, int(event.train_ns[i]))
    nothing_left = late or step == event.total or (event.over and step == event.step[event.train_ns >= 0].max())
    reason = None if verdict is None or nothing_left else referee.reason(objective, values, verdict)
    written = event.verdict if i == len(event.step) - 1 else None
    if written is not None:
        verdicts[event.number] = written
    same = written == reason
    result.expect(holds=same, otherwise=f"{where}: {written or 'went on'}; ruled again: {reason or 'goes on'}")
