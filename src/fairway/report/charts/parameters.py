"""Parameters: each against the objective, and all of them side by side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.report.chart import Axis, Chart, Line, Panel, Words
from fairway.report.charts.axes import held, outside, span, thinned
from fairway.report.charts.rows import LAYERS, MOST, Rows, empty
from fairway.report.marks import Mark
from fairway.report.view import STRATA, View
from fairway.seeds import stream
from fairway.space import Choice, Float, Int, Parameter
from fairway.study import Study
from fairway.text import named, number

_POINTS = 9000  # in all panels together
_PANELS, _AXES = 24, 14  # parameters that are shown
_LINES, _BEST = 300, 60  # trials side by side, and how many of them are the best
_CROWD = 6  # axes whose names stand beside each other
_OPTIONS = 12  # of a choice that have a name on the axis
_ABSENT = object()


def slices(study: Study | View) -> Chart:
    """The objective against every parameter, a panel each.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> space = {"x": fw.Float(0.001, 1.0, log=True), "booster": fw.Choice(["gbdt", "dart"])}
    >>> study = fw.Study(space, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=20)
    >>> [(panel.x.log, panel.x.categories) for panel in plots.slices(study).panels]
    [(True, None), (False, ['gbdt', 'dart'])]
    """
    rows = Rows.of(study)
    title, space, numbers = "Objective against each parameter", rows.view.space, rows.measured
    if not len(numbers):
        return empty("slices", title, "no trial has measured the objective yet")
    names = list(space)[:_PANELS]
    most = min(max(_POINTS // len(names), 200), MOST)
    axis, panels = rows.axis, []
    for k, name in enumerate(names):
        y = Axis("" if k % min(len(names), 3) else axis.title, span=axis.span)
        marks = rows.scatter(_values(rows.view, name, numbers), numbers, most, short=True)
        panels.append(Panel(_axis(named(name), space[name]), y, marks))
    caption = "Each point is a trial; a trial without the parameter has none."
    caption += f" The first {len(names)} of {len(space)} parameters." if len(names) < len(space) else ""
    return Chart("slices", title, caption + outside((rows.objective, axis)), panels)


def _axis(name: str, parameter: Parameter) -> Axis:
    if isinstance(parameter, Choice):
        if len(parameter.options) > _OPTIONS:
            return Axis(f"{name} (place in its list)", span=(-0.6, len(parameter.options) - 0.4))
        return Axis(name, categories=[named(option) for option in parameter.options])
    assert isinstance(parameter, Float | Int)
    if not parameter.log:
        return Axis(name, whole=isinstance(parameter, Int))
    margin = parameter.high**0.03 / parameter.low**0.03
    return Axis(name, log=True, span=held(parameter.low / margin, parameter.high * margin, log=True))


def _values(view: View, name: str, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """A parameter of some trials as numbers (k,), NaN where it is absent; choices by their place, a little apart."""
    parameter = view.space[name]
    given = [view.courses[k].params.get(name, _ABSENT) for k in numbers.tolist()]
    if not isinstance(parameter, Choice):
        return np.array([np.nan if value is _ABSENT else value for value in given], np.float64)
    cells = len(parameter.options)
    places = np.array([np.nan if v is _ABSENT else int(parameter.encode(v) * cells) for v in given])
    return places + stream(0, 0, "jitter").uniform(-0.25, 0.25, len(places))


def parallel(study: Study | View) -> Chart:
    """Every trial as a line across all parameters and on to its metrics; a gap where it has no such parameter.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0), "y": fw.Int(1, 9)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] * trial.params["y"], trials=20)
    >>> [text.split()[-1] for _, text in plots.parallel(study).panels[0].x.ticks]
    ['x', 'y', 'loss']
    """
    rows = Rows.of(study)
    title, space, numbers = "Parameters side by side", rows.view.space, rows.measured
    if not len(numbers):
        return empty("parallel", title, "no trial has measured the objective yet")
    sign = rows.view.problem.objective.sign
    order = np.lexsort((sign * rows.objective[numbers], rows.stratum[numbers] != 1))
    chosen = numbers[np.union1d(order[:_BEST], thinned(len(numbers), _LINES - _BEST))]
    columns, axes = _columns(rows, chosen)
    places = np.arange(columns.shape[1], dtype=np.float64)
    marks: list[Mark] = []
    for place in LAYERS:
        here = rows.stratum[chosen] == place
        if here.any():
            hover = [text for text in rows.texts(chosen[here].tolist()) for _ in range(len(places) + 1)]
            look = {"width": 1, "opacity": 0.35 if place == 1 else 0.25, "hover": hover}
            lines = _broken(places, columns[here])
            marks.append(Line(*lines, rows.legend(place), STRATA[place], "solid", **look))  # type: ignore[arg-type]
    if rows.best is not None:
        hover = rows.texts([rows.best], full=True) * (len(places) + 1)
        marks.append(Line(*_broken(places, columns[chosen == rows.best]), "best", "best", width=3, hover=hover))
    posts = _broken(np.repeat(places, 2).reshape(-1, 2), np.tile([0.0, 1.0], (len(places), 1)))
    marks.append(Line(*posts, role="not evaluated", dash="solid", width=0.8))
    marks.append(Words(places, np.ones(len(places)), [high for _, _, high in axes]))
    drops = ("\n", "\n\n" if len(axes) > _CROWD else "\n")  # every other name a line lower
    ticks = [(float(k), low + drops[k % 2] + name) for k, (name, low, _) in enumerate(axes)]
    panel = Panel(Axis(ticks=ticks, span=(-0.3, len(places) - 0.7)), Axis(ticks=[], span=(-0.04, 1.1)), marks)
    caption = "Each line is a trial, from parameter to parameter and on to its metrics; the thick one is the best."
    caption += f" {len(chosen)} of {len(numbers):,} trials." if len(chosen) < len(numbers) else ""
    caption += f" The first {_AXES} of {len(space)} parameters." if len(space) > _AXES else ""
    return Chart("parallel", title, caption, [panel], height=440)


def _broken(x: NDArray[np.float64], lines: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lines (k, a) at places (a,) or (k, a) as one, with a gap after each."""
    gap = np.full((len(lines), 1), np.nan)
    return np.hstack([np.broadcast_to(x, lines.shape), gap]).ravel(), np.hstack([lines, gap]).ravel()


