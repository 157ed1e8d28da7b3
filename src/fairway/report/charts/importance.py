"""How much each parameter matters: a random forest learns each metric, then each parameter is shuffled in turn.

What a shuffle costs is measured on trials that the forest did not learn from (two halves, each in turn), so a parameter
that says nothing comes out near zero, however many values it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.errors import MissingDependency
from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import Rows, empty, span, thinned, word
from fairway.report.marks import Bars
from fairway.report.view import View

_FEWEST, _MOST = 20, 2000  # trials
_TREES, _SHUFFLES = 40, 2
_WEAK = 0.3  # an R² below which nothing should be read from it
_SHOWN, _METRICS = 15, 6
_ABSENT = -0.5  # where a parameter has no value; outside of the cube


def importance(view: View) -> Chart:
    """What the forests' R² loses when a parameter is shuffled: a panel for each metric."""
    try:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependency("importance needs scikit-learn: pip install 'fairway[sklearn]'") from None
    title = "How much each parameter matters"
    rows = Rows.of(view)
    failed = np.array([course.status == "failed" for course in view.courses], np.bool_)
    metrics = [(rows.metric, rows.objective)]
    metrics += [(word(one.metric), rows.values[:, i]) for i, one in enumerate(view.problem.constraints)]
    learned: list[tuple[str, NDArray[np.float64], float]] = []
    for name, values in metrics[:_METRICS]:
        numbers = np.flatnonzero(np.isfinite(values) & ~failed)
        numbers = numbers[thinned(len(numbers), _MOST)]
        y = _tamed(values[numbers])
        if len(numbers) < _FEWEST or y.min() == y.max():
            continue
        x = np.nan_to_num(np.array([view.courses[k].x for k in numbers.tolist()]), nan=_ABSENT)
        learned.append((name, *_learned(RandomForestRegressor, x, y)))
    if not learned:
        note = f"at least {_FEWEST} trials with different results are needed"
        return empty("importance", title, f"There is nothing to learn from yet: {note}.", note)
    order = np.argsort(np.max([loss for _, loss, _ in learned], axis=0))[-_SHOWN:]
    names = [word(list(view.space)[i]) for i in order]
    panels = [
        Panel(
            Axis(f"{name}: R² lost", span=(0.0, max(float(loss.max()) * 1.18, 0.05))),
            Axis(categories=names if k == 0 else [""] * len(names)),
            [
                Bars(
                    np.arange(len(order)),
                    loss[order],
                    role="plain" if r2 >= _WEAK else "not evaluated",
                    labels=[f"{share:.2f}" for share in loss[order]],
                    hover=[f"{names[i]}\n{share:.3f} of R² lost" for i, share in enumerate(loss[order])],
                )
            ],
        )
        for k, (name, loss, r2) in enumerate(learned)
    ]
    return Chart("importance", title, _caption(learned), panels, height=110 + 28 * len(order))


def _learned(forest: Any, x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
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


def _caption(learned: list[tuple[str, NDArray[np.float64], float]]) -> str:
    known = ", ".join(f"{r2:.2f} for {name}" for name, _, r2 in learned)
    text = f"By random forests, with an R² of {known} on trials they had not seen."
    weak = [name for name, _, r2 in learned if r2 < _WEAK]
    if weak:
        text += f" That of {' and '.join(weak)} is low: do not rely on it."
    return f"{text} Stopped trials count by what they had reached."
