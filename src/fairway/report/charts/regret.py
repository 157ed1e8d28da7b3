"""What the terminator compared: its value against its threshold, as trials finished."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairway.report.chart import Axis, Chart, Line, Panel, Points
from fairway.report.charts.axes import thinned
from fairway.report.charts.rows import empty
from fairway.report.marks import Mark
from fairway.report.view import View
from fairway.study import Study
from fairway.terminators.improvement import ExpectedImprovementBelow, ProbabilityOfImprovementBelow
from fairway.terminators.plateau import Plateau, Target
from fairway.terminators.regret import RegretBound
from fairway.terminators.terminator import AllOf, AnyOf
from fairway.text import named, shown

_MOST = 1500


def regret(study: Study | View) -> Chart:
    """What the terminator compared with its threshold after each trial, and where it ended the search.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=fw.Plateau(5), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=100)
    >>> [mark.name for mark in plots.regret(study).panels[0].marks]
    ['threshold', 'trials without improvement', 'end of the search']
    """
    view = View.of(study)
    title, terminator = "When to end the search", view.identity.terminator
    said = sorted(view.verdicts, key=lambda verdict: verdict.finished)
    compared = [verdict for verdict in said if np.isfinite(verdict.value)]
    if not compared and said:
        return empty("regret", title, f"the terminator has nothing to compare yet: {shown(said[-1].reason, 160)}")
    if not compared and view.config.get("terminator") is None:
        return empty("regret", title, "the study has no terminator", " fw.RegretBound(...) is one.")
    if not compared:
        return empty("regret", title, "the terminator was not asked yet")
    stops = [i for i, verdict in enumerate(compared) if verdict.stop]
    compared = [compared[i] for i in thinned(len(compared), _MOST, stops[:50] + stops[-50:])]
    columns = ("finished", "value", "threshold", "stop")
    x, value, threshold, stop = (np.array([getattr(verdict, name) for verdict in compared]) for name in columns)
    positive = np.count_nonzero(value > 0) > len(value) / 2 and not (threshold <= 0).any()
    log = bool(positive) and not isinstance(terminator, Plateau | Target)  # those do not fall by orders of magnitude
    hover = [f"after {verdict.finished} trials\n{verdict.reason}" for verdict in compared]
    name = _name(terminator, view.problem.objective.metric)
    marks: list[Mark] = [Line(x, threshold, "threshold", "limit", step=True), Line(x, value, name, hover=hover)]
    if stop.any():
        points = [text for text, ends in zip(hover, stop, strict=True) if ends]
        marks.append(Points(x[stop], value[stop], "end of the search", "best", size=13, hover=points))
    if len(x) == 1:
        marks.append(Points(x, value, name, hover=hover))
    caption = f"{name[0].upper()}{name[1:]}, beside the threshold at which the search ends. The last verdict: "
    caption += f"{shown(compared[-1].reason, 160)}."
    return Chart("regret", title, caption, [Panel(Axis("trials finished", whole=True), Axis(name, log=log), marks)])


def _name(terminator: Any, metric: str) -> str:
    """What the terminator's value is."""
    while isinstance(terminator, AnyOf | AllOf):
        terminator = terminator.parts[0]
    names: dict[type[Any], str] = {
        RegretBound: "bound on the regret",
        ExpectedImprovementBelow: "expected improvement",
        ProbabilityOfImprovementBelow: "probability of improvement",
        Plateau: "trials without improvement",
        Target: f"best {named(metric)}",
    }
    return names.get(type(terminator), "what the terminator compares")
