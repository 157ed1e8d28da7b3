"""Where the seconds went, what was saved, and how trials ended."""

from __future__ import annotations

from collections import Counter

from fairway.problem import Constraint
from fairway.report.chart import Axis, Chart, Panel
from fairway.report.charts.rows import duration, empty, unit, word
from fairway.report.marks import Bars, Role
from fairway.report.view import View

_KINDS = 8  # of reasons with a bar of their own


def spending(view: View) -> Chart:
    """Seconds of training and of checks, spent and saved; and trials by what ended them."""
    title = "Where the time went, and how trials ended"
    ended = [course for course in view.courses if course.status != "running"]
    if not ended:
        return empty("spending", title, "No trial has ended yet.", "no trial has ended yet")
    check = sum(course.check_ns for course in ended) / 1e9
    checks, saved = sum(course.checks for course in ended), sum(course.saved for course in ended)
    kinds: tuple[tuple[str, Role], ...] = (("completed", "valid"), ("stopped", "other"), ("failed", "failed"))
    spent = [
        (f"training, {status}", sum(course.train_ns for course in ended if course.status == status) / 1e9, role)
        for status, role in kinds
    ]
    spent.append((f"checks: {checks:,} paid", check, "limit"))
    kept: list[tuple[str, float, Role]] = [
        ("training saved", view.ledger.train_saved_ns / 1e9, "other"),
        (f"checks: {saved:,} saved", saved * check / checks if checks else 0.0, "limit"),
    ]
    bars = [(*bar, 1.0) for bar in spent if bar[1] > 0] + [(*bar, 0.4) for bar in kept if bar[1] > 0]
    endings = _endings(view)
    panels = [_seconds(bars[::-1])] if bars else []  # the first at the top
    panels.append(_trials(endings[::-1]))
    total = sum(bar[1] for bar in spent)
    caption = f"{duration(total)} of training and checks in {len(ended):,} trials"
    gained = sum(bar[1] for bar in kept)
    caption += (
        f"; about {duration(gained)} were saved (pale bars: estimates, at the pace of each trial)" if gained else ""
    )
    return Chart("spending", title, f"{caption}.", panels, height=130 + 30 * max(len(bars), len(endings)))


def _seconds(bars: list[tuple[str, float, Role, float]]) -> Panel:
    size, name = unit(max(seconds for _, seconds, _, _ in bars))
    marks = [
        Bars(
            [i],
            [seconds / size],
            role=role,
            opacity=opacity,
            labels=[duration(seconds)],
            hover=[f"{text}\n{duration(seconds)}"],
        )
        for i, (text, seconds, role, opacity) in enumerate(bars)
    ]
    longest = max(seconds for _, seconds, _, _ in bars) / size
    return Panel(Axis(name, span=(0.0, 1.2 * longest)), Axis(categories=[text for text, _, _, _ in bars]), marks)


def _trials(endings: list[tuple[str, int, Role]]) -> Panel:
    marks = [
        Bars([i], [n], role=role, labels=[f"{n:,}"], hover=[f"{text}\n{n:,} trials"])
        for i, (text, n, role) in enumerate(endings)
    ]
    most = max(n for _, n, _ in endings)
    return Panel(
        Axis("trials", whole=True, span=(0.0, 1.15 * most)), Axis(categories=[text for text, _, _ in endings]), marks
    )


def _endings(view: View) -> list[tuple[str, int, Role]]:
    """How many trials ended how: completed, stopped for which kind of reason, failed."""
    kinds: Counter[tuple[str, Role]] = Counter()
    for course in view.courses:
        if course.status == "stopped":
            kinds[_kind(view, course.reason)] += 1
    first: list[tuple[str, int, Role]] = [("completed", view.ledger.counts["completed"], "valid")]
    common = kinds.most_common(_KINDS)
    stopped = [(text, n, role) for (text, role), n in common]
    rest = sum(kinds.values()) - sum(n for _, n in common)
    stopped += [("stopped otherwise", rest, "other")] if rest else []
    last: list[tuple[str, int, Role]] = [("failed", view.ledger.counts["failed"], "failed")]
    return [bar for bar in (*first, *stopped, *last) if bar[1]]


def _kind(view: View, reason: str) -> tuple[str, Role]:
    """What kind of reason a sentence gives: the referee, a run and a simulation each write theirs in one way."""
    broken = [constraint for constraint in view.problem.constraints if _says(reason, constraint)]
    if broken:
        return " and ".join(f"{word(one.metric)} {one.breach} {one.threshold:g}" for one in broken), "invalid"
    if reason.startswith(f"{view.problem.objective.metric} "):
        return f"behind in {word(view.problem.objective.metric)}", "not evaluated"
    if "timeout" in reason or "budget" in reason:
        return "out of time", "other"
    return word(reason) or "stopped", "other"


def _says(reason: str, constraint: Constraint) -> bool:
    """Whether a sentence says of a limit that it is broken."""
    _, found, after = reason.partition(f"{constraint.metric} ")
    value, _, rest = after.partition(" ")
    return bool(found and value) and rest.startswith(f"{constraint.breach} {constraint.threshold:g}")
