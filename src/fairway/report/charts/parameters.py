"""Parameters: each against the objective, all of them side by side, and how much each of them matters.

A random forest learns each metric, then each parameter is shuffled in turn. What a shuffle costs is measured on trials
that the forest did not learn from, so a parameter that says nothing comes out near zero, however many values it has.
Columns of random numbers learn along: a parameter that loses no more than they do is below the noise. It is not called
unimportant where trials were stopped early, since what acts late in a training cannot show in a trial that was cut.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.errors import MissingDependency
from fairway.parameters import Choice, Float, Int, Parameter
from fairway.report.chart import Axis, Bars, Chart, Line, Panel, Words
from fairway.report.charts.rows import MOST, Rows, empty, held, outside, span, thinned
from fairway.report.marks import TICK, Mark, Role
from fairway.report.view import View
from fairway.seeds import stream
from fairway.study import Study
from fairway.text import counted, named, number, squeezed

_POINTS = 9000  # in all panels together
_PANELS, _AXES = 24, 14  # parameters that are shown
_LINES, _BEST = 300, 60  # trials side by side, and how many of them are the best
_LETTERS = 95  # that fit side by side below all axes
_LEVELS, _LEVEL = 5, 14  # of names that stand below one another, and its height in pixels
_SHORTEST = 8  # letters of what is at the end of an axis
_OPTIONS = 12  # of a choice that have a name on the axis
_FEWEST, _LEARNED = 20, 2000  # trials that a forest learns from
_TREES, _SHUFFLES = 40, 2
_WEAK = 0.3  # an R² below which nothing should be read from it
_BARS, _METRICS = 15, 6
_PROBES = 5  # columns of random numbers
_CUT = 0.1  # the share of stopped trials from which on no effect is not taken for no importance
_LEAST = 0.005  # of R², which the second decimal does not show
_UNCLEAR = "unclear"
_NO_VALUE = "no value"
_CUT_ENDS = ("≤", "≥")  # of an axis that outliers lie beyond
_OUTSIDE = -0.5  # of the unit cube, where a parameter has no value
_BELOW = -0.12  # an axis side by side with others, where a trial has no value on it


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
    rows = Rows(study)
    title, space, numbers = "Objective against each parameter", rows.view.space, rows.measured
    if not len(numbers):
        return empty("slices", title, "no trial has measured the objective yet")
    names, axis, panels = list(space)[:_PANELS], rows.axis, []
    most = min(max(_POINTS // len(names), 200), MOST)
    for k, name in enumerate(names):
        parameter = space[name]
        if isinstance(parameter, Choice):  # by place, a little apart
            apart = stream(0, 0, "jitter").uniform(-0.25, 0.25, len(numbers))
            x = np.floor(rows.cube[numbers, k] * len(parameter.options)) + apart
        else:
            has = ~np.isnan(rows.cube[numbers, k])
            x = np.full(len(numbers), np.nan)
            x[has] = [rows.view.courses[i].params[space.name_of(name)] for i in numbers[has].tolist()]
        y = Axis("" if k % min(len(names), 3) else axis.title, span=axis.span)
        panels.append(Panel(_axis(named(name), parameter), y, rows.scatter(x, numbers, most, short=True)))
    caption = f"Each point is a trial at {rows.at_best}. Trials in which the parameter is inactive are left out."
    caption += f" The first {len(names)} of {len(space)} parameters." if len(names) < len(space) else ""
    return Chart("slices", title, caption + outside((rows.objective, axis)), panels)


def _axis(name: str, parameter: Parameter) -> Axis:
    if isinstance(parameter, Choice):
        if len(parameter.options) > _OPTIONS:
            return Axis(f"{name} (place in its list)", span=(-0.6, len(parameter.options) - 0.4))
        return Axis(name, categories=[named(option) for option in parameter.options])
    assert isinstance(parameter, Float | Int)
    if not parameter.log:
        return Axis(name, whole=isinstance(parameter, Int))
    margin = parameter.high**0.03 / parameter.low**0.03
    return Axis(name, log=True, span=held(parameter.low / margin, parameter.high * margin, log=True))


def parallel(study: Study | View) -> Chart:
    """Every trial as a line across all parameters and on to its metrics; below an axis where it has no value there.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0), "y": fw.Int(1, 9)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] * trial.params["y"], trials=20)
    >>> [text.split()[-1] for _, text in plots.parallel(study).panels[0].x.ticks]
    ['x', 'y', 'loss']
    """
    rows = Rows(study)
    title, space, numbers = "Parameters side by side", rows.view.space, rows.measured
    if not len(numbers):
        return empty("parallel", title, "no trial has measured the objective yet")
    loss = rows.view.problem.objective.sign * rows.objective[numbers]
    order = np.lexsort((loss, rows.stratum[numbers] != 1))
    chosen = numbers[np.union1d(order[:_BEST], thinned(len(numbers), _LINES - _BEST))]
    columns, axes = _columns(rows, chosen)
    lacking = np.isnan(columns)
    columns[lacking] = _BELOW
    places = np.arange(columns.shape[1], dtype=np.float64)
    marks: list[Mark] = []
    for here, name, role in rows.layers(chosen):
        hover = [text for text in rows.texts(chosen[here].tolist()) for _ in range(len(places) + 1)]
        x, y, opacity = *_broken(places, columns[here]), 0.35 if role == "feasible" else 0.25
        marks.append(Line(x, y, name, role, "solid", width=1, opacity=opacity, hover=hover))
    if rows.best is not None:
        hover = rows.texts([rows.best], full=True) * (len(places) + 1)
        marks.append(Line(*_broken(places, columns[chosen == rows.best]), "best", "best", width=3, hover=hover))
    posts = _broken(np.repeat(places, 2).reshape(-1, 2), np.tile([0.0, 1.0], (len(places), 1)))
    marks.append(Line(*posts, role="not evaluated", dash="solid", width=0.8))
    marks.append(Words(places, np.ones(len(places)), labels=[high for _, _, high in axes]))
    levels = _levels([name for name, _, _ in axes])
    ticks = [(float(k), low + "\n" * (1 + k % levels) + name) for k, (name, low, _) in enumerate(axes)]
    beside = Axis(ticks=[], span=(-0.04, 1.1))
    if lacking.any():
        beside = Axis(ticks=[(_BELOW, _NO_VALUE)], span=(_BELOW - 0.04, 1.1))
    panel = Panel(Axis(ticks=ticks, span=(-0.3, len(places) - 0.7)), beside, marks)
    caption = f"Parallel coordinates: a line is a trial, across its parameters to its metrics at {rows.at_best}."
    caption += " The thick line is the best." if rows.best is not None else ""
    parameters = min(len(space), _AXES)
    why = ["does not use the parameter"] if lacking[:, :parameters].any() else []
    why += ["has not measured the metric"] if lacking[:, parameters:].any() else []
    caption += f' "{_NO_VALUE}": the trial {" or ".join(why)}.' if why else ""
    is_cut = any(end.startswith(_CUT_ENDS) for _, *ends in axes[parameters:] for end in ends)
    caption += " Outliers lie at the end marked ≤ or ≥ of their axis." if is_cut else ""
    caption += f" {len(chosen)} of {len(numbers):,} trials." if len(chosen) < len(numbers) else ""
    caption += f" The first {_AXES} of {len(space)} parameters." if len(space) > _AXES else ""
    return Chart("parallel", title, caption, [panel], height=440 + _LEVEL * (levels - 1))


def _levels(names: Sequence[str]) -> int:
    """How many lines names at equal distances take, one lower than the other, so that none runs into the next."""
    room, sizes = _LETTERS / len(names), [len(name) for name in names]
    return next(
        (n for n in range(1, _LEVELS) if all(a + b < 2 * n * room - 1 for a, b in zip(sizes, sizes[n:], strict=False))),
        _LEVELS,
    )


def _broken(x: NDArray[np.float64], lines: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lines (k, a) at places (a,) or (k, a) as one, with a gap after each."""
    gap = np.full((len(lines), 1), np.nan)
    return np.hstack([np.broadcast_to(x, lines.shape), gap]).ravel(), np.hstack([lines, gap]).ravel()


