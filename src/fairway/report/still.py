"""Draws a chart into a file: PNG, SVG or PDF, through matplotlib's objects alone: no window, none of its globals."""

from __future__ import annotations

import io
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from fairway.errors import MissingDependency
from fairway.report.ink import COLOUR, DASH, FEW_DECADES, SYMBOL, columns, height
from fairway.report.marks import Axis, Bars, Limit, Line, Mark, Panel, Points, Words
from fairway.text import shown

if TYPE_CHECKING:
    from fairway.report.chart import Chart

_DASH: dict[str, Any] = {"solid": "-", "dash": (0, (5, 2.5)), "dot": (0, (1, 1.6))}
_MARKER = {"circle": "o", "cross": "x", "ring": "o", "star": "*", "square": "s", "triangle": "^"}
_FILLED = ("circle", "star")
_DPI = 200
_LARGEST = 1e150  # beyond it matplotlib's own sums overflow
_ONE_AT_A_TIME = threading.Lock()  # what matplotlib is told of its style holds for the whole process
_PIXELS = 100  # of a chart's height in an inch
_SHORT, _NAME, _CAPTION = 24, 60, 600
_TEXT, _SOFT = "#222222", "#666666"


def draw(chart: Chart, kind: str) -> bytes:
    """The file's content."""
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - optional
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingDependency(f"a .{kind} file needs matplotlib: pip install 'fairway[report]'") from None
    style: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "fairway", "text.parse_math": False}
    wide = columns(len(chart.panels)) if chart.panels else 1
    rows = max(-(-len(chart.panels) // wide), 1)
    inches = (7.2 if wide == 1 else 9.6, (chart.height or height(len(chart.panels))) / _PIXELS + 0.5)
    written = io.BytesIO()
    with _ONE_AT_A_TIME, rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that no font here has are drawn as boxes
        figure = Figure(figsize=inches, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, wide, squeeze=False).ravel()
        for place, panel in zip(axes, chart.panels, strict=False):
            _panel(place, panel)
        for place in axes[len(chart.panels) :]:
            place.set_axis_off()
        _words(figure, chart)
        figure.savefig(written, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
    return written.getvalue()


def _words(figure: Any, chart: Chart) -> None:
    """The title above the panels, and a legend under them."""
    figure.suptitle(shown(chart.title, _NAME), x=0.012, ha="left", fontsize=12, color=_TEXT, fontweight="bold")
    entries: dict[str, Any] = {}
    for place in figure.axes:
        for handle, name in zip(*place.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    if len(entries) > 1:
        legend = figure.legend(
            entries.values(),
            entries.keys(),
            loc="outside lower left",
            ncols=min(len(entries), 5),
            fontsize=8.5,
            frameon=False,
            handlelength=2.2,
            columnspacing=1.6,
            borderaxespad=0.3,
        )
        for handle in legend.legend_handles:
            handle.set_alpha(1.0)


def _panel(place: Any, panel: Panel) -> None:
    for side in ("top", "right"):
        place.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        place.spines[side].set_color("#999999")
    place.tick_params(which="both", labelsize=8, color="#999999", labelcolor=_TEXT)
    place.grid(True, color="#e6e6e6", linewidth=0.7)
    place.set_axisbelow(True)
    if panel.note and not panel.marks:
        middle = {"ha": "center", "va": "center", "transform": place.transAxes}
        place.text(0.5, 0.5, shown(panel.note, 160), color=_SOFT, wrap=True, **middle)
        place.set_xticks([])
        place.set_yticks([])
    for side, axis in (("x", panel.x), ("y", panel.y)):
        if axis.log:
            getattr(place, f"set_{side}scale")("log")
    ends: dict[float, float] = {}
    for mark in panel.marks:
        _mark(place, mark, panel, ends)
    if ends:
        place.margins(x=0.16)
    if panel.marks:
        _axis(place, "x", panel.x, few=panel.decades("x") < FEW_DECADES)
        _axis(place, "y", panel.y, few=panel.decades("y") < FEW_DECADES)
    for side, axis in (("x", panel.x), ("y", panel.y)):
        getattr(place, f"set_{side}label")(shown(axis.title, _NAME), fontsize=9, color=_TEXT)


def _mark(place: Any, mark: Mark, panel: Panel, ends: dict[float, float]) -> None:
    if isinstance(mark, Limit):
        _limit(place, mark, panel)
        return
    if isinstance(mark, Words):
        for x, y, label in zip(np.asarray(mark.x), np.asarray(mark.y), mark.labels, strict=True):
            style = {"textcoords": "offset points", "ha": "center", "fontsize": 7.5, "color": _TEXT}
            place.annotate(shown(label, _SHORT), (x, y), xytext=(0, 3), **style)
        return
    colour = COLOUR[mark.role]
    style = {"color": colour, "alpha": mark.opacity, "label": shown(mark.name, _NAME) or "_"}
    if isinstance(mark, Bars):
        at, length = np.asarray(mark.at), np.clip(np.nan_to_num(np.asarray(mark.length)), 0.0, _LARGEST)
        start = np.array([ends.get(float(y), 0.0) for y in at])
        place.barh(at, length, left=start, height=0.65, **style)
        for i, y in enumerate(at.tolist()):
            ends[y] = float(start[i] + length[i])
            if mark.labels is not None:
                where = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
                place.annotate(shown(mark.labels[i], _NAME), (ends[y], y), color=_TEXT, **where)
        return
    x, y = np.asarray(mark.x, np.float64), np.asarray(mark.y, np.float64)
    hidden = ~np.isfinite(x) | ~np.isfinite(y)
    hidden |= ((x <= 0) & panel.x.log) | ((y <= 0) & panel.y.log)
    x, y = np.clip(x, -_LARGEST, _LARGEST), np.clip(np.where(hidden, np.nan, y), -_LARGEST, _LARGEST)
    if isinstance(mark, Line):
        steps = {"drawstyle": "steps-post"} if mark.step else {}
        place.plot(x, y, linestyle=_DASH[mark.dash or DASH[mark.role]], linewidth=mark.width, **steps, **style)
    elif isinstance(mark, Points):
        symbol = mark.symbol or SYMBOL[mark.role]
        face: dict[str, Any] = {"markeredgecolor": colour, "markeredgewidth": 0 if symbol in _FILLED else 1.0}
        face["markerfacecolor"] = colour if symbol in _FILLED else "none"
        place.plot(x, y, linestyle="none", marker=_MARKER[symbol], markersize=mark.size * 0.72, **face, **style)


def _limit(place: Any, mark: Limit, panel: Panel) -> None:
    colour, axis = COLOUR[mark.role], panel.x if mark.along == "x" else panel.y
    line, tint = (place.axvline, place.axvspan) if mark.along == "x" else (place.axhline, place.axhspan)
    line(mark.value, color=colour, linewidth=1.3, linestyle=_DASH[DASH[mark.role]])
    if mark.allowed and axis.span is not None:
        edge = axis.span[0] if mark.allowed == "below" else axis.span[1]
        tint(*sorted((mark.value, edge)), color=COLOUR["valid"], alpha=0.07, linewidth=0)
    place_of = {"xy": (mark.value, 1.0), "xycoords": ("data", "axes fraction"), "xytext": (4, -4), "va": "top"}
    if mark.along == "y":
        place_of = {"xy": (1.0, mark.value), "xycoords": ("axes fraction", "data"), "xytext": (-2, 3), "ha": "right"}
    place.annotate(shown(mark.label, _NAME), textcoords="offset points", fontsize=8, color=colour, **place_of)


def _axis(place: Any, side: str, axis: Axis, *, few: bool) -> None:
    """Ticks and span, once all marks are drawn."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - there, or `draw` had said so

    ruler = getattr(place, f"{side}axis")
    ticks = list(enumerate(axis.categories)) if axis.categories is not None else axis.ticks
    if ticks is not None:
        texts = ["\n".join(shown(line, _SHORT) for line in text.split("\n")) for _, text in ticks]
        ruler.set_ticks([at for at, _ in ticks], texts)
        ruler.set_ticks([], minor=True)
    elif axis.log:
        ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ruler.set_minor_formatter(
            FuncFormatter(lambda value, _: f"{value:g}" if few and f"{value:e}"[0] in "235" else "")
        )
    else:
        ruler.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=axis.whole))
        if axis.whole:
            ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if axis.categories is not None:
        getattr(place, f"set_{side}lim")(-0.6, len(axis.categories) - 0.4)
    if axis.span is not None:
        getattr(place, f"set_{side}lim")(*np.clip(axis.span, -_LARGEST, _LARGEST))
