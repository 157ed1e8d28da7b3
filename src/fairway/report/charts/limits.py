"""The objective against each constraint: what lies on the allowed side, and what the limit costs."""

from __future__ import annotations

import numpy as np

from fairway.errors import UsageError
from fairway.report.chart import Axis, Chart, Limit, Panel
from fairway.report.charts.axes import held, outside, span
from fairway.report.charts.rows import MOST, Rows, empty
from fairway.report.view import View
from fairway.study import Study
from fairway.text import counted, limit, named

_WIDE = 100.0  # from such a ratio between large and small values on, a log axis


def limits(study: Study | View, constraint: str | None = None) -> Chart:
    """The objective against each constraint, or against one of them: what lies on the allowed side.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> study.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 2}, trials=20)
    >>> [mark.name for mark in plots.limits(study, "eod").panels[0].marks[1:]]
    ['invalid', 'valid', 'best']
    """
    rows = Rows.of(study)
    names = [one.metric for one in rows.view.problem.constraints]
    if constraint is not None and constraint not in names:
        raise UsageError(f"constraint={constraint!r}: the study has {', '.join(map(repr, names)) or 'no constraint'}")
    title = "Objective against constraints"
    chosen = [i for i, name in enumerate(names) if constraint in (None, name)]
    panels = [_panel(rows, i, MOST // len(chosen), titled=i == chosen[0]) for i in chosen]
    if not any(len(panel.marks) > 1 for panel in panels):
        return empty("limits", title, "no constraint was measured yet" if names else "the study has no constraints")
    unmeasured = int(np.count_nonzero((rows.stratum == 0) & np.isnan(rows.values[:, chosen]).all(axis=1)))
    caption = "Each point is the checkpoint that stands for a trial; the tinted side is allowed."
    caption += f" {counted(unmeasured, 'trial')} without a point: no check was paid for." if unmeasured else ""
    sides = [(rows.values[:, i], panel.x) for i, panel in zip(chosen, panels, strict=True)]
    return Chart("limits", title, caption + outside((rows.objective, panels[0].y), *sides), panels)


def _panel(rows: Rows, i: int, most: int, *, titled: bool) -> Panel:
    constraint, values = rows.view.problem.constraints[i], rows.values[:, i]
    allowed = "below" if constraint.sign > 0 else "above"
    line = Limit(constraint.threshold, limit(constraint), along="x", allowed=allowed)  # type: ignore[arg-type]
    known = values[np.isfinite(values)]
    everything = [line.value, *known.tolist()]
    low, high = min(everything), max(everything)
    log = bool(len(known)) and low > 0 and np.ptp(np.log(np.quantile(known, [0.05, 0.95]))) > np.log(_WIDE)
    margin = 0.05 * (high - low) or constraint.unit / 10
    drawn = held(low / 1.2, high * 1.2, log=True) if log else span(known, [line.value])
    x = Axis(named(constraint.metric), log=bool(log), span=drawn or held(low - margin, high + margin))
    y = Axis(rows.metric if titled else "", span=rows.axis.span)
    return Panel(x, y, [line, *rows.scatter(values, np.arange(len(values)), most)])
