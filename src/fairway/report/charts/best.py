"""How the best found so far got better."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.report.chart import Axis, Chart, Line, Panel, Points
from fairway.report.charts.axes import span, thinned
from fairway.report.charts.rows import Rows, empty
from fairway.report.marks import Mark, Role
from fairway.report.view import View
from fairway.study import Study
from fairway.text import number, params, unit

Over: TypeAlias = Literal["trials", "seconds", "cost"]
_AXES = {"trials": "trials finished", "seconds": "{} since the first trial began", "cost": "{} of training and checks"}
_MOST = 800  # improvements


def best(study: Study | View, over: Over = "trials") -> Chart:
    """The best feasible objective so far, with the best ignoring the limits beside it.

    `over` is the x axis: "trials" finished, "seconds" on the clock, or the "cost" in seconds of training and checks.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=20)
    >>> line = plots.best(study).panels[0].marks[0]
    >>> bool(line.y[-1] == study.best.metrics["loss"])
    True
    """
    rows = Rows.of(study)
    if over not in _AXES:
        raise UsageError(f"over={over!r}: 'trials', 'seconds' or 'cost' is expected")
    title = f"Best {rows.metric} so far"
    x, axis = _along(rows, over)
    limits, sign, finished = bool(rows.view.problem.constraints), rows.view.problem.objective.sign, rows.finished
    peaks = [rows.view.courses[k].peak for k in finished.tolist()]
    free = np.array([np.nan if peak is None else peak.objective for peak in peaks], np.float64)
    valid = np.where(rows.stratum == 1, rows.objective, np.nan)[finished]
    found, ignoring = _improvements(sign * valid), _improvements(sign * free)
    marks: list[Mark] = []
    if limits and len(ignoring):
        hover = [_peak_text(rows, int(k)) for k in finished[ignoring]]
        marks += _steps(x, ignoring, free, "best ignoring the limits", "other", hover)
    if len(found):
        hover = rows.texts(finished[found].tolist(), full=True)
        marks += _steps(x, found, valid, "best within the limits" if limits else "best", "best", hover)
        marks.append(Points(x[found[-1:]], valid[found[-1:]], "best", "best", size=14, hover=hover[-1:]))
    if not marks:
        return empty("best", title, "no trial has measured the objective yet")
    drawn = span(np.concatenate([_lasting(valid, found), _lasting(free, ignoring)]))
    caption = _caption(rows, found, free[ignoring]) + (" The first trials lie outside of the view." if drawn else "")
    return Chart("best", title, caption, [Panel(axis, Axis(rows.metric, span=drawn), marks)])


def _along(rows: Rows, over: Over) -> tuple[NDArray[np.float64], Axis]:
    """Where each finished trial lies on the x axis."""
    if over == "trials":
        return np.arange(1.0, len(rows.finished) + 1), Axis(_AXES[over], whole=True)
    if over == "cost":
        x = np.cumsum((rows.column("train_ns") + rows.column("check_ns"))[rows.finished]) / 1e9
    else:
        x = np.maximum.accumulate(rows.column("ended")[rows.finished] - rows.column("began").min(initial=np.inf))
    seconds, name = unit(float(x[-1]) if len(x) else 0.0)
    return x / seconds, Axis(_AXES[over].format(name))


def _improvements(loss: NDArray[np.float64]) -> NDArray[np.intp]:
    """The places in (n,) losses at which the lowest so far falls."""
    filled = np.where(np.isnan(loss), np.inf, loss)
    lowest = np.minimum.accumulate(filled)
    better = np.flatnonzero(filled < np.concatenate([[np.inf], lowest[:-1]])[: len(filled)])
    return better[thinned(len(better), _MOST)]


def _lasting(y: NDArray[np.float64], at: NDArray[np.intp]) -> NDArray[np.float64]:
    """What was the best after each of the trials (n,), from the first improvement on."""
    return np.repeat(y[at], np.diff(np.append(at, len(y))))


def _steps(
    x: NDArray[np.float64], at: NDArray[np.intp], y: NDArray[np.float64], name: str, role: Role, hover: list[str]
) -> list[Mark]:
    """A line that stays level between improvements and up to the last trial, and a point at each of them."""
    line = Line(np.append(x[at], x[-1]), np.append(y[at], y[at[-1]]), name, role, step=True, width=2)
    return [line, Points(x[at], y[at], name, role, "circle" if role == "best" else None, size=5, hover=hover)]


def _peak_text(rows: Rows, k: int) -> str:
    course = rows.view.courses[k]
    assert course.peak is not None
    what = f"trial {k}, step {course.peak.step}, best ignoring the limits"
    return f"{what}\n{number(course.peak.objective)}\n{params(course.params)}"


def _caption(rows: Rows, found: NDArray[np.intp], free: NDArray[np.float64]) -> str:
    if not len(found):
        return f"None of {len(rows.finished):,} trials is known to be within the limits; the line ignores them."
    k, limits = int(rows.finished[found[-1]]), bool(rows.view.problem.constraints)
    value = float(rows.objective[k])
    text = f"The best {rows.metric}{' within the limits' if limits else ''} is {number(value)}, of trial {k}"
    if limits and len(free):
        gap = abs(float(free[-1]) - value)
        text += f"; the limits cost {number(gap) if gap else 'nothing'}"
    return f"{text}. Each point is an improvement, at the end of its trial."
