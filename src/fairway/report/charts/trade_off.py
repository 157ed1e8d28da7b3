"""What a limit costs: the best objective as a function of each limit, and for two limits a map of both.

The page that shows it also gets the checkpoints among which the best lies for any limits (`Chart.moves`), so that a
slider finds the best model in the browser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.engine.trade_off import Steps, TradeOff
from fairway.engine.what_if import search
from fairway.errors import UsageError
from fairway.report.chart import Area, Axis, Chart, Limit, Line, Panel, Points, Tiles
from fairway.report.charts.rows import empty, held, span, thinned
from fairway.report.interactive import axis_number
from fairway.report.marks import Mark
from fairway.report.view import View
from fairway.study import Study
from fairway.text import counted, limit, measured, named, number, params, shown

_CONSTRAINTS = 5  # that have a panel
_POINTS = 300  # in a panel, of those that carry its curve
_FRONT, _UNKNOWN = 1500, 300  # checkpoints that a page can choose from
_MAPPED = 2  # limits that have a map
_TILES = 48  # of a map, along each side
_COLOURED = 0.8  # of the levels of a map, which have a colour of their own; worse ones are all the palest
_WIDE = 100.0  # from such a ratio between the ends of a curve on, a log axis
_NAME = 120  # characters


def trade_off(study: Study | View, constraint: str | None = None) -> Chart:
    """The best objective as a function of each limit, or of one of them, while the others stay; for two limits a map.

    Each point is a checkpoint that carries the curve. The shaded area is where a checkpoint could lie of which a limit
    was never measured.

    >>> import fairway as fw
    >>> from fairway.report import plots
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], seed=0)
    >>> for auc, eod in ((0.8005, 0.09), (0.8107, 0.1), (0.8147, 0.12)):
    ...     _ = study.tell(study.ask(), auc=auc, eod=eod)
    >>> plots.trade_off(study).caption.partition(". ")[0]
    'If the limit of eod moves from 0.10 to 0.12, auc rises by 0.0040; from 0.10 to 0.09 it falls by 0.0102'
    """
    view, title = View.of(study), "The price of a limit"
    names = [one.metric for one in view.problem.constraints]
    if constraint is not None and constraint not in names:
        raise UsageError(f"constraint={constraint!r}: the study has {', '.join(map(repr, names)) or 'no constraint'}")
    if not names:
        return empty("trade_off", title, "the study has no constraints")
    drawing = _Drawing(view)
    chosen = [i for i, name in enumerate(names) if constraint in (None, name)][:_CONSTRAINTS]
    known = {i: steps for i in chosen if len((steps := drawing.cost.steps(i)).at)}
    if not known:
        return empty("trade_off", title, "no checkpoint is known to keep the limits, however one of them is moved")
    y = drawing.axis(known)
    panels = [drawing.panel(i, steps, y) for i, steps in known.items()]
    words = [drawing.cost.in_words(i) for i in known]
    caption = f"{' '.join(filter(None, words))} {drawing.explained(len(panels))}"
    caption += drawing.left_out(known, panels)
    is_mapped = len(names) == len(known) == _MAPPED
    if is_mapped:
        tiles = drawing.tiles(panels[0].x, panels[1].x)
        panels.append(Panel(panels[0].x, panels[1].x, [tiles, *drawing.limits()]))
        caption += (
            f" On the map, the stronger the colour the better: {drawing.metric} {number(tiles.best)} is the strongest, "
            f"{number(tiles.worst)} or worse the palest; none where nothing is known to keep both limits."
        )
    moves = drawing.moves(dict(zip(known, panels, strict=False)), is_mapped=is_mapped)
    return Chart("trade_off", title, caption, panels, moves=moves)


class _Drawing:
    """The parts of the picture of one study."""

    def __init__(self, view: View) -> None:
        self.view, self.problem = view, view.problem
        self.metric, self.sign = named(view.problem.objective.metric), view.problem.objective.sign
        self.cost = TradeOff(view.problem, view.checkpoints())
        self.found = search(view.problem, self.cost.table)

    def axis(self, known: dict[int, Steps]) -> Axis:
        """The axis of the objective, which all panels share."""
        levels = np.concatenate([steps.loss for steps in known.values()])
        possible = [self.cost.steps(i, possible=True).loss for i in known]
        kept = [float(loss.min()) for loss in (levels, *possible) if len(loss)]
        around = span(self.sign * levels, [self.sign * loss for loss in kept])
        low, high = around or (min(*levels, *kept), max(*levels, *kept))
        if around is None:
            low, high = sorted((self.sign * low, self.sign * high))
            margin = 0.06 * (high - low) or abs(high) / 10 or 1.0
            low, high = held(low - margin, high + margin)
        return Axis(self.metric, span=(low, high))

    def panel(self, i: int, steps: Steps, y: Axis) -> Panel:
        """The best objective as a function of one limit."""
        constraint, x = self.problem.constraints[i], self._limits(i, steps)
        assert x.span is not None
        assert y.span is not None
        tight, loose = sorted(constraint.sign * end for end in x.span)
        floor = max(self.sign * end for end in y.span)  # the worst loss that is drawn
        line, possible = _corners(steps, tight, loose), self.cost.steps(i, possible=True)
        marks = list[Mark]()
        if self._is_open(steps, possible):
            top, start = _corners(possible, tight, loose), float(line[0][0]) if len(line[0]) else loose
            bottom = np.append([tight, start], line[0]), np.append([floor, floor], line[1])
            ends = top[0][:1], [floor]  # where nothing at all is known, the area begins on the right
            corners = [np.concatenate((ends[k], top[k], bottom[k][::-1])) for k in (0, 1)]
            places = constraint.sign * corners[0], np.clip(self.sign * corners[1], *y.span)
            marks.append(Area(*places, "could be better: not measured", "not evaluated", opacity=0.22))
        if constraint.has_limit:
            side = "below" if constraint.sign > 0 else "above"
            marks.append(Limit(constraint.threshold, limit(constraint), along="x", allowed=side))  # type: ignore[arg-type]
        best = f"best {self.metric} at that limit"
        marks.append(Line(constraint.sign * line[0], self.sign * line[1], best, "plain", width=2))
        kept = steps.at <= constraint.sign * constraint.threshold
        inside = "within the limit" if self.problem.limits else "on the front"  # one legend for all panels
        for within, name, role in ((True, inside, "feasible"), (False, "beyond the limit", "infeasible")):
            here = np.flatnonzero(kept == within)
            here = here[thinned(len(here), _POINTS)]
            if len(here):
                places = constraint.sign * steps.at[here], self.sign * steps.loss[here]
                marks.append(Points(*places, name, role, size=6, hover=self._texts(steps.row[here])))  # type: ignore[arg-type]
        if self.found.best is not None:
            at, row = float(self.cost.least(np.array([self.found.best]))[0, i]), self.found.best
            value = float(self.cost.table.objective[row])
            marks.append(Points(constraint.sign * at, value, "best", "best", size=14, hover=self._texts([row])))
        return Panel(x, y, marks)

    def _limits(self, i: int, steps: Steps) -> Axis:
        """The axis of one limit: where the best changes, and the limit as it is; without a limit, the study's best."""
        constraint = self.problem.constraints[i]
        values = constraint.sign * steps.at[np.isfinite(steps.at)]
        # Where nothing is limited, the best is at the loosest place.
        kept = [constraint.threshold, *self.cost.neighbours(i)] if constraint.has_limit else values[-1:].tolist()
        low, high = min([*values, *kept], default=0.0), max([*values, *kept], default=0.0)
        if len(values) and low > 0 and np.ptp(np.log(np.quantile(values, [0.05, 0.95]))) > np.log(_WIDE):
            return Axis(self._title(i), log=True, span=held(low / 1.2, high * 1.2, log=True))
        margin = 0.06 * (high - low) or (constraint.unit if constraint.has_limit else abs(high) or 1.0) / 10
        return Axis(self._title(i), span=span(values, kept) or held(low - margin, high + margin))

    def _title(self, i: int) -> str:
        constraint = self.problem.constraints[i]
        return f"limit of {named(constraint.metric)} ({'at most' if constraint.sign > 0 else 'at least'})"

    def _is_open(self, known: Steps, possible: Steps) -> bool:
        """Whether something that was not measured could be better, at some limit."""
        return any((here := known.best(at)) is None or loss < here for at, loss in zip(*possible[:2], strict=True))

    def _texts(self, rows: Any) -> list[str]:
        """What pops up for some checkpoints."""
        table, names, texts = self.cost.table, self.problem.metrics, []
        for row in rows:
            k, one = int(table.number[row]), table.one(int(row))
            errors = {name: e for name, e in zip(names[1:], one.errors, strict=False) if e is not None}
            found = measured(names, (one.objective, *one.values), errors)
            texts.append(f"trial {k}, step {one.step}\n{found}\n{params(self.view.courses[k].params)}")
        return texts

    def tiles(self, x: Axis, y: Axis) -> Tiles:
        """The best objective at many pairs of the two limits."""
        (along, up), (one, other) = (_middles(x), _middles(y)), (each.sign for each in self.problem.constraints)
        loss = self.cost.grid(np.sort(one * along), np.sort(other * up))[:: int(other), :: int(one)]
        levels = np.unique(loss[~np.isnan(loss)])  # a trivial model may be the best on much of the map
        places = 0, min(max(int(_COLOURED * (len(levels) - 1)), 1), len(levels) - 1)
        best, worst = (self.sign * levels[list(places)]).tolist() if len(levels) else (0.0, 0.0)
        return Tiles(along, up, self.sign * loss, worst, best, self.metric)

    def limits(self) -> list[Mark]:
        """The limits of a map as they are."""
        pairs = zip(self.problem.constraints, ("x", "y"), strict=True)
        return [Limit(one.threshold, along=along) for one, along in pairs if one.has_limit]  # type: ignore[arg-type]

    def explained(self, panels: int) -> str:
        """What one sees."""
        text = "Each point is a checkpoint that carries the curve"
        text += "; the other limits stay." if panels > 1 and self.problem.limits else "."
        unknown = len(self.found.unknown)
        if unknown:
            alone = len(self.problem.limits) == 1
            missing = named(self.problem.limits[0].metric) if alone else "a limit"
            text += f" Shaded: {counted(unknown, 'checkpoint')} where {missing} was not measured could be better."
        return text

    def left_out(self, known: dict[int, Steps], panels: list[Panel]) -> str:
        """A sentence on how many checkpoints of the curves the axes leave out; empty if none."""
        n = 0
        for (i, steps), panel in zip(known.items(), panels, strict=True):
            assert panel.x.span is not None
            at = self.problem.constraints[i].sign * steps.at[np.isfinite(steps.at)]
            n += int(np.count_nonzero((at < panel.x.span[0]) | (at > panel.x.span[1])))
        which = "checkpoint of a curve is" if n == 1 else "checkpoints of the curves are"
        return f" {n:,} {which} beyond the axis." if n else ""

    def moves(self, panels: dict[int, Panel], *, is_mapped: bool) -> dict[str, Any]:
        """What a page needs to find the best checkpoint for any limits: plain values, the best objective first."""
        front, unknown = self.cost.front(_FRONT), self.cost.front(_UNKNOWN, possible=True)
        signs = [constraint.sign for constraint in self.problem.constraints]
        return {
            "metric": shown(self.problem.objective.metric, _NAME),
            "better": "more" if self.sign < 0 else "less",
            "limits": [
                {
                    "metric": shown(one.metric, _NAME),
                    "sign": one.sign,
                    "threshold": self._present(i, panels.get(i)),
                    "span": list(panels[i].x.span or ()) if i in panels else None,
                    "log": i in panels and panels[i].x.log,
                    "panel": axis_number([*panels].index(i)) if i in panels else None,
                }
                for i, one in enumerate(self.problem.constraints)
            ],
            "map": axis_number(2) if is_mapped else None,
            "known": self._rows(front, signs),
            "unknown": self._rows(unknown, signs),
        }

    def _present(self, i: int, panel: Panel | None) -> float | None:
        """Where a page shows a limit at first; one that is not known yet at its loosest."""
        constraint = self.problem.constraints[i]
        if constraint.has_limit:
            return constraint.threshold
        return (
            None if panel is None or panel.x.span is None else max(panel.x.span, key=lambda end: constraint.sign * end)
        )

    def _rows(self, rows: NDArray[np.intp], signs: list[float]) -> list[list[Any]]:
        """Checkpoints: trial, step, objective; for each constraint what is compared with its limit; and their values.

        None where it was not measured, or is infinite, which keeps any limit.
        """
        table, found = self.cost.table, list[list[Any]]()
        for row, least in zip(rows.tolist(), self.cost.least(rows).tolist(), strict=True):
            compared = [sign * at if np.isfinite(at) else None for sign, at in zip(signs, least, strict=True)]
            known = [float(f"{v:.6g}") if np.isfinite(v) else None for v in table.values[row].tolist()]
            values = [value if paid else None for value, paid in zip(known, table.paid[row].tolist(), strict=True)]
            where = int(table.number[row]), int(table.step[row]), float(table.objective[row])
            found.append([*where, *compared, *values])
        return found


def _corners(steps: Steps, tight: float, loose: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A step curve with all its corners, as limits and losses, between the tightest and the loosest that are drawn."""
    drawn = steps.at <= loose
    at, loss = np.maximum(steps.at[drawn], tight), steps.loss[drawn]
    first = max(int(np.count_nonzero(at == tight)) - 1, 0)  # of those that begin before the axis, the best
    at, loss = at[first:], loss[first:]
    return np.append(np.repeat(at, 2)[1:], [loose] * (len(at) > 0)), np.repeat(loss, 2)


def _middles(axis: Axis) -> NDArray[np.float64]:
    """The middles of the tiles along an axis."""
    assert axis.span is not None
    low, high = np.log(axis.span) if axis.log else axis.span
    ends = np.linspace(low, high, _TILES + 1)
    middles = (ends[1:] + ends[:-1]) / 2
    return np.exp(middles) if axis.log else middles
