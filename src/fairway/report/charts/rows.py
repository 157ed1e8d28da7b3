"""A study's trials as columns for drawing, and what all pictures share: thinning, spans, units and short texts."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway import feasibility
from fairway.feasibility import Checkpoint
from fairway.report.chart import Axis, Chart, Panel
from fairway.report.marks import Mark, Points, Role
from fairway.report.view import STRATA, View
from fairway.text import shown

MOST = 3000  # points in one panel
NAMES: tuple[tuple[int, Role], ...] = ((0, "not evaluated"), (2, "invalid"), (1, "valid"))
"""The strata in the order in which they are drawn: what matters most comes last, on top."""
_WORD = 40
_UNITS = (
    (86400.0, 2 * 86400.0, "days"),
    (3600.0, 3 * 3600.0, "hours"),
    (60.0, 300.0, "minutes"),
    (1.0, 1.0, "seconds"),
)
_FEW = 8  # points that are too few for one to be an outlier


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
    peak: NDArray[np.float64]  # its best objective, whatever its limits
    began: NDArray[np.float64]
    ended: NDArray[np.float64]
    seconds: NDArray[np.float64]  # training and checks

    @classmethod
    def of(cls, view: View) -> Rows:
        """Those of a study."""
        courses, problem = view.courses, view.problem
        marks = [course.checkpoint or Checkpoint(0, np.nan, (None,) * len(problem.constraints)) for course in courses]
        values = np.array([mark.values for mark in marks], np.float64).reshape(len(marks), len(problem.constraints))
        paid = np.array([[value is not None for value in mark.values] for mark in marks], np.bool_).reshape(
            values.shape
        )
        amount = feasibility.violations(problem, values, paid)
        amount[np.array([mark.provisional for mark in marks], np.bool_) & (amount == 0.0)] = np.nan
        objective = np.array([mark.objective for mark in marks], np.float64)
        stratum = np.where(np.isnan(amount), 0, np.where(amount == 0.0, 1, 2))
        return cls(
            view=view,
            objective=objective,
            values=values,
            stratum=np.where(np.isnan(objective), -1, stratum),
            peak=np.array([np.nan if course.peak is None else course.peak.objective for course in courses], np.float64),
            began=np.array([course.began for course in courses], np.float64),
            ended=np.array([course.ended for course in courses], np.float64),
            seconds=np.array([course.train_ns + course.check_ns for course in courses], np.float64) / 1e9,
        )

    @cached_property
    def finished(self) -> NDArray[np.int64]:
        """The numbers of the trials that ended, in that order."""
        return self.view.ledger.history().number

    @cached_property
    def best(self) -> int | None:
        """The number of the trial with the best feasible checkpoint."""
        valid = np.flatnonzero(self.stratum == 1)
        loss = self.view.problem.objective.sign * self.objective[valid]
        return int(valid[np.argmin(loss)]) if len(valid) else None

    @property
    def metric(self) -> str:
        """The objective's name."""
        return word(self.view.problem.objective.metric)

    def texts(self, numbers: Iterable[int]) -> list[str]:
        """What pops up for some trials."""
        names = [word(name) for name in self.view.problem.metrics]
        return [self._text(number, names) for number in numbers]

    def _text(self, number: int, names: list[str]) -> str:
        checkpoint = self.view.courses[number].checkpoint
        if checkpoint is None:
            return f"trial {number}"
        known = zip(names, (checkpoint.objective, *checkpoint.values), strict=True)
        measured = ", ".join(f"{name} {figures(value)}" for name, value in known if value is not None)
        return f"trial {number}, step {checkpoint.step}\n{measured}"

    def long_texts(self, numbers: Iterable[int]) -> list[str]:
        """The same with the parameters."""
        numbers = list(numbers)
        courses = self.view.courses
        return [f"{text}\n{params(courses[k].params)}" for k, text in zip(numbers, self.texts(numbers), strict=True)]

    def scatter(
        self, x: NDArray[np.float64], numbers: NDArray[np.int64], most: int = MOST, *, short: bool = False
    ) -> list[Mark]:
        """Objectives against something (k,) of some trials: a mark for each stratum, and the best on top."""
        known = np.isfinite(x) & (self.stratum[numbers] >= 0)
        x, numbers = x[known], numbers[known]
        kept = thinned(len(numbers), most, np.flatnonzero(numbers == self.best))
        x, numbers = x[kept], numbers[kept]
        marks: list[Mark] = []
        for place, role in NAMES:
            here = self.stratum[numbers] == place
            if here.any():
                chosen = numbers[here]
                hover = [f"trial {k}" for k in chosen.tolist()] if short else self.texts(chosen.tolist())
                name = STRATA[place] if self.view.problem.constraints else "trial"
                size, opacity = (5.5, 0.75) if place else (4.5, 0.5)
                marks.append(
                    Points(x[here], self.objective[chosen], name, role, size=size, opacity=opacity, hover=hover)
                )
        if self.best is not None and self.best in numbers:
            at = x[numbers == self.best]
            hover = self.long_texts([self.best])
            marks.append(Points(at, self.objective[[self.best]], "best", "best", size=14, hover=hover))
        return marks

    def height(self) -> Axis:
        """The axis of the objective, without the few trials that would press all others together."""
        kept = [] if self.best is None else [float(self.objective[self.best])]
        return Axis(self.metric, span=span(self.objective, kept))


