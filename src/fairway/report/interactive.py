"""Draws a chart for a browser: a plotly figure as JSON, written without plotly.

Only plain SVG traces, which need neither WebGL nor `eval`, so that a page may forbid both. plotly reads tags, entities
and formulas in every text (titles, names, ticks, labels), so what came from elsewhere is escaped, spelled out and cut.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairway.report.ink import FEW_DECADES, FILLED, LOOK, NAME, TICK, grid
from fairway.report.marks import Axis, Bars, Limit, Line, Panel, Points, Side, Words
from fairway.text import shown

_SYMBOL = {"cross": "x-thin", "ring": "circle-open", "square": "square-open", "triangle": "triangle-up-open"}
_HOVER = 160  # letters of a line that pops up
_CLEAR = "rgba(0,0,0,0)"
_DIGITS = 5  # of each number that are kept, and of the range on a linear axis
_SMALL = 8  # whole numbers on an axis that all have a name
_GAP = 64  # pixels between rows of panels
_LAYOUT: dict[str, Any] = {
    "autosize": True,
    "paper_bgcolor": _CLEAR,
    "plot_bgcolor": _CLEAR,
    "modebar": {"bgcolor": _CLEAR, "color": "rgba(128,128,128,0.6)", "activecolor": LOOK["valid"].colour},
    "hovermode": "closest",
    "hoverlabel": {"align": "left", "namelength": 0},
    "barmode": "overlay",
    "bargap": 0.35,
}
_LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "yanchor": "bottom", "itemsizing": "constant"}
_TITLE = {"x": 0, "xanchor": "left", "xref": "paper", "y": 1, "yref": "container", "yanchor": "top"}
_AXIS: dict[str, Any] = {
    "gridcolor": "rgba(128,128,128,0.22)",
    "zeroline": False,
    "linecolor": "rgba(128,128,128,0.6)",
    "showline": True,
    "automargin": True,
    "exponentformat": "power",
}


def draw(panels: Sequence[Panel], pixels: int, *, revision: str, title: str | None = None) -> dict[str, Any]:
    """The figure as {"data": [...], "layout": {...}}; `revision` names what a reader's zoom belongs to."""
    drawn = [mark for panel in panels for mark in panel.marks if isinstance(mark, Line | Points | Bars)]
    layout = _LAYOUT | {
        "height": pixels,
        "margin": {"l": 8, "r": 16, "t": 34 if title is None else 70, "b": 8},
        "uirevision": revision,
        "showlegend": len({mark.name for mark in drawn if mark.name}) > 1,
        "legend": {**_LEGEND, "y": 1 + 6 / pixels, "bgcolor": _CLEAR},
        "shapes": [],
        "annotations": [],
    }
    if title is not None:
        layout["title"] = {"text": escaped(title, NAME), **_TITLE, "pad": {"t": 10}, "font": {"size": 16}}
    data: list[dict[str, Any]] = []
    named: set[str] = set()
    for k, panel in enumerate(panels):
        number = k + 1 if k else ""
        axes = {"xaxis": f"x{number}", "yaxis": f"y{number}"}
        _place(layout, panels, k, pixels)
        for mark in panel.marks:
            if isinstance(mark, Limit):
                layout["shapes"] += _limit(mark, panel, number)
            else:
                name = "" if isinstance(mark, Words) else mark.name
                data.append(_trace(mark, panel, in_legend=bool(name) and name not in named) | axes)
                named.add(name)
    return {"data": data, "layout": layout}


def escaped(text: object, most: int = _HOVER) -> str:
    r"""A text as plotly shows it letter by letter, its lines kept.

    >>> escaped("<b>loss</b>\n$x$")
    '&lt;b&gt;loss&lt;/b&gt;<br>&#36;x&#36;'
    """
    lines = (html.escape(shown(line, most), quote=False).replace("$", "&#36;") for line in str(text).split("\n"))
    return "<br>".join(lines)


def _trace(mark: Line | Points | Bars | Words, panel: Panel, *, in_legend: bool) -> dict[str, Any]:
    """One trace; of those with one name the first is in the legend."""
    x, y = (mark.length, mark.at) if isinstance(mark, Bars) else (mark.x, mark.y)
    trace = {"type": "scatter", "x": _numbers(x, panel.x), "y": _numbers(y, panel.y), "showlegend": in_legend}
    if isinstance(mark, Words):
        labels = [escaped(label, TICK) for label in mark.labels]
        trace |= {"mode": "text", "text": labels, "textposition": "top center", "textfont": {"size": 11}}
        return trace | {"hoverinfo": "skip", "cliponaxis": False}
    look, name = LOOK[mark.role], escaped(mark.name, NAME)
    trace |= {"name": name, "legendgroup": name}
    if mark.hover is None:
        trace["hoverinfo"] = "skip" if isinstance(mark, Line) else "x+y"
    else:
        trace |= {"hoverinfo": "text", "hovertext": [escaped(text) for text in mark.hover]}
    if isinstance(mark, Bars):
        labels = [escaped(label, NAME) for label in mark.labels or ()]
        marker = {"color": look.colour, "opacity": mark.opacity}  # the trace's own would make its labels as pale
        trace |= {"type": "bar", "orientation": "h", "marker": marker, "cliponaxis": False}
        return trace if mark.labels is None else trace | {"text": labels, "textposition": "outside", "textangle": 0}
    trace["opacity"] = mark.opacity
    if isinstance(mark, Line):
        line = {"color": look.colour, "width": mark.width, "dash": mark.dash or look.dash}
        return trace | {"mode": "lines", "line": line | {"shape": "hv" if mark.step else "linear"}}
    symbol = mark.symbol or look.symbol
    rim = {"color": look.colour, "width": 0 if symbol in FILLED else 1.4}
    marker = {"color": look.colour, "symbol": _SYMBOL.get(symbol, symbol), "size": mark.size, "line": rim}
    return trace | {"mode": "markers", "marker": marker}


