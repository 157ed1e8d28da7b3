"""What a study found, in plain sentences: the answer first, then how far it is from each limit, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from fairway import feasibility
from fairway.engine.obstacles import obstacles
from fairway.feasibility import Checkpoint
from fairway.problem import Constraint
from fairway.report.view import View
from fairway.text import (
    counted,
    distance,
    duration,
    limit,
    limits,
    named,
    number,
    percent,
    plus_minus,
    rounded,
    rounded_error,
    shown,
)

State: TypeAlias = Literal["running", "ended", "idle"]
"""Somebody works on it; its last run ended; nobody works on it, and nothing says why."""

_LONG = 600  # characters of a reason


class Fact(NamedTuple):
    """One number that matters, with its error and a few words; `role` is one of the charts' colours, or empty."""

    label: str
    value: str
    note: str
    role: str = ""
    error: str = ""


class Summary(NamedTuple):
    """The answer, the sentences after it, the numbers that matter, and the trial that the answer speaks of."""

    headline: str
    sentences: tuple[str, ...]
    facts: tuple[Fact, ...]
    state: State
    number: int | None


def summarize(view: View) -> Summary:
    """What a study found, or has found so far.

    >>> import fairway as fw
    >>> from fairway.report.view import View
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtMost("ms", 9.0)], seed=0)
    >>> for loss, ms in ((0.5, 8.0), (0.4, 20.0)):
    ...     best = study.tell(study.ask(), loss=loss, ms=ms)
    >>> said = summarize(View(study))
    >>> said.headline
    'On the judging rows, the best model within the limit is trial 0: loss 0.5, ms 8.'
    >>> said.sentences[:2]
    ('ms 8 is 1 (11%) within its limit of at most 9.', 'Without the limit, trial 1 reached loss 0.4, but ms 20.')
    """
    return _Teller(view).tell()


def answer(view: View) -> list[str]:
    """What a study found, and why it found nothing within its limits if so: the beginning of its summary."""
    return _Teller(view).answer()


def ending(view: View) -> str:
    """Why the last run ended, or whether somebody works on the study: the end of its summary."""
    return _Teller(view).end()


def to_ship(view: View) -> str:
    """Which model is certified, where it is not the best on the judging rows; else nothing."""
    found, best = view.certificate, view.ledger.best
    if found is None or best is None or not found.certified or not view.is_certificate_current:
        return ""
    number, step = best[0], best[1].step
    if (found.number, found.step) == (number, step):
        return ""
    passed = [one.passed for one in found.tested if one.candidate[:2] == (number, step)]
    why = "was not tested on fresh rows"
    if passed:
        why = "passed its test on fresh rows, and so did another one" if passed[0] else "failed its test on fresh rows"
    certified = f"trial {found.number:,} at step {found.step:,}"
    return f"Trial {number:,} at step {step:,} {why}: the certified model is {certified}."


def state(view: View) -> State:
    """Whether somebody works on a study."""
    if view.ended is not None:
        return "ended"
    workers, leases = set(view.ledger.terminators), view.log.leases
    return "running" if workers - (leases.lost(workers) if leases is not None else set()) else "idle"


