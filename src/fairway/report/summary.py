"""What a study came to, in plain sentences: the answer first, then how far it is from each limit, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from fairway import feasibility
from fairway.feasibility import Checkpoint
from fairway.problem import Constraint, Problem
from fairway.report.view import View
from fairway.text import shown

State: TypeAlias = Literal["running", "ended", "idle"]
"""Somebody works on it; its last run ended; nobody works on it, and nothing says why."""

_NAME = 60  # letters of a name within a sentence
_LONG = 600  # letters of a reason


class Fact(NamedTuple):
    """One number that matters, with a few words below it; `role` is one of the charts' colours, or empty."""

    label: str
    value: str
    note: str
    role: str = ""


class Summary(NamedTuple):
    """The answer, the sentences after it, the numbers that matter, and the trial that the answer speaks of."""

    headline: str
    sentences: tuple[str, ...]
    facts: tuple[Fact, ...]
    state: State
    number: int | None

    @property
    def text(self) -> str:
        """All of it, as one paragraph."""
        return " ".join((self.headline, *self.sentences))


def summarize(view: View) -> Summary:
    """What a study came to, or has come to so far.

    >>> import fairway as fw
    >>> from fairway.report.view import View
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtMost("ms", 9.0)], seed=0)
    >>> for loss, ms in ((0.5, 8.0), (0.4, 20.0)):
    ...     best = study.tell(study.ask(), loss=loss, ms=ms)
    >>> said = summarize(View(study))
    >>> said.headline
    'The best model within the limit: loss 0.5, ms 8, from trial 0.'
    >>> said.sentences[:2]
    ('ms 8 is 1 (11%) within its limit of at most 9.', 'Without the limit: loss 0.4 from trial 1, but ms 20.')
    """
    return _Teller(view).tell()


def goal(problem: Problem) -> str:
    """What is asked for.

    >>> import fairway as fw
    >>> goal(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.25)]))
    'maximize auc with eod ≤ 0.25'
    """
    limits = " and ".join(f"{_named(limit.metric)} {_sign(limit)} {limit.threshold:g}" for limit in problem.constraints)
    asked = f"{'maximize' if problem.objective.sign < 0 else 'minimize'} {_named(problem.objective.metric)}"
    return f"{asked} with {limits}" if limits else asked


def state(view: View) -> State:
    """Whether somebody works on a study."""
    if view.ended is not None:
        return "ended"
    workers = set(view.ledger.terminators)
    return "running" if workers - view.log.lost(workers) else "idle"


