"""Pictures of a study: each function takes one and returns a `Chart`, which a notebook shows and `save` writes.

>>> import fairway as fw
>>> from fairway.report import plots
>>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), [fw.AtLeast("x", 0.1)], seed=0)
>>> study.optimize(lambda trial: {"loss": trial.params["x"] ** 2, "x": trial.params["x"]}, trials=30)
>>> chart = plots.best(study)
>>> chart.title
'Best loss so far'
>>> [chart.name for chart in plots.drawn(study)]
['best', 'limits', 'trade_off', 'spending', 'slices', 'parallel', 'importance']

`chart.save("best.html")` writes a file in which one can zoom and point; .png, .svg and .pdf are for papers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from fairway.errors import MissingDependency
from fairway.report.chart import Chart
from fairway.report.charts.curves import curves
from fairway.report.charts.decisions import intervals, regret, spending
from fairway.report.charts.found import best, limits
from fairway.report.charts.parameters import importance, parallel, slices
from fairway.report.charts.trade_off import trade_off
from fairway.report.view import View
from fairway.study import Study

__all__ = [
    "best",
    "curves",
    "drawn",
    "importance",
    "intervals",
    "limits",
    "parallel",
    "regret",
    "slices",
    "spending",
    "trade_off",
]
_QUICK: tuple[Callable[[View], Chart], ...] = (
    best,
    limits,
    trade_off,
    curves,
    spending,
    regret,
    intervals,
    slices,
    parallel,
)


def drawn(study: Study | View, *, quick: bool = False, slow: bool = False) -> list[Chart]:
    """Every chart that has something to show, in the order of a report.

    `quick` leaves out `importance`, which takes a second or more; `slow` leaves out all others.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> plots.drawn(fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0))
    []
    """
    view = View.of(study)
    charts = [] if slow else [chart(view) for chart in _QUICK]
    if not quick:
        with suppress(MissingDependency):  # a report does without
            charts.append(importance(view))
    return [chart for chart in charts if not chart.is_empty]