def _columns(rows: Rows, chosen: NDArray[np.int64]) -> tuple[NDArray[np.float64], list[tuple[str, str, str]]]:
    """What each trial has on each axis, from 0 to 1 (k, a); and the axes' names and what is at their ends."""
    space = rows.view.space
    x = np.array([rows.view.courses[k].x for k in chosen.tolist()]).reshape(len(chosen), -1)
    columns = list(x.T[:_AXES])
    axes = [(named(name), *_ends(space[name])) for name in list(space)[:_AXES]]
    for name, column in rows.metrics:
        values = column[chosen]
        known = values[np.isfinite(values)]
        ends = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        drawn = span(known, [] if rows.best is None else [float(column[rows.best])]) or ends
        low, high = max(ends[0], drawn[0]), min(ends[1], drawn[1])
        half = values / 2 - low / 2  # the whole may be more than a float holds
        scaled = np.clip(half / ((high / 2 - low / 2) or 1.0), 0.0, 1.0)
        columns.append(np.where(np.isfinite(values), scaled, np.nan))
        axes.append((name, number(low), number(high)))
    return np.column_stack(columns), axes


def _ends(parameter: Parameter) -> tuple[str, str]:
    """What is at the bottom and at the top of a parameter's axis."""
    if isinstance(parameter, Choice):
        return named(parameter.options[0]), named(parameter.options[-1])
    assert isinstance(parameter, Float | Int)
    return number(parameter.low), number(parameter.high)
