"""Pictures of a study: each function takes one and returns a `Chart`, which a notebook shows and `save` writes.

>>> import fairway as fw
>>> from fairway.report import plots
>>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), [fw.AtLeast("x", 0.1)], seed=0)
>>> study.optimize(lambda trial: {"loss": trial.params["x"] ** 2, "x": trial.params["x"]}, trials=30)
>>> chart = plots.best(study)
>>> chart.title
'Best loss so far'
>>> [chart.name for chart in plots.drawn(study)]
['best', 'limits', 'spending', 'slices', 'parallel', 'importance']

`chart.save("best.html")` writes a file in which one can zoom and point; .png, .svg and .pdf are for papers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fairway.errors import MissingDependency, UsageError
from fairway.report.chart import Chart
from fairway.report.charts import best as _best
from fairway.report.charts import curves as _curves
from fairway.report.charts import importance as _importance
from fairway.report.charts import intervals as _intervals
from fairway.report.charts import limits as _limits
from fairway.report.charts import parameters as _parameters
from fairway.report.charts import regret as _regret
from fairway.report.charts import spending as _spending
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
]


def best(study: Study | View, over: _best.Over = "trials") -> Chart:
    """The best feasible objective so far, with the best ignoring the limits beside it.

    `over` is what runs along: "trials" finished, "seconds" on the clock, or the "cost" in seconds of training and
    checks.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=20)
    >>> line = plots.best(study).panels[0].marks[0]
    >>> bool(line.y[-1] == study.best.metrics["loss"])
    True
    """
    return _best.best(_view(study), over)


def curves(study: Study | View, trials: Collection[int] | None = None) -> Chart:
    """Learning curves, coloured by what the limits came to, with the reason of every stop.

    By default the best trials and an even share of the others, 80 at the most; `trials` are numbers of your own.

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
    return _curves.curves(_view(study), trials)


def limits(study: Study | View, constraint: str | None = None) -> Chart:
    """The objective against each constraint, or against one of them: what lies on the allowed side.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> study.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 2}, trials=20)
    >>> [mark.name for mark in plots.limits(study, "eod").panels[0].marks[1:]]
    ['invalid', 'valid', 'best']
    """
    return _limits.limits(_view(study), constraint)


def spending(study: Study | View) -> Chart:
    """Where the seconds went, what was saved by stopping and by not checking, and how trials ended.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=4)
    >>> plots.spending(study).panels[-1].y.categories
    ['completed']
    """
    return _spending.spending(_view(study))


def regret(study: Study | View) -> Chart:
    """What the terminator compared with its threshold after each trial, and where it ended the search.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=fw.Plateau(5), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=100)
    >>> [mark.name for mark in plots.regret(study).panels[0].marks]
    ['threshold', 'trials without improvement', 'end of the search']
    """
    return _regret.regret(_view(study))


def parallel(study: Study | View) -> Chart:
    """Every trial as a line across all parameters and on to its metrics; a gap where it has no such parameter.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0), "y": fw.Int(1, 9)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] * trial.params["y"], trials=20)
    >>> [text.split()[-1] for _, text in plots.parallel(study).panels[0].x.ticks]
    ['x', 'y', 'loss']
    """
    return _parameters.parallel(_view(study))


def slices(study: Study | View) -> Chart:
    """The objective against every parameter, a panel each.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> space = {"x": fw.Float(0.001, 1.0, log=True), "booster": fw.Choice(["gbdt", "dart"])}
    >>> study = fw.Study(space, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=20)
    >>> [(panel.x.log, panel.x.categories) for panel in plots.slices(study).panels]
    [(True, None), (False, ['gbdt', 'dart'])]
    """
    return _parameters.slices(_view(study))


def importance(study: Study | View) -> Chart:
    """How much each parameter matters for the objective and for each constraint, by random forests.

    Needs scikit-learn. Looks at 2,000 trials at the most; the caption says how far the forests can be trusted.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0), "idle": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=40)
    >>> plots.importance(study).panels[0].y.categories  # from the bottom up
    ['idle', 'x']
    """
    return _importance.importance(_view(study))


def intervals(study: Study | View) -> Chart:
    """How often each trial checked its limits, given the price of a check; with the boundary of Theorem 1 of ACE.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> plots.intervals(study).caption
    'There is nothing to weigh: no trial said how many steps it would take.'
    """
    return _intervals.intervals(_view(study))


def drawn(study: Study | View, *, quick: bool = False) -> list[Chart]:
    """Every chart that has something to show, in the order of a report; `quick` leaves out what takes a second.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> plots.drawn(fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0))
    []
    """
    view = _view(study)
    makers: list[Callable[[View], Chart]] = [
        _best.best,
        _limits.limits,
        _curves.curves,
        _spending.spending,
        _regret.regret,
        _intervals.intervals,
        _parameters.slices,
        _parameters.parallel,
    ]
    makers += [] if quick else [_importance.importance]
    charts: list[Chart] = []
    for make in makers:
        try:
            charts.append(make(view))
        except MissingDependency:  # of importance; a report does without
            continue
    return [chart for chart in charts if any(panel.marks for panel in chart.panels)]


def _view(study: Study | View) -> View:
    if not isinstance(study, Study | View):
        raise UsageError(f"{study!r}: a Study or a View is expected")
    return study if isinstance(study, View) else View(study)