def _columns(rows: Rows, chosen: NDArray[np.int64]) -> tuple[NDArray[np.float64], list[tuple[str, str, str]]]:
    """What each trial has on each axis, from 0 to 1 (k, a); and the axes' names and what is at their ends."""
    columns = list(rows.cube[chosen].T[:_AXES])
    axes = [(name, *_ends(parameter)) for name, parameter in list(rows.view.space.items())[:_AXES]]
    for name, column in rows.metrics:
        values = column[chosen]
        known = values[np.isfinite(values)]
        ends = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        beyond = float(np.nanmin(values, initial=np.inf)), float(np.nanmax(values, initial=-np.inf))
        drawn = span(known, [] if rows.best is None else [float(column[rows.best])]) or ends
        low, high = max(ends[0], drawn[0]), min(ends[1], drawn[1])
        half = values / 2 - low / 2  # the whole may be more than a float holds
        scaled = np.clip(half / ((high / 2 - low / 2) or 1.0), 0.0, 1.0)
        columns.append(scaled)
        cut = "≤ " if beyond[0] < low else "", "≥ " if beyond[1] > high else ""
        axes.append((name, cut[0] + number(low), cut[1] + number(high)))
    room = _LETTERS // len(axes)
    most, end = min(_LEVELS * room - 1, TICK), max(room - 1, _SHORTEST)
    return np.column_stack(columns), [(squeezed(a, most), squeezed(b, end), squeezed(c, end)) for a, b, c in axes]


