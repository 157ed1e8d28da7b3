"""Makes every ruling of a study again from its log, the terminator's verdicts included, and compares.

Each worker's referee is rebuilt and asked again: before each of its acts it learns what others had written up to the
position that the worker had seen. So a decision that was made on stale knowledge is checked against that knowledge.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from fairway import feasibility
from fairway.engine.carried import histories
from fairway.engine.certification import Certification, candidates, p_values
from fairway.engine.columns import fitted
from fairway.engine.events import (
    SAVED,
    Asked,
    Carried,
    Dropped,
    Event,
    Judged,
    LimitsChanged,
    Opened,
    Remeasured,
    Reported,
    Sealed,
    Tested,
    Told,
    is_news,
)
from fairway.engine.identity import WORDING, Identity
from fairway.engine.ledger import Ledger
from fairway.engine.limits import Limits, last_change, last_limits
from fairway.engine.measurement import Observation, Report
from fairway.engine.pace import Pace
from fairway.engine.referee import Referee, observations
from fairway.engine.remeasurement import may_fall, nearest_broken, with_sums
from fairway.engine.soundness import fitting
from fairway.errors import StorageError
from fairway.problem import Problem
from fairway.stoppers.stopper import Stopper


@dataclass
class Verification:
    """The result of verifying a log: how many rulings were made again, and which did not agree."""

    rulings: int = 0
    unchecked: int = 0  # verdicts of a terminator of the user's own, or in a space whose conditions are functions
    faults: list[str] = field(default_factory=list)
    dropped: int = 0  # events that a repair left out
    groundless: int = 0  # rulings that come out differently, perhaps because of that

    def expect(self, *, holds: bool, otherwise: str) -> None:
        """Note a fault if a ruling does not hold; if a repair left events out, only count it as groundless."""
        if not holds and self.dropped:
            self.groundless += 1
        elif not holds:
            self.faults.append(otherwise)


class _Act(NamedTuple):
    number: int  # in the order of its worker's acts
    seen: int  # the log position that the worker knew
    kind: Literal["begin", "pay", "rule", "finish"]
    event: Reported | Told
    row: int  # of a `Reported`, if the act pays or rules


def verify(events: Sequence[Event]) -> Verification:
    """Check every interval, payment, verdict and reason in a log, and that the studies it started from can be read."""
    result = Verification(dropped=sum(isinstance(event, Dropped) for event in events))
    founding = next((event.config for event in events if isinstance(event, Opened)), {})
    for position, event in enumerate(events):
        if isinstance(event, Opened):
            identity = Identity.from_json(event.config)
            if identity.stopper is None:
                kind = event.config["stopper"]["kind"]
                raise StorageError(
                    f"worker {event.worker} ran a stopper of its own, {kind}: it cannot be verified here"
                )
            worded = event.config.get("wording") == WORDING
            with fitting(event):
                changed = last_limits(events[:position])
                problem = identity.problem if changed is None else changed.problem(identity.problem)
                falls = may_fall(problem, founding)
                worker = _Worker(event.worker, problem, identity.stopper, result, worded=worded, may_fall=falls)
                worker.verify(events, since=position)
    _judge_again(events, result)
    _certify_again(events, result)
    _sum_again(events, result)
    _read_copies(events)
    return result


def _first(events: Sequence[Event], n: int) -> Sequence[Event]:
    return events[:n]


def _judge_again(events: Sequence[Event], result: Verification) -> None:
    """Ask each worker's terminator again, unless it is the user's own or the space has functions as conditions."""
    opened = [event for event in events if isinstance(event, Opened)]
    identities = {event.worker: Identity.from_json(event.config) for event in opened}
    worded = {event.worker for event in opened if event.config.get("wording") == WORDING}
    first = next(iter(identities.values()), None)
    if first is None:
        return
    ledger, replayed = Ledger(first.space, first.problem, first.seed or 0), 0
    said = [(i, event) for i, event in enumerate(events) if isinstance(event, Judged)]
    looked = [(i if event.seen is None else min(event.seen, i), event) for i, event in said]
    for seen, event in sorted(looked, key=lambda one: one[0]):
        ledger.extend(events[replayed:seen], partial(_first, events, seen))
        replayed = max(replayed, seen)
        if event.worker not in identities and result.dropped:
            result.groundless += 1
            continue
        if event.worker not in identities:
            raise StorageError(f"the log has a verdict of worker {event.worker}, who never joined: it is damaged")
        terminator = identities[event.worker].terminator
        if terminator is None or first.space.has_stored:
            result.unchecked += 1
            continue
        history, scale = ledger.history(), abs(event.threshold)
        verdict = terminator.check(history.first(event.finished).aimed({}))
        same = (
            event.finished <= len(history)
            and verdict.stop == event.stop
            and _alike(verdict.value, event.value, scale)
            and _alike(verdict.threshold, event.threshold, scale)
            and (verdict.reason == event.reason or verdict.value != event.value or event.worker not in worded)
        )
        wrong = f"after {event.finished} trials: {event.reason}; judged again: {verdict.reason}"
        result.rulings += 1
        result.expect(holds=same, otherwise=wrong)
    ledger.extend(events[replayed:], lambda: events)


def _certify_again(events: Sequence[Event], result: Verification) -> None:
    """Derive each certification's candidates again from the log before it, and repeat the tests from their evidence."""
    problem, certifications, problems = None, list[Certification](), list[Problem]()
    for i, event in enumerate(events):
        if isinstance(event, Opened):
            problem = problem or Identity.from_json(event.config).problem
        elif isinstance(event, LimitsChanged) and problem is not None:
            problem = Limits.of(event).problem(problem)
        elif isinstance(event, Sealed) and problem is not None:
            certification = Certification(event)
            problems.append(problem)
            seen = events[: min(event.seen, i)]
            derived = candidates(problem, seen, at_most=event.at_most, level=certification.level)
            where = f"certification {event.certification}"
            wrong = f"{where}: its candidates are not those that follow from the log"
            result.rulings += 1
            result.expect(holds=derived == certification.candidates, otherwise=wrong)
            result.expect(holds=event.certification == len(certifications), otherwise=f"{where} is not the next one")
            certifications.append(certification)
        elif isinstance(event, Tested) and problem is not None:
            where = f"certification {event.certification}, candidate {event.place}"
            if not 0 <= event.certification < len(certifications):
                raise StorageError(f"{where}: nothing was sealed for it: the log is damaged")
            try:
                again, written = p_values(problems[event.certification], event.evidence), event.p_values
            except Exception as error:
                raise StorageError(f"{where}: its evidence cannot be read ({error}): the log is damaged") from error
            same = again.keys() == written.keys() and all(math.isclose(again[k], float(written[k])) for k in again)
            result.rulings += 1
            result.expect(holds=same, otherwise=f"{where}: p-values {dict(written)}; tested again: {again}")
            digests = {each["digest"] for each in event.evidence.values() if "digest" in each}
            result.expect(holds=digests <= {event.digest}, otherwise=f"{where}: its digest is not that of its evidence")
            certifications[event.certification].add(event)
    for one in certifications:
        shared = [each for each in certifications if each.tests and each.sealed.hashes == one.sealed.hashes]
        wrong = f"certification {one.sealed.certification}: its rows were used {len(shared)} times"
        result.expect(holds=len(shared) <= max(one.sealed.uses, 1), otherwise=wrong)


