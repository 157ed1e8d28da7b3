"""What the rules decided, and what that cost: stopping trials, checking constraints, ending the search."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.engine.events import Status
from fairway.interval import threshold
from fairway.report.chart import Axis, Bars, Chart, Limit, Line, Panel, Points
from fairway.report.charts.rows import MOST, Rows, empty, thinned
from fairway.report.marks import Mark, Role
from fairway.report.view import View
from fairway.stoppers.stopper import Stopper
from fairway.study import Study
from fairway.terminators.improvement import ExpectedImprovementBelow, ProbabilityOfImprovementBelow
from fairway.terminators.plateau import Plateau, Target
from fairway.terminators.regret import RegretBound
from fairway.terminators.terminator import AllOf, AnyOf
from fairway.text import counted, duration, named, number, shown, unit

_REASONS = 8  # kinds of them that have a bar of their own
_VERDICTS = 1500  # that are drawn
_PALE = 0.4  # the opacity of a bar that is an estimate
_ENDINGS: dict[Status, Role] = {"completed": "feasible", "stopped": "other", "failed": "failed"}
_PACES: dict[str, Role] = {
    "checks at every step": "feasible",
    "checks once, at the end": "infeasible",
    "checks at times": "other",
}


class _Bar(NamedTuple):
    text: str
    length: float
    label: str
    role: Role
    opacity: float = 1.0


def spending(study: Study | View) -> Chart:
    """Where the seconds went, what was saved by stopping and by not checking, and how trials ended.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=4)
    >>> plots.spending(study).panels[-1].y.categories
    ['completed']
    """
    view = View.of(study)
    title = "Where the time went, and how trials ended"
    ended = [course for course in view.courses if course.status != "running"]
    if not ended:
        return empty("spending", title, "no trial has ended yet")
    check, paid, saved = (sum(getattr(course, name) for course in ended) for name in ("check_ns", "checks", "saved"))
    trained = {status: sum(course.train_ns for course in ended if course.status == status) for status in _ENDINGS}
    spent: list[tuple[str, float, Role, float]] = [
        *((f"training, {status}", trained[status], role, 1.0) for status, role in _ENDINGS.items()),
        (f"checks: {paid:,} run", check, "limit", 1.0),
        ("training saved", view.ledger.train_saved_ns, "other", _PALE),
        (f"checks: {saved:,} skipped", saved * check / max(paid, 1), "limit", _PALE),
    ]
    total, gained = (sum(ns for _, ns, _, opacity in spent if opacity == shade) / 1e9 for shade in (1.0, _PALE))
    size, name = unit(max(ns for _, ns, _, _ in spent) / 1e9)
    bars = [
        _Bar(text, ns / 1e9 / size, duration(ns / 1e9), role, opacity) for text, ns, role, opacity in spent if ns > 0
    ]
    endings = _endings(view)
    panels = [_panel(name, bars)] if bars else []
    panels.append(_panel("trials", endings, whole=True))
    caption = f"{duration(total)} of training and constraint checks in {counted(len(ended), 'trial')}"
    caption += (
        f"; about {duration(gained)} saved by early stopping and skipped checks (pale: estimated)" if gained else ""
    )
    return Chart("spending", title, f"{caption}.", panels, height=130 + 30 * max(len(bars), len(endings)))


def _panel(title: str, bars: list[_Bar], *, whole: bool = False) -> Panel:
    """Bars with their names, the first at the top."""
    marks = [
        Bars(bar.length, i, "", bar.role, opacity=bar.opacity, labels=[bar.label], hover=[f"{bar.text}\n{bar.label}"])
        for i, bar in enumerate(reversed(bars))
    ]
    x = Axis(title, whole=whole, span=(0.0, 1.2 * max(bar.length for bar in bars)))
    return Panel(x, Axis(categories=[bar.text for bar in reversed(bars)]), marks)


def _endings(view: View) -> list[_Bar]:
    """How many trials ended how: completed, stopped for which kind of reason, failed."""
    kinds = Counter(reason_kind(view, course.reason) for course in view.courses if course.status == "stopped")
    common = kinds.most_common(_REASONS)
    rest = kinds.total() - sum(n for _, n in common)
    ended: list[tuple[tuple[str, Role], int]] = [
        (("completed", "feasible"), view.counts["completed"]),
        *common,
        (("stopped otherwise", "other"), rest),
        (("failed", "failed"), view.counts["failed"]),
    ]
    return [_Bar(text, n, f"{n:,}", role) for (text, role), n in ended if n]


def reason_kind(view: View, reason: str) -> tuple[str, Role]:
    """What kind of reason a sentence gives: the referee, a run and a simulation each write theirs in one way."""
    broken = []
    for one in view.problem.constraints:
        if not one.has_limit:
            if re.search(rf"{re.escape(one.metric)} \S+ {one.breach} ", reason):
                broken.append(f"{named(one.metric)} beyond what a trial aimed at")
            continue
        violated = f"{one.breach} {one.threshold:g}"
        if re.search(rf"{re.escape(one.metric)} \S+ {re.escape(violated)}", reason):
            broken.append(f"{named(one.metric)} {violated}")
    if broken:
        return " and ".join(broken), "infeasible"
    if reason.startswith(f"{view.problem.objective.metric} "):
        return f"behind in {named(view.problem.objective.metric)}", "not evaluated"
    if "timeout" in reason or "budget" in reason:
        return "out of time", "other"
    return named(reason) or "stopped", "other"


def intervals(study: Study | View) -> Chart:
    """How often each trial checked its constraints, given the price of a check; with the boundary of ACE's Theorem 1.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> plots.intervals(study).caption
    'No trial said how many steps it would take.'
    """
    rows = Rows(study)
    title, constraints = "How often constraints are checked", rows.view.problem.constraints
    if not constraints:
        return empty("intervals", title, "the study has no constraints")
    total, interval, ratio = rows.column("total"), rows.column("interval"), _ratios(rows)
    planned = np.isfinite(total) & np.isfinite(interval)
    known = planned & np.isfinite(ratio) & (ratio > 0)
    if not planned.any():
        return empty("intervals", title, "no trial said how many steps it would take")
    if not known.any():
        return empty("intervals", title, "no constraint was evaluated yet, so the cost of a check is unknown")
    k = np.flatnonzero(known)
    k = k[thinned(len(k), MOST)]
    total, interval, ratio = total[k], interval[k], ratio[k]
    same, stopper = total.min() == total.max(), rows.view.identity.stopper
    weighs = stopper is not None and stopper.interval == "adaptive" and type(stopper).adapted is Stopper.adapted
    p = stopper.stop_probability if stopper is not None and weighs else None  # of Theorem 1, where that decides
    marks: list[Mark] = _boundary(p, total, same=same) if p is not None and 0 < p < 1 else []
    kind = np.where(interval == 1, 0, np.where(interval >= total, 1, 2))
    hover = [
        f"trial {k[i]}: {total[i]:.0f} steps, every {interval[i]:.0f}\nr = {number(r)}" for i, r in enumerate(ratio)
    ]
    for place, (name, role) in enumerate(_PACES.items()):
        here = np.flatnonzero(kind == place)
        x, texts = (k if same else total)[here], [hover[i] for i in here]
        marks += [Points(x, ratio[here], name, role, size=5.5, opacity=0.75, hover=texts)] if texts else []
    log = bool(total.max() / total.min() > 10)  # noqa: PLR2004
    across = Axis("trial", whole=True) if same else Axis("steps planned, T", log=log)
    caption = f"{np.mean(kind == 0):.0%} of the trials check at every step, {np.mean(kind == 1):.0%} once at the end"
    caption += "; below the line the first is cheaper (ACE, Theorem 1)." if p is not None else "."
    caption += " The cost is that of one constraint." if len(constraints) > 1 else ""
    early = int(np.count_nonzero(planned & ~known))
    caption += f" Not shown: {counted(early, 'trial')} begun before that cost was known." if early else ""
    return Chart("intervals", title, caption, [Panel(across, Axis("cost of a check in steps, r", log=True), marks)])


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
    columns = [rows.column(name)[order] for name in ("check_ns", "checks", "train_ns", "steps")]
    paid, times, trained, taken = (np.append(0.0, np.cumsum(column))[before] for column in columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((paid / times) / (trained / taken))


def regret(study: Study | View) -> Chart:
    """What the terminator compared with its threshold after each trial, and where it ended the search.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(-1.0, 1.0)}, fw.Minimize("loss"), terminator=fw.Plateau(5), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"] ** 2, trials=100)
    >>> [mark.name for mark in plots.regret(study).panels[0].marks]
    ['threshold', 'trials without improvement', 'end of the search']
    """
    view = View.of(study)
    title, terminator = "When to end the search", view.identity.terminator
    said = sorted(view.verdicts, key=lambda verdict: verdict.finished)
    compared = [verdict for verdict in said if np.isfinite(verdict.value)]
    if not compared and said:
        return empty("regret", title, f"the terminator has nothing to compare yet: {shown(said[-1].reason, 160)}")
    if not compared and view.config.get("terminator") is None:
        return empty("regret", title, "the study has no terminator", " fw.RegretBound(...) is one.")
    if not compared:
        return empty("regret", title, "the terminator was not asked yet")
    stops = [i for i, verdict in enumerate(compared) if verdict.stop]
    compared = [compared[i] for i in thinned(len(compared), _VERDICTS, stops[:50] + stops[-50:])]
    columns = ("finished", "value", "threshold", "stop")
    x, value, limit, stop = (np.array([getattr(verdict, name) for verdict in compared]) for name in columns)
    positive = np.count_nonzero(value > 0) > len(value) / 2 and not (limit <= 0).any()
    log = bool(positive) and not isinstance(terminator, Plateau | Target)  # those do not fall by orders of magnitude
    hover = [f"after {verdict.finished} trials\n{verdict.reason}" for verdict in compared]
    name = _name(terminator, view.problem.objective.metric)
    marks: list[Mark] = [Line(x, limit, "threshold", "limit", step=True), Line(x, value, name, hover=hover)]
    if stop.any():
        ends = [hover[i] for i in np.flatnonzero(stop)]
        marks.append(Points(x[stop], value[stop], "end of the search", "best", size=13, hover=ends))
    if len(x) == 1:
        marks.append(Points(x, value, name, hover=hover))
    caption = f"{name[0].upper()}{name[1:]}, against the threshold of the stopping criterion. Its last verdict: "
    caption += f"{shown(compared[-1].reason, 160)}."
    return Chart("regret", title, caption, [Panel(Axis("trials finished", whole=True), Axis(name, log=log), marks)])


def _name(terminator: Any, metric: str) -> str:
    while isinstance(terminator, AnyOf | AllOf):
        terminator = terminator.parts[0]
    names: dict[type[Any], str] = {
        RegretBound: "bound on the regret",
        ExpectedImprovementBelow: "expected improvement",
        ProbabilityOfImprovementBelow: "probability of improvement",
        Plateau: "trials without improvement",
        Target: f"best {named(metric)}",
    }
    return names.get(type(terminator), "what the terminator compares")