def _limit(mark: Limit, panel: Panel, number: int | str) -> list[dict[str, Any]]:
    """A line across a panel, and a tint over its allowed side."""
    along, other = ("x", "y") if mark.along == "x" else ("y", "x")
    across = {f"{along}ref": f"{along}{number}", f"{other}ref": f"{other}{number} domain"}
    across |= {f"{other}0": 0, f"{other}1": 1}  # type: ignore[dict-item]
    value, look = float(mark.value), LOOK[mark.role]
    corner = ("left", "top") if along == "x" else ("right", "bottom")
    label = {"text": escaped(mark.label, NAME), "font": {"color": look.colour, "size": 11}, "padding": 3}
    label |= {"textposition": "end", "textangle": 0, "xanchor": corner[0], "yanchor": corner[1]}
    line = {"color": look.colour, "width": 1.5, "dash": look.dash}
    shapes = [{"type": "line", **across, f"{along}0": value, f"{along}1": value, "line": line, "label": label}]
    allowed = panel.allowed(mark)
    if allowed is not None:
        tint = {"fillcolor": LOOK["valid"].colour, "opacity": 0.07, "line": {"width": 0}, "layer": "below"}
        shapes.append({"type": "rect", **across, f"{along}0": value, f"{along}1": float(allowed[1]), **tint})
    return shapes


def _place(layout: dict[str, Any], panels: Sequence[Panel], k: int, pixels: int) -> None:
    """Give the k-th panel its axes."""
    panel, (rows, columns) = panels[k], grid(len(panels))
    row, column = divmod(k, columns)
    named = any(any(other.y.categories or ()) for other in panels[1:])  # on the side, where it takes room
    gap, deep = 0.16 if named else 0.07, _GAP / pixels
    width, depth = (1 - gap * (columns - 1)) / columns, (1 - deep * (rows - 1)) / rows
    left, low = column * (width + gap), 1 - row * (depth + deep) - depth
    number = k + 1 if k else ""
    layout[f"xaxis{number}"] = x = _axis(panel, "x", left, width) | {"anchor": f"y{number}"}
    layout[f"yaxis{number}"] = y = _axis(panel, "y", low, depth) | {"anchor": f"x{number}"}
    if panel.note and not panel.marks:
        where = {"xref": f"x{number} domain", "yref": f"y{number} domain", "x": 0.5, "y": 0.5, "showarrow": False}
        layout["annotations"].append({"text": escaped(panel.note), **where})
        for axis in (x, y):
            axis |= {"showticklabels": False, "showgrid": False, "range": [0, 1]}


def _axis(panel: Panel, side: Side, start: float, length: float) -> dict[str, Any]:
    axis, ticks = panel.axis(side), panel.axis(side).named_ticks
    drawn = _AXIS | {
        "title": {"text": escaped(axis.title, NAME), "standoff": 8},
        "type": "log" if axis.log else "linear",
        "domain": [round(max(start, 0.0), 4), round(min(start + length, 1.0), 4)],
    }
    if ticks is not None:
        drawn |= {"tickmode": "array", "tickvals": [float(place) for place, _ in ticks]}
        drawn["ticktext"] = [escaped(text, TICK) for _, text in ticks]
    elif axis.whole:
        low, high = panel.ends(side)
        drawn |= {"tickformat": ",d"} | ({"dtick": 1} if high - low < _SMALL else {})  # or a half is called the next
    elif axis.log:
        decades = panel.decades(side)
        drawn |= {"tickformat": "~g", "dtick": "D2" if decades < FEW_DECADES else max(1, round(decades / 6))}
    if axis.span is not None:
        drawn["range"] = [float(np.log10(end)) if axis.log else float(end) for end in axis.span]
    elif axis.categories is not None:
        drawn["range"] = [-0.6, len(axis.categories) - 0.4]
    return drawn


def _numbers(column: ArrayLike, axis: Axis) -> list[float | int | None]:
    """Numbers for JSON: None where they have no place, and no digit more than one can see."""
    values = np.asarray(column, np.float64)
    hidden = axis.hides(values)
    known = values[~hidden]
    if len(known) and (known == np.round(known)).all() and np.abs(known).max() < 2**53:
        kept = iter(known.astype(np.int64).tolist())
    else:
        kept = iter(_rounded(known, axis).tolist())
    return [None if gap else next(kept) for gap in hidden.tolist()]


def _rounded(known: NDArray[np.float64], axis: Axis) -> NDArray[np.float64]:
    if not len(known):
        return known
    with np.errstate(all="ignore"):
        size = np.abs(known)
        scale = size if axis.log else np.minimum(known.max() - known.min() or size.max(), np.where(size, size, np.inf))
        power = 10.0 ** (_DIGITS - np.floor(np.log10(scale)))
        rounded = np.round(known * power) / power
    return np.where(np.isfinite(rounded), rounded, known)