def thinned(n: int, most: int, keep: Collection[int] | NDArray[np.intp] = ()) -> NDArray[np.intp]:
    """At most so many of n rows, evenly, with the first and the last; and all those to keep, however many.

    >>> thinned(10, 4, [5]).tolist()
    [0, 3, 5, 6, 9]
    """
    if n <= most:
        return np.arange(n)
    even = np.linspace(0, n - 1, max(most, 2)).round().astype(np.intp)
    return np.union1d(even, np.asarray(list(keep), np.intp))


def span(values: NDArray[np.float64], keep: Collection[float] = ()) -> tuple[float, float] | None:
    """From where to where an axis is drawn, if outliers would spoil it; `keep` is always inside.

    >>> [round(end, 1) for end in span(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 1e9]))]
    [0.2, 22.1]
    >>> span(np.arange(10.0)) is None
    True
    """
    known = values[np.isfinite(values)]
    if len(known) < _FEW:
        return None
    first, last = (float(end) for end in np.quantile(known, [0.1, 0.8]))
    reach = 3 * (last - first)
    low, high = max(float(known.min()), first - reach), min(float(known.max()), last + reach)
    if low == known.min() and high == known.max() or not low < high:
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
    return f" {trials(n)} far off {'is' if n == 1 else 'are'} not in view." if n else ""


def trials(n: int) -> str:
    """So many, in words."""
    return "1 trial" if n == 1 else f"{n:,} trials"


def unit(longest: float) -> tuple[float, str]:
    """In what unit durations are best read, and how many seconds it has."""
    for seconds, least, name in _UNITS:
        if longest >= least:
            return seconds, name
    return (1e-3, "milliseconds") if longest >= 1e-3 or not longest else (1e-6, "microseconds")  # noqa: PLR2004


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(90.0), duration(5400.0), duration(0.25)
    ('90 s', '90 min', '250 ms')
    """
    size, name = unit(seconds)
    short = {"days": "days", "hours": "h", "minutes": "min", "seconds": "s", "milliseconds": "ms"}
    return f"{seconds / size:.3g} {short.get(name, 'µs')}"


def figures(value: float) -> str:
    """A number for people.

    >>> figures(21000), figures(21000.4), figures(0.123456)
    ('21,000', '2.1e+04', '0.1235')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def word(text: object) -> str:
    """A name that came from elsewhere, as part of a sentence."""
    return shown(text, _WORD)


def params(given: Mapping[str, Any], most: int = 8) -> str:
    """A configuration in a few words."""
    parts = [f"{word(name)} {figures(v) if isinstance(v, float) else word(v)}" for name, v in given.items()]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def empty(name: str, title: str, caption: str, note: str) -> Chart:
    """A picture that says why there is nothing to see."""
    return Chart(name, title, caption, [Panel(Axis(), Axis(), note=note)], height=160)