class _Teller:
    """The sentences about one view, as it is now."""

    def __init__(self, view: View) -> None:
        self.view, self.problem = view, view.problem
        self.limits: Sequence[Constraint] = self.problem.constraints
        self.the_limits = "the limit" if len(self.limits) == 1 else "the limits"
        self.state = state(view)
        self.measured: list[tuple[int, Checkpoint]] = [
            (number, course.checkpoint) for number, course in enumerate(view.courses) if course.checkpoint is not None
        ]
        best = view.best
        self.best = next((one for one in self.measured if best is not None and one[0] == best.number), None)
        broken = [one for one in self.measured if feasibility.known(self.problem, one[1])]
        self.broken = broken
        self.closest = min(broken, key=lambda one: feasibility.standing(self.problem, one[1]), default=None)

    def tell(self) -> Summary:
        subject = self.best or self.closest
        headline, *sentences = (sentence for sentence in self._answer() + self._costs() if sentence)
        return Summary(
            headline, tuple(sentences), tuple(self._facts()), self.state, None if subject is None else subject[0]
        )

    def _answer(self) -> list[str]:
        if self.best is not None:
            within = f" within {self.the_limits}" if self.limits else ""
            number, checkpoint = self.best
            best = f"The best model{within}: {self._metrics(checkpoint)}{self._from(number, checkpoint)}."
            return [best, *self._distances(checkpoint), self._without()]
        counts = self.view.counts
        if not self.view.courses:
            return ["No trial has begun yet.", "Run the study, and what it finds is shown here."]
        if counts["failed"] and counts["failed"] == len(self.view.courses):
            many = "The only trial" if counts["failed"] == 1 else f"All {counts['failed']:,} trials"
            return [
                f"{many} failed, so there is nothing to compare.",
                f"The last one, {shown(self.view.ledger.last_failure, _LONG).rstrip('.')}.",
                "Mend what they stumbled over, and run the study again: it goes on where it is.",
            ]
        if self.closest is not None:
            number, checkpoint = self.closest
            return [
                f"No model within {self.the_limits} was found{' yet' if self.state == 'running' else ''}.",
                f"The closest: {self._metrics(checkpoint)}{self._from(number, checkpoint)}.",
                *self._distances(checkpoint),
                self._advice(),
                self._without(),
            ]
        if self.measured:
            number, checkpoint = min(self.measured, key=lambda one: feasibility.standing(self.problem, one[1]))
            what = f"{self._metrics(checkpoint)}{self._from(number, checkpoint)}"
            return [
                f"No model is known to be within {self.the_limits}: {self._unmeasured(checkpoint)}.",
                f"The best so far whatever {self.the_limits}: {what}.",
                "What helps: let trials run to their end, or check at every step, with stopper=Pilot(interval=1)."
                if not checkpoint.provisional
                else "What helps: let the folds that are missing run.",
            ]
        return ["Nothing was measured yet."]

    def _metrics(self, checkpoint: Checkpoint) -> str:
        objective = f"{_named(self.problem.objective.metric)} {number_text(checkpoint.objective)}"
        if checkpoint.of > 1:
            folds = f"{checkpoint.folds} of {checkpoint.of}" if checkpoint.provisional else f"{checkpoint.folds}"
            objective += f" (the mean of {folds} folds)"
        values = [
            f"{_named(limit.metric)} {_beside(value, limit.threshold)}"
            for limit, value in zip(self.limits, checkpoint.values, strict=True)
            if value is not None
        ]
        return ", ".join([objective, *values])

    def _from(self, number: int, checkpoint: Checkpoint) -> str:
        if checkpoint.step > 1 or self.view.courses[number].steps > 1:
            return f" at step {checkpoint.step:,} of trial {number:,}"
        return f" from trial {number:,}" if "," not in self._metrics(checkpoint) else f", from trial {number:,}"

    def _distances(self, checkpoint: Checkpoint) -> list[str]:
        told = []
        for limit, value in zip(self.limits, checkpoint.values, strict=True):
            if value is None:
                told.append(f"{_named(limit.metric)} was not measured there.")
                continue
            where = f"its limit of {_bound(limit)}"
            over = limit.sign * (value - limit.threshold)
            what = f"{_named(limit.metric)} {_beside(value, limit.threshold)}"
            if over == 0.0:
                told.append(f"{what} is just at {where}.")
            elif over != over:  # noqa: PLR0124 - NaN
                told.append(f"{what} counts as beyond {where}.")
            else:
                share = f" ({_percent(abs(over / limit.threshold))})" if limit.threshold else ""
                told.append(f"{what} is {abs(over):.2g}{share} {'beyond' if over > 0 else 'within'} {where}.")
        return told

    def _without(self) -> str:
        """The best objective of all, where it is better than that within the limits."""
        found = self.view.ledger.best_ignoring_limits
        if found is None or not self.limits:
            return ""
        number, peak = found
        sign = self.problem.objective.sign
        of = self.best or self.closest
        if of is not None and sign * peak.objective >= sign * of[1].objective:
            return f"No trial did better without {self.the_limits}." if self.best is not None else ""
        objective = f"{_named(self.problem.objective.metric)} {number_text(peak.objective)}"
        where = self._from(number, peak._replace(values=(None,) * len(self.limits)))
        known = [(limit, value) for limit, value in zip(self.limits, peak.values, strict=True) if value is not None]
        bad = [
            f"{_named(limit.metric)} {_beside(value, limit.threshold)}"
            for limit, value in known
            if feasibility.excess(limit, value) > 0
        ]
        rest = ""
        if bad:
            rest = f", but {' and '.join(bad)}"
        elif len(known) < len(self.limits):
            names = [
                _named(limit.metric) for limit, value in zip(self.limits, peak.values, strict=True) if value is None
            ]
            rest = f", where {' and '.join(names)} {'was' if len(names) == 1 else 'were'} not checked"
        return f"Without {self.the_limits}: {objective}{where}{rest}."

    def _advice(self) -> str:
        """What to do where every limit that was measured is broken by somebody."""
        worst = ""
        most = 0
        for i, limit in enumerate(self.limits):
            values = [value for _, one in self.broken if (value := one.values[i]) is not None]
            over = sum(feasibility.excess(limit, value) > 0 for value in values)
            if over > most:
                most = over
                worst = f": {over:,} of the {len(values):,} trials that measured {_named(limit.metric)} are beyond it"
        return f"What helps: more trials, a wider space, or a looser limit{worst}."

    def _unmeasured(self, checkpoint: Checkpoint) -> str:
        if checkpoint.provisional:
            return "only some of the folds are there"
        names = [
            _named(limit.metric)
            for i, limit in enumerate(self.limits)
            if all(one.values[i] is None for _, one in self.measured)
        ]
        if not names:
            return "no trial was checked against all of them"
        return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} never checked"

    def _costs(self) -> list[str]:
        courses, counts = self.view.courses, self.view.counts
        if not courses:
            return [self._end()]
        paid, saved = sum(course.checks for course in courses), sum(course.saved for course in courses)
        training, checks = sum(course.train_ns for course in courses) / 1e9, sum(c.check_ns for c in courses) / 1e9
        told = [self._tally()]
        if paid + saved and self.limits:
            told.append(
                f"{paid:,} of {paid + saved:,} possible constraint checks paid ({_percent(paid / (paid + saved))})."
            )
        if training + checks > 0:
            spent = f"Training took {duration(training)}"
            spent += f", checks {duration(checks)}" if paid else ""
            left = self.view.ledger.train_saved_ns / 1e9
            spent += f"; stopping early saved about {duration(left)} of training" if left > 0 else ""
            told.append(f"{spent}.")
        if counts["failed"] and counts["failed"] < len(courses):
            told.append(f"The last failure: {shown(self.view.ledger.last_failure, _LONG).rstrip('.')}.")
        return [*told, self._end()]

    def _tally(self) -> str:
        counts, trials = self.view.counts, len(self.view.courses)
        if trials == 1:
            one = next(status for status, n in counts.items() if n)
            return f"1 trial, {'which is running' if one == 'running' else one}."
        parts = [f"{trials:,} trials"]
        if counts["stopped"]:
            parts.append(f"{_percent(counts['stopped'] / trials)} stopped early")
        parts += [f"{counts[name]:,} {name}" for name in ("running", "failed") if counts[name]]
        return ", ".join(parts) + "."

    def _end(self) -> str:
        verdicts, running = self.view.verdicts, self.view.counts["running"]
        last = ""
        if verdicts:
            last = f" The terminator after {verdicts[-1].finished:,} trials: {shown(verdicts[-1].reason, _LONG)}."
        if self.state == "ended":
            return f"It ended because {shown(self.view.ended, _LONG).rstrip('.')}."
        if self.state == "running":
            return f"It is still going on.{last}"
        lost = f", and {running:,} trial{'s were' if running > 1 else ' was'} under way" if running else ""
        return f"Nobody is working on it now{lost}; run it again and it goes on.{last}"

    def _facts(self) -> list[Fact]:
        facts = []
        of = self.best or self.closest
        if of is not None:
            metric = _named(self.problem.objective.metric)
            note = ("best within " + self.the_limits if self.limits else "best") if self.best else "the closest"
            facts.append(Fact(metric, number_text(of[1].objective), note, "best" if self.best else ""))
            for limit, value in zip(self.limits, of[1].values, strict=True):
                facts.append(_fact(limit, value))
        counts, trials = self.view.counts, len(self.view.courses)
        note = f"{_percent(counts['stopped'] / trials)} stopped early" if counts["stopped"] else ""
        note = ", ".join(part for part in (note, f"{counts['running']:,} running" if counts["running"] else "") if part)
        facts.append(Fact("trials", f"{trials:,}", note))
        paid = sum(course.checks for course in self.view.courses)
        possible = paid + sum(course.saved for course in self.view.courses)
        if possible and self.limits:
            facts.append(Fact("checks paid", _percent(paid / possible), f"{paid:,} of {possible:,}"))
        return facts


