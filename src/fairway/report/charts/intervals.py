"""How often each trial meant to check its limits, beside the boundary of Theorem 1 of ACE (compare its Figure 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.interval import threshold
from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import MOST, empty, figures, thinned
from fairway.report.marks import Limit, Line, Mark, Points, Role
from fairway.report.view import View
from fairway.stoppers.stopper import Stopper

_NAMES: tuple[tuple[str, Role], ...] = (
    ("checks at every step", "valid"),
    ("checks once, at the end", "invalid"),
    ("checks at times", "other"),
)


def intervals(view: View) -> Chart:
    """The interval of each trial against its steps and the price of a check when it began."""
    title = "How often limits are checked"
    courses = [course for course in view.courses if course.interval is not None and course.total is not None]
    numbers = [k for k, course in enumerate(view.courses) if course.interval is not None and course.total is not None]
    if not view.problem.constraints or not courses:
        note = "no limits" if not view.problem.constraints else "no trial said how many steps it would take"
        return empty("intervals", title, f"There is nothing to weigh: {note}.", note)
    total = np.array([course.total for course in courses], np.float64)
    interval = np.array([course.interval for course in courses], np.float64)
    ratio = _ratios(view)[numbers]
    known = np.isfinite(ratio) & (ratio > 0)
    if not known.any():
        return empty("intervals", title, "No check was paid for yet, so its price is unknown.", "no check paid for yet")
    rows = np.flatnonzero(known)
    rows = rows[thinned(len(rows), MOST)]
    total, interval, ratio = total[rows], interval[rows], ratio[rows]
    chosen = [numbers[i] for i in rows]
    same = total.min() == total.max()
    x = np.array(chosen, np.float64) if same else total
    stopper = view.identity.stopper
    weighs = stopper is not None and stopper.interval == "adaptive" and type(stopper).adapted is Stopper.adapted
    p = stopper.stop_probability if stopper is not None and weighs else None  # of Theorem 1, where that decides
    marks: list[Mark] = []
    if p is not None and 0 < p < 1:
        marks += _boundary(p, total, same=same)
    kind = np.where(interval == 1, 0, np.where(interval >= total, 1, 2))
    for place, (name, role) in enumerate(_NAMES):
        here = np.flatnonzero(kind == place)
        if len(here):
            hover = [
                f"trial {chosen[i]}: {total[i]:.0f} steps, every {interval[i]:.0f}\nr = {figures(ratio[i])}"
                for i in here
            ]
            marks.append(Points(x[here], ratio[here], name, role, size=5.5, opacity=0.75, hover=hover))
    across = Axis("trial", whole=True) if same else Axis("steps planned, T", log=bool(total.max() / total.min() > 10))  # noqa: PLR2004
    panel = Panel(across, Axis("price of a check in steps, r", log=True), marks)
    return Chart("intervals", title, _caption(view, kind, int((~known).sum()), p), [panel])


def _boundary(p: float, total: NDArray[np.float64], *, same: bool) -> list[Mark]:
    """Below it a check at every step is the cheapest, above it one at the end."""
    if same:
        at = threshold(p, float(total[0]))
        return [Limit(at, f"Theorem 1, T = {total[0]:.0f}: r = {figures(at)}")] if at > 0 else []
    steps = np.unique(np.geomspace(max(total.min(), 2.0), total.max(), 100))
    return [Line(steps, [threshold(p, float(t)) for t in steps], "boundary of Theorem 1", "limit")]


def _ratios(view: View) -> NDArray[np.float64]:
    """The mean price of a check over that of a step, by the trials that had ended when each one (n,) began."""
    courses = view.courses
    columns = ("ended", "check_ns", "checks", "train_ns", "steps")
    ended, check_ns, checks, train_ns, steps = (
        np.array([getattr(course, name) for course in courses], np.float64) for name in columns
    )
    order = np.argsort(ended, kind="stable")  # NaN, running, last
    order = order[: int(np.isfinite(ended).sum())]
    before = np.searchsorted(ended[order], [course.began for course in courses], side="right")
    sums = (np.concatenate([[0.0], np.cumsum(column[order])])[before] for column in (check_ns, checks, train_ns, steps))
    paid, times, trained, taken = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((paid / times) / (trained / taken))


def _caption(view: View, kind: NDArray[np.int64], unknown: int, p: float | None) -> str:
    share = [float(np.mean(kind == place)) for place in range(3)]
    text = f"{share[0]:.0%} of the trials check at every step, {share[1]:.0%} once at the end"
    text += "; below the line the first is the cheaper by Theorem 1." if p is not None else "."
    text += " The price is taken for each constraint alone." if len(view.problem.constraints) > 1 else ""
    if not unknown:
        return text
    return f"{text} {unknown:,} that began before a price was known {'is' if unknown == 1 else 'are'} not shown."
