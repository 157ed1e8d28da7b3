"""A study's trials as columns for drawing, and the points that several pictures draw of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairway.report.chart import Axis, Chart, Panel, Points
from fairway.report.charts.axes import span, thinned
from fairway.report.marks import Mark
from fairway.report.view import STRATA, View
from fairway.study import Study
from fairway.text import named, number, params

MOST = 3000  # points in one panel
LAYERS = (0, 2, 1)
"""The strata in the order in which they are drawn: what matters most comes last, on top."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Every trial (n,) by number; NaN where there is nothing to say.

    `objective` and `values` (n, m) are those of the checkpoint that stands for the trial, `stratum` is a place in
    `STRATA`, -1 where nothing was measured. A trial that failed keeps what it had measured, as it does for `best`.
    """

    view: View
    objective: NDArray[np.float64]
    values: NDArray[np.float64]
    stratum: NDArray[np.int64]

    @classmethod
    def of(cls, study: Study | View) -> Rows:
        """Those of a study."""
        view = View.of(study)
        nothing = (np.nan,) * len(view.problem.metrics)
        metrics = [
            nothing if mark is None else (mark.objective, *mark.values)
            for mark in (course.checkpoint for course in view.courses)
        ]
        table = np.array(metrics, np.float64).reshape(len(metrics), len(nothing))
        strata = [view.stratum(number) for number in range(len(metrics))]
        stratum = np.array([-1 if place is None else place for place in strata], np.int64)
        return cls(view, table[:, 0], table[:, 1:], stratum)

    def column(self, name: str) -> NDArray[np.float64]:
        """Something else that is known of every trial (n,)."""
        return np.array([getattr(course, name) for course in self.view.courses], np.float64)

    @cached_property
    def finished(self) -> NDArray[np.int64]:
        """The numbers of the trials that ended, in that order."""
        return self.view.ledger.history().number

    @cached_property
    def measured(self) -> NDArray[np.int64]:
        """The numbers of the trials that measured the objective."""
        return np.flatnonzero(self.stratum >= 0)

    @cached_property
    def best(self) -> int | None:
        """The number of the trial with the best feasible checkpoint."""
        return self.view.best_number

    @property
    def metric(self) -> str:
        """The objective's name."""
        return named(self.view.problem.objective.metric)

    @property
    def metrics(self) -> list[tuple[str, NDArray[np.float64]]]:
        """The name and the values (n,) of the objective and of each constraint."""
        columns = (self.objective, *self.values.T)
        return [(named(name), column) for name, column in zip(self.view.problem.metrics, columns, strict=True)]

    @property
    def axis(self) -> Axis:
        """The axis of the objective, without the few trials that would press all others together."""
        kept = [] if self.best is None else [float(self.objective[self.best])]
        return Axis(self.metric, span=span(self.objective, kept))

    def legend(self, place: int) -> str:
        """What the trials of a stratum are called."""
        return STRATA[place] if self.view.problem.constraints else "trial"

    def texts(self, numbers: Iterable[int], *, full: bool = False) -> list[str]:
        """What pops up for some trials, in full with their parameters."""
        names, texts = [named(name) for name in self.view.problem.metrics], []
        for k in numbers:
            course = self.view.courses[k]
            text = f"trial {k}"
            if course.checkpoint is not None:
                known = zip(names, (course.checkpoint.objective, *course.checkpoint.values), strict=True)
                measured = ", ".join(f"{name} {number(value)}" for name, value in known if value is not None)
                text += f", step {course.checkpoint.step}\n{measured}"
            texts.append(f"{text}\n{params(course.params)}" if full else text)
        return texts

    def scatter(
        self, x: NDArray[np.float64], numbers: NDArray[np.int64], most: int = MOST, *, short: bool = False
    ) -> list[Mark]:
        """Objectives against something (k,) of some trials: a mark for each stratum, and the best on top."""
        known = np.isfinite(x) & (self.stratum[numbers] >= 0)
        x, numbers = x[known], numbers[known]
        kept = thinned(len(numbers), most, np.flatnonzero(numbers == self.best))
        x, numbers = x[kept], numbers[kept]
        marks: list[Mark] = []
        for place in LAYERS:
            here = self.stratum[numbers] == place
            if here.any():
                k = numbers[here]
                hover = [f"trial {number}" for number in k] if short else self.texts(k.tolist())
                size, opacity = (5.5, 0.75) if place else (4.5, 0.5)
                legend, y = self.legend(place), self.objective[k]
                marks.append(Points(x[here], y, legend, STRATA[place], size=size, opacity=opacity, hover=hover))
        if self.best is not None and self.best in numbers:
            marks.append(self.star(x[numbers == self.best], self.objective[[self.best]]))
        return marks

    def star(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> Points:
        """The mark of the best trial."""
        hover = [] if self.best is None else self.texts([self.best], full=True)
        return Points(x, y, "best", "best", size=14, hover=hover)


def empty(name: str, title: str, why: str, more: str = "") -> Chart:
    """A picture that says why there is nothing to see."""
    return Chart(name, title, f"{why[0].upper()}{why[1:]}.{more}", [Panel(Axis(), Axis(), note=why)], height=160)
