"""How the best found so far got better."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import Rows, empty, figures, params, span, thinned, unit
from fairway.report.marks import Line, Mark, Points, Role
from fairway.report.view import View

Over: TypeAlias = Literal["trials", "seconds", "cost"]
_AXES = {"trials": "trials finished", "seconds": "{} since the first trial began", "cost": "{} of training and checks"}
_MOST = 800  # improvements


def best(view: View, over: Over = "trials") -> Chart:
    """The best feasible objective so far, and the best without limits."""
    if over not in _AXES:
        raise UsageError(f"over={over!r}: 'trials', 'seconds' or 'cost' is expected")
    rows = Rows.of(view)
    title = f"Best {rows.metric} so far"
    x, axis = _along(rows, over)
    limits, sign = bool(view.problem.constraints), view.problem.objective.sign
    finished = rows.finished
    valid = np.where(rows.stratum == 1, sign * rows.objective, np.nan)[finished]
    found = _improvements(valid)
    free = _improvements(sign * rows.peak[finished])
    marks: list[Mark] = []
    if limits and len(free):
        hover = [_peak_text(view, int(number)) for number in finished[free]]
        marks += _steps(x, free, rows.peak[finished], "best ignoring the limits", "other", hover)
    if len(found):
        name = "best within the limits" if limits else "best"
        hover = rows.long_texts(finished[found].tolist())
        marks += _steps(x, found, rows.objective[finished], name, "best", hover)
    if not marks:
        return empty("best", title, "No trial has measured the objective yet.", "nothing measured yet")
    drawn = span(np.concatenate([_lasting(rows.objective[finished], found), _lasting(rows.peak[finished], free)]))
    caption = _caption(rows, found, free) + (" The first trials lie outside of the view." if drawn else "")
    return Chart("best", title, caption, [Panel(axis, Axis(rows.metric, span=drawn), marks)])


def _lasting(y: NDArray[np.float64], at: NDArray[np.intp]) -> NDArray[np.float64]:
    """What was the best after each of the trials (n,), from the first improvement on."""
    return np.repeat(y[at], np.diff(np.append(at, len(y))))


def _along(rows: Rows, over: Over) -> tuple[NDArray[np.float64], Axis]:
    """Where each finished trial lies on the x axis."""
    if over == "trials":
        return np.arange(1.0, len(rows.finished) + 1), Axis(_AXES[over], whole=True)
    if over == "cost":
        x = np.cumsum(rows.seconds[rows.finished])
    else:
        x = np.maximum.accumulate(rows.ended[rows.finished] - rows.began.min(initial=np.inf))
    seconds, name = unit(float(x[-1]) if len(x) else 0.0)
    return x / seconds, Axis(_AXES[over].format(name))


def _improvements(loss: NDArray[np.float64]) -> NDArray[np.intp]:
    """The places in (n,) losses at which the lowest so far falls."""
    filled = np.where(np.isnan(loss), np.inf, loss)
    lowest = np.minimum.accumulate(filled) if len(filled) else filled
    better = np.flatnonzero(filled < np.concatenate([[np.inf], lowest[:-1]]))
    return better[thinned(len(better), _MOST)]


def _steps(
    x: NDArray[np.float64], at: NDArray[np.intp], y: NDArray[np.float64], name: str, role: Role, hover: list[str]
) -> list[Mark]:
    """A line that stays level between improvements and up to the last trial, and a point at each of them."""
    line = Line(np.append(x[at], x[-1]), np.append(y[at], y[at[-1]]), name, role, step=True, width=2)
    points = Points(x[at], y[at], name, role, symbol="circle" if role == "best" else None, size=5, hover=hover)
    if role != "best":
        return [line, points]
    return [line, points, Points(x[at[-1:]], y[at[-1:]], "best", "best", size=14, hover=hover[-1:])]


def _peak_text(view: View, number: int) -> str:
    course = view.courses[number]
    assert course.peak is not None
    return f"trial {number}, step {course.peak.step}, best ignoring the limits\n{figures(course.peak.objective)}\n" + (
        params(course.params)
    )


def _caption(rows: Rows, found: NDArray[np.intp], free: NDArray[np.intp]) -> str:
    finished = rows.finished
    limits = bool(rows.view.problem.constraints)
    if not len(found):
        return f"None of {len(finished):,} trials is known to be within the limits; the line ignores them."
    number = int(finished[found[-1]])
    value = float(rows.objective[number])
    text = f"The best {rows.metric}{' within the limits' if limits else ''} is {figures(value)}, of trial {number}"
    if not limits or not len(free):
        return f"{text}; each point is an improvement, at the end of its trial."
    gap = abs(float(rows.peak[finished[free[-1]]]) - value)
    cost = figures(gap) if gap else "nothing"
    return f"{text}; the limits cost {cost}. Each point is an improvement, at the end of its trial."
