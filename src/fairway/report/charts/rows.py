"""A study's trials as columns for drawing, and what pictures share: points, thinning, and the drawn part of an axis."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fairway.engine.record import named_errors
from fairway.problem import Problem
from fairway.report.chart import Axis, Chart, Panel, Points
from fairway.report.marks import Mark, Role
from fairway.report.view import STRATA, View
from fairway.study import Study
from fairway.text import counted, measured, named, params

MOST = 3000  # points in one panel
LAYERS = (0, 2, 1)  # the strata as they are drawn: what matters most comes last, on top
LEGEND = ("constraints not evaluated", "feasible", "infeasible")  # what a reader calls the strata
_FEW = 8  # points that are too few for one to be an outlier


class Rows:
    """Every trial (n,) by number; NaN where there is nothing to say.

    `objective` and `values` (n, m) are those of the checkpoint that stands for the trial, `metrics` the same with their
    names, `cube` (n, d) its parameters in the unit cube. `stratum` is a place in `STRATA`, -1 where nothing was
    measured. `finished` are the numbers of the trials that ended, in that order; `measured` of those that measured the
    objective. A trial that failed keeps what it had measured, as it does for `best`. `at_best` says which checkpoint
    stands for a trial.
    """

    def __init__(self, study: Study | View) -> None:
        self.view = view = View.of(study)
        self.metric, self.best = named(view.problem.objective.metric), view.best_number
        marks, nothing = [course.checkpoint for course in view.courses], (np.nan,) * len(view.problem.metrics)
        table = np.array([nothing if mark is None else (mark.objective, *mark.values) for mark in marks], np.float64)
        table = table.reshape(-1, len(nothing))
        self.objective, self.values = table[:, 0], table[:, 1:]
        self.metrics = list(zip(map(named, view.problem.metrics), table.T, strict=True))
        strata = [view.stratum(number) for number in range(len(marks))]
        self.stratum = np.array([-1 if place is None else place for place in strata], np.int64)
        history = view.ledger.history()
        self.finished, self.cube = history.number, np.empty((len(marks), len(view.space)))
        self.cube[history.number], self.cube[[*view.ledger.points]] = history.x, history.pending
        self.measured = np.flatnonzero(self.stratum >= 0)
        self.at_best = at_best(view.problem, is_unchecked=bool((self.stratum == 0).any()))

    def column(self, name: str) -> NDArray[np.float64]:
        """Something else that is known of every trial (n,)."""
        return np.array([getattr(course, name) for course in self.view.courses], np.float64)

    @property
    def axis(self) -> Axis:
        """The axis of the objective, without the few trials that would press all others together."""
        kept = [] if self.best is None else [float(self.objective[self.best])]
        return Axis(self.metric, span=span(self.objective, kept))

    def texts(self, numbers: Iterable[int], *, full: bool = False) -> list[str]:
        """What pops up for some trials, in full with their parameters."""
        names, texts = self.view.problem.metrics, []
        for k in numbers:
            course = self.view.courses[k]
            mark, text = course.checkpoint, f"trial {k}"
            if mark is not None:
                found = measured(names, (mark.objective, *mark.values), named_errors(self.view.problem, mark))
                text += f", step {mark.step}\n{found}"
            texts.append(f"{text}\n{params(course.params)}" if full else text)
        return texts

    def layers(self, numbers: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.intp], str, Role]]:
        """The places of each stratum among some trials (k,), and its name and role, in the order of drawing."""
        for place in LAYERS:
            here = np.flatnonzero(self.stratum[numbers] == place)
            if len(here):
                yield here, LEGEND[place] if self.view.problem.constraints else "trial", STRATA[place]

    def scatter(
        self,
        x: NDArray[np.float64],
        numbers: NDArray[np.int64],
        most: int = MOST,
        *,
        short: bool = False,
        error: float | None = None,
    ) -> list[Mark]:
        """Objectives against something (k,) of some trials: a mark for each stratum, and the best on top.

        `error` is that of what is on the x axis, for the best.
        """
        known = np.flatnonzero(np.isfinite(x) & (self.stratum[numbers] >= 0))
        kept = known[thinned(len(known), most, np.flatnonzero(numbers[known] == self.best))]
        x, numbers = x[kept], numbers[kept]
        marks: list[Mark] = []
        for here, name, role in self.layers(numbers):
            k = numbers[here]
            hover = [f"trial {number}" for number in k] if short else self.texts(k.tolist())
            size, opacity = (4.5, 0.5) if role == "not evaluated" else (5.5, 0.75)
            marks.append(Points(x[here], self.objective[k], name, role, size=size, opacity=opacity, hover=hover))
        if self.best is not None and self.best in numbers:
            marks.append(self.star(self.best, x[numbers == self.best], self.objective[self.best], error))
        return marks

    def star(self, number: int, x: float | NDArray[np.float64], y: float, error: float | None = None) -> Points:
        hover = self.texts([number], full=True)
        return Points(x, y, "best", "best", size=14, hover=hover, error=error, along="x")

    def error(self, number: int | None, i: int) -> float | None:
        """The error of the i-th constraint at the checkpoint that stands for a trial, if it is known."""
        mark = None if number is None else self.view.courses[number].checkpoint
        return None if mark is None or not mark.errors else mark.errors[i]


def at_best(problem: Problem, *, is_unchecked: bool = False) -> str:
    """Which checkpoint stands for a trial, in words; `is_unchecked` says that some trials have none that was checked.

    >>> import fairway as fw
    >>> at_best(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.1)]))
    'its best checkpoint whose limits were checked'
    """
    if not problem.constraints:
        return "its best checkpoint"
    checked = "limits were checked" if problem.limits else "tracked metrics were measured"
    otherwise = ", or if there is none, its best by objective" if is_unchecked else ""
    return f"its best checkpoint whose {checked}{otherwise}"


def shaded(problem: Problem) -> str:
    """What the shaded side of a limit means, as the end of a sentence; nothing but a stop where there is no limit.

    >>> import fairway as fw
    >>> shaded(fw.Problem(fw.Maximize("auc"), [fw.AtMost("eod", 0.1, confidence=0.9)]))
    '; the shaded side of the limit is feasible, for a value with the margin of its confidence.'
    """
    if not problem.limits:
        return "."
    margin = ", for a value with the margin of its confidence" if any(one.confidence for one in problem.limits) else ""
    return f"; the shaded side of the limit is feasible{margin}."


def empty(name: str, title: str, why: str, more: str = "") -> Chart:
    """A picture that says why there is nothing to see."""
    bare = Axis(ticks=[], span=(0.0, 1.0))
    return Chart(name, title, f"{why[0].upper()}{why[1:]}.{more}", [Panel(bare, bare, note=why)], height=160)


def thinned(n: int, most: int, keep: Collection[int] | NDArray[np.intp] = ()) -> NDArray[np.intp]:
    """At most `most` of n rows, evenly spread, with both ends; and all those in `keep`, however many.

    >>> thinned(10, 4, [5]).tolist()
    [0, 3, 5, 6, 9]
    """
    if n <= most:
        return np.arange(n)
    even = np.linspace(0, n - 1, max(most, 2)).round().astype(np.intp)
    return np.union1d(even, np.asarray(list(keep), np.intp))


def span(values: NDArray[np.float64], keep: Collection[float] = ()) -> tuple[float, float] | None:
    """The range of an axis that outliers would spoil, or None if there are none; `keep` is always inside.

    >>> [round(end, 1) for end in span(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1e9]))]
    [0.2, 22.1]
    >>> span(np.arange(10.0)) is None
    True
    """
    known = values[np.isfinite(values)]
    if len(known) < _FEW:
        return None
    (first, last), least, most = np.quantile(known, [0.1, 0.8]).tolist(), float(known.min()), float(known.max())
    low, high = max(least, first - 3 * (last - first)), min(most, last + 3 * (last - first))
    if (low, high) == (least, most) or not low < high:
        return None
    inside = [value for value in keep if np.isfinite(value)]
    low, high = min(low, *inside, high), max(high, *inside, low)
    margin = 0.04 * (high - low)
    return held(low - margin, high + margin)


def held(low: float, high: float, *, log: bool = False) -> tuple[float, float]:
    """The ends of an axis, where a float can still hold them.

    >>> held(-1e300 * 1e300, 1.0)
    (-1.7976931348623157e+308, 1.0)
    """
    most = sys.float_info
    return max(low, most.min if log else -most.max), min(high, most.max)


def outside(*sides: tuple[NDArray[np.float64], Axis]) -> str:
    """A sentence on how many trials axes leave out, given their values (n,) on each; empty if none."""
    off = np.zeros(len(sides[0][0]), np.bool_)
    for values, axis in sides:
        if axis.span is not None:
            off |= (values < axis.span[0]) | (values > axis.span[1])
    n = int(np.count_nonzero(off))
    return f" {counted(n, 'outlier')} {'is' if n == 1 else 'are'} beyond the range of an axis." if n else ""