def _sum_again(events: Sequence[Event], result: Verification) -> None:
    """For each second measurement, find the best at that time again, and sum up its trial again."""
    found = [event for event in events if isinstance(event, Remeasured)]
    first = next((event for event in events if isinstance(event, Opened)), None)
    if not found or first is None:
        return
    identity = Identity.from_json(first.config)
    ledger, replayed = Ledger(identity.space, identity.problem), 0
    for event in sorted(found, key=lambda event: event.seen or 0):
        seen = min(event.seen or 0, len(events))
        ledger.extend(events[replayed:seen], partial(_first, events, seen))
        replayed = max(replayed, seen)
        where, problem = f"trial {event.number}, step {event.step}", ledger.problem
        now = zip(problem.constraints, fitted(event, problem).values, strict=True)
        alone = {one.metric for one, value in now if one.alone or value is not None}
        best = ledger.best or nearest_broken(problem, ledger, alone)
        was_due = best is not None and (best[0], best[1].step) == (event.number, event.step)
        batches = [one for one in events if isinstance(one, Reported) and one.number == event.number]
        earlier = [one for one in found if one.number == event.number and (one.seen or 0) <= (event.seen or 0)]
        again, written = (fitted(one, ledger.problem) for one in (with_sums(ledger.problem, batches, earlier), event))
        same = (again.checkpoint, again.peak, again.late) == (written.checkpoint, written.peak, written.late)
        result.rulings += 1
        result.expect(holds=was_due, otherwise=f"{where} was measured again, and was not the best or the nearest then")
        result.expect(holds=same, otherwise=f"{where} was measured again; its trial's sums do not follow")


