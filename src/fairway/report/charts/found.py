"""What was found: how the best got better, and where trials lie beside their limits."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.report.chart import Axis, Chart, Limit, Line, Panel, Points
from fairway.report.charts.rows import MOST, Rows, at_best, empty, held, outside, shaded, span, thinned
from fairway.report.marks import Mark, Role
from fairway.report.view import View
from fairway.study import Study
from fairway.text import counted, limit, named, number, params, plus_minus, unit

Over: TypeAlias = Literal["trials", "seconds", "cost"]
_AXES = {"trials": "trials finished", "seconds": "{} since the first trial began", "cost": "{} of training and checks"}
_IMPROVEMENTS = 800  # that are drawn
_CERTIFIED = "certified, on held-out data"
_WIDE = 100.0  # from such a ratio between large and small values on, a log axis


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
    rows = Rows(study)
    if over not in _AXES:
        raise UsageError(f"over={over!r}: 'trials', 'seconds' or 'cost' is expected")
    title, courses, finished = f"Best {rows.metric} so far", rows.view.courses, rows.finished
    x, axis = _along(rows, over)
    limits, sign = bool(rows.view.problem.limits), rows.view.problem.objective.sign
    free = np.array([peak.objective if (peak := courses[k].peak) else np.nan for k in finished], np.float64)
    valid = np.where(rows.stratum == 1, rows.objective, np.nan)[finished]
    (found, so_far), (ignoring, so_far_ignoring) = _improvements(sign * valid), _improvements(sign * free)
    marks: list[Mark] = []
    if limits and len(ignoring):
        name = "best ignoring the constraints"
        hover = [
            f"trial {k}, step {peak.step}, {name}\n{number(peak.objective)}\n{params(courses[k].params)}"
            for k in finished[ignoring]
            if (peak := courses[k].peak)
        ]
        marks += _steps(x, ignoring, free, name, "other", hover)
    if len(found):
        hover = rows.texts(finished[found].tolist(), full=True)
        marks += _steps(x, found, valid, "best within the limits" if limits else "best", "best", hover)
        marks.append(rows.star(int(finished[found[-1]]), x[found[-1]], valid[found[-1]]))
    if not marks:
        return empty("best", title, "no trial has measured the objective yet")
    drawn = span(sign * np.append(so_far, so_far_ignoring))
    caption = _caption(rows, found, free[ignoring]) + (" The first trials are out of range." if drawn else "")
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


def _improvements(loss: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The places in (n,) losses at which the lowest so far falls, and the lowest so far (n,), at first infinite."""
    lowest = np.fmin.accumulate(np.append(np.inf, loss))
    better = np.flatnonzero(lowest[1:] < lowest[:-1])
    return better[thinned(len(better), _IMPROVEMENTS)], lowest[1:]


def _steps(
    x: NDArray[np.float64], at: NDArray[np.intp], y: NDArray[np.float64], name: str, role: Role, hover: list[str]
) -> list[Mark]:
    """A line that stays level between improvements and up to the last trial, and a point at each of them."""
    line = Line(np.append(x[at], x[-1]), np.append(y[at], y[at[-1]]), name, role, step=True, width=2)
    return [line, Points(x[at], y[at], name, role, "circle" if role == "best" else None, size=5, hover=hover)]


def _caption(rows: Rows, found: NDArray[np.intp], free: NDArray[np.float64]) -> str:
    if not len(found):
        return f"None of {len(rows.finished):,} trials is known to be feasible; the line ignores the constraints."
    k, limits = int(rows.finished[found[-1]]), bool(rows.view.problem.limits)
    value = float(rows.objective[k])
    best = f"The best feasible {rows.metric}" if limits else f"The best {rows.metric}"
    text = f"{best} is {number(value)}{' on the validation data' if limits else ''}, of trial {k}"
    if limits and len(free):
        gap = abs(float(free[-1]) - value)
        text += f"; the constraints cost {number(gap) if gap else 'nothing'}"
    return f"{text}. Each point is an improvement, at the end of its trial."


