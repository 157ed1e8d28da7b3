"""Learning curves by stratum, as in Figure 1 of ACE: which trials went on, which were stopped, and why."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import NAMES, Rows, empty, figures, span, thinned, word
from fairway.report.marks import Line, Mark, Points
from fairway.report.view import STRATA, Curve, View

_TRIALS = 80  # curves in one picture
_BEST = 20  # of them the best, the others evenly
_POINTS = 80  # of one curve
_LONG, _EARLY = 50, 8  # from so many steps on, a log axis, if half of the curves end before an eighth of them


def curves(view: View, trials: Collection[int] | None = None) -> Chart:
    """The objective against the step, for some trials."""
    rows = Rows.of(view)
    title = "Learning curves"
    if trials is not None and not all(isinstance(number, Integral) for number in trials):
        raise UsageError(f"trials={trials!r}: numbers of trials are expected, such as [0, 7]")
    chosen = _chosen(rows) if trials is None else sorted({int(number) for number in trials})
    found = {number: _thinned(curve) for number, curve in view.curves(chosen).items()}
    if not any(len(curve.step) > 1 for curve in found.values()):
        return empty("curves", title, "No trial has reported more than one step.", "no curves: nothing reported steps")
    marks = _by_stratum(view, found)
    marks += _stops(view, found)
    best = rows.best
    if best in found:
        checkpoint = view.courses[best].checkpoint
        assert checkpoint is not None
        hover = rows.long_texts([best])
        marks.append(Points([checkpoint.step], [checkpoint.objective], "best", "best", size=14, hover=hover))
    last = np.array([curve.step[-1] for curve in found.values()])
    log = last.max() >= _LONG and np.median(last) <= last.max() / _EARLY and min(c.step[0] for c in found.values()) > 0
    ends = np.array([curve.objective[[0, -1]] for curve in found.values()]).ravel()
    kept = [] if best not in found else [float(rows.objective[best])]
    axis = Axis(rows.metric, span=span(ends, kept))
    return Chart(
        "curves",
        title,
        _caption(view, found, sampled=trials is None),
        [Panel(Axis("step", log=bool(log)), axis, marks)],
        height=440,
    )


def _chosen(rows: Rows) -> list[int]:
    """The best trials, those that run, and an even share of the others."""
    finished = rows.finished
    order = finished[rows.view.ledger.history().order]
    running = list(rows.view.ledger.running)[: _TRIALS // 4]
    chosen = {*order[:_BEST].tolist(), *running}
    rest = np.array([number for number in range(len(rows.objective)) if number not in chosen], np.int64)
    chosen.update(rest[thinned(len(rest), _TRIALS - len(chosen))].tolist())
    return sorted(chosen)


def _thinned(curve: Curve) -> Curve:
    """Some of its rows, closer to each other where it begins: there curves are steep, and the axis may be a log one."""
    n = len(curve.step)
    if n <= _POINTS:
        return curve
    rows = np.union1d(np.geomspace(1, n, _POINTS // 2).astype(np.intp) - 1, thinned(n, _POINTS // 2))
    turns = np.flatnonzero(np.diff(curve.stratum)) + 1
    rows = np.union1d(rows, turns[thinned(len(turns), _POINTS // 2)])
    step, objective, values, stratum, seconds = curve
    return Curve(step[rows], objective[rows], values[rows], stratum[rows], seconds[rows])


def _by_stratum(view: View, found: dict[int, Curve]) -> list[Mark]:
    """A line for each stratum, of pieces; each report's piece leads to it from the one before."""
    limits, metric = bool(view.problem.constraints), word(view.problem.objective.metric)
    marks: list[Mark] = []
    for place, role in NAMES:
        pieces: list[NDArray[np.float64]] = []
        hover: list[str] = []
        dots: list[NDArray[np.float64]] = []
        dots_hover: list[str] = []
        for number, curve in found.items():
            texts = [
                f"trial {number}, step {step}\n{metric} {figures(y)}"
                for step, y in zip(curve.step.tolist(), curve.objective.tolist(), strict=True)
            ]
            points = np.column_stack([curve.step, curve.objective])
            for first, end in _runs(curve.stratum == place):
                start = max(first - 1, 0)
                pieces += [points[start:end], np.full((1, 2), np.nan)]
                hover += [*texts[start:end], ""]
            if place or len(points) == 1:
                dots.append(points[curve.stratum == place])
                dots_hover += [text for text, s in zip(texts, curve.stratum, strict=True) if s == place]
        if pieces:
            name = STRATA[place] if limits else "running"
            x, y = np.concatenate(pieces).T
            marks.append(Line(x, y, name, role, dash="solid", width=1.1, opacity=0.6 if place else 0.45, hover=hover))
            if limits and dots_hover:
                x, y = np.concatenate(dots).T
                marks.append(Points(x, y, name, role, size=4.5, opacity=0.9, hover=dots_hover))
    return marks


def _runs(inside: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where True begins and ends."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(np.int8)))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def _stops(view: View, found: dict[int, Curve]) -> list[Mark]:
    stopped = [number for number in found if view.courses[number].status == "stopped"]
    if not stopped:
        return []
    x, y = ([float(getattr(found[k], column)[-1]) for k in stopped] for column in ("step", "objective"))
    hover = [f"trial {k} stopped at step {found[k].step[-1]}\n{view.courses[k].reason}" for k in stopped]
    return [Points(x, y, "stopped", "other", size=7, hover=hover)]


def _caption(view: View, found: dict[int, Curve], *, sampled: bool) -> str:
    n, shown = len(view.courses), len(found)
    text = f"Each line is a trial{', coloured by what its limits came to' if view.problem.constraints else ''}."
    text += " A square is where one was stopped." if any(view.courses[k].status == "stopped" for k in found) else ""
    of_all = f" {shown} of {n:,} trials" + (": the best, and an even share of the others." if sampled else ".")
    return text + (of_all if shown < n else "")