def _read_copies(events: Sequence[Event]) -> None:
    """Read the studies that this one started from, as its next ask does."""
    first = next((event for event in events if isinstance(event, Opened)), None)
    copies = [event for event in events if isinstance(event, Carried)]
    if copies and first is not None:
        identity = Identity.from_json(first.config)
        histories(copies, identity.space, identity.problem)


def _alike(one: float, other: float, scale: float) -> bool:
    """Whether two numbers agree within 2%, or 0.1% of `scale`: an optimizer may end elsewhere on another machine."""
    nothing = 1e-3 * scale if math.isfinite(scale) else 0.0
    return math.isclose(one, other, rel_tol=0.02, abs_tol=nothing) or math.isnan(one) and math.isnan(other)


def _acts(worker: int, events: Sequence[Event]) -> list[_Act]:
    acts, begun = [], set()
    theirs: dict[int, int] = {}  # by trial of other workers: the position after its last reports
    for position, event in enumerate(events):
        if isinstance(event, Reported) and event.worker != worker:
            theirs[event.number] = position + 1
        elif isinstance(event, Reported):
            if event.number not in begun:
                begun.add(event.number)
                acts.append(_Act(event.begun, event.begun_seen, "begin", event, 0))
            acts += [_Act(act, event.seen, "rule", event, i) for i, act in enumerate(event.acts.tolist())]
            acts += [_Act(act, seen, "pay", event, i) for i, act, seen in event.payments.tolist()]
        elif isinstance(event, Told) and event.worker == worker:
            # Whoever gives up another worker's trial has seen all its reports.
            acts.append(_Act(event.act, theirs.get(event.number, 0), "finish", event, 0))
    return sorted(acts, key=lambda act: act.number)


