"""Limits that change while a study runs: what `study.set_limit` writes, and the problem that follows from it.

A `LimitsChanged` event lists all limits that hold from its place in the log on. Everything is then judged by them, past
trials included: ledgers and referees forget what they know and learn it again from the log, and the stopper starts
afresh from the best. For adding up violations, a constraint keeps the unit that it began with.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairway.checks import is_finite, short
from fairway.engine.events import Event, LimitsChanged
from fairway.engine.identity import build, plain
from fairway.engine.log import Log
from fairway.errors import StorageError, UsageError
from fairway.problem import Constraint, Problem, Track
from fairway.text import limit


@dataclass(frozen=True)
class Limits:
    """Every constraint that a study has had, by metric in the order of the log's columns, and which were dropped."""

    constraints: Mapping[str, Constraint]
    dropped: frozenset[str] = frozenset()

    @classmethod
    def of(cls, change: LimitsChanged) -> Limits:
        """The limits that a change sets."""
        built = [build(part) for part in change.constraints]
        if not all(isinstance(one, Constraint) for one in built):
            raise StorageError("the log changes limits to something that is no constraint: it is damaged")
        return cls({one.metric: one for one in built}, frozenset(change.dropped))

    @classmethod
    def founding(cls, config: Mapping[str, Any]) -> Limits:
        """The limits that a study began with."""
        return cls({one.metric: one for one in map(build, config["constraints"])})

    @property
    def in_force(self) -> list[Constraint]:
        """The constraints in force."""
        return [one for metric, one in self.constraints.items() if metric not in self.dropped]

    def problem(self, known: Problem) -> Problem:
        """A problem with these limits; each constraint keeps the `cost` and `alone` that it has in `known`."""
        before = {one.metric: one for one in known.constraints}
        pairs = [(one, before.get(one.metric, one)) for one in self.in_force]
        found = [
            replace(one, cost=was.cost, alone=was.alone) if one.has_limit else replace(one, cost=was.cost)
            for one, was in pairs
        ]
        return Problem(known.objective, found, [*self.constraints])

    def changed(self, objective: str, added: Sequence[Constraint], limits: Mapping[str, float | None]) -> Limits:
        """These limits with some added, and some set to another number or (None) dropped."""
        if not added and not limits:
            raise UsageError("set_limit() came without a limit: set_limit(eod=0.12) is expected, or None to drop one")
        found, dropped = dict(self.constraints), set(self.dropped)
        for metric, threshold in limits.items():
            self._check(objective, metric, threshold)
            if threshold is None:
                dropped.add(metric)
                continue
            before = found[metric]
            if isinstance(before, Track):
                before = before.limited(threshold)
            found[metric] = replace(before, threshold=threshold, scale=before.unit)
            dropped.discard(metric)
        for one in added:
            self._check_added(objective, one, found)
            if one.metric in limits:
                raise UsageError(
                    f"set_limit: {one.metric} came twice, as {type(one).__name__} and as a number; give one of them"
                )
            found[one.metric] = replace(one, scale=one.unit) if one.has_limit else one
            dropped.discard(one.metric)
        return Limits(found, frozenset(dropped))

    def _check(self, objective: str, metric: str, threshold: object) -> None:
        given = f"set_limit({metric}={short(threshold)})"
        if metric == objective:
            raise UsageError(f"{given}: {metric} is the objective, which stays as it is and has no limit")
        if metric not in self.constraints:
            known = ", ".join(self.constraints) or "none"
            raise UsageError(
                f"{given}: the study has no limit on {short(metric)} (its limits: {known}); add one with "
                f"set_limit(fw.AtMost({short(metric)}, ...)) or fw.AtLeast"
            )
        if threshold is None and not self.constraints[metric].has_limit:
            raise UsageError(f"{given}: {metric} is tracked and has no limit to drop; set_limit({metric}=0.1) sets one")
        if threshold is None and metric in self.dropped:
            raise UsageError(f"{given}: that limit was dropped before; set_limit({metric}=0.1) brings one back")
        if threshold is not None and (isinstance(threshold, bool) or not is_finite(threshold)):
            raise UsageError(f"{given}: a finite number is expected, or None to drop the limit")

    def _check_added(self, objective: str, one: object, found: Mapping[str, Constraint]) -> None:
        if not isinstance(one, Constraint):
            raise UsageError(
                f"set_limit({short(one)}): set_limit(eod=0.12) or set_limit(fw.AtMost('ms', 20.0)) is expected"
            )
        if not one.has_limit:
            _check_tracked_again(one, found.get(one.metric))
            return
        if one.metric == objective:
            raise UsageError(f"set_limit({type(one).__name__}({short(one.metric)}, ...)): that is the objective")
        if one.metric in found:
            given, before = f"set_limit({type(one).__name__}({short(one.metric)}, ...))", found[one.metric]
            if before.sign != one.sign:
                raise UsageError(f"{given}: the study limits that metric the other way, and keeps to that")
            raise UsageError(
                f"{given}: the study has a constraint on that metric already; give its number, "
                f"set_limit({one.metric}={one.threshold:g})"
            )

    def event(self, change: int, at: float) -> LimitsChanged:
        """The event that writes these limits to the log."""
        return LimitsChanged(change, [plain(one) for one in self.constraints.values()], sorted(self.dropped), at)


