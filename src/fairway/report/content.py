"""What a page shows of a study, as JSON: the same for a file and for the live page.

Ten thousand trials must fit, so a trial is a row of plain values, in the order of `columns`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from fairway.engine.course import Course
from fairway.engine.limits import differences
from fairway.hashing import DIGEST
from fairway.parameters import Choice, Float, Int, Parameter
from fairway.report.certificates import badge, section
from fairway.report.chart import Chart
from fairway.report.summary import summarize
from fairway.report.view import STRATA, View
from fairway.text import counted, goal, measured, moment, number, plus_minus, shown

STATUSES = ("running", "completed", "stopped", "failed")
"""By the numbers in a row."""

_EXACT = 2**53  # beyond it, JavaScript rounds whole numbers
_SIMULATED = 1e9  # virtual time begins at 0, and this is 2001
_CELL, _TEXT = 120, 300  # characters, at most
_NOTED = 50  # trials whose later notes are listed


class _Column(NamedTuple):
    label: str
    kind: str  # how it is shown and sorted
    of: Callable[[int, Course], Any]  # a trial


def _columns(view: View) -> list[_Column]:
    constraints, objective = view.problem.constraints, view.problem.objective.metric
    limits = [
        column
        for i, name in enumerate(constraint.metric for constraint in constraints)
        for column in (
            _Column(name, "number", partial(_metric, i + 1)),
            _Column(f"{name} ±", "error", partial(_error, i)),  # shown beside its metric
        )
    ]
    columns = [
        _Column("trial", "trial", lambda k, _: k),
        _Column("status", "status", lambda _, course: STATUSES.index(course.status)),
        _Column("constraints", "limits", lambda k, _: view.stratum(k) if constraints else None),
        _Column(objective, "objective", partial(_metric, 0)),
        *limits,
        _Column("best step", "count", lambda _, course: course.checkpoint and course.checkpoint.step),
        _Column("steps", "count", lambda _, course: course.steps or None),
        *(_Column(name, "param", partial(_param, name)) for name in view.space.names),
        _Column("checks paid", "count", lambda _, course: course.checks or None),
        _Column("training (s)", "number", lambda _, course: _cell(course.train_ns / 1e9) or None),
        _Column("checks (s)", "number", lambda _, course: _cell(course.check_ns / 1e9) or None),
        _Column("reason", "text", lambda _, course: _why(course) or None),
        _Column("notes", "text", lambda _, course: shown(_notes(course), _TEXT) or None),
    ]
    return [column._replace(label=shown(column.label, _CELL)) for column in columns]


def columns(view: View) -> list[dict[str, str]]:
    """The columns of a row; `kind` says how one is shown and sorted."""
    better = {"objective": {"best": "descending" if view.problem.objective.sign < 0 else "ascending"}}
    return [{"label": one.label, "kind": one.kind, **better.get(one.kind, {})} for one in _columns(view)]


def rows(view: View, numbers: Iterable[int]) -> list[list[Any]]:
    """Some trials, by the columns."""
    table = _columns(view)
    return [[column.of(k, view.courses[k]) for column in table] for k in numbers]


def _metric(i: int, _: int, course: Course) -> Any:
    value = course.checkpoint and (course.checkpoint.objective, *course.checkpoint.values)[i]
    return None if value is None else _cell(value)


def _error(i: int, _: int, course: Course) -> Any:
    error = course.checkpoint.errors[i] if course.checkpoint and course.checkpoint.errors else None
    return None if error is None else _cell(error)


def _param(name: str, _: int, course: Course) -> Any:
    return _cell(course.params[name]) if name in course.params else None


def _notes(course: Course, indent: int | None = None) -> str:
    notes = dict(course.notes)
    return json.dumps(notes, ensure_ascii=False, indent=indent, default=str) if notes else ""


def study(view: View) -> dict[str, Any]:
    """Everything about a study except its trials and its pictures."""
    said, on_top, certificate = summarize(view), badge(view), view.certificate
    return {
        "name": shown(view.name, _TEXT),
        "goal": goal(view.problem),
        **said._asdict(),
        "facts": [fact._asdict() for fact in said.facts],
        "best": None if said.number is None else configuration(view, said.number),
        "feasible": view.best_number is not None,
        "badge": None if on_top is None else on_top._asdict(),
        "certificate": None
        if certificate is None
        else {
            **section(view.problem, certificate),
            "configuration": configuration(view, certificate.number)
            if certificate.certified and view.is_certificate_current
            else None,
        },
        "changes": changes(view),
        "later": later(view),
    }


def changes(view: View) -> list[list[str]]:
    """When limits changed, and what."""
    ledger = view.ledger
    known = ledger.limits
    said = [", ".join(differences(known.after(i), known.after(i + 1))) for i in range(len(known.changes))]
    whens = zip(said, known.begun, known.changes, strict=True)
    return [
        [f"after {counted(n, 'trial')}, {moment(event.at)}", shown(what, _TEXT)] for what, n, event in whens if what
    ]


def later(view: View) -> list[list[str]]:
    """What was measured after the search: of the study first, then of its trials, the last ones if there are many."""
    numbers = sorted(k for k in view.later if k is not None)
    said = {name: value for name, value in view.later.get(None, {}).items() if not name.startswith(DIGEST)}
    lines = [["the study", _pairs(said)]] if said else []
    lines += [[f"trial {k:,}", _pairs(view.later[k])] for k in numbers[-_NOTED:]]
    left = len(numbers) - _NOTED
    return [*lines, ["", f"and {counted(left, 'earlier trial')}"]] if left > 0 else lines


def _pairs(notes: Mapping[str, Any]) -> str:
    return ", ".join(f"{shown(name, _CELL)} {_said(note)}" for name, note in notes.items())


def _said(note: Any) -> str:
    if isinstance(note, int | float) and not isinstance(note, bool):
        return number(note)
    return shown(note if isinstance(note, str) else json.dumps(note, ensure_ascii=False, default=str), _TEXT)


def line(view: View) -> dict[str, Any]:
    """What the list of studies shows of one."""
    best, certificate = view.best, view.certificate
    is_certified = certificate is not None and certificate.certified and view.is_certificate_current
    certified = f"trial {certificate.number:,} is certified" if certificate is not None and is_certified else ""
    found = "" if best is None else measured(best.metrics.keys(), best.metrics.values(), best.errors)
    return {
        "goal": goal(view.problem),
        "trials": len(view.courses),
        "best": "; ".join(filter(None, (found, certified))),
        "updated": _moment(view.ledger.last_at),
    }


def configuration(view: View, number: int) -> dict[str, Any]:
    """The parameters of one trial, with their ranges and where in these they lie, from 0 to 1."""
    course = view.courses[number]
    x = view.space.encode(course.params) if course.params else [math.nan] * len(view.space)  # a repair left it out
    parameters = [
        {
            "name": shown(view.space.name_of(key), _CELL),
            "value": shown(_cell(course.params[view.space.name_of(key)]), _TEXT),
            "exact": shown(course.params[view.space.name_of(key)], _TEXT),
            "range": shown(_range(parameter), _CELL),
            "at": _cell(float(x[i])) if not isinstance(parameter, Choice) else None,
        }
        for i, (key, parameter) in enumerate(view.space.items())
        if not math.isnan(x[i])
    ]
    return {"number": number, "parameters": parameters, "json": json.dumps(dict(course.params), indent=1)}


def trial(view: View, number: int) -> dict[str, Any]:
    """One trial, in full."""
    course, stratum, kinds = view.courses[number], view.stratum(number), ("objective", "number", "count")
    numbers = [(column.label, column.of(number, course)) for column in _columns(view) if column.kind in kinds]
    if course.checkpoint is not None and course.checkpoint.errors:
        triples = zip(view.problem.constraints, course.checkpoint.values, course.checkpoint.errors, strict=True)
        exact = {
            shown(one.metric, _CELL): plus_minus(value, error, one.threshold if one.has_limit else value)
            for one, value, error in triples
            if value is not None and error is not None
        }
        numbers = [(label, exact.get(label, value)) for label, value in numbers]
    pace = None if course.interval is None or not view.problem.constraints else f"every {course.interval:,} steps"
    facts = [
        ("status", course.status),
        ("reason", shown(course.reason, 4000)),
        ("raised at", "\n".join(shown(line, 400) for line in course.traceback.splitlines()[:20])),
        ("constraints", None if stratum is None or not view.problem.constraints else STRATA[stratum]),
        *numbers,
        ("steps planned", course.total),
        ("checked", "every step" if pace and course.interval == 1 else pace),
        ("checks not paid", course.saved or None),
        ("began", {"time": at} if (at := _moment(course.began)) else None),
        ("ended", {"time": at} if (at := _moment(course.ended)) else None),
        ("worker", str(course.worker)),
    ]
    return {
        "status": course.status,
        "facts": [[label, value] for label, value in facts if value not in (None, "")],
        "configuration": configuration(view, number),
        "notes": "\n".join(shown(line, 2000) for line in _notes(course, indent=1).splitlines()[:500]),
        "last": number + 1 == len(view.courses),
    }


def charts(drawn: Iterable[Chart]) -> list[dict[str, Any]]:
    """Pictures, as a page draws them."""
    return [
        {
            "name": one.name,
            "title": shown(one.title),
            "caption": shown(one.caption, 1000),
            "moves": one.moves,
            **one.plotly(),
        }
        for one in drawn
    ]


def algorithms(view: View) -> str:
    """What searched: the sampler, the stopper and the terminator, as the log names them, and the seed."""
    named = ((part, view.config.get(part)) for part in ("sampler", "stopper", "terminator"))
    kinds = ((part, kind.get("kind", "") if isinstance(kind, dict) else kind) for part, kind in named)
    return ", ".join([*(f"{part} {shown(kind, _CELL)}" for part, kind in kinds if kind), f"seed {view.identity.seed}"])


def _why(course: Course) -> str:
    """The reason of a trial's end, with the line of the user's code that raised."""
    reason = shown(course.reason, _TEXT)
    return f"{reason} ({shown(course.raised_at, _TEXT)})" if course.raised_at else reason


def _cell(value: Any) -> Any:
    """A value for a table: floats are rounded; what JSON or JavaScript cannot hold, such as NaN, is a text."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT:
        return value
    return shown(value, _CELL)


def _moment(at: float) -> float | None:
    """A time of day, in seconds; None if there is none, or if it is a simulation's."""
    return round(at, 3) if _SIMULATED < at < math.inf else None


def _range(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return f"one of {', '.join(map(str, parameter.options))}"
    assert isinstance(parameter, Float | Int)
    return f"{parameter.low:g} to {parameter.high:g}{', log' if parameter.log else ''}"