class _Worker:
    """One worker's referee, rebuilt."""

    def __init__(
        self,
        worker: int,
        problem: Problem,
        stopper: Stopper,
        result: Verification,
        *,
        worded: bool,
        may_fall: bool,
    ) -> None:
        self._worker, self._result = worker, result
        self._worded = worded  # its reasons have today's wording
        self._referee = Referee(problem, stopper, may_fall=may_fall)
        self._acts: list[_Act] = []  # made so far
        self._paces = defaultdict[int, Pace](lambda: Pace(None, 1, at_end=False))  # by trial
        self._stops: dict[int, str] = {}  # the stopper's reasons, by trial

    def verify(self, events: Sequence[Event], since: int) -> None:
        """Make every act again; the worker joined at position `since`, and knew the limits in force then."""
        replayed, before = 0, last_change(events[:since])
        rows: dict[int, list[Observation]] = {}  # by event
        for event in events:
            if isinstance(event, Asked):  # a worker knows from the start what its trial aims at
                self._referee.replay(event)
        for act in _acts(self._worker, events):
            seen = min(act.seen, len(events))
            last = last_change(events[max(replayed, since) : seen])
            if last is not None:
                replayed = max(replayed, since) + last + 1
                self._judge_again(events[:replayed])
                rows = {}
            while replayed < seen:
                other = events[replayed]
                if replayed == before:
                    self._referee.restart_stopper()
                if is_news(other, self._worker):
                    self._referee.replay(other)
                replayed += 1
            self._result.rulings += 1
            self._acts.append(act)
            event = act.event
            if isinstance(event, Told):
                self._finish(event)
                continue
            if act.kind == "begin":
                self._begin(event)
                continue
            observed = rows.get(id(event)) or rows.setdefault(id(event), [*observations(event, self._referee.problem)])
            if act.kind == "pay":
                self._pay(event.number, observed[act.row])
            else:
                self._rule(event, act.row, observed[act.row])

    def _judge_again(self, events: Sequence[Event]) -> None:
        """Learn everything again by the limits that the last event sets: what others wrote, what this worker did."""
        change = events[-1]
        assert isinstance(change, LimitsChanged)
        problem = Limits.of(change).problem(self._referee.problem)
        foreign = [event for event in events if is_news(event, self._worker)]
        again = [event for event in foreign if isinstance(event, Remeasured)]  # of trials of this worker too
        others = [event for event in foreign if not isinstance(event, Remeasured)]
        self._referee.judge_by(problem, self._referee.known_by(problem, others))
        known = {id(event) for event in events}
        self._act_again(problem, [act for act in self._acts if id(act.event) in known])
        for remeasured in again:
            self._referee.replay(remeasured)
        self._referee.restart_stopper()
        self._act_again(problem, [act for act in self._acts if id(act.event) not in known])  # before it heard of it

    def _act_again(self, problem: Problem, acts: Sequence[_Act]) -> None:
        """Learn this worker's rulings and ends again, by another problem."""
        rows: dict[int, list[Observation]] = {}
        for act in acts:
            if isinstance(act.event, Told):
                self._referee.replay(act.event)
            elif act.kind == "rule":
                event = act.event
                observed = rows.get(id(event)) or rows.setdefault(id(event), [*observations(event, problem)])
                self._referee.rule(event.number, observed[act.row])

    def _begin(self, event: Reported) -> None:
        pace = self._paces[event.number] = self._referee.begin(event.total)
        same = (pace.total, pace.interval) == (event.total, event.interval)
        wrong = (
            f"trial {event.number} has interval {event.interval} of {event.total} steps, "
            f"which should be {pace.interval} of {pace.total}"
        )
        self._result.expect(holds=same, otherwise=wrong)

    def _would_pay(self, number: int, row: Observation, *, lazy: bool) -> bool:
        """Whether the referee would pay at a row, by the same rule that the trial asked."""
        constraints = self._referee.problem.constraints
        columns = zip(constraints, row.values, row.errors or self._referee.unmeasured, row.prices, strict=True)
        broken = any(
            price == 0 and value is not None and feasibility.excess(constraint, value, error) > 0
            for constraint, value, error, price in columns
        )
        report = Report(row.step, row.objective, row.loss, {}, None, row.train_ns, lazy, broken, row.last)
        return self._referee.pays(number, self._paces[number], report)

    def _pay(self, number: int, row: Observation) -> None:
        wrong = f"trial {number}, step {row.step}: constraints were paid for, and need not have been"
        self._result.expect(holds=self._would_pay(number, row, lazy=True), otherwise=wrong)

    def _rule(self, event: Reported, i: int, row: Observation) -> None:
        number, where = event.number, f"trial {event.number}, step {row.step}"
        if row.payment is None:
            unfounded = any(price > 0 for price in row.prices)
            self._result.expect(holds=not unfounded, otherwise=f"{where}: constraints were paid for without a decision")
            # The log does not say which checkpoint waits for the end, so only payments before the end can be missed.
            if not self._paces[number].at_end and not unfounded:
                missed = self._would_pay(number, row, lazy=SAVED in row.prices)
                wrong = f"{where}: constraints were not paid for, and should have been"
                self._result.expect(holds=not missed, otherwise=wrong)
        why, _ = self._referee.rule(number, row)
        reason = None if why is None or row.last else self._referee.reason(row, why)
        written = event.stop_reason if i == len(event.step) - 1 else None
        if written is not None:
            self._stops[number] = written
        again = f"{where}: {written or 'continued'}; ruled again: {reason or 'continues'}"
        same = written == reason if self._worded else (written is None) == (reason is None)
        self._result.expect(holds=same, otherwise=again)

    def _finish(self, event: Told) -> None:
        stopped = self._stops.get(event.number)
        agrees = stopped is None or event.status == "failed" or (event.status, event.reason) == ("stopped", stopped)
        wrong = f"trial {event.number} ended as {event.status}, but was stopped: {stopped}"
        self._result.expect(holds=agrees, otherwise=wrong)
        self._referee.finish(event.number, completed=event.status == "completed")