class _Teller:
    """The sentences about one view, as it is now."""

    def __init__(self, view: View) -> None:
        self.view, self.problem, self.constraints = view, view.problem, view.problem.limits
        self.the_limits = limits(view.problem)
        self.objective = named(self.problem.objective.metric)
        self.state, self.counts, self.trials = state(view), view.counts, len(view.courses)
        self.best = view.best_number
        self.subject = feasibility.nearest(self.problem, self.measured) if self.best is None else self.best
        self.paid, saved, train_ns, check_ns = view.ledger.spent()
        self.training, self.checks = train_ns / 1e9, check_ns / 1e9
        self.possible = self.paid + saved if self.problem.constraints else 0
        words = {"stopped": "stopped early"}
        self.tally = ", ".join(f"{n:,} {words.get(status, status)}" for status, n in self.counts.items() if n)
        self.failure = shown(view.ledger.last_failure, _LONG).rstrip(".")

    @cached_property
    def measured(self) -> dict[int, Checkpoint]:
        """What stands for each trial: looked at only while nothing feasible is known."""
        return {k: course.checkpoint for k, course in enumerate(self.view.courses) if course.checkpoint is not None}

    def _checkpoint(self, k: int) -> Checkpoint:
        """What stands for a trial that measured something."""
        checkpoint = self.view.courses[k].checkpoint
        assert checkpoint is not None
        return checkpoint

    def _first(self, numbers: Iterable[int]) -> int | None:
        """Of some trials, the one that comes first in the order of all."""
        return min(numbers, key=lambda k: feasibility.standing(self.problem, self.measured[k]), default=None)

    def tell(self) -> Summary:
        headline, *sentences = filter(None, (*self.answer(), *self._costs(), self.end()))
        return Summary(headline, tuple(sentences), tuple(self._facts()), self.state, self.subject)

    def answer(self) -> list[str]:
        return [*filter(None, self._answer())]

    def _answer(self) -> Iterator[str]:
        if self.best is not None:
            best = (
                f"On the judging rows, the best model within {self.the_limits}"
                if self.constraints
                else "The best model"
            )
            yield f"{best} is {self._found(self.best)}."
            yield to_ship(self.view)
            yield from self._distances(self.best)
            yield self._without()
        elif not self.trials:
            yield "No trial has begun yet."
            yield "Run the study, and what it finds is shown here."
        elif self.counts["failed"] == self.trials:
            many = "The only trial" if self.trials == 1 else f"All {self.trials:,} trials"
            yield f"{many} failed, so there is nothing to compare."
            yield f"The last one, {self.failure}."
            yield "Fix the error and run the study again; it resumes."
        elif self.subject is not None:
            yield f"No model within {self.the_limits} was found{' yet' if self.state == 'running' else ''}."
            yield f"The closest is {self._found(self.subject)}."
            yield from self._distances(self.subject)
            yield f"What stands in the way: {obstacles(self.problem, self.view.courses)[0]}."
            yield self._without()
        elif (unknown := self._first(self.measured)) is None:
            yield "Nothing was measured yet."
        else:
            why, advice = "some folds are missing", "run the folds that are missing"
            if not self.measured[unknown].provisional:
                never = [each for each in obstacles(self.problem, self.view.courses) if not each.bounds]
                names, offered = [named(each.constraint.metric) for each in never], any(each.offered for each in never)
                why = "no trial was checked against all of them"
                advice = "run trials to their end, or check at every step, with stopper=Pilot(interval=1)"
                if names:
                    why = f"{_were(names)} never {'checked' if offered else 'reported'}"
                if names and not offered:
                    advice = "report every metric that has a limit beside the objective, or drop the constraint"
            yield f"No model is known to be within {self.the_limits}: {why}."
            yield f"The best so far, ignoring {self.the_limits}, is {self._found(unknown)}."
            yield f"What helps: {advice}."

    def _found(self, k: int) -> str:
        """A trial and what it measured."""
        checkpoint = self._checkpoint(k)
        found = f"{self._where(k, checkpoint)}: {self.objective} {number(checkpoint.objective)}"
        if checkpoint.of > 1:
            of = f" of {checkpoint.of}" if checkpoint.provisional else ""
            found += f" (the mean of {checkpoint.folds}{of} folds)"
        values = feasibility.each_value(self.problem, checkpoint)
        known = [_beside(one, value, error) for one, value, error in values if value is not None]
        return ", ".join([found, *known])

    def _distances(self, k: int) -> Iterator[str]:
        for one, value, error in feasibility.each_value(self.problem, self._checkpoint(k)):
            if not one.has_limit:
                continue
            yield distance(one, value, error, None if value is None else feasibility.bound(one, value, error))

    def _where(self, k: int, checkpoint: Checkpoint) -> str:
        steps = checkpoint.step > 1 or self.view.courses[k].steps > 1
        return f"trial {k:,} at step {checkpoint.step:,}" if steps else f"trial {k:,}"

    def _without(self) -> str:
        """The best objective of all, where it is better than that within the limits."""
        found, sign = self.view.ledger.best_ignoring_limits, self.problem.objective.sign
        if found is None or not self.constraints:
            return ""
        k, peak = found
        if self.subject is not None and sign * peak.objective >= sign * self._checkpoint(self.subject).objective:
            return f"No trial did better without {self.the_limits}." if self.best is not None else ""
        text = f"Without {self.the_limits}, {self._where(k, peak)} reached {self.objective} {number(peak.objective)}"
        known = list(feasibility.each_value(self.problem, peak))
        broken = [_beside(*one) for one in known if _is_broken(*one)]  # type: ignore[arg-type]
        names = [named(one.metric) for one, value, _ in known if value is None]
        if broken:
            return f"{text}, but {' and '.join(broken)}."
        return f"{text}, where {_were(names)} not checked." if names else f"{text}."

    def _costs(self) -> Iterator[str]:
        if self.trials:
            yield f"{counted(self.trials, 'trial')}: {self.tally}."
        if self.possible:
            share = percent(self.paid / self.possible)
            yield f"{self.paid:,} of {self.possible:,} possible checks were paid for ({share})."
        if self.training + self.checks > 0:
            left = self.view.ledger.train_saved_ns / 1e9
            checks = f", checks {duration(self.checks)}" if self.paid else ""
            saved = f"; stopping early saved about {duration(left)} of training" if left > 0 else ""
            yield f"Training took {duration(self.training)}{checks}{saved}."
        if 0 < self.counts["failed"] < self.trials:
            yield f"The last failure: {self.failure}."

    def end(self) -> str:
        if self.state == "ended":
            return f"The last run ended because {shown(self.view.ended, _LONG).rstrip('.')}."
        running, last = self.counts["running"], ""
        if self.view.verdicts:
            verdict = self.view.verdicts[-1]
            last = f" The terminator after {verdict.finished:,} trials: {shown(verdict.reason, _LONG)}."
        if self.state == "running":
            return f"The study is still running.{last}"
        lost = f", and {counted(running, 'trial')} did not end" if running else ""
        return f"Nobody works on the study now{lost}; run it again and it resumes.{last}"

    def _facts(self) -> Iterator[Fact]:
        if self.subject is not None:
            checkpoint, note, role = self._checkpoint(self.subject), "the closest", ""
            if self.best is not None:
                within = f"best within {self.the_limits} on the judging rows"
                note, role = within if self.constraints else "best", "best"
            yield Fact(self.objective, number(checkpoint.objective), note, role)
            yield from (_fact(*one) for one in feasibility.each_value(self.problem, checkpoint))
        yield Fact("trials", f"{self.trials:,}", self.tally)
        if self.possible:
            yield Fact("checks paid", percent(self.paid / self.possible), f"{self.paid:,} of {self.possible:,}")


def _beside(constraint: Constraint, value: float, error: float | None) -> str:
    near = constraint.threshold if constraint.has_limit else value
    return f"{named(constraint.metric)} {plus_minus(value, error, near)}"


def _is_broken(constraint: Constraint, value: float | None, error: float | None) -> bool:
    return value is not None and feasibility.excess(constraint, value, error) > 0.0


def _fact(constraint: Constraint, value: float | None, error: float | None) -> Fact:
    if value is None:
        return Fact(named(constraint.metric), "not measured", limit(constraint), "not evaluated")
    if not constraint.has_limit:
        return Fact(named(constraint.metric), number(value), limit(constraint))
    compared = feasibility.bound(constraint, value, error)
    over, note = constraint.sign * (compared - constraint.threshold), limit(constraint)
    if constraint.confidence is not None:
        note += f": bound {rounded(compared, error, constraint.threshold)}"
    side, role = ("to spare", "feasible") if over <= 0.0 else ("beyond", "infeasible")
    note += f", {abs(over):.2g} {side} on the judging rows"
    value_ = rounded(value, error, constraint.threshold)
    return Fact(named(constraint.metric), value_, note, role, rounded_error(error))


def _were(names: list[str]) -> str:
    return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'}"
