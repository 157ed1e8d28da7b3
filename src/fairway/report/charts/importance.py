"""How much each parameter matters: a random forest learns each metric, then each parameter is shuffled in turn.

What a shuffle costs is measured on trials that the forest did not learn from (two halves, each in turn), so a parameter
that says nothing comes out near zero, however many values it has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.errors import MissingDependency
from fairway.report.chart import Axis, Bars, Chart, Panel
from fairway.report.charts.axes import span, thinned
from fairway.report.charts.rows import Rows, empty
from fairway.report.view import View
from fairway.study import Study
from fairway.text import named

_FEWEST, _MOST = 20, 2000  # trials
_TREES, _SHUFFLES = 40, 2
_WEAK = 0.3  # an R² below which nothing should be read from it
_SHOWN, _METRICS = 15, 6
_ABSENT = -0.5  # where a parameter has no value; outside of the cube


class _Learned(NamedTuple):
    """What a forest learned of one metric: the R² that each parameter (d,) is worth, and the R² itself."""

    metric: str
    lost: NDArray[np.float64]
    r2: float


def importance(study: Study | View) -> Chart:
    """How much each parameter matters for the objective and for each constraint, by random forests.

    Needs scikit-learn. Looks at 2,000 trials at most; the caption says how far the forests can be trusted.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0), "idle": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=40)
    >>> plots.importance(study).panels[0].y.categories  # from the bottom up
    ['idle', 'x']
    """
    try:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependency("importance needs scikit-learn: pip install 'fairway[sklearn]'") from None
    rows = Rows.of(study)
    title, courses = "How much each parameter matters", rows.view.courses
    failed = np.array([course.status == "failed" for course in courses], np.bool_)
    learned: list[_Learned] = []
    for metric, values in rows.metrics[:_METRICS]:
        numbers = np.flatnonzero(np.isfinite(values) & ~failed)
        numbers = numbers[thinned(len(numbers), _MOST)]
        y = _tamed(values[numbers])
        if len(numbers) >= _FEWEST and y.min() < y.max():
            x = np.nan_to_num(np.array([courses[k].x for k in numbers.tolist()]), nan=_ABSENT)
            learned.append(_Learned(metric, *_learn(RandomForestRegressor, x, y)))
    if not learned:
        return empty("importance", title, f"at least {_FEWEST} trials with different results are needed")
    order = np.argsort(np.max([one.lost for one in learned], axis=0))[-_SHOWN:]
    names = [named(list(rows.view.space)[i]) for i in order]
    panels = [_panel(one, order, names, first=k == 0) for k, one in enumerate(learned)]
    known = ", ".join(f"{one.r2:.2f} for {one.metric}" for one in learned)
    caption = f"By random forests, with an R² of {known} on trials they had not seen."
    weak = [one.metric for one in learned if one.r2 < _WEAK]
    caption += f" That of {' and '.join(weak)} is low: do not rely on it." if weak else ""
    caption += " Stopped trials count with what they had reached."
    return Chart("importance", title, caption, panels, height=110 + 28 * len(order))


def _panel(one: _Learned, order: NDArray[np.intp], names: list[str], *, first: bool) -> Panel:
    lost = one.lost[order]
    x = Axis(f"{one.metric}: R² lost", span=(0.0, max(float(lost.max()) * 1.18, 0.05)))
    role = "plain" if one.r2 >= _WEAK else "not evaluated"
    labels = [f"{share:.2f}" for share in lost]
    hover = [f"{name}\n{share:.3f} of R² lost" for name, share in zip(names, lost, strict=True)]
    bars = Bars(np.arange(len(order)), lost, role=role, labels=labels, hover=hover)  # type: ignore[arg-type]
    return Panel(x, Axis(categories=names if first else [""] * len(names)), [bars])


def _learn(forest: Any, x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """How much R² is lost by shuffling each column of x (n, d), and the R² itself, both on trials not learned from."""
    rng = np.random.default_rng(0)
    halves = np.array_split(rng.permutation(len(y)), 2)
    lost, missed = np.zeros(x.shape[1]), 0.0
    spread = float(np.sum((y - y.mean()) ** 2))
    for seed, (learn, look) in enumerate((halves, halves[::-1])):
        fitted = forest(_TREES, min_samples_leaf=2, max_features=0.5, random_state=seed, n_jobs=1)
        fitted.fit(x[learn], y[learn])
        base = float(np.sum((y[look] - fitted.predict(x[look])) ** 2))
        for column in range(x.shape[1]):
            shuffled = np.tile(x[look], (_SHUFFLES, 1))
            shuffled[:, column] = np.concatenate([rng.permutation(x[look, column]) for _ in range(_SHUFFLES)])
            worse = float(np.sum((np.tile(y[look], _SHUFFLES) - fitted.predict(shuffled)) ** 2)) / _SHUFFLES
            lost[column] += (worse - base) / spread
        missed += base
    return np.maximum(lost, 0.0), 1 - missed / spread


def _tamed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From -1 to 1, without the few values far off that would be all the forest looks at."""
    drawn = span(values)
    clipped = values if drawn is None else np.clip(values, *drawn)
    return np.asarray(clipped / (np.abs(clipped).max(initial=0.0) or 1.0))
