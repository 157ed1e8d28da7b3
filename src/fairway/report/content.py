"""What a page shows of a study, as JSON: the same for a file and for the live page.

Ten thousand trials must fit, so a trial is a row of plain values, in the order of `columns`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from fairway import feasibility
from fairway.report.chart import Chart
from fairway.report.summary import goal, summarize
from fairway.report.view import STRATA, View
from fairway.space import Choice, Parameter
from fairway.text import shown

STATUSES = ("running", "completed", "stopped", "failed")
"""By the numbers in a row."""

_EXACT = 2**53  # beyond it, JavaScript rounds whole numbers
_SIMULATED = 1e9  # virtual time begins at 0, and this is 2001
_CELL, _REASON, _NOTES = 120, 300, 300  # letters, at most


def script(data: Any) -> str:
    r"""JSON that may stand inside a script element, whatever its texts are.

    >>> script({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and its kind are escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def columns(view: View) -> list[dict[str, str]]:
    """What stands in each place of a row: `kind` says how it is shown and sorted."""
    problem = view.problem
    direction = "descending" if problem.objective.sign < 0 else "ascending"
    metric = shown(problem.objective.metric, _CELL)
    return [
        {"label": "trial", "kind": "trial"},
        {"label": "status", "kind": "status"},
        {"label": "limits", "kind": "limits"},
        {"label": metric, "kind": "objective", "best": direction},
        *({"label": shown(limit.metric, _CELL), "kind": "number"} for limit in problem.constraints),
        {"label": "best step", "kind": "count"},
        {"label": "steps", "kind": "count"},
        *({"label": shown(name, _CELL), "kind": "param"} for name in view.space),
        {"label": "checks", "kind": "count"},
        {"label": "training (s)", "kind": "number"},
        {"label": "checks (s)", "kind": "number"},
        {"label": "reason", "kind": "text"},
        {"label": "notes", "kind": "text"},
    ]


def rows(view: View, numbers: Iterable[int]) -> list[list[Any]]:
    """Some trials, by the columns."""
    return [_row(view, number) for number in numbers]


def _row(view: View, number: int) -> list[Any]:
    course, problem = view.courses[number], view.problem
    checkpoint = course.checkpoint
    limits: int | None = None
    metrics: list[Any] = [None] * (1 + len(problem.constraints))
    if checkpoint is not None:
        metrics = [_number(value) for value in (checkpoint.objective, *checkpoint.values)]
        if problem.constraints:
            amount = feasibility.known(problem, checkpoint)
            limits = 0 if amount is None else 1 if amount == 0.0 else 2
    return [
        number,
        STATUSES.index(course.status),
        limits,
        *metrics,
        None if checkpoint is None else checkpoint.step,
        course.steps or None,
        *(_value(course.params[name]) if name in course.params else None for name in view.space),
        course.checks or None,
        _number(course.train_ns / 1e9) if course.train_ns else None,
        _number(course.check_ns / 1e9) if course.check_ns else None,
        shown(course.reason, _REASON) or None,
        shown(json.dumps(dict(course.notes), ensure_ascii=False, default=str), _NOTES) if course.notes else None,
    ]


def study(view: View) -> dict[str, Any]:
    """All of a study but its trials and its pictures."""
    said = summarize(view)
    return {
        "name": shown(view.name, _REASON),
        "goal": goal(view.problem),
        "state": said.state,
        "headline": said.headline,
        "sentences": said.sentences,
        "facts": [fact._asdict() for fact in said.facts],
        "best": None if said.number is None else configuration(view, said.number),
        "feasible": view.best is not None,
    }


def configuration(view: View, number: int) -> dict[str, Any]:
    """The parameters of one trial, with their ranges and where in these they lie, from 0 to 1."""
    course = view.courses[number]
    parameters = [
        {
            "name": shown(name, _CELL),
            "value": shown(_value(course.params[name]), _REASON),
            "exact": shown(course.params[name], _REASON),
            "range": shown(_range(parameter), _CELL),
            "at": _number(float(course.x[i])) if not isinstance(parameter, Choice) else None,
        }
        for i, (name, parameter) in enumerate(view.space.items())
        if name in course.params
    ]
    copied = json.dumps(dict(course.params), indent=1)
    return {"number": number, "parameters": parameters, "json": copied}


def trial(view: View, number: int) -> dict[str, Any]:
    """One trial, in full."""
    course = view.courses[number]
    (row,) = rows(view, [number])
    metrics = dict(zip(view.problem.metrics, row[3:], strict=False))
    facts: list[tuple[str, Any]] = [
        ("status", course.status),
        ("reason", shown(course.reason, 4000)),
        *([("limits", STRATA[row[2]])] if row[2] is not None else []),
        *((shown(name, _CELL), value) for name, value in metrics.items()),
        ("best step", row[3 + len(metrics)]),
        ("steps reported", course.steps or None),
        ("steps planned", course.total),
        ("checked", None if course.interval is None or not view.problem.constraints else _pace(course.interval)),
        ("checks paid", course.checks or None),
        ("checks not paid", course.saved or None),
        ("training (s)", _number(course.train_ns / 1e9) if course.train_ns else None),
        ("checks (s)", _number(course.check_ns / 1e9) if course.check_ns else None),
        ("began", _moment(course.began)),
        ("ended", _moment(course.ended)),
        ("worker", str(course.worker)),
    ]
    notes = json.dumps(dict(course.notes), ensure_ascii=False, indent=1, default=str) if course.notes else ""
    return {
        "status": course.status,
        "facts": [[label, value] for label, value in facts if value not in (None, "")],
        "configuration": configuration(view, number),
        "notes": "\n".join(shown(line, 2000) for line in notes.splitlines()[:500]),
        "last": number + 1 == len(view.courses),
    }


def charts(drawn: Iterable[Chart]) -> list[dict[str, Any]]:
    """Pictures, as a page draws them."""
    return [
        {"name": one.name, "title": shown(one.title), "caption": shown(one.caption, 1000), **one.plotly()}
        for one in drawn
    ]


def algorithms(view: View) -> str:
    """What searched: the sampler, the stopper and the terminator, as the log names them, and the seed."""
    parts = [f"{part} {_kind(view.config.get(part))}" for part in ("sampler", "stopper", "terminator")]
    return ", ".join([part for part in parts if not part.endswith(" ")] + [f"seed {view.identity.seed}"])


def _kind(named: Any) -> str:
    return shown(named.get("kind", ""), _CELL) if isinstance(named, dict) else shown(named or "", _CELL)


def _value(value: Any) -> Any:
    """A parameter's value in a cell."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return value if abs(value) <= _EXACT else shown(value, _CELL)
    return _number(value) if isinstance(value, float) else shown(value, _CELL)


def _number(value: float | None, digits: int = 6) -> float | str | None:
    """A number for JSON: what it cannot say is a text, and nobody reads more digits in a table."""
    if value is None:
        return None
    return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)


def _pace(interval: int) -> str:
    return "every step" if interval == 1 else f"every {interval:,} steps"


def _moment(at: float) -> dict[str, float] | None:
    """A time of day, in seconds; None for one that is not, or is a simulation's."""
    return {"time": round(at, 3)} if math.isfinite(at) and at > _SIMULATED else None


def _range(parameter: Parameter) -> str:
    if isinstance(parameter, Choice):
        return f"one of {', '.join(map(str, parameter.options))}"
    low, high = parameter.low, parameter.high  # type: ignore[attr-defined]
    return f"{low:g} to {high:g}{', log' if parameter.log else ''}"  # type: ignore[attr-defined]
