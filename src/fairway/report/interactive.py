"""Draws a chart for a browser: a plotly figure as JSON, written without plotly.

Only plain SVG traces, which need neither WebGL nor `eval`, so that a page may forbid both. plotly reads tags, entities
and formulas in every text (titles, names, ticks, labels), so what came from elsewhere is escaped, spelled out and cut.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.report.marks import (
    LOOK,
    NAME,
    PALEST,
    STRONGEST,
    TICK,
    Area,
    Bars,
    Limit,
    Line,
    Panel,
    Placed,
    Points,
    Side,
    Tiles,
    Words,
    grid,
    legend,
)
from fairway.text import shown

_OUTLINED = {"cross": "x-thin", "ring": "circle-open", "square": "square-open", "triangle": "triangle-up-open"}
_HOVER = 160  # characters of a line that pops up
_CLEAR = "rgba(0,0,0,0)"
_DIGITS = 5  # of each number that are kept, and of the range on a linear axis
_SMALL = 8  # whole numbers on an axis that all have a name
_GAP = 64  # pixels between rows of panels
_LAYOUT: dict[str, Any] = {
    "autosize": True,
    "paper_bgcolor": _CLEAR,
    "plot_bgcolor": _CLEAR,
    "modebar": {"bgcolor": _CLEAR, "color": "rgba(128,128,128,0.6)", "activecolor": LOOK["feasible"].colour},
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
    explained, data = legend(panels), []
    layout = _LAYOUT | {
        "height": pixels,
        "margin": {"l": 8, "r": 16, "t": 34 if title is None else 70, "b": 8},
        "uirevision": revision,
        "showlegend": len(explained) > 1,
        "legend": {**_LEGEND, "y": 1 + 6 / pixels, "bgcolor": _CLEAR},
        "shapes": [],
        "annotations": [],
    }
    if title is not None:
        layout["title"] = {"text": escaped(title, NAME), **_TITLE, "pad": {"t": 10}, "font": {"size": 16}}
    rows, columns = grid(len(panels))
    aside = 0.16 if any(any(panel.y.categories or ()) for panel in panels[1:]) else 0.07  # names take room
    width, depth = (1 - aside * (columns - 1)) / columns, (1 + _GAP / pixels) / rows - _GAP / pixels
    for k, panel in enumerate(panels):
        number = axis_number(k)
        row, column = divmod(k, columns)
        left, low = column * (width + aside), 1 - row * (depth + _GAP / pixels) - depth
        layout[f"xaxis{number}"] = _axis(panel, "x", left, left + width) | {"anchor": f"y{number}"}
        layout[f"yaxis{number}"] = _axis(panel, "y", low, low + depth) | {"anchor": f"x{number}"}
        for mark in panel.marks:
            if isinstance(mark, Limit):
                layout["shapes"] += _limit(mark, panel, number)
            elif isinstance(mark, Tiles):
                data.append(_tiles(mark) | {"xaxis": f"x{number}", "yaxis": f"y{number}"})
            else:
                trace = _trace(mark, panel, in_legend=explained.get(mark.name) is mark)
                data.append(trace | {"xaxis": f"x{number}", "yaxis": f"y{number}"})
        if panel.note:
            middle = {"xref": f"x{number} domain", "yref": f"y{number} domain", "x": 0.5, "y": 0.5, "showarrow": False}
            layout["annotations"].append({"text": escaped(panel.note), **middle})
    return {"data": data, "layout": layout}


def axis_number(panel: int) -> int | str:
    """What plotly adds to the names of a panel's axes: the first has none."""
    return panel + 1 if panel else ""


def escaped(text: object, most: int = _HOVER) -> str:
    r"""A text as plotly shows it letter by letter, its lines kept.

    >>> escaped("<b>loss</b>\n$x$")
    '&lt;b&gt;loss&lt;/b&gt;<br>&#36;x&#36;'
    """
    lines = (html.escape(shown(line, most), quote=False).replace("$", "&#36;") for line in str(text).split("\n"))
    return "<br>".join(lines)


def _trace(mark: Placed, panel: Panel, *, in_legend: bool) -> dict[str, Any]:
    (colour, symbol, dash), name = LOOK[mark.role], escaped(mark.name, NAME)
    trace: dict[str, Any] = {"type": "scatter", "x": _numbers(mark.x, panel, "x"), "y": _numbers(mark.y, panel, "y")}
    trace |= {"name": name, "legendgroup": name, "showlegend": in_legend, "opacity": mark.opacity}
    trace["hoverinfo"] = "x+y" if isinstance(mark, Points | Bars) else "skip"
    if mark.hover is not None:
        trace |= {"hoverinfo": "text", "hovertext": [escaped(text) for text in mark.hover]}
    if mark.labels is not None:
        most = TICK if isinstance(mark, Words) else NAME
        trace |= {"text": [escaped(label, most) for label in mark.labels], "cliponaxis": False}
    if isinstance(mark, Line):
        line = {
            "color": colour,
            "width": mark.width,
            "dash": mark.dash or dash,
            "shape": "hv" if mark.step else "linear",
        }
        trace |= {"mode": "lines", "line": line}
    elif isinstance(mark, Points):
        symbol = mark.symbol or symbol
        marker = {"color": colour, "symbol": _OUTLINED.get(symbol, symbol), "size": mark.size}
        rim = {"color": colour, "width": 1.4 if symbol in _OUTLINED else 0}
        trace |= {"mode": "markers", "marker": marker | {"line": rim}}
        if mark.error is not None:
            bar = {"type": "data", "array": [float(mark.error)], "color": colour, "thickness": 1.4, "width": 4}
            trace[f"error_{mark.along}"] = bar
    elif isinstance(mark, Bars):
        marker = {"color": colour, "opacity": mark.opacity}  # the trace's own would make its labels as pale
        trace |= {"type": "bar", "orientation": "h", "marker": marker, "opacity": 1.0}
        trace |= {"textposition": "outside", "textangle": 0}
    elif isinstance(mark, Area):
        trace |= {"mode": "lines", "fill": "toself", "fillcolor": colour, "line": {"width": 0}}
    else:
        trace |= {"mode": "text", "textposition": "top center", "textfont": {"size": 11}}
    return trace