def limits(study: Study | View, constraint: str | None = None) -> Chart:
    """The objective against each constraint, or against one of them: what lies on the allowed side.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> study.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 2}, trials=20)
    >>> [mark.name for mark in plots.limits(study, "eod").panels[0].marks[1:]]
    ['infeasible', 'feasible', 'best']
    """
    rows = Rows(study)
    names = [one.metric for one in rows.view.problem.constraints]
    if constraint is not None and constraint not in names:
        raise UsageError(f"constraint={constraint!r}: the study has {', '.join(map(repr, names)) or 'no constraint'}")
    title = "Objective against constraints"
    chosen = [i for i, name in enumerate(names) if constraint in (None, name)]
    panels = [_panel(rows, i, MOST // len(chosen), titled=i == chosen[0]) for i in chosen]
    if not any(any(isinstance(mark, Points) for mark in panel.marks) for panel in panels):
        return empty("limits", title, "no constraint was measured yet" if names else "the study has no constraints")
    unmeasured = int(np.count_nonzero((rows.stratum == 0) & np.isnan(rows.values[:, chosen]).all(axis=1)))
    caption = f"Each point is a trial at {at_best(rows.view.problem)}{shaded(rows.view.problem)}"
    caption += f" {counted(unmeasured, 'trial')} without a point: constraint not evaluated." if unmeasured else ""
    marks = [mark for panel in panels for mark in panel.marks if isinstance(mark, Points)]
    caption += " Error bars are one standard error." if any(mark.error is not None for mark in marks) else ""
    caption += (
        " The square is the certified model on held-out data." if any(mark.name == _CERTIFIED for mark in marks) else ""
    )
    sides = [(rows.values[:, i], panel.x) for i, panel in zip(chosen, panels, strict=True)]
    return Chart("limits", title, caption + outside((rows.objective, panels[0].y), *sides), panels)


def _panel(rows: Rows, i: int, most: int, *, titled: bool) -> Panel:
    constraint, values = rows.view.problem.constraints[i], rows.values[:, i]
    allowed = "below" if constraint.sign > 0 else "above"
    line = Limit(constraint.threshold, limit(constraint), along="x", allowed=allowed)  # type: ignore[arg-type]
    lines = [line] if constraint.has_limit else []
    known, error, certified = values[np.isfinite(values)], rows.error(rows.best, i), _certified(rows, i)
    shown = [] if rows.best is None else [values[rows.best] + sign * (error or 0.0) for sign in (-1.0, 1.0)]
    if certified is not None:
        shown += [float(certified.x[0]) + sign * (certified.error or 0.0) for sign in (-1.0, 1.0)]
    shown = [*(one.value for one in lines), *filter(np.isfinite, shown)]
    everything = [*shown, *known.tolist()]
    low, high = min(everything, default=0.0), max(everything, default=0.0)
    log = bool(len(known)) and low > 0 and np.ptp(np.log(np.quantile(known, [0.05, 0.95]))) > np.log(_WIDE)
    margin = 0.05 * (high - low) or (constraint.unit if lines else abs(high) or 1.0) / 10
    drawn = held(low / 1.2, high * 1.2, log=True) if log else span(known, shown)
    x = Axis(named(constraint.metric), log=bool(log), span=drawn or held(low - margin, high + margin))
    y = Axis(rows.metric if titled else "", span=rows.axis.span)
    marks = rows.scatter(values, np.arange(len(values)), most, error=error)
    return Panel(x, y, [*lines, *marks, *([] if certified is None else [certified])])


def _certified(rows: Rows, i: int) -> Points | None:
    """The certified model: what a constraint came to on the fresh rows, and its objective on the judging rows."""
    certificate = rows.view.certificate
    metric = rows.view.problem.constraints[i].metric
    found = [one for one in certificate.findings if one.constraint.metric == metric] if certificate is not None else []
    if certificate is None or not certificate.certified or not found or not np.isfinite(found[0].value):
        return None
    finding, objective = found[0], certificate.attempt.candidate.objective
    error = finding.evidence.error if np.isfinite(finding.evidence.error) else None
    name = named(finding.constraint.metric)
    hover = (
        f"trial {certificate.number}, step {certificate.step}, certified\n"
        f"{name} {plus_minus(finding.value, error)} on {finding.evidence.rows:,} held-out rows\n"
        f"{rows.metric} {number(objective)} on the validation data"
    )
    look = {"symbol": "square", "size": 9.0, "error": error or None, "along": "x"}
    return Points(finding.value, objective, _CERTIFIED, "best", hover=[hover], **look)  # type: ignore[arg-type]
