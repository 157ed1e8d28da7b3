"""Learning curves by stratum, as in Figure 1 of ACE: which trials ran to their end, which were stopped, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from numbers import Integral

import numpy as np

from fairway.errors import UsageError
from fairway.report.chart import Axis, Chart, Limit, Line, Panel, Points
from fairway.report.charts.rows import LAYERS, Rows, empty, span, thinned
from fairway.report.marks import Mark
from fairway.report.view import STRATA, Curve, View
from fairway.study import Study
from fairway.text import counted, duration, limit, named, number, plus_minus

_TRIALS, _BEST = 80, 20  # curves in one picture; of them the best, the others evenly
_POINTS, _MORE = 120, 600  # of a curve among others, and of one alone
_LONG, _EARLY = 50, 8  # a log axis from 50 steps on, if half of the curves end within an eighth of the longest


def curves(study: Study | View, trials: Collection[int] | None = None) -> Chart:
    """Learning curves, coloured by their constraints, with the reason of every stop.

    By default the best trials and an even share of the others, at most 80; `trials` are numbers that you choose.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"rate": fw.Float(0.1, 0.9)}, fw.Minimize("loss"), seed=0)
    >>> def train(trial):
    ...     for step in trial.steps(8):
    ...         trial.report(loss=(1 - trial.params["rate"]) ** step)
    >>> study.optimize(train, trials=10)
    >>> plots.curves(study, trials=[0, 1]).caption
    'Each line is a trial. A square is where one was stopped. 2 of 10 trials.'
    """
    rows = Rows(study)
    view, title = rows.view, "Learning curves"
    if trials is not None and not all(isinstance(k, Integral) for k in trials):
        raise UsageError(f"trials={trials!r}: numbers of trials are expected, such as [0, 7]")
    chosen = _chosen(rows) if trials is None else sorted({int(k) for k in trials})
    found = {k: curve.thinned(_POINTS) for k, curve in view.curves(chosen).items()}
    if not any(len(curve.step) > 1 for curve in found.values()):
        return empty("curves", title, "no trial has reported more than one step")
    marks = [mark for place in LAYERS for mark in _layer(rows, found, place)]
    stopped = {k: curve for k, curve in found.items() if view.courses[k].status == "stopped"}
    if stopped:
        x, y = np.transpose([(curve.step[-1], curve.objective[-1]) for curve in stopped.values()])
        hover = [f"trial {k} stopped at step {one.step[-1]}\n{view.courses[k].reason}" for k, one in stopped.items()]
        marks.append(Points(x, y, "stopped", "other", size=7, hover=hover))
    kept: list[float] = []
    if rows.best in found and (checkpoint := view.courses[rows.best].checkpoint):
        kept = [checkpoint.objective]
        marks.append(rows.star(rows.best, checkpoint.step, checkpoint.objective))
    first, last = np.transpose([curve.step[[0, -1]] for curve in found.values()])
    log = last.max() >= _LONG and np.median(last) <= last.max() / _EARLY and first.min() > 0
    ends = np.ravel([curve.objective[[0, -1]] for curve in found.values()])
    panel = Panel(Axis("step", log=bool(log)), Axis(rows.metric, span=span(ends, kept)), marks)
    caption = f"Each line is a trial{', coloured by its constraints' if view.problem.constraints else ''}."
    caption += " A square is where one was stopped." if stopped else ""
    if len(found) < len(view.courses):
        share = ": the best, and an even share of the others" if trials is None else ""
        caption += f" {len(found)} of {len(view.courses):,} trials{share}."
    return Chart("curves", title, caption, [panel], height=440)


def _chosen(rows: Rows) -> list[int]:
    """The best trials, those that run, and an even share of the others."""
    order = rows.finished[rows.view.ledger.history().order]
    chosen = {*order[:_BEST].tolist(), *list(rows.view.ledger.running)[: _TRIALS // 4]}
    rest = np.setdiff1d(np.arange(len(rows.objective)), list(chosen))
    return sorted(chosen.union(rest[thinned(len(rest), _TRIALS - len(chosen))].tolist()))


def _layer(rows: Rows, found: Mapping[int, Curve], place: int) -> list[Mark]:
    """The reports of one stratum: a line of pieces, each leading to a report from the one before, and points."""
    lines: list[tuple[float, float, str]] = []
    dots: list[tuple[float, float, str]] = []
    for k, curve in found.items():
        reports = [
            (step, y, f"trial {k}, step {step}\n{rows.metric} {number(y)}")
            for step, y in zip(curve.step.tolist(), curve.objective.tolist(), strict=True)
        ]
        here = curve.stratum == place
        edges = np.flatnonzero(np.diff(here, prepend=False, append=False))
        for first, end in edges.reshape(-1, 2).tolist():
            lines += [*reports[max(first - 1, 0) : end], (np.nan, np.nan, "")]
        if place or len(reports) == 1:
            dots += [reports[i] for i in np.flatnonzero(here)]
    limits, role = bool(rows.view.problem.constraints), STRATA[place]
    name, marks = role if limits else "running", list[Mark]()
    if lines:
        x, y, hover = zip(*lines, strict=True)
        marks.append(Line(x, y, name, role, "solid", width=1.1, opacity=0.6 if place else 0.45, hover=hover))
    if limits and dots:
        x, y, hover = zip(*dots, strict=True)
        marks.append(Points(x, y, name, role, size=4.5, opacity=0.9, hover=hover))
    return marks


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
                name = role if problem.constraints else "reported"
                texts = _texts(named(metric), thin.step[here], values[here], error[here])
                marks.append(Points(thin.step[here], values[here], name, role, size=4.5, hover=texts))
        if i:
            marks.append(Limit(problem.constraints[i - 1].threshold, limit(problem.constraints[i - 1])))
        at = None if checkpoint is None else (checkpoint.objective, *checkpoint.values)[i]
        if checkpoint is not None and at is not None:
            known = checkpoint.errors[i - 1] if i and checkpoint.errors else None
            texts = _texts(named(metric), [checkpoint.step], [at], [np.nan if known is None else known])
            marks.append(Points(checkpoint.step, at, "stands for the trial", "best", size=13, hover=texts, error=known))
        panels.append(Panel(Axis("step", whole=True), Axis(named(metric)), marks))
    some = f"{len(thin.step):,} of its " if len(thin.step) < len(curve.step) else ""
    caption = f"{some}{counted(len(curve.step), 'report')}, over {duration(float(curve.seconds[-1]))}."
    return [Chart("curve", "Its curve", caption, panels)]


def _texts(metric: str, steps: Iterable[int], values: Iterable[float], errors: Iterable[float]) -> list[str]:
    """What pops up for the reports of one metric."""
    rows = zip(steps, values, errors, strict=True)
    return [f"step {step}\n{metric} {plus_minus(value, None if np.isnan(e) else float(e))}" for step, value, e in rows]