def _tiles(mark: Tiles) -> dict[str, Any]:
    """A map, with its scale on the right."""
    colours = [[0, _rgba(LOOK["feasible"].colour, PALEST)], [1, _rgba(LOOK["feasible"].colour, STRONGEST)]]
    low, high = sorted((mark.worst, mark.best))
    rows = [[None if np.isnan(value) else float(f"{value:.6g}") for value in row] for row in mark.values]
    places = {"x": [float(f"{at:.6g}") for at in mark.x], "y": [float(f"{at:.6g}") for at in mark.y], "z": rows}
    scale = {"colorscale": colours, "reversescale": mark.best < mark.worst, "zmin": low, "zmax": high}
    bar = {"title": {"text": escaped(mark.name, NAME), "side": "top"}, "thickness": 10, "outlinewidth": 0}
    return {"type": "heatmap", **places, **scale, "colorbar": bar, "hoverinfo": "x+y+z", "hoverongaps": False}


def _rgba(colour: str, opacity: float) -> str:
    return f"rgba({','.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))},{opacity})"


def _limit(mark: Limit, panel: Panel, number: int | str) -> list[dict[str, Any]]:
    """A line across a panel, and a tint over its allowed side."""
    along, other = ("x", "y") if mark.along == "x" else ("y", "x")
    across = {f"{along}ref": f"{along}{number}", f"{other}ref": f"{other}{number} domain"}
    across |= {f"{other}0": 0, f"{other}1": 1}  # type: ignore[dict-item]
    value, look = float(mark.value), LOOK["limit"]
    corner = ("right" if panel.is_far(mark) else "left", "top") if along == "x" else ("right", "bottom")
    label = {"text": escaped(mark.label, NAME), "font": {"color": look.colour, "size": 11}, "padding": 3}
    label |= {"textposition": "end", "textangle": 0, "xanchor": corner[0], "yanchor": corner[1]}
    line = {"color": look.colour, "width": 1.5, "dash": look.dash}
    shapes = [{"type": "line", **across, f"{along}0": value, f"{along}1": value, "line": line, "label": label}]
    allowed = panel.allowed(mark)
    if allowed is not None:
        tint = {"fillcolor": LOOK["feasible"].colour, "opacity": 0.07, "line": {"width": 0}, "layer": "below"}
        shapes.append({"type": "rect", **across, f"{along}0": value, f"{along}1": float(allowed[1]), **tint})
    return shapes


def _axis(panel: Panel, side: Side, start: float, end: float) -> dict[str, Any]:
    axis = panel.axis(side)
    drawn = _AXIS | {
        "title": {"text": escaped(axis.title, NAME), "standoff": 8},
        "type": "log" if axis.log else "linear",
        "domain": [round(max(start, 0.0), 4), round(min(end, 1.0), 4)],
    }
    if axis.ticks is not None:
        drawn |= {"tickmode": "array", "tickvals": [float(place) for place, _ in axis.ticks]}
        drawn["ticktext"] = [escaped(text, TICK) for _, text in axis.ticks]
    elif axis.whole:
        low, high = panel.ends(side)
        drawn |= {"tickformat": ",d"} | ({"dtick": 1} if high - low < _SMALL else {})  # or a half is called the next
    elif axis.log:
        drawn |= {"tickformat": "~g", "dtick": panel.every(side) or "D2"}
    if axis.span is not None:
        drawn["range"] = [float(np.log10(end)) if axis.log else float(end) for end in axis.span]
    return drawn


def _numbers(values: NDArray[np.float64], panel: Panel, side: Side) -> list[float | int | None]:
    """Numbers for JSON: None where they have no place, and no digit more than one can see."""
    axis = panel.axis(side)
    hidden = axis.hides(values)
    known = values[~hidden]
    if (known == np.round(known)).all() and np.abs(known).max(initial=0.0) < 2**53:
        kept = iter(known.astype(np.int64).tolist())
    else:
        with np.errstate(all="ignore"):
            size = np.abs(known)
            least = size if axis.log else np.minimum(np.ptp(known) or size.max(), np.where(size, size, np.inf))
            power = 10.0 ** (_DIGITS - np.floor(np.log10(least)))
            rounded = np.round(known * power) / power
        kept = iter(np.where(np.isfinite(rounded), rounded, known).tolist())
    return [None if gap else next(kept) for gap in hidden.tolist()]