def _ends(parameter: Parameter) -> tuple[str, str]:
    """What is at the bottom and at the top of a parameter's axis."""
    if isinstance(parameter, Choice):
        return str(parameter.options[0]), str(parameter.options[-1])
    assert isinstance(parameter, Float | Int)
    return number(parameter.low), number(parameter.high)


def importance(study: Study | View) -> Chart:
    """How much each parameter matters for the objective and for each constraint: permutation importance.

    Needs scikit-learn. Looks at 2,000 trials at most. The caption says on how many trials it rests, how many of them
    were stopped early, and how well the random forests fit. A bar says "unclear" where no effect showed but too few
    trials ran long enough to rule one out.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0), "idle": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=40)
    >>> plots.importance(study).panels[0].y.categories  # from the bottom up
    ['idle', 'x']
    """
    try:
        import sklearn.ensemble  # noqa: F401, PLC0415 - optional
    except ImportError:
        raise MissingDependency("importance needs scikit-learn: pip install 'fairway[sklearn]'") from None
    rows = Rows(study)
    title = "Parameter importance"
    failed = np.array([course.status == "failed" for course in rows.view.courses], np.bool_)
    stopped = np.array([course.status == "stopped" for course in rows.view.courses], np.bool_)
    learned, few = list[_Learned](), list[str]()
    for metric, values in rows.metrics[:_METRICS]:
        numbers = np.flatnonzero(np.isfinite(values) & ~failed)
        numbers = numbers[thinned(len(numbers), _LEARNED)]
        y = values[numbers]
        y = np.clip(y, *(span(y) or (-np.inf, np.inf)))  # a forest would look at nothing but the outliers
        y /= np.abs(y).max(initial=0.0) or 1.0
        if len(numbers) < _FEWEST or y.min() == y.max():
            few.append(f"{metric} ({counted(len(numbers), 'trial')})")
            continue
        cube, cut = rows.cube[numbers], int(stopped[numbers].sum())
        lost, noise, r2 = _learn(np.nan_to_num(cube, nan=_OUTSIDE), y)
        learned.append(_Learned(metric, lost, noise, r2, len(numbers), cut, (~np.isnan(cube)).sum(axis=0)))
    if not learned:
        return empty("importance", title, f"at least {_FEWEST} trials with different results are needed")
    order = np.argsort(np.max([one.lost for one in learned], axis=0))[-_BARS:]
    names, panels = [list(rows.view.space)[i] for i in order], list[Panel]()
    for one in learned:
        role: Role = "plain" if one.r2 >= _WEAK else "not evaluated"
        x, labels = one.lost[order], [one.label(i) for i in order]
        hover = [
            f"{named(name)}\ndrop in R² {one.lost[i]:.3f}, noise up to {one.noise:.3f}\n"
            f"active in {one.active[i]:,} of {one.n:,} trials"
            for name, i in zip(names, order, strict=True)
        ]
        longest = max(float(x.max()) * 1.25, 0.05)
        across = Axis(f"{one.metric}: drop in R², {counted(one.n, 'trial')}", span=(0.0, longest))
        beside = Axis(categories=[""] * len(names) if panels else [squeezed(name, TICK) for name in names])
        panels.append(Panel(across, beside, [Bars(x, range(len(x)), role=role, labels=labels, hover=hover)]))
    caption = _caption(learned, few, {label for one in learned for label in map(one.label, order)})
    return Chart("importance", title, caption, panels, height=110 + 28 * len(order))