class LimitHistory:
    """The limits of a study, from those that it began with to those that hold now."""

    def __init__(self, problem: Problem, judged_by: int = 0) -> None:
        self._problem = problem
        self._founding: Mapping[str, Any] | None = None
        self.judged_by = judged_by  # how many changes led to the limits of `problem`
        self.changes: list[LimitsChanged] = []
        self.begun: list[int] = []  # how many trials had begun at each change
        self.widths = len(problem.constraints), len(problem.columns)  # the least and most columns of an event

    def still(self) -> LimitHistory:
        """A snapshot."""
        still = copy.copy(self)
        still.changes, still.begun = list(self.changes), list(self.begun)
        return still

    def begin(self, config: Mapping[str, Any]) -> None:
        """Note the configuration that the study began with."""
        self._founding = config
        least = len(config.get("constraints", self._problem.constraints))
        self.widths = least, max(least, self.widths[1])

    def add(self, change: LimitsChanged, begun: int) -> None:
        """Add a change, made when `begun` trials had begun."""
        due = len(self.changes)
        if change.change != due:
            raise StorageError(f"the log has change {change.change} of the limits where {due} is due: it is damaged")
        self.widths = self.widths[0], max(self.widths[1], len(Limits.of(change).constraints))
        self.changes.append(change)
        self.begun.append(begun)

    @property
    def now(self) -> Limits:
        """The limits in force."""
        return self.after(len(self.changes))

    def after(self, changes: int) -> Limits:
        """The limits after the first `changes` changes."""
        if changes:
            return Limits.of(self.changes[changes - 1])
        if self._founding is not None:
            return Limits.founding(self._founding)
        return Limits({one.metric: one for one in self._problem.constraints})

    def problem_after(self, changes: int) -> Problem:
        """The problem with the limits after the first `changes` changes."""
        return self._problem if changes == self.judged_by else self.after(changes).problem(self._problem)

    def change(
        self, limits: Mapping[str, float | None], added: Sequence[Constraint] = (), *, at: float
    ) -> LimitsChanged | None:
        """The event that changes the limits; None if they are like that already."""
        changed = self.now.changed(self._problem.objective.metric, added, limits)
        return changed.event(len(self.changes), at) if differences(self.now, changed) else None


def _check_tracked_again(one: Constraint, before: Constraint | None) -> None:
    """Refuse to track a metric that the study does not have, wants the other way, or tracks already."""
    given = f"set_limit(Track({short(one.metric)}))"
    if before is None:
        raise UsageError(
            f"{given}: a metric is tracked from a study's beginning on; add a limit with "
            f"set_limit(fw.AtMost({short(one.metric)}, ...)) or fw.AtLeast"
        )
    if before.sign != one.sign:
        larger = "larger=True" if before.sign < 0 else "larger=False"
        raise UsageError(f"{given}: the study wants {one.metric} the other way: Track(..., {larger}) is expected")
    if not before.has_limit:
        raise UsageError(f"{given}: it is tracked already; set_limit({one.metric}=0.1) sets a limit")


def last_change(events: Sequence[Event]) -> int | None:
    """The place of the last change of limits among events; None without one."""
    changes = [i for i, event in enumerate(events) if isinstance(event, LimitsChanged)]
    return changes[-1] if changes else None


def last_limits(events: Sequence[Event]) -> Limits | None:
    """The limits after the last change among events; None without one."""
    last = last_change(events)
    return None if last is None else Limits.of(events[last])  # type: ignore[arg-type]


def in_force(log: Log, founding: Problem) -> Sequence[Constraint]:
    """The constraints that hold at the end of a log."""
    changed = last_limits(log.summary(0)[0])
    return founding.constraints if changed is None else changed.in_force


def differences(before: Limits, after: Limits) -> list[str]:
    """What a change of limits changed, in words.

    >>> import fairway as fw
    >>> before = Limits({"eod": fw.AtMost("eod", 0.1)})
    >>> differences(before, before.changed("auc", [fw.AtMost("ms", 20.0)], {"eod": 0.12}))
    ['eod ≤ 0.12 (was ≤ 0.1)', 'ms ≤ 20 (new)']
    """
    said = []
    for metric, one in after.constraints.items():
        was = None if metric in before.dropped else before.constraints.get(metric)
        now = None if metric in after.dropped else one
        if now is not None and was is None:
            said.append(f"{metric} {limit(now)} ({'again' if metric in before.constraints else 'new'})")
        elif was is not None and now is None:
            said.append(f"{metric} without a limit (was {limit(was)})")
        elif was is not None and now is not None and was.threshold != now.threshold:
            is_now = limit(now) if now.has_limit else "tracked"
            said.append(f"{metric} {is_now} (was {limit(was) if was.has_limit else 'tracked'})")
    return said
