"""Draws a chart for a browser: a plotly figure as JSON, written without plotly.

Only plain SVG traces, which need neither WebGL nor `eval`, so that a page may forbid both. plotly reads tags, entities
and formulas in every text (titles, names, ticks, labels), so what came from elsewhere is escaped, spelled out and cut.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairway.errors import MissingDependency
from fairway.report.ink import COLOUR, DASH, FEW_DECADES, SYMBOL, columns, height
from fairway.report.marks import Axis, Bars, Limit, Line, Panel, Points, Words
from fairway.text import shown

if TYPE_CHECKING:
    from fairway.report.chart import Chart

_SYMBOL = {
    "circle": "circle",
    "cross": "x-thin",
    "ring": "circle-open",
    "star": "star",
    "square": "square-open",
    "triangle": "triangle-up-open",
}
_SHORT, _NAME, _LINE = 24, 60, 160  # letters of a tick, of a name or title, of a line that pops up
_GRID = "rgba(128,128,128,0.22)"
_DIGITS = 5  # of each number that are kept, and of the range on a linear axis
_SMALL = 8  # whole numbers on an axis that all have a name
_GAP = 64  # pixels between rows of panels


def draw(chart: Chart, *, titled: bool) -> dict[str, Any]:
    """The figure as {"data": [...], "layout": {...}}."""
    tall = chart.height or height(len(chart.panels))
    top = (36 if titled else 0) + 34
    layout: dict[str, Any] = {
        "height": tall,
        "autosize": True,
        "margin": {"l": 8, "r": 16, "t": top, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "rgba(128,128,128,0.6)", "activecolor": COLOUR["valid"]},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": 0},
        "barmode": "stack",
        "bargap": 0.35,
        "uirevision": chart.name,
        "showlegend": _has_legend(chart),
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1 + 6 / tall,
            "yanchor": "bottom",
            "itemsizing": "constant",
            "bgcolor": "rgba(0,0,0,0)",
        },
        "shapes": [],
        "annotations": [],
    }
    if titled:
        where = {"x": 0, "xanchor": "left", "xref": "paper", "y": 1, "yref": "container", "yanchor": "top"}
        layout["title"] = {"text": escaped(chart.title, _NAME), **where, "pad": {"t": 10}, "font": {"size": 16}}
    data: list[dict[str, Any]] = []
    named: set[str] = set()
    for k, panel in enumerate(chart.panels):
        _place(layout, k, chart.panels, tall)
        for mark in panel.marks:
            if isinstance(mark, Limit):
                layout["shapes"] += _limit(mark, panel, k)
            else:
                axes = {"xaxis": f"x{k + 1 if k else ''}", "yaxis": f"y{k + 1 if k else ''}"}
                if isinstance(mark, Words):
                    data.append(_words(mark, panel) | axes)
                    continue
                data.append(_trace(mark, panel, first=mark.name not in named) | axes)
                named.add(mark.name)
    return {"data": data, "layout": layout}


def page(chart: Chart) -> str:
    """The chart as an HTML file that needs nothing else."""
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependency("an .html file needs plotly: pip install 'fairway[report]'") from None
    figure = json.dumps(chart.plotly(), allow_nan=False, separators=(",", ":"))
    for letter in "<>&":  # or a text could end the script
        figure = figure.replace(letter, f"\\u{ord(letter):04x}")
    title, caption = html.escape(shown(chart.title)), html.escape(shown(chart.caption, 600))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>'
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;"
        "padding:0 1rem}h1{font-size:1.3rem}</style></head>"
        f'<body><h1>{title}</h1><div id="chart"></div><p>{caption}</p>'
        f"<script>{get_plotlyjs()}</script><script>const figure={figure};"
        "figure.layout.font={color:getComputedStyle(document.body).color};"
        'Plotly.newPlot("chart",figure.data,figure.layout,{responsive:true,displaylogo:false});</script></body></html>'
    )


def escaped(text: object, most: int = _LINE) -> str:
    r"""A text as plotly shows it letter by letter, its lines kept.

    >>> escaped("<b>loss</b>\n$x$")
    '&lt;b&gt;loss&lt;/b&gt;<br>&#36;x&#36;'
    """
    lines = (html.escape(shown(line, most), quote=False).replace("$", "&#36;") for line in str(text).split("\n"))
    return "<br>".join(lines)


def _has_legend(chart: Chart) -> bool:
    marks = (mark for panel in chart.panels for mark in panel.marks if isinstance(mark, Line | Points | Bars))
    return len({mark.name for mark in marks if mark.name}) > 1


def _words(mark: Words, panel: Panel) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "x": _numbers(mark.x, panel.x),
        "y": _numbers(mark.y, panel.y),
        "text": [escaped(label, _SHORT) for label in mark.labels],
        "textposition": "top center",
        "textfont": {"size": 11},
        "hoverinfo": "skip",
        "showlegend": False,
        "cliponaxis": False,
    }


def _trace(mark: Line | Points | Bars, panel: Panel, *, first: bool) -> dict[str, Any]:
    """One trace; of those with one name the first is in the legend."""
    trace: dict[str, Any] = {
        "type": "bar" if isinstance(mark, Bars) else "scatter",
        "name": escaped(mark.name, _NAME),
        "legendgroup": escaped(mark.name, _NAME),
        "showlegend": first and bool(mark.name),
        "opacity": mark.opacity,
    }
    colour = COLOUR[mark.role]
    if isinstance(mark, Bars):
        marker = {"color": colour, "opacity": trace.pop("opacity")}  # or the labels would be as pale
        trace |= {"orientation": "h", "marker": marker, "cliponaxis": False}
        trace |= {"x": _numbers(mark.length, panel.x), "y": _numbers(mark.at, panel.y)}
        if mark.labels is not None:
            trace |= {"text": [escaped(label, _NAME) for label in mark.labels], "textposition": "outside"}
            trace["textangle"] = 0
    else:
        trace |= {"x": _numbers(mark.x, panel.x), "y": _numbers(mark.y, panel.y)}
    if isinstance(mark, Line):
        shape = "hv" if mark.step else "linear"
        trace["mode"] = "lines"
        trace["line"] = {"color": colour, "width": mark.width, "dash": mark.dash or DASH[mark.role], "shape": shape}
    elif isinstance(mark, Points):
        symbol = mark.symbol or SYMBOL[mark.role]
        rim = {"color": colour, "width": 1.4 if symbol not in ("circle", "star") else 0}
        trace["mode"] = "markers"
        trace["marker"] = {"color": colour, "symbol": _SYMBOL[symbol], "size": mark.size, "line": rim}
    if mark.hover is None:
        trace["hoverinfo"] = "skip" if isinstance(mark, Line) else "x+y"
    else:
        trace |= {"hoverinfo": "text", "hovertext": [escaped(text) for text in mark.hover]}
    return trace


def _limit(mark: Limit, panel: Panel, k: int) -> list[dict[str, Any]]:
    """A line across a panel, and a tint over its allowed side."""
    along, other = ("x", "y") if mark.along == "x" else ("y", "x")
    axis = panel.x if mark.along == "x" else panel.y
    number = k + 1 if k else ""
    across = {
        f"{along}ref": f"{along}{number}",
        f"{other}ref": f"{other}{number} domain",
        f"{other}0": 0,
        f"{other}1": 1,
    }
    value, colour = float(mark.value), COLOUR[mark.role]
    label = {"text": escaped(mark.label, _NAME), "font": {"color": colour, "size": 11}, "padding": 3}
    label |= {"textposition": "end", "textangle": 0, "xanchor": "left", "yanchor": "top"}
    if mark.along == "y":
        label |= {"xanchor": "right", "yanchor": "bottom"}
    line = {"color": colour, "width": 1.5, "dash": DASH[mark.role]}
    shapes: list[dict[str, Any]] = [
        {"type": "line", **across, f"{along}0": value, f"{along}1": value, "line": line, "label": label}
    ]
    if mark.allowed and axis.span is not None:
        edge = float(axis.span[0] if mark.allowed == "below" else axis.span[1])
        tint = {"fillcolor": COLOUR["valid"], "opacity": 0.07, "line": {"width": 0}, "layer": "below"}
        shapes.append({"type": "rect", **across, f"{along}0": value, f"{along}1": edge, **tint})
    return shapes


def _place(layout: dict[str, Any], k: int, panels: Sequence[Panel], tall: int) -> None:
    """Give the k-th panel its axes."""
    panel, wide = panels[k], columns(len(panels))
    rows = -(-len(panels) // wide)
    row, column = divmod(k, wide)
    named = any(any(other.y.categories or ()) for other in panels[1:])  # on the side, where it takes room
    gap, deep = 0.16 if named else 0.07, _GAP / tall
    width, depth = (1 - gap * (wide - 1)) / wide, (1 - deep * (rows - 1)) / rows
    left, low = column * (width + gap), 1 - row * (depth + deep) - depth
    number = k + 1 if k else ""
    layout[f"xaxis{number}"] = _axis(panel, "x") | {
        "domain": _within(left, width),
        "anchor": f"y{number}",
    }
    layout[f"yaxis{number}"] = _axis(panel, "y") | {
        "domain": _within(low, depth),
        "anchor": f"x{number}",
    }
    if panel.note and not panel.marks:
        where = {"xref": f"x{number} domain", "yref": f"y{number} domain", "x": 0.5, "y": 0.5, "showarrow": False}
        layout["annotations"].append({"text": escaped(panel.note, _LINE), **where})
        for side in ("xaxis", "yaxis"):
            layout[f"{side}{number}"] |= {"showticklabels": False, "showgrid": False, "range": [0, 1]}


def _within(start: float, length: float) -> list[float]:
    return [round(max(start, 0.0), 4), round(min(start + length, 1.0), 4)]


def _axis(panel: Panel, side: Literal["x", "y"]) -> dict[str, Any]:
    axis: Axis = getattr(panel, side)
    drawn: dict[str, Any] = {
        "title": {"text": escaped(axis.title, _NAME), "standoff": 8},
        "type": "log" if axis.log else "linear",
        "gridcolor": _GRID,
        "zeroline": False,
        "linecolor": "rgba(128,128,128,0.6)",
        "showline": True,
        "automargin": True,
        "exponentformat": "power",
    }
    ticks = list(enumerate(axis.categories)) if axis.categories is not None else axis.ticks
    if ticks is not None:
        drawn |= {"tickmode": "array", "tickvals": [float(place) for place, _ in ticks]}
        drawn["ticktext"] = [escaped(text, _SHORT) for _, text in ticks]
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
    """Numbers for JSON: None where they are not finite, and no digit more than one can see."""
    values = np.asarray(column, np.float64)
    finite = np.isfinite(values) & ((values > 0) | (not axis.log))
    known = values[finite]
    if len(known) and (known == np.round(known)).all() and np.abs(known).max() < 2**53:
        whole: NDArray[Any] = known.astype(np.int64)
        return _spread(whole.tolist(), finite)
    return _spread(_rounded(known, axis).tolist(), finite)


def _rounded(known: NDArray[np.float64], axis: Axis) -> NDArray[np.float64]:
    if not len(known):
        return known
    with np.errstate(all="ignore"):
        size = np.abs(known)
        scale = size if axis.log else np.minimum(known.max() - known.min() or size.max(), np.where(size, size, np.inf))
        power = 10.0 ** (_DIGITS - np.floor(np.log10(scale)))
        rounded = np.round(known * power) / power
    return np.where(np.isfinite(rounded), rounded, known)


def _spread(known: Sequence[float | int], finite: NDArray[np.bool_]) -> list[float | int | None]:
    if finite.all():
        return list(known)
    rest = iter(known)
    return [next(rest) if there else None for there in finite.tolist()]
