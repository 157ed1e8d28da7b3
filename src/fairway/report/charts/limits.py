"""The objective against each limit: what lies on the allowed side, and what the limit costs."""

from __future__ import annotations

import numpy as np

from fairway.errors import UsageError
from fairway.problem import Constraint
from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import MOST, Rows, empty, held, outside, span, trials, word
from fairway.report.marks import Limit
from fairway.report.view import View

_WIDE = 100.0  # from such a ratio between large and small values on, a log axis


def limits(view: View, constraint: str | None = None) -> Chart:
    """A panel for each constraint, or for one of them."""
    given = list(view.problem.constraints)
    names = [one.metric for one in given]
    if constraint is not None and constraint not in names:
        raise UsageError(f"constraint={constraint!r}: the study has {', '.join(map(repr, names)) or 'no constraint'}")
    rows = Rows.of(view)
    title = "Objective against limits"
    chosen = [i for i, name in enumerate(names) if constraint in (None, name)]
    panels = [_panel(rows, i, MOST // len(chosen), titled=i == chosen[0]) for i in chosen]
    if not any(len(panel.marks) > 1 for panel in panels):
        note = "no limit has been measured yet" if given else "the study has no limits"
        return empty("limits", title, f"{note[0].upper()}{note[1:]}.", note)
    unmeasured = int(np.count_nonzero((rows.stratum == 0) & np.isnan(rows.values[:, chosen]).all(axis=1)))
    caption = "Each point is the checkpoint that stands for a trial; the tinted side is allowed."
    caption += f" {trials(unmeasured)} without a point: limits never paid for." if unmeasured else ""
    sides = [(rows.values[:, i], panel.x) for i, panel in zip(chosen, panels, strict=True)]
    return Chart("limits", title, caption + outside((rows.objective, panels[0].y), *sides), panels)


def _panel(rows: Rows, i: int, most: int, *, titled: bool) -> Panel:
    constraint = rows.view.problem.constraints[i]
    values = rows.values[:, i]
    known = values[np.isfinite(values)]
    positive = bool(len(known)) and min(float(known.min()), constraint.threshold) > 0
    log = positive and bool(np.ptp(np.log(np.quantile(known, [0.05, 0.95]))) > np.log(_WIDE))
    marks = rows.scatter(values, np.arange(len(values)), most)
    sign = "≤" if constraint.sign > 0 else "≥"
    line = Limit(
        constraint.threshold,
        f"{sign} {constraint.threshold:g}",
        along="x",
        allowed="below" if constraint.sign > 0 else "above",
    )
    height = rows.height()
    return Panel(
        _axis(constraint, known, log=log), Axis(height.title if titled else "", span=height.span), [line, *marks]
    )


def _axis(constraint: Constraint, known: np.ndarray, *, log: bool) -> Axis:
    """With a span, so that the allowed side can be tinted."""
    everything = np.append(known, constraint.threshold)
    low, high = float(everything.min()), float(everything.max())
    if log:
        return Axis(word(constraint.metric), log=True, span=held(low / 1.2, high * 1.2, log=True))
    drawn = span(known, [constraint.threshold])
    if drawn is None:
        margin = 0.05 * (high - low) or constraint.unit / 10
        drawn = held(low - margin, high + margin)
    return Axis(word(constraint.metric), span=drawn)
