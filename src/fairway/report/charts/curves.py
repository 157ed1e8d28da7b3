"""Learning curves by stratum, as in Figure 1 of ACE: which trials ran to their end, which were stopped, and why.

The first panel has the objective, and one further panel for each constraint has its limit. A few spikes or a training
that diverges must not press all others together, so each panel shows the range of most reports (`_view`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.report.chart import Axis, Chart, Limit, Line, Panel, Points
from fairway.report.charts.rows import LAYERS, LEGEND, Rows, at_best, empty, held, shaded, thinned
from fairway.report.marks import Mark
from fairway.report.view import STRATA, Curve, View
from fairway.study import Study
from fairway.text import counted, duration, limit, named, number, plus_minus

_TRIALS, _BEST = 80, 20  # curves in one picture; of them the best, the others evenly
_POINTS, _MORE = 120, 600  # of a curve among others, and of one alone
_LONG, _EARLY = 50, 8  # a log axis from 50 steps on, if half of the curves end within an eighth of the longest
_SAMPLES = 20  # of each curve, evenly, that an axis is made for
_CONSTRAINTS = 5  # that have a panel
_BEYOND = "out of range"


def curves(study: Study | View, trials: Collection[int] | None = None) -> Chart:
    """Learning curves, coloured by feasibility, with the reason of every stop; beside them each constraint over steps.

    By default the best trials and an even share of the others, at most 80; `trials` are numbers that you choose. The
    axes show the range of most reports: a triangle at the edge is where a curve leaves it.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"rate": fw.Float(0.1, 0.9)}, fw.Minimize("loss"), seed=0)
    >>> def train(trial):
    ...     for step in trial.steps(8):
    ...         trial.report(loss=(1 - trial.params["rate"]) ** step)
    >>> study.optimize(train, trials=10)
    >>> plots.curves(study, trials=[0, 1]).caption
    'Each line is a trial. A square marks early stopping. 2 of 10 trials.'
    """
    rows = Rows(study)
    view, title, constraints = rows.view, "Learning curves", rows.view.problem.constraints
    if trials is not None and not all(isinstance(k, Integral) for k in trials):
        raise UsageError(f"trials={trials!r}: numbers of trials are expected, such as [0, 7]")
    chosen = _chosen(rows) if trials is None else sorted({int(k) for k in trials})
    found = {k: curve.thinned(_POINTS) for k, curve in view.curves(chosen).items()}
    if not any(len(curve.step) > 1 for curve in found.values()):
        return empty("curves", title, "no trial has reported more than one step")
    first, last = np.transpose([curve.step[[0, -1]] for curve in found.values()])
    log = last.max() >= _LONG and np.median(last) <= last.max() / _EARLY and first.min() > 0
    ends = float(first.min()), float(last.max())
    around = (ends[0] / 1.2, ends[1] * 1.2) if log else (ends[0] - 0.03 * np.ptp(ends), ends[1] + 0.03 * np.ptp(ends))
    steps = Axis("step", log=bool(log), span=around)
    panels = [_panel(rows, found, steps, -1)]
    panels += [
        _panel(rows, found, steps, i)
        for i in range(len(constraints[:_CONSTRAINTS]))
        if any(np.isfinite(curve.values[:, i]).any() for curve in found.values())
    ]
    names = {mark.name for panel in panels for mark in panel.marks if isinstance(mark, Points)}
    caption = f"Each line is a trial{', coloured by feasibility' if constraints else ''}"
    caption += "; the thick one is the best." if rows.best in found else "."
    caption += " A square marks early stopping." if "stopped early" in names else ""
    if len(panels) > 1:
        what = "constraint" if view.problem.limits else "tracked metric"
        caption += f" The {what} is shown where it was evaluated{shaded(view.problem)}"
    caption += " A triangle is a value beyond the range of the axis." if _BEYOND in names else ""
    if len(found) < len(view.courses):
        share = ": the best, and an evenly spaced sample of the others" if trials is None else ""
        caption += f" {len(found)} of {len(view.courses):,} trials{share}."
    return Chart("curves", title, caption, panels, height=440 if len(panels) < 4 else None)  # noqa: PLR2004


def _chosen(rows: Rows) -> list[int]:
    """The best trials, those that run, and an even share of the others."""
    order = rows.finished[rows.view.ledger.history().order]
    chosen = {*order[:_BEST].tolist(), *list(rows.view.ledger.running)[: _TRIALS // 4]}
    rest = np.setdiff1d(np.arange(len(rows.objective)), list(chosen))
    return sorted(chosen.union(rest[thinned(len(rest), _TRIALS - len(chosen))].tolist()))


def _panel(rows: Rows, found: Mapping[int, Curve], steps: Axis, i: int) -> Panel:
    """One metric over steps: the i-th constraint with its limit, or the objective (-1). The best is drawn last."""
    view = rows.view
    metric = view.problem.metrics[i + 1]
    table = {k: _known(curve, i) for k, curve in found.items()}
    kept, star = list[float](), list[Mark]()
    checkpoint = view.courses[rows.best].checkpoint if rows.best is not None and rows.best in found else None
    at = None if checkpoint is None else (checkpoint.objective, *checkpoint.values)[i + 1]
    if rows.best is not None and checkpoint is not None and at is not None:
        kept.append(at)
        star.append(rows.star(rows.best, checkpoint.step, at))
    marks = list[Mark]()
    if i >= 0 and view.problem.constraints[i].has_limit:
        constraint = view.problem.constraints[i]
        kept.append(constraint.threshold)
        side = "below" if constraint.sign > 0 else "above"
        marks.append(Limit(constraint.threshold, limit(constraint), allowed=side))  # type: ignore[arg-type]
    span = _view([values for _, values, _ in table.values()], kept)
    for place in LAYERS:
        marks += _layer(rows, table, named(metric), place, span, dots=i >= 0)
    if i < 0:
        marks += _stops(view, found, span)
    marks += _beyond(table, named(metric), span)
    if rows.best in table:
        x, y, _ = table[rows.best]
        marks.append(Line(x, _inside(y, span), role="best", width=2.4))
    return Panel(steps, Axis(named(metric), span=span), [*marks, *star])


_Column = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]  # of a curve: steps, values, strata


def _known(curve: Curve, i: int) -> _Column:
    """The reports of a curve that have the i-th constraint, or the objective (-1)."""
    values = curve.objective if i < 0 else curve.values[:, i]
    here = np.isfinite(values) if i >= 0 else np.ones(len(values), np.bool_)
    return curve.step[here], values[here], curve.stratum[here]


def _view(each: Iterable[NDArray[np.float64]], keep: Collection[float]) -> tuple[float, float] | None:
    """The range of an axis that shows most of every curve (n,); `keep` is always inside. None if there are no values.

    It reaches from the 10th to the 90th percentile and half of that further, but not beyond the values. A short curve
    counts as much as a long one.

    >>> [round(end) for end in _view([np.array([0.0, 100.0])] * 30 + [np.array([1e9])], [])]
    [-8, 158]
    """
    curves = [values[np.isfinite(values)] for values in each]
    curves = [values for values in curves if len(values)]
    if not curves:
        return None
    low, high = float(min(values.min() for values in curves)), float(max(values.max() for values in curves))
    evenly = [values[np.linspace(0, len(values) - 1, _SAMPLES).round().astype(np.intp)] for values in curves]
    first, last = np.quantile(np.concatenate(evenly), [0.1, 0.9]).tolist()
    further = last / 2 - first / 2  # the whole may be more than a float holds
    inside = [value for value in keep if np.isfinite(value)]
    low, high = min([max(low, first - further), *inside]), max([min(high, last + further), *inside])
    margin = 0.05 * (high - low) or abs(high) / 10 or 1.0
    return held(low - margin, high + margin)


def _inside(values: NDArray[np.float64], span: tuple[float, float] | None) -> NDArray[np.float64]:
    """The values (n,), NaN where they lie outside of a range."""
    return values if span is None else np.where((values >= span[0]) & (values <= span[1]), values, np.nan)


def _at_edge(values: NDArray[np.float64], span: tuple[float, float] | None) -> NDArray[np.float64]:
    """The values (n,), those outside of a range moved just inside of it."""
    if span is None:
        return values
    edge = 0.02 * (span[1] / 2 - span[0] / 2)
    return np.clip(values, span[0] + edge, span[1] - edge)


def _layer(
    rows: Rows, table: Mapping[int, _Column], metric: str, place: int, span: tuple[float, float] | None, *, dots: bool
) -> list[Mark]:
    """The reports of one stratum: a line of pieces, each leading to a report from the one before, and points.

    Reports of which no constraint is known have points only with `dots`, or where they are their trial's only one.
    """
    lines: list[tuple[float, float, str]] = []
    points: list[tuple[float, float, str]] = []
    for k, (steps, values, stratum) in table.items():
        reports = [
            (step, y, f"trial {k}, step {step}\n{metric} {number(y)}")
            for step, y in zip(steps.tolist(), _inside(values, span).tolist(), strict=True)
        ]
        here = stratum == place
        edges = np.flatnonzero(np.diff(here, prepend=False, append=False))
        for first, end in edges.reshape(-1, 2).tolist():
            lines += [*reports[max(first - 1, 0) : end], (np.nan, np.nan, "")]
        if place or dots or len(reports) == 1:
            points += [reports[i] for i in np.flatnonzero(here)]
    limits, role = bool(rows.view.problem.constraints), STRATA[place]
    name, marks = LEGEND[place] if limits else "trial", list[Mark]()
    if lines:
        x, y, hover = zip(*lines, strict=True)
        marks.append(Line(x, y, name, role, "solid", width=1.1, opacity=0.6 if place else 0.45, hover=hover))
    if limits and points:
        x, y, hover = zip(*points, strict=True)
        marks.append(Points(x, y, name, role, size=4.5, opacity=0.9, hover=hover))
    return marks


def _stops(view: View, found: Mapping[int, Curve], span: tuple[float, float] | None) -> list[Mark]:
    """A square at the last report of every trial that was stopped, with the reason."""
    stopped = {k: curve for k, curve in found.items() if view.courses[k].status == "stopped"}
    if not stopped:
        return []
    x, y = np.transpose([(curve.step[-1], curve.objective[-1]) for curve in stopped.values()])
    hover = [f"trial {k} stopped at step {one.step[-1]}\n{view.courses[k].reason}" for k, one in stopped.items()]
    return [Points(x, _at_edge(y, span), "stopped early", "other", size=6, opacity=0.7, hover=hover)]


def _beyond(table: Mapping[int, _Column], metric: str, span: tuple[float, float] | None) -> list[Mark]:
    """A triangle at the edge wherever a curve leaves the range that is shown."""
    left: list[tuple[float, float, str]] = []
    for k, (steps, values, _) in table.items():
        outside = np.isnan(_inside(values, span)) & ~np.isnan(values)
        left += [
            (steps[i], values[i], f"trial {k}, step {steps[i]}\n{metric} {number(float(values[i]))}")
            for i in np.flatnonzero(outside & ~np.append(False, outside[:-1])).tolist()
        ]
    if not left:
        return []
    x, y, hover = zip(*left, strict=True)
    return [Points(x, _at_edge(np.array(y), span), _BEYOND, "not evaluated", "triangle", size=6, hover=hover)]


def one_curve(view: View, k: int) -> list[Chart]:
    """What one trial reported, by stratum: a panel for each metric; no chart if it reported nothing."""
    curve = view.curves([k]).get(k)
    if curve is None:
        return []
    problem, checkpoint, thin, panels = view.problem, view.courses[k].checkpoint, curve.thinned(_MORE), []
    errors = (np.full(len(thin.step), np.nan), *thin.errors.T)
    columns = zip(problem.metrics, (thin.objective, *thin.values.T), errors, strict=True)
    for i, (metric, values, error) in enumerate(columns):
        marks: list[Mark] = [Line(thin.step, values, role="not evaluated", dash="solid", width=1.0, opacity=0.5)]
        for place, role in enumerate(STRATA):
            here = thin.stratum == place
            if here.any():
                name = LEGEND[place] if problem.constraints else "reported"
                texts = _texts(named(metric), thin.step[here], values[here], error[here])
                marks.append(Points(thin.step[here], values[here], name, role, size=4.5, hover=texts))
        if i and problem.constraints[i - 1].has_limit:
            marks.append(Limit(problem.constraints[i - 1].threshold, limit(problem.constraints[i - 1])))
        at = None if checkpoint is None else (checkpoint.objective, *checkpoint.values)[i]
        if checkpoint is not None and at is not None:
            known = checkpoint.errors[i - 1] if i and checkpoint.errors else None
            texts = _texts(named(metric), [checkpoint.step], [at], [np.nan if known is None else known])
            marks.append(Points(checkpoint.step, at, "best checkpoint", "best", size=13, hover=texts, error=known))
        panels.append(Panel(Axis("step", whole=True), Axis(named(metric)), marks))
    some = f"{len(thin.step):,} of its " if len(thin.step) < len(curve.step) else ""
    caption = f"{some}{counted(len(curve.step), 'report')}, over {duration(float(curve.seconds[-1]))}."
    if checkpoint is not None and problem.constraints:
        caption += f" The star is {at_best(problem) if view.stratum(k) else 'its best by objective: none was checked'}."
    return [Chart("curve", "Learning curve", caption, panels)]


def _texts(metric: str, steps: Iterable[int], values: Iterable[float], errors: Iterable[float]) -> list[str]:
    """What pops up for the reports of one metric."""
    rows = zip(steps, values, errors, strict=True)
    return [f"step {step}\n{metric} {plus_minus(value, None if np.isnan(e) else float(e))}" for step, value, e in rows]
