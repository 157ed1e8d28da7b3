"""What is known of a study's limits beyond the rows that the search judged by: its badge and its certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from fairway.engine.certificate import Attempt, Certificate, Finding
from fairway.problem import Problem
from fairway.report.view import View
from fairway.text import beside, confidence, counted, limit_in_words, limits, named, number, percent, plus_minus, shown

Kind: TypeAlias = Literal["certified", "refused", "open"]
"""A certificate was given, was refused, or was not asked for yet."""

LONGEST_SENTENCE = 2000
"""Letters of a certificate's sentence, or of a warning."""

_REFUSED = "not certified"


class Badge(NamedTuple):
    """The first thing a page says of the limits: a few words, and the certificate's sentence if there is one."""

    kind: Kind
    words: str
    sentence: str = ""


class Table(NamedTuple):
    """Rows of texts under headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def badge(view: View) -> Badge | None:
    """What may be said of a study's limits; None where nothing feasible was found, or where there is no limit.

    >>> import fairway as fw
    >>> from fairway.report.view import View
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtMost("ms", 9.0)], seed=0)
    >>> badge(View(study)) is None
    True
    >>> best = study.tell(study.ask(), loss=0.5, ms=8.0)
    >>> badge(View(study)).words
    'within the limit on the judging rows; not yet certified'
    """
    certificate = view.certificate
    if certificate is not None and view.is_certificate_current:
        return _badge(certificate)
    if view.best_number is None or not view.problem.limits:
        return None
    words = f"within {limits(view.problem)} on the judging rows; not yet certified"
    if certificate is not None:
        words += ": the certificate below is from before a better model was found, or limits were changed"
    return Badge("open", words)


@lru_cache(maxsize=16)  # a sentence may take a second: it says how many rows would have done
def _badge(certificate: Certificate) -> Badge:
    sentence, n = shown(certificate, LONGEST_SENTENCE), len(certificate.warnings)
    if certificate.certified:
        mind = f" Mind the warning{'s' * (n > 1)} below." if n else ""
        return Badge("certified", "certified", sentence + mind)
    return Badge("refused", _REFUSED, sentence.removeprefix(f"{_REFUSED}: "))


def attempts(problem: Problem, certificate: Certificate) -> Table:
    """Every candidate that was tested, in the order of the tests."""
    of_limits = [
        heading
        for name in (named(each.metric) for each in problem.limits)
        for heading in (f"{name}, judging rows", f"{name}, fresh rows", "rows", "p")
    ]
    headings = ("trial", "step", "result", f"{named(problem.objective.metric)}, judging rows", *of_limits)
    return Table(headings, tuple(_attempt(one) for one in certificate.tested))


def _attempt(one: Attempt) -> tuple[str, ...]:
    candidate = one.candidate
    judged = zip(one.findings, candidate.values, candidate.errors or (None,) * len(candidate.values), strict=True)
    cells = [cell for finding, value, error in judged for cell in _finding(finding, value, error)]
    result = "passed" if one.passed else "failed"
    return (str(candidate.number), str(candidate.step), result, number(candidate.objective), *cells)


def _finding(finding: Finding, value: float, error: float | None) -> tuple[str, str, str, str]:
    evidence, threshold = finding.evidence, finding.constraint.threshold
    rows = f"{evidence.rows:,}" if evidence.rows else "none needed"
    return plus_minus(value, error, threshold), beside(finding.value, threshold), rows, f"{finding.p_value:.2g}"


def cells(certificate: Certificate) -> Table:
    """The rows behind each limit of the model that the certificate speaks of, by group."""
    found = [
        (named(finding.constraint.metric), shown(cell, 80), counts)
        for finding in certificate.findings
        for cell, counts in finding.evidence.cells().items()
    ]
    columns = list(dict.fromkeys(name for _, _, counts in found for name in counts))
    columns.sort(key=lambda name: name != "rows")
    several = len(certificate.findings) > 1
    headings = (*(["limit"] if several else []), "group", *(_WORDS.get(name, shown(name, 40)) for name in columns))
    rows = tuple(
        (*([metric] if several else []), cell, *(_count(counts[name]) if name in counts else "" for name in columns))
        for metric, cell, counts in found
    )
    return Table(headings, rows)


_WORDS = {"positive": "positive decisions"}


def _count(found: float) -> str:
    """Counts are floats where rows have weights."""
    return number(int(found) if float(found).is_integer() else found)


def facts(certificate: Certificate) -> list[tuple[str, str]]:
    """How the certificate was made, line by line."""
    shares, overlap = certificate.positive_share, certificate.overlap
    told = [
        ("confidence", f"{confidence(certificate.confidence)}{' (about)' if certificate.approximate else ''}"),
        ("uses of these rows", str(certificate.uses)),
        ("candidates tested", f"{len(certificate.tested)} of {certificate.candidates}"),
    ]
    if shares is not None:
        told.append(
            ("positive decisions", f"{percent(shares[0])}, where {percent(shares[1])} of the rows are positive")
        )
    seen = "not checked" if overlap is None else f"{counted(overlap, 'fresh row')} equal to one of the search"
    told.append(("overlap", seen))
    if certificate.digest:
        told.append(("digest of the decisions", certificate.digest))
    return told


@lru_cache(maxsize=16)
def section(problem: Problem, certificate: Certificate) -> dict[str, Any]:
    """A certificate as a page shows it."""
    which = f"trial {certificate.number:,}, step {certificate.step:,}"
    return {
        "certified": certificate.certified,
        "number": certificate.number,
        "title": f"The certificate: {which}" if certificate.certified else f"No certificate: {which} failed",
        "facts": [[label, value] for label, value in facts(certificate)],
        "warnings": [shown(warning, LONGEST_SENTENCE) for warning in certificate.warnings],
        "attempts": attempts(problem, certificate)._asdict(),
        "cells": cells(certificate)._asdict(),
    }


def to_json(certificate: Certificate) -> dict[str, Any]:
    """A certificate as JSON values: everything but the model.

    >>> import fairway as fw
    >>> from fairway.evidence import Exact
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), [fw.AtMost("bytes", 900)], seed=0)
    >>> best = study.tell(study.ask(), loss=0.5, bytes=800.0)
    >>> found = to_json(study.certify(lambda model: Exact(800), models=lambda best: "a model"))
    >>> found["certified"], found["trial"], found["tested"][0]["limits"]["bytes"]["p_value"]
    (True, 0, 0.0)
    """
    shares = certificate.positive_share or (None, None)
    return {
        "certified": certificate.certified,
        "sentence": str(certificate),
        "confidence": certificate.confidence,
        "uses": certificate.uses,
        "trial": certificate.number,
        "step": certificate.step,
        "params": dict(certificate.params),
        "metrics": dict(certificate.metrics),
        "candidates": certificate.candidates,
        "tested": [_attempt_json(one) for one in certificate.tested],
        "bounds": certificate.bounds,
        "rows_needed": certificate.rows_needed,
        "positive_share": shares[0],
        "base_rate": shares[1],
        "overlap": certificate.overlap,
        "warnings": certificate.warnings,
        "digest": certificate.digest,
    }


def _attempt_json(one: Attempt) -> dict[str, Any]:
    candidate, findings = one.candidate, one.findings
    names = [each.constraint.metric for each in findings]
    known: Mapping[str, float | None] = dict(zip(names, candidate.errors or (None,) * len(names), strict=True))
    return {
        "trial": candidate.number,
        "step": candidate.step,
        "objective": candidate.objective,
        "passed": one.passed,
        "judging_rows": {
            name: {"value": value, "error": known[name]} for name, value in zip(names, candidate.values, strict=True)
        },
        "limits": {each.constraint.metric: _finding_json(each) for each in findings},
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    evidence = finding.evidence
    return {
        "limit": limit_in_words(finding.constraint),
        "value": finding.value,
        "error": evidence.error if math.isfinite(evidence.error) else None,
        "rows": evidence.rows,
        "p_value": finding.p_value,
        "cells": evidence.cells(),
    }