class _Learned(NamedTuple):
    """What a forest learned of one metric."""

    metric: str
    lost: NDArray[np.float64]  # (d,) of R², by shuffling each parameter
    noise: float  # of R², that random numbers lose at most
    r2: float
    n: int  # trials that it rests on
    cut: int  # of them, stopped early
    active: NDArray[np.int64]  # (d,) of them, that have the parameter

    def label(self, i: int) -> str:
        """What stands at the end of a bar; no number where the trials cannot tell."""
        if self.lost[i] > self.noise:
            return f"{self.lost[i]:.2f}"
        enough = self.cut < _CUT * self.n and self.active[i] >= _FEWEST and self.r2 >= _WEAK
        return f"below noise ({self.noise:.2f})" if enough else _UNCLEAR


def _caption(learned: Sequence[_Learned], few: Sequence[str], labels: Collection[str]) -> str:
    known = ", ".join(f"{one.r2:.2f} for {one.metric}" for one in learned)
    caption = f"Permutation importance of random forests: the drop in R² on held-out trials (R² {known})."
    weak = [one.metric for one in learned if one.r2 < _WEAK]
    caption += f" The fit for {' and '.join(weak)} is poor: do not rely on it." if weak else ""
    rests = [f"{counted(one.n, 'trial')} for {one.metric}, {one.cut or 'none'} stopped early" for one in learned]
    caption += f" Data: {'; '.join(rests)}."
    if _UNCLEAR in labels:
        caption += f' "{_UNCLEAR}": no effect beyond noise, but too few trials ran long enough to rule one out.'
    return caption + (f" Fewer than {_FEWEST} trials, or all equal: {', '.join(few)}." if few else "")


def _learn(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """The R² lost by shuffling each column of x (n, d), the most that random columns lose, and the R² itself.

    All of them on trials that were not learned from.
    """
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - optional
    from sklearn.inspection import permutation_importance  # noqa: PLC0415

    rng, d = np.random.default_rng(0), x.shape[1]
    halves = np.array_split(rng.permutation(len(y)), 2)
    x = np.hstack([x, rng.random((len(y), _PROBES))])
    lost, r2 = np.zeros(x.shape[1]), 0.0
    for seed, (learn, look) in enumerate((halves, halves[::-1])):
        forest = RandomForestRegressor(_TREES, min_samples_leaf=2, max_features=0.5, random_state=seed, n_jobs=1)
        forest.fit(x[learn], y[learn])
        r2 += forest.score(x[look], y[look]) / 2
        shuffled = permutation_importance(forest, x[look], y[look], n_repeats=_SHUFFLES, random_state=seed)
        lost += shuffled["importances_mean"] / 2
    return np.maximum(lost[:d], 0.0), max(float(lost[d:].max()), _LEAST), r2
