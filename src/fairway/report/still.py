"""Draws a chart into a file: PNG, SVG or PDF, through matplotlib's objects alone: no window, none of its globals."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairway.errors import MissingDependency
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

_DASH: dict[str, Any] = {"solid": "-", "dash": (0, (5, 2.5)), "dot": (0, (1, 1.6))}
_FILLED, _OUTLINED = {"circle": "o", "star": "*"}, {"cross": "x", "ring": "o", "square": "s", "triangle": "^"}
_DPI = 200
_LARGEST = 1e150  # beyond it matplotlib's own sums overflow
_ONE_AT_A_TIME = threading.Lock()  # what matplotlib is told of its style holds for the whole process
_PIXELS = 100  # of a chart's height in an inch
_TEXT, _SOFT, _RULE = "#222222", "#666666", "#999999"
_STYLE: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "fairway", "text.parse_math": False}
_LEGEND: Any = {"loc": "outside lower left", "fontsize": 8.5, "frameon": False}
_LEGEND |= {"handlelength": 2.2, "columnspacing": 1.6, "borderaxespad": 0.3}
_BESIDE: Any = {"textcoords": "offset points"}


def draw(panels: Sequence[Panel], pixels: int, title: str, kind: str) -> bytes:
    """The file's content."""
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - optional
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingDependency(f"a .{kind} file needs matplotlib: pip install 'fairway[report]'") from None
    (rows, columns), explained, written = grid(len(panels)), legend(panels), io.BytesIO()
    with _ONE_AT_A_TIME, rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # characters that no font here has are drawn as boxes
        figure = Figure(figsize=(7.2 if columns == 1 else 9.6, pixels / _PIXELS + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, panel in zip(axes, panels, strict=False):
            _panel(place, panel, explained)
        for place in axes[len(panels) :]:
            place.set_axis_off()
        figure.suptitle(shown(title, NAME), x=0.012, ha="left", fontsize=12, color=_TEXT, fontweight="bold")
        if len(explained) > 1:
            for handle in filter(None, figure.legend(ncols=min(len(explained), 5), **_LEGEND).legend_handles):
                handle.set_alpha(1.0)
        figure.savefig(written, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
    return written.getvalue()


def _panel(place: Any, panel: Panel, explained: dict[str, Placed]) -> None:
    place.spines[["top", "right"]].set_visible(False)
    place.spines[["left", "bottom"]].set_color(_RULE)
    place.tick_params(which="both", labelsize=8, color=_RULE, labelcolor=_TEXT)
    place.grid(True, color="#e6e6e6", linewidth=0.7)
    place.set_axisbelow(True)
    place.set(xscale="log" if panel.x.log else "linear", yscale="log" if panel.y.log else "linear")
    for mark in panel.marks:
        if isinstance(mark, Limit):
            _limit(place, mark, panel)
        elif isinstance(mark, Tiles):
            _tiles(place, mark)
        else:
            name = shown(mark.name, NAME) if explained.get(mark.name) is mark else "_"
            _mark(place, mark, panel, {"color": LOOK[mark.role].colour, "alpha": mark.opacity, "label": name})
    if any(isinstance(mark, Bars) for mark in panel.marks):
        place.margins(x=0.16)
    _axis(place, "x", panel)
    _axis(place, "y", panel)
    middle = {"transform": place.transAxes, "ha": "center", "va": "center", "wrap": True}
    place.text(0.5, 0.5, shown(panel.note, 160), color=_SOFT, **middle)


def _mark(place: Any, mark: Placed, panel: Panel, style: dict[str, Any]) -> None:
    look, hidden = LOOK[mark.role], panel.x.hides(mark.x) | panel.y.hides(mark.y)
    x, y = (np.clip(np.where(hidden, np.nan, side), -_LARGEST, _LARGEST) for side in (mark.x, mark.y))
    if isinstance(mark, Line):
        steps = {"drawstyle": "steps-post"} if mark.step else {}
        place.plot(x, y, linestyle=_DASH[mark.dash or look.dash], linewidth=mark.width, **steps, **style)
    elif isinstance(mark, Points):
        symbol = mark.symbol or look.symbol
        face, rim = (look.colour, 0.0) if symbol in _FILLED else ("none", 1.0)
        edge = {"markeredgecolor": look.colour, "markeredgewidth": rim, "markersize": mark.size * 0.72}
        shape = (_FILLED | _OUTLINED)[symbol]
        place.plot(x, y, linestyle="none", marker=shape, markerfacecolor=face, **edge, **style)
        if mark.error is not None:
            bar = {f"{mark.along}err": mark.error, "ecolor": look.colour, "elinewidth": 1.1, "capsize": 2.5}
            place.errorbar(x, y, fmt="none", **bar)
    elif isinstance(mark, Bars):
        place.barh(y, x, height=0.65, **style)
    elif isinstance(mark, Area):
        place.fill(x, y, linewidth=0, **style)
    most, after = NAME, {"xytext": (4, 0), "va": "center", "fontsize": 8, "color": _TEXT}
    if isinstance(mark, Words):
        most, after = TICK, {"xytext": (0, 3), "ha": "center", "fontsize": 7.5, "color": _TEXT}
    for label, *where in zip(mark.labels or (), x, y, strict=False):
        place.annotate(shown(label, most), where, **after, **_BESIDE)


def _tiles(place: Any, mark: Tiles) -> None:
    """A map, with its scale on the right."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba  # noqa: PLC0415 - `draw` has checked that it is there

    ends = [to_rgba(LOOK["feasible"].colour, opacity) for opacity in (PALEST, STRONGEST)]
    low, high = sorted((mark.worst, mark.best))
    colours = LinearSegmentedColormap.from_list("", ends if mark.worst <= mark.best else ends[::-1])
    values, worse = np.ma.masked_invalid(mark.values), "min" if mark.worst <= mark.best else "max"
    image = place.pcolormesh(mark.x, mark.y, values, shading="nearest", cmap=colours, vmin=low, vmax=high)
    scale = place.figure.colorbar(image, ax=place, extend=worse, aspect=30, pad=0.03)
    scale.outline.set_visible(False)
    scale.ax.tick_params(labelsize=8, color=_RULE, labelcolor=_TEXT)
    scale.ax.set_title(shown(mark.name, TICK), fontsize=8, color=_TEXT)


def _limit(place: Any, mark: Limit, panel: Panel) -> None:
    look, allowed = LOOK["limit"], panel.allowed(mark)
    line, tint = (place.axvline, place.axvspan) if mark.along == "x" else (place.axhline, place.axhspan)
    line(mark.value, color=look.colour, linewidth=1.3, linestyle=_DASH[look.dash])
    if allowed is not None:
        tint(*sorted(allowed), color=LOOK["feasible"].colour, alpha=0.07, linewidth=0)
    aside: dict[str, Any] = {"xytext": (-4, -4), "ha": "right"} if panel.is_far(mark) else {"xytext": (4, -4)}
    where: dict[str, Any] = {"xy": (mark.value, 1.0), "xycoords": ("data", "axes fraction"), "va": "top", **aside}
    if mark.along == "y":
        where = {"xy": (1.0, mark.value), "xycoords": ("axes fraction", "data"), "xytext": (-2, 3), "ha": "right"}
    place.annotate(shown(mark.label, NAME), fontsize=8, color=look.colour, **where, **_BESIDE)


def _axis(place: Any, side: Side, panel: Panel) -> None:
    """Ticks and span, once all marks are drawn."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - `draw` has checked that it is there

    axis, ruler = panel.axis(side), getattr(place, f"{side}axis")
    ruler.set_label_text(shown(axis.title, NAME), fontsize=9, color=_TEXT)
    if axis.ticks is not None:
        texts = ["\n".join(shown(line, TICK) for line in text.split("\n")) for _, text in axis.ticks]
        ruler.set_ticks([at for at, _ in axis.ticks], texts)
        ruler.set_ticks([], minor=True)
    elif axis.log:
        between = "" if panel.every(side) else "235"
        ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ruler.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in between else ""))
    else:
        ruler.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=axis.whole))
        if axis.whole:
            ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if axis.span is not None:
        place.set(**{f"{side}lim": np.clip(axis.span, -_LARGEST, _LARGEST)})
