"""How often each trial planned to check its constraints, with the boundary of Theorem 1 of ACE (see its Figure 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.interval import threshold
from fairway.report.chart import Axis, Chart, Limit, Line, Panel, Points
from fairway.report.charts.axes import thinned
from fairway.report.charts.rows import MOST, Rows, empty
from fairway.report.marks import Mark, Role
from fairway.report.view import View
from fairway.stoppers.stopper import Stopper
from fairway.study import Study
from fairway.text import counted, number

_KINDS: tuple[tuple[str, Role], ...] = (
    ("checks at every step", "valid"),
    ("checks once, at the end", "invalid"),
    ("checks at times", "other"),
)


def intervals(study: Study | View) -> Chart:
    """How often each trial checked its constraints, given the price of a check; with the boundary of ACE's Theorem 1.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> plots.intervals(study).caption
    'No trial said how many steps it would take.'
    """
    rows = Rows.of(study)
    title, constraints = "How often constraints are checked", rows.view.problem.constraints
    if not constraints:
        return empty("intervals", title, "the study has no constraints")
    total, interval, ratio = rows.column("total"), rows.column("interval"), _ratios(rows)
    planned = np.isfinite(total) & np.isfinite(interval)
    known = planned & np.isfinite(ratio) & (ratio > 0)
    if not planned.any():
        return empty("intervals", title, "no trial said how many steps it would take")
    if not known.any():
        return empty("intervals", title, "no check was paid for yet, so its price is unknown")
    k = np.flatnonzero(known)
    k = k[thinned(len(k), MOST)]
    total, interval, ratio = total[k], interval[k], ratio[k]
    same = total.min() == total.max()
    stopper = rows.view.identity.stopper
    weighs = stopper is not None and stopper.interval == "adaptive" and type(stopper).adapted is Stopper.adapted
    p = stopper.stop_probability if stopper is not None and weighs else None  # of Theorem 1, where that decides
    marks: list[Mark] = _boundary(p, total, same=same) if p is not None and 0 < p < 1 else []
    kind = np.where(interval == 1, 0, np.where(interval >= total, 1, 2))
    for place, (name, role) in enumerate(_KINDS):
        here = np.flatnonzero(kind == place)
        if len(here):
            hover = [
                f"trial {k[i]}: {total[i]:.0f} steps, every {interval[i]:.0f}\nr = {number(ratio[i])}" for i in here
            ]
            x = k[here] if same else total[here]
            marks.append(Points(x, ratio[here], name, role, size=5.5, opacity=0.75, hover=hover))
    log = bool(total.max() / total.min() > 10)  # noqa: PLR2004
    across = Axis("trial", whole=True) if same else Axis("steps planned, T", log=log)
    panel = Panel(across, Axis("price of a check in steps, r", log=True), marks)
    caption = f"{np.mean(kind == 0):.0%} of the trials check at every step, {np.mean(kind == 1):.0%} once at the end"
    caption += "; below the line the first is cheaper by Theorem 1." if p is not None else "."
    caption += " The price is that of one constraint." if len(constraints) > 1 else ""
    early = int(np.count_nonzero(planned & ~known))
    caption += f" Not shown: {counted(early, 'trial')} that began before a price was known." if early else ""
    return Chart("intervals", title, caption, [panel])


def _boundary(p: float, total: NDArray[np.float64], *, same: bool) -> list[Mark]:
    """Below it a check at every step is the cheapest, above it one at the end."""
    if same:
        at = threshold(p, float(total[0]))
        return [Limit(at, f"Theorem 1, T = {total[0]:.0f}: r = {number(at)}")] if at > 0 else []
    steps = np.unique(np.geomspace(max(total.min(), 2.0), total.max(), 100))
    return [Line(steps, [threshold(p, float(t)) for t in steps], "boundary of Theorem 1", "limit")]


def _ratios(rows: Rows) -> NDArray[np.float64]:
    """The mean price of a check over that of a step, by the trials that had ended when each one (n,) began."""
    ended = rows.column("ended")
    order = np.argsort(ended, kind="stable")[: int(np.isfinite(ended).sum())]  # NaN, running, comes last
    before = np.searchsorted(ended[order], rows.column("began"), side="right")
    names = ("check_ns", "checks", "train_ns", "steps")
    paid, times, trained, taken = (
        np.concatenate([[0.0], np.cumsum(rows.column(name)[order])])[before] for name in names
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((paid / times) / (trained / taken))
