"""Where the seconds went, what was saved, and how trials ended."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from fairway.problem import Constraint
from fairway.report.chart import Axis, Bars, Chart, Panel
from fairway.report.charts.rows import empty
from fairway.report.marks import Role
from fairway.report.view import View
from fairway.study import Study
from fairway.text import counted, duration, named, unit

_KINDS = 8  # of reasons with a bar of their own


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
    check = sum(course.check_ns for course in ended) / 1e9
    checks, saved = sum(course.checks for course in ended), sum(course.saved for course in ended)
    kinds: tuple[tuple[str, Role], ...] = (("completed", "valid"), ("stopped", "other"), ("failed", "failed"))
    spent: list[tuple[str, float, Role]] = [
        (f"training, {status}", sum(course.train_ns for course in ended if course.status == status) / 1e9, role)
        for status, role in kinds
    ]
    spent.append((f"checks: {checks:,} paid", check, "limit"))
    kept: list[tuple[str, float, Role]] = [
        ("training saved", view.ledger.train_saved_ns / 1e9, "other"),
        (f"checks: {saved:,} saved", saved * check / checks if checks else 0.0, "limit"),
    ]
    total, gained = (sum(seconds for _, seconds, _ in bars) for bars in (spent, kept))
    size, name = unit(max(seconds for _, seconds, _ in spent + kept))
    bars = [
        _Bar(text, seconds / size, duration(seconds), role, opacity)
        for group, opacity in ((spent, 1.0), (kept, 0.4))
        for text, seconds, role in group
        if seconds > 0
    ]
    endings = _endings(view)
    panels = [_panel(Axis(name), bars)] if bars else []
    panels.append(_panel(Axis("trials", whole=True), endings))
    caption = f"{duration(total)} of training and checks in {counted(len(ended), 'trial')}"
    caption += f"; about {duration(gained)} saved (pale bars: estimates, at the pace of each trial)" if gained else ""
    return Chart("spending", title, f"{caption}.", panels, height=130 + 30 * max(len(bars), len(endings)))


def _panel(axis: Axis, bars: list[_Bar]) -> Panel:
    """Bars with their names, the first at the top."""
    marks = [
        Bars([i], [bar.length], "", bar.role, bar.opacity, [bar.label], [f"{bar.text}\n{bar.label}"])
        for i, bar in enumerate(reversed(bars))
    ]
    x = Axis(axis.title, whole=axis.whole, span=(0.0, 1.2 * max(bar.length for bar in bars)))
    return Panel(x, Axis(categories=[bar.text for bar in reversed(bars)]), marks)


def _endings(view: View) -> list[_Bar]:
    """How many trials ended how: completed, stopped for which kind of reason, failed."""
    kinds = Counter(reason_kind(view, course.reason) for course in view.courses if course.status == "stopped")
    common, counts = kinds.most_common(_KINDS), view.counts
    rest = kinds.total() - sum(n for _, n in common)
    ended: list[tuple[tuple[str, Role], int]] = [
        (("completed", "valid"), counts["completed"]),
        *common,
        (("stopped otherwise", "other"), rest),
        (("failed", "failed"), counts["failed"]),
    ]
    return [_Bar(text, n, f"{n:,}", role) for (text, role), n in ended if n]


def reason_kind(view: View, reason: str) -> tuple[str, Role]:
    """What kind of reason a sentence gives: the referee, a run and a simulation each write theirs in one way."""
    broken = [constraint for constraint in view.problem.constraints if _says(reason, constraint)]
    if broken:
        return " and ".join(f"{named(one.metric)} {one.breach} {one.threshold:g}" for one in broken), "invalid"
    if reason.startswith(f"{view.problem.objective.metric} "):
        return f"behind in {named(view.problem.objective.metric)}", "not evaluated"
    if "timeout" in reason or "budget" in reason:
        return "out of time", "other"
    return named(reason) or "stopped", "other"


def _says(reason: str, constraint: Constraint) -> bool:
    """Whether a sentence says of a constraint that it is violated."""
    _, found, after = reason.partition(f"{constraint.metric} ")
    value, _, rest = after.partition(" ")
    return bool(found and value) and rest.startswith(f"{constraint.breach} {constraint.threshold:g}")
