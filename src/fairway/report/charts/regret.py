"""What the terminator compared: its value against its threshold, as trials finished."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import empty, thinned, word
from fairway.report.marks import Line, Mark, Points
from fairway.report.view import View
from fairway.terminators.improvement import ExpectedImprovementBelow, ProbabilityOfImprovementBelow
from fairway.terminators.plateau import Plateau, Target
from fairway.terminators.regret import RegretBound
from fairway.terminators.terminator import AllOf, AnyOf
from fairway.text import shown

_MOST = 1500


def regret(view: View) -> Chart:
    """The verdicts, in the order of what they were asked about."""
    title = "When to end the search"
    said = sorted(view.verdicts, key=lambda verdict: verdict.finished)
    compared = [verdict for verdict in said if np.isfinite(verdict.value)]
    if not compared:
        if said:
            last = shown(said[-1].reason, 160)
            return empty(
                "regret", title, f"The terminator had nothing to compare yet: {last}.", "nothing to compare yet"
            )
        note = "no terminator" if view.config.get("terminator") is None else "the terminator was not asked yet"
        return empty("regret", title, f"There is nothing to see: {note}. fw.RegretBound(...) is one.", note)
    stops = [i for i, verdict in enumerate(compared) if verdict.stop]
    compared = [compared[i] for i in thinned(len(compared), _MOST, stops[:50] + stops[-50:])]
    x = np.array([verdict.finished for verdict in compared])
    value = np.array([verdict.value for verdict in compared])
    threshold = np.array([verdict.threshold for verdict in compared])
    positive = value[value > 0]
    known = threshold[np.isfinite(threshold)]
    log = len(positive) > len(value) / 2 and bool((known > 0).all()) and not _counts(view)
    hover = [f"after {verdict.finished} trials\n{verdict.reason}" for verdict in compared]
    name = _name(view)
    marks: list[Mark] = [Line(x, threshold, "threshold", "limit", step=True)]
    marks.append(Line(x, value, name, "plain", width=1.6, hover=hover))
    stop = np.array([verdict.stop for verdict in compared])
    if stop.any():
        points = [text for text, ends in zip(hover, stop, strict=True) if ends]
        marks.append(Points(x[stop], value[stop], "end of the search", "best", size=13, hover=points))
    caption = f"{name[0].upper()}{name[1:]}, beside the threshold at which the search ends; at last: "
    caption += f"{shown(compared[-1].reason, 160)}."
    if len(x) == 1:
        marks.append(Points(x, value, name, "plain", hover=hover))
    return Chart("regret", title, caption, [Panel(Axis("trials finished", whole=True), Axis(name, log=log), marks)])


def _name(view: View) -> str:
    """What the terminator's value is."""
    one = view.identity.terminator
    while isinstance(one, AnyOf | AllOf):
        one = one.parts[0]
    names: dict[type[Any], str] = {
        RegretBound: "bound on the regret",
        ExpectedImprovementBelow: "expected improvement",
        ProbabilityOfImprovementBelow: "probability of improvement",
        Plateau: "trials without improvement",
        Target: f"best {word(view.problem.objective.metric)}",
    }
    return names.get(type(one), "what the terminator compares")


def _counts(view: View) -> bool:
    """Whether the terminator's value is no quantity that falls by orders of magnitude."""
    return isinstance(view.identity.terminator, Plateau | Target)
