"""Parameters: each against the objective, and all of them side by side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import MOST, NAMES, Rows, empty, figures, held, outside, span, thinned, word
from fairway.report.marks import Line, Mark, Words
from fairway.report.view import STRATA, View
from fairway.seeds import stream
from fairway.space import Choice, Float, Int, Parameter

_POINTS = 9000  # in all panels together
_PANELS, _AXES = 24, 14  # parameters that are shown
_LINES, _BEST = 300, 60  # trials side by side, and how many of them are the best
_CROWD = 6  # axes whose names stand beside each other
_OPTIONS = 12  # of a choice that have a name on the axis


def slices(view: View) -> Chart:
    """The objective against every parameter, a panel each."""
    rows = Rows.of(view)
    title = "Objective against each parameter"
    numbers = np.flatnonzero(rows.stratum >= 0)
    if not len(numbers):
        return empty("slices", title, "No trial has measured the objective yet.", "nothing measured yet")
    names = list(view.space)[:_PANELS]
    most = min(max(_POINTS // len(names), 200), MOST)
    height = rows.height()
    panels = []
    for k, name in enumerate(names):
        parameter = view.space[name]
        y = Axis("" if k % min(len(names), 3) else height.title, span=height.span)
        panels.append(
            Panel(
                _axis(word(name), parameter), y, rows.scatter(_values(view, name, numbers), numbers, most, short=True)
            )
        )
    left = len(view.space) - len(names)
    caption = "Each point is a trial; a parameter that a trial does not have shows no point of it."
    caption += f" The first {len(names)} of {len(view.space)} parameters." if left else ""
    return Chart("slices", title, caption + outside((rows.objective, height)), panels)


def _axis(name: str, parameter: Parameter) -> Axis:
    if isinstance(parameter, Choice):
        if len(parameter.options) > _OPTIONS:
            return Axis(f"{name} (place in its list)", span=(-0.6, len(parameter.options) - 0.4))
        return Axis(name, categories=[word(option) for option in parameter.options])
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


_ABSENT = object()


def parallel(view: View) -> Chart:
    """Every trial as a line across all parameters, the objective and the limits."""
    rows = Rows.of(view)
    title = "Parameters side by side"
    numbers = np.flatnonzero(rows.stratum >= 0)
    if not len(numbers):
        return empty("parallel", title, "No trial has measured the objective yet.", "nothing measured yet")
    sign = view.problem.objective.sign
    order = np.lexsort((sign * rows.objective[numbers], rows.stratum[numbers] != 1))
    chosen = numbers[np.union1d(order[:_BEST], thinned(len(numbers), _LINES - _BEST))]
    columns, axes = _columns(rows, chosen)
    places = np.arange(columns.shape[1], dtype=np.float64)
    marks: list[Mark] = []
    for place, role in NAMES:
        here = rows.stratum[chosen] == place
        if here.any():
            name = STRATA[place] if view.problem.constraints else "trial"
            x, y = _broken(places, columns[here])
            hover = [text for text in rows.texts(chosen[here].tolist()) for _ in range(len(places) + 1)]
            marks.append(
                Line(x, y, name, role, dash="solid", width=1, opacity=0.35 if place == 1 else 0.25, hover=hover)
            )
    if rows.best is not None:
        line = columns[chosen == rows.best]
        x, y = _broken(places, line)
        hover = rows.long_texts([rows.best]) * len(x)
        marks.append(Line(x, y, "best", "best", width=3, hover=hover))
    x, y = _broken(np.repeat(places, 2).reshape(-1, 2), np.tile([0.0, 1.0], (len(places), 1)))
    marks.append(Line(x, y, role="not evaluated", dash="solid", width=0.8))
    marks.append(Words(places, np.ones(len(places)), [high for _, _, high in axes]))
    drops = ("\n", "\n\n" if len(axes) > _CROWD else "\n")  # every other name a line lower
    ticks = [low + drops[k % 2] + name for k, (name, low, _) in enumerate(axes)]
    panel = Panel(
        Axis(ticks=list(zip(places.tolist(), ticks, strict=True)), span=(-0.3, len(places) - 0.7)),
        Axis(ticks=[], span=(-0.04, 1.1)),
        marks,
    )
    caption = "Each line is a trial, from parameter to parameter and on to its metrics; the thick one is the best."
    caption += f" {len(chosen)} of {len(numbers):,} trials." if len(chosen) < len(numbers) else ""
    caption += f" The first {_AXES} of {len(view.space)} parameters." if len(view.space) > _AXES else ""
    return Chart("parallel", title, caption, [panel], height=440)


def _broken(x: NDArray[np.float64], lines: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lines (k, a) at places (a,) or (k, a) as one, with a gap after each."""
    gap = np.full((len(lines), 1), np.nan)
    x = np.broadcast_to(x, lines.shape)
    return np.hstack([x, gap]).ravel(), np.hstack([lines, gap]).ravel()


def _columns(rows: Rows, chosen: NDArray[np.int64]) -> tuple[NDArray[np.float64], list[tuple[str, str, str]]]:
    """What each trial has on each axis, from 0 to 1 (k, a); and the axes' names and what is at their ends."""
    view = rows.view
    columns: list[NDArray[np.float64]] = []
    axes: list[tuple[str, str, str]] = []
    x = np.array([view.courses[k].x for k in chosen.tolist()]).reshape(len(chosen), -1)
    for i, name in enumerate(list(view.space)[:_AXES]):
        columns.append(x[:, i])
        axes.append((word(name), *_ends(view.space[name])))
    metrics = [
        (rows.metric, rows.objective),
        *((word(c.metric), rows.values[:, i]) for i, c in enumerate(view.problem.constraints)),
    ]
    for name, values in metrics:
        known = values[chosen][np.isfinite(values[chosen])]
        keep = [] if rows.best is None else [float(values[rows.best])]
        ends = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        drawn = span(known, keep) or ends
        low, high = max(ends[0], drawn[0]), min(ends[1], drawn[1])
        half = values[chosen] / 2 - low / 2  # the whole may be more than a float holds
        scaled = np.clip(half / ((high / 2 - low / 2) or 1.0), 0.0, 1.0)
        columns.append(np.where(np.isfinite(values[chosen]), scaled, np.nan))
        axes.append((name, figures(low), figures(high)))
    return np.column_stack(columns), axes


def _ends(parameter: Parameter) -> tuple[str, str]:
    """What is at the bottom and at the top of a parameter's axis."""
    if isinstance(parameter, Choice):
        return word(parameter.options[0]), word(parameter.options[-1])
    assert isinstance(parameter, Float | Int)
    return figures(parameter.low), figures(parameter.high)