def _fact(limit: Constraint, value: float | None) -> Fact:
    if value is None:
        return Fact(_named(limit.metric), "not measured", _bound(limit), "not evaluated")
    over = limit.sign * (value - limit.threshold)
    side = "just so" if over == 0.0 else f"{abs(over):.2g} {'to spare' if over < 0.0 else 'beyond'}"
    role = "valid" if over <= 0.0 else "invalid"
    return Fact(_named(limit.metric), _beside(value, limit.threshold), f"{_bound(limit)}, {side}", role)


def number_text(value: float) -> str:
    """A number as a sentence shows it.

    >>> number_text(0.87812), number_text(1234567.0), number_text(3.0)
    ('0.8781', '1,234,567', '3')
    """
    if value != value or abs(value) == float("inf"):  # noqa: PLR0124 - NaN
        return str(value)
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"  # noqa: PLR2004


def duration(seconds: float) -> str:
    """A span of time as people say it.

    >>> [duration(s) for s in (0.0042, 3.21, 75.0, 5000.0, 1e6)]
    ['4.2 ms', '3.2 s', '75 s', '83 min', '12 days']
    """
    for size, unit, most in ((1e-3, "ms", 1.0), (1.0, "s", 120.0), (60.0, "min", 7200.0), (3600.0, "h", 172_800.0)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}" if seconds / size >= 9.95 else f"{seconds / size:.2g} {unit}"  # noqa: PLR2004
    return f"{seconds / 86_400.0:,.0f} days"


def _beside(value: float, threshold: float) -> str:
    """A number that is to be compared with another, with the digits that tell them apart."""
    if value == threshold or value != value:  # noqa: PLR0124 - NaN
        return number_text(value)
    for digits in range(4, 17):
        if f"{value:.{digits}g}" != f"{threshold:.{digits}g}":
            return number_text(value) if digits == 4 else f"{value:.{digits}g}"  # noqa: PLR2004
    return repr(value)


def _percent(share: float) -> str:
    if 0.0 < share < 0.005 or 0.995 < share < 1.0:  # noqa: PLR2004
        return "<1%" if share < 1.0 / 2.0 else ">99%"
    return f"{share:.0%}" if share < 100.0 else ">9,999%"  # noqa: PLR2004


def _sign(limit: Constraint) -> str:
    return "≤" if limit.sign > 0 else "≥"


def _bound(limit: Constraint) -> str:
    return f"at {'most' if limit.sign > 0 else 'least'} {limit.threshold:g}"


def _named(name: str) -> str:
    return shown(name, _NAME)
