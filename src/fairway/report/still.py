"""Draws a chart into a file: PNG, SVG or PDF, through matplotlib's objects alone: no window, none of its globals."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fairway.errors import MissingDependency
from fairway.report.ink import FEW_DECADES, FILLED, LOOK, NAME, TICK, grid
from fairway.report.marks import Bars, Limit, Line, Mark, Panel, Points, Side, Words
from fairway.text import shown

_DASH: dict[str, Any] = {"solid": "-", "dash": (0, (5, 2.5)), "dot": (0, (1, 1.6))}
_MARKER = {"circle": "o", "cross": "x", "ring": "o", "star": "*", "square": "s", "triangle": "^"}
_DPI = 200
_LARGEST = 1e150  # beyond it matplotlib's own sums overflow
_ONE_AT_A_TIME = threading.Lock()  # what matplotlib is told of its style holds for the whole process
_PIXELS = 100  # of a chart's height in an inch
_TEXT, _SOFT, _RULE = "#222222", "#666666", "#999999"
_STYLE: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "fairway", "text.parse_math": False}
_LEGEND: dict[str, Any] = {"loc": "outside lower left", "fontsize": 8.5, "frameon": False}
_LEGEND |= {"handlelength": 2.2, "columnspacing": 1.6, "borderaxespad": 0.3}
_BESIDE: dict[str, Any] = {"textcoords": "offset points"}


def draw(panels: Sequence[Panel], pixels: int, title: str, kind: str) -> bytes:
    """The file's content."""
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - optional
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise MissingDependency(f"a .{kind} file needs matplotlib: pip install 'fairway[report]'") from None
    rows, columns = grid(len(panels))
    written = io.BytesIO()
    with _ONE_AT_A_TIME, rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that no font here has are drawn as boxes
        figure = Figure(figsize=(7.2 if columns == 1 else 9.6, pixels / _PIXELS + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, panel in zip(axes, panels, strict=False):
            _panel(place, panel)
        for place in axes[len(panels) :]:
            place.set_axis_off()
        figure.suptitle(shown(title, NAME), x=0.012, ha="left", fontsize=12, color=_TEXT, fontweight="bold")
        _legend(figure)
        figure.savefig(written, format=kind, dpi=_DPI, metadata={"Date": None} if kind == "svg" else None)
    return written.getvalue()


def _legend(figure: Any) -> None:
    """One legend for all panels, below them."""
    entries: dict[str, Any] = {}
    for place in figure.axes:
        for handle, name in zip(*place.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    if len(entries) > 1:
        legend = figure.legend(entries.values(), entries.keys(), ncols=min(len(entries), 5), **_LEGEND)
        for handle in legend.legend_handles:
            handle.set_alpha(1.0)


def _panel(place: Any, panel: Panel) -> None:
    for side in ("top", "right"):
        place.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        place.spines[side].set_color(_RULE)
    place.tick_params(which="both", labelsize=8, color=_RULE, labelcolor=_TEXT)
    place.grid(True, color="#e6e6e6", linewidth=0.7)
    place.set_axisbelow(True)
    sides: tuple[Side, ...] = ("x", "y")
    for side in sides:
        if panel.axis(side).log:
            place.set(**{f"{side}scale": "log"})
    for mark in panel.marks:
        _mark(place, mark, panel)
    if any(isinstance(mark, Bars) for mark in panel.marks):
        place.margins(x=0.16)
    for side in sides:
        if panel.marks:
            _axis(place, side, panel)
        getattr(place, f"set_{side}label")(shown(panel.axis(side).title, NAME), fontsize=9, color=_TEXT)
    if panel.note and not panel.marks:
        middle = {"ha": "center", "va": "center", "transform": place.transAxes}
        place.text(0.5, 0.5, shown(panel.note, 160), color=_SOFT, wrap=True, **middle)
        place.set(xticks=[], yticks=[])


def _mark(place: Any, mark: Mark, panel: Panel) -> None:
    if isinstance(mark, Limit):
        _limit(place, mark, panel)
        return
    if isinstance(mark, Words):
        for x, y, label in zip(np.asarray(mark.x), np.asarray(mark.y), mark.labels, strict=True):
            centred = {"xytext": (0, 3), "ha": "center", "fontsize": 7.5, "color": _TEXT}
            place.annotate(shown(label, TICK), (x, y), **centred, **_BESIDE)
        return
    look = LOOK[mark.role]
    style = {"color": look.colour, "alpha": mark.opacity, "label": shown(mark.name, NAME) or "_"}
    if isinstance(mark, Bars):
        at, length = np.asarray(mark.at), np.clip(np.nan_to_num(np.asarray(mark.length)), 0.0, _LARGEST)
        place.barh(at, length, height=0.65, **style)
        for y, end, label in zip(at, length, mark.labels or (), strict=False):
            after = {"xytext": (4, 0), "va": "center", "fontsize": 8, "color": _TEXT}
            place.annotate(shown(label, NAME), (end, y), **after, **_BESIDE)
        return
    x, y = np.asarray(mark.x, np.float64), np.asarray(mark.y, np.float64)
    hidden = panel.x.hides(x) | panel.y.hides(y)
    x, y = np.clip(x, -_LARGEST, _LARGEST), np.clip(np.where(hidden, np.nan, y), -_LARGEST, _LARGEST)
    if isinstance(mark, Line):
        steps = {"drawstyle": "steps-post"} if mark.step else {}
        place.plot(x, y, linestyle=_DASH[mark.dash or look.dash], linewidth=mark.width, **steps, **style)
    elif isinstance(mark, Points):
        symbol = mark.symbol or look.symbol
        face = {"markerfacecolor": look.colour if symbol in FILLED else "none", "markeredgecolor": look.colour}
        rim = {"markeredgewidth": 0.0 if symbol in FILLED else 1.0, "markersize": mark.size * 0.72}
        place.plot(x, y, linestyle="none", marker=_MARKER[symbol], **face, **rim, **style)


def _limit(place: Any, mark: Limit, panel: Panel) -> None:
    look, allowed = LOOK[mark.role], panel.allowed(mark)
    line, tint = (place.axvline, place.axvspan) if mark.along == "x" else (place.axhline, place.axhspan)
    line(mark.value, color=look.colour, linewidth=1.3, linestyle=_DASH[look.dash])
    if allowed is not None:
        tint(*sorted(allowed), color=LOOK["valid"].colour, alpha=0.07, linewidth=0)
    where = {"xy": (mark.value, 1.0), "xycoords": ("data", "axes fraction"), "xytext": (4, -4), "va": "top"}
    if mark.along == "y":
        where = {"xy": (1.0, mark.value), "xycoords": ("axes fraction", "data"), "xytext": (-2, 3), "ha": "right"}
    place.annotate(shown(mark.label, NAME), fontsize=8, color=look.colour, **where, **_BESIDE)


def _axis(place: Any, side: Side, panel: Panel) -> None:
    """Ticks and span, once all marks are drawn."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - `draw` has checked that it is there

    axis, ruler, ticks = panel.axis(side), getattr(place, f"{side}axis"), panel.axis(side).named_ticks
    if ticks is not None:
        texts = ["\n".join(shown(line, TICK) for line in text.split("\n")) for _, text in ticks]
        ruler.set_ticks([at for at, _ in ticks], texts)
        ruler.set_ticks([], minor=True)
    elif axis.log:
        between = "235" if panel.decades(side) < FEW_DECADES else ""
        ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ruler.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in between else ""))
    else:
        ruler.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=axis.whole))
        if axis.whole:
            ruler.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    span = axis.span if axis.categories is None or axis.span else (-0.6, len(axis.categories) - 0.4)
    if span is not None:
        place.set(**{f"{side}lim": np.clip(span, -_LARGEST, _LARGEST)})
