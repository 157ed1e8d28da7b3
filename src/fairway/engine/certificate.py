"""A certificate as people read it: what was tested on fresh rows, what passed, and one sentence about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from fairway.engine.certification import Candidate, Certification, level_of
from fairway.engine.course import Course
from fairway.evidence import Decisions, Evidence, from_json, rows_needed
from fairway.evidence.decisions import digest
from fairway.problem import Constraint, Problem
from fairway.tables import Table
from fairway.text import beside, confidence, counted, limit_in_words, named, number, percent

_FAR = 2.0  # warn if the share of positive decisions is over this many times the base rate, or under 1/this of it
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_OTHER_LEVELS = (0.9, 0.8)


class Finding(NamedTuple):
    """What the fresh rows say about one limit of one model."""

    constraint: Constraint
    evidence: Evidence
    p_value: float

    @property
    def value(self) -> float:
        """The metric on the fresh rows."""
        return self.evidence.value


class Attempt(NamedTuple):
    """One candidate that was tested."""

    candidate: Candidate
    passed: bool
    findings: tuple[Finding, ...]

    @property
    def p_value(self) -> float:
        """The largest of the limits' p-values, which decides."""
        return max((finding.p_value for finding in self.findings), default=0.0)


@dataclass(frozen=True, eq=False)
class Certificate:
    """What `study.certify` found: a model that keeps its limits on rows the search never used, or why there is none.

    `model` is the very object that was tested (None if the certificate was read from a log), and `digest` a hash of its
    decisions on the fresh rows. `number`, `step`, `params` and `metrics` are those of the certified checkpoint, as the
    search measured it; without a certificate, of the first candidate that failed. `tested` lists the tested candidates
    in order, each with its findings: value, rows, cells and p-value of each limit. `str()` is one sentence.

    >>> import fairway as fw
    >>> from fairway.evidence import Mean
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("errors", 0.1)], seed=0)
    >>> study.optimize(lambda trial: {"auc": 0.8, "errors": fw.Measured(0.05, error=0.01)}, trials=1)
    >>> certificate = study.certify(lambda model: Mean([0, 1, 0, 0] * 5 + [0] * 200), models=lambda best: "a model")
    >>> certificate.certified, certificate.model
    (True, 'a model')
    >>> print(certificate)
    errors is at most 0.1 with 95% confidence, for rows drawn like these (0.02273 on 220 rows nobody searched by; trial
    0, step 1; the only candidate tested; overlap with the search's rows was not checked).
    """

    certified: bool
    confidence: float
    uses: int
    number: int
    step: int
    params: Mapping[str, Any]
    metrics: Mapping[str, float | None]
    tested: tuple[Attempt, ...]
    chosen: int  # the place of this checkpoint among those tested
    candidates: int  # their number, tested or not
    overlap: int | None  # fresh rows identical to a row of the search; None: not checked
    digest: str | None
    model: Any = field(default=None, repr=False)

    @property
    def attempt(self) -> Attempt:
        """The test of the certified candidate; without a certificate, of the first that failed."""
        return self.tested[self.chosen]

    @property
    def level(self) -> float:
        """The p-value that a candidate must not exceed."""
        return level_of(self.confidence, self.uses)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of `attempt`, one for each limit."""
        return self.attempt.findings

    @property
    def approximate(self) -> bool:
        """Whether a limit was tested by a bootstrap, whose level holds only approximately."""
        return any(finding.evidence.approximate for finding in self.findings)

    @cached_property
    def bounds(self) -> dict[str, float]:
        """A certified bound on each limited metric of the first candidate that failed; empty if certified.

        This is the only other claim that these rows allow (Hsu and Berger, 1999). Several limits share the level.
        """
        if self.certified:
            return {}
        share = self.level / len(self.findings)
        return {each.constraint.metric: each.evidence.bound(each.constraint, 1.0 - share) for each in self.findings}

    @cached_property
    def rows_needed(self) -> int | None:
        """How many fresh rows a model like the failed one needs to pass in four of five cases.

        None if a certificate was given, or if the model breaks a limit on these rows, so that no number would do.
        """
        needed = [rows_needed(each.evidence, each.constraint, 1.0 - self.level) for each in self._failed]
        return None if not needed or None in needed else max(n for n in needed if n is not None)

    @property
    def _failed(self) -> list[Finding]:
        return [each for each in self.findings if each.p_value > self.level]

    @property
    def positive_share(self) -> tuple[float, float] | None:
        """The share of positive decisions among the fresh rows, and the base rate; None where neither is known."""
        return _shares(self.attempt)

    @property
    def warnings(self) -> list[str]:
        """What to know before shipping the model."""
        said = []
        shares = self.positive_share
        if shares is not None and _is_far(self.attempt):
            said.append(
                f"{percent(shares[0])} of its decisions are positive where {percent(shares[1])} of the rows are: "
                "a model that decides the same for everybody is fair, and useless"
            )
        if self.overlap:
            same = "is identical to a row" if self.overlap == 1 else "are identical to rows"
            said.append(f"{counted(self.overlap, 'fresh row')} {same} of the search, no more than duplicates explain")
        return said

    def matches(self, decisions: Any) -> bool:
        """Whether decisions on the fresh rows, in their order, are those of the certified model."""
        return self.digest is not None and self.digest == digest(decisions)

    def __str__(self) -> str:
        return self._granted() if self.certified else self._refused()

    def _repr_html_(self) -> str:
        rows = [
            (
                each.constraint.metric,
                limit_in_words(each.constraint),
                beside(each.value, each.constraint.threshold),
                f"{each.evidence.rows:,}" if each.evidence.rows else "",
                f"{each.p_value:.2g}",
            )
            for each in self.findings
        ]
        about = "about " if self.approximate else ""
        title = (
            f"{'certified' if self.certified else 'not certified'} at {about}{confidence(self.confidence)} confidence"
        )
        title += f": trial {self.number}, step {self.step}"
        columns = ("metric", "limit", "on fresh rows", "rows", f"p-value (at most {number(self.level)} passes)")
        return Table(title, rows, columns, " ".join([str(self), *(f"Warning: {one}." for one in self.warnings)])).html()

    def _granted(self) -> str:
        limits = " and ".join(
            f"{named(each.constraint.metric)} is {limit_in_words(each.constraint)}" for each in self.findings
        )
        values = ", ".join(
            f"{'' if len(self.findings) == 1 else named(each.constraint.metric) + ' '}{_measured(each)}"
            for each in self.findings
        )
        about = "about " if self.approximate else ""
        shared = "" if self.uses == 1 else f", as one of {self.uses} certificates that share the level"
        return (
            f"{limits} with {about}{confidence(self.confidence)} confidence{shared}, for rows drawn like these "
            f"({values}; trial {self.number}, step {self.step}; {_place(self.chosen, len(self.tested))}"
            f"{self._unchecked()})."
        )

    def _unchecked(self) -> str:
        bootstrap = "; by a bootstrap" if self.approximate else ""
        return bootstrap + ("; overlap with the search's rows was not checked" if self.overlap is None else "")

    def _refused(self) -> str:
        failed = ", ".join(
            f"{named(each.constraint.metric)} {_measured(each)} where {limit_in_words(each.constraint)} is allowed "
            f"(p = {each.p_value:.2g})"
            for each in self._failed
        )
        needed = self.rows_needed
        rows = "no number of rows would do" if needed is None else f"about {needed:,} rows would be needed"
        instead = " and ".join(
            f"{named(limit.metric)} {'<=' if limit.sign > 0 else '>='} {number(self.bounds[limit.metric])}"
            for limit, _, _ in self.findings
        )
        which = f"trial {self.number}, step {self.step}"
        return f"not certified: {failed}; at this value {rows}. {instead} is certified for {which}.{self._elsewhere()}"

    def _elsewhere(self) -> str:
        """A sentence if the model would have passed at a lower confidence, which these rows can no longer certify."""
        for lower in _OTHER_LEVELS:
            if lower < self.confidence and self.attempt.p_value <= level_of(lower, self.uses):
                return f" At {confidence(lower)} confidence it would have passed, which needs other fresh rows."
        return ""


def certificate(problem: Problem, certification: Certification, courses: Sequence[Course]) -> Certificate:
    """The certificate that a sequence of tests has led to so far; the sequence may end after any test."""
    sealed, tested = certification.sealed, list[Attempt]()
    for candidate, test in zip(certification.candidates, certification.tests, strict=False):
        findings = tuple(
            Finding(each, from_json(test.evidence[each.metric]), test.p_values[each.metric]) for each in problem.limits
        )
        tested.append(Attempt(_of_limits(candidate, problem), certification.passes(test), findings))
    passed = [i for i, one in enumerate(tested) if one.passed]
    loss = problem.objective.sign
    order = sorted(passed, key=lambda i: (_is_far(tested[i]), loss * tested[i].candidate.objective))
    chosen = order[0] if passed else len(tested) - 1
    candidate = certification.candidates[chosen]
    return Certificate(
        certified=bool(passed),
        confidence=sealed.confidence,
        uses=sealed.uses,
        number=candidate.number,
        step=candidate.step,
        params=dict(courses[candidate.number].params),
        metrics=dict(zip(problem.metrics, (candidate.objective, *candidate.values), strict=True)),
        tested=tuple(tested),
        chosen=chosen,
        candidates=len(sealed.candidates),
        overlap=sealed.overlap,
        digest=certification.tests[chosen].digest,
    )


def _of_limits(candidate: Candidate, problem: Problem) -> Candidate:
    """A candidate with one value for each limit, like its findings; tracked metrics are not tested."""
    limits = [i for i, one in enumerate(problem.constraints) if one.has_limit]
    errors = tuple(candidate.errors[i] for i in limits) if candidate.errors else ()
    return candidate._replace(values=tuple(candidate.values[i] for i in limits), errors=errors)


def _shares(attempt: Attempt) -> tuple[float, float] | None:
    found = [each.evidence for each in attempt.findings if isinstance(each.evidence, Decisions)]
    return (found[0].positive_share, found[0].base_rate) if found else None


def _is_far(attempt: Attempt) -> bool:
    """Whether the share of positive decisions is far from the base rate: such a model may be fair and useless.

    It is chosen only if no other candidate passed. Choosing among those that passed costs no confidence.
    """
    shares = _shares(attempt)
    return shares is not None and not 1.0 / _FAR <= shares[0] / max(shares[1], 1e-9) <= _FAR


def _measured(finding: Finding) -> str:
    shown = beside(finding.value, finding.constraint.threshold)
    return f"{shown} on {counted(finding.evidence.rows, 'row')} nobody searched by" if finding.evidence.rows else shown


def _place(place: int, n: int) -> str:
    if n == 1:
        return "the only candidate tested"
    which = _PLACES[place] if place < len(_PLACES) else f"number {place + 1}"
    return f"{which} of {_WORDS[n] if n < len(_WORDS) else n} candidates tested"
