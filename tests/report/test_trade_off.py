"""The picture of what a limit costs agrees with `study.what_if`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairway as fw
from fairway.report import plots
from fairway.report.marks import Area, Limit, Line, Points, Tiles, legend
from fairway.report.view import View
from tests.conftest import SPACE


def study_of(rows, constraints, objective=None):
    """A study with a trial for each row of metrics, reported step by step."""
    objective = objective or fw.Maximize("auc")
    study = fw.Study(SPACE, objective, constraints, stopper=fw.Never(interval=1), sampler=fw.Random(), seed=0)
    for metrics in rows:
        study.tell(study.ask(), metrics)
    return study


def random_rows(n=60, seed=0, paid=0.8):
    rng, rows = np.random.default_rng(seed), []
    for auc, eod, recall in rng.uniform(size=(n, 3)):
        measured = {"eod": auc * eod, "recall": 1.0 - auc * recall}
        rows.append({"auc": auc, **{name: v for name, v in measured.items() if rng.uniform() < paid}})
    return rows


def one(panel, kind, name=""):
    (mark,) = [mark for mark in panel.marks if isinstance(mark, kind) and (not name or mark.name.startswith(name))]
    return mark


@pytest.mark.parametrize("limit", [fw.AtMost("eod", 0.2), fw.AtLeast("recall", 0.7)])
@pytest.mark.parametrize("objective", [fw.Maximize("auc"), fw.Minimize("auc")])
def test_the_curve_is_the_best_at_every_limit(limit, objective):
    rows = [{"auc": row["auc"], limit.metric: row[limit.metric]} for row in random_rows(paid=1.0)]
    study = study_of(rows, [limit], objective)
    (panel,) = plots.trade_off(study).panels
    line = one(panel, Line)
    low, high = sorted((line.x[0], line.x[-1]))
    for at in np.linspace(low, high, 40)[1:-1]:
        best = study.what_if({limit.metric: float(at)}).best
        here = np.flatnonzero((line.x[:-1] - at) * (line.x[1:] - at) <= 0)[0]
        assert line.y[here] == line.y[here + 1] == best.metrics["auc"]
    assert one(panel, Limit).value == limit.threshold
    star = one(panel, Points, "best")
    assert star.y[0] == study.best.metrics["auc"]
    carried = [mark for mark in panel.marks if isinstance(mark, Points) and mark is not star]
    assert {mark.name for mark in carried} <= {"within the limit", "beyond the limit"}
    assert {*line.y.tolist()} == {y for mark in carried for y in mark.y.tolist()}


def test_what_was_never_measured_is_shaded_up_to_its_best_objective():
    limit = [fw.AtMost("eod", 0.2)]
    measured = [{"auc": 0.6, "eod": 0.1}, {"auc": 0.7, "eod": 0.3}]
    (panel,) = plots.trade_off(study_of(measured, limit)).panels
    assert not [mark for mark in panel.marks if isinstance(mark, Area)]
    chart = plots.trade_off(study_of([*measured, {"auc": 0.8}, {"auc": 0.65}], limit))
    assert one(chart.panels[0], Area).y.max() == 0.8
    assert "Shaded: 2 checkpoints where eod was not measured could be better." in chart.caption


def test_two_limits_have_a_map_of_the_best_at_both():
    study = study_of(random_rows(), [fw.AtMost("eod", 0.2), fw.AtLeast("recall", 0.7)])
    chart = plots.trade_off(study)
    assert [panel.x.title for panel in chart.panels] == [
        "limit of eod (at most)",
        "limit of recall (at least)",
        "limit of eod (at most)",
    ]
    tiles = one(chart.panels[2], Tiles)
    for i, j in np.random.default_rng(1).integers(0, len(tiles.x), (30, 2)):
        best = study.what_if(eod=float(tiles.x[j]), recall=float(tiles.y[i])).best
        value = tiles.values[i, j]
        assert (None if np.isnan(value) else value) == (best and best.metrics["auc"])
    assert json.dumps(chart.plotly(), allow_nan=False)
    assert len(plots.trade_off(study, "recall").panels) == 1


def test_tracked_metrics_are_explained_in_the_words_of_the_front():
    rows = [{"auc": auc, "ms": ms} for auc, ms in ((0.9, 8.0), (0.8, 4.0), (0.5, 0.5), (0.4, 2.0))]
    chart = plots.trade_off(study_of(rows, [fw.Track("ms")]))
    said = "On the front, auc is 0.9 at ms 8, 0.8 at ms 4, 0.5 at ms 0.5."
    assert chart.caption == f"{said} Each point is a checkpoint that carries the curve."
    rows = [{"auc": 0.8, "ms": 4.0, "recall": 0.7}]
    caption = plots.trade_off(study_of(rows, [fw.Track("ms"), fw.Track("recall", larger=True)])).caption
    assert caption.startswith("On the front, auc is 0.8 at ms 4. On the front, auc is 0.8 at recall 0.7. Each point")
    assert "the other limits stay" not in caption


def test_no_two_names_of_a_legend_look_alike():
    chart = plots.trade_off(study_of(random_rows(paid=1.0), [fw.AtMost("eod", 0.2), fw.Track("recall", larger=True)]))
    looks = [(type(mark), mark.role) for mark in legend(chart.panels).values()]
    assert len(looks) == len({*looks}) > 2


def test_one_trivial_model_does_not_stretch_the_colours_of_a_map():
    rng = np.random.default_rng(0)
    rows = [{"auc": (80 + k) / 100, "ms": 5.0 + k, "eod": 0.1 + float(rng.uniform(0, 0.05))} for k in range(8)]
    chart = plots.trade_off(study_of([{"auc": 0.1, "ms": 0.0, "eod": 0.0}, *rows], [fw.Track("ms"), fw.Track("eod")]))
    tiles = one(chart.panels[2], Tiles)
    assert (tiles.values == 0.1).mean() > 0.2
    assert 0.8 <= tiles.worst < tiles.best == 0.87
    assert "auc 0.87 is the strongest, 0.8" in chart.caption


@pytest.mark.parametrize(("objective", "levels"), [(fw.Maximize("auc"), 1), (fw.Minimize("auc"), 2)])
def test_a_map_has_a_scale_from_the_best_however_few_levels_it_has(objective, levels, tmp_path):
    sign = objective.sign
    rows = [{"auc": -sign * 0.1 * (k + 1), "ms": 1.0 + k, "eod": 0.1 + k / 10} for k in range(levels)]
    chart = plots.trade_off(study_of(rows, [fw.Track("ms"), fw.Track("eod")], objective))
    tiles = one(chart.panels[2], Tiles)
    assert tiles.best == -sign * 0.1 * levels
    assert (tiles.worst == tiles.best) == (levels == 1)
    (trace,) = [trace for trace in chart.plotly()["data"] if trace["type"] == "heatmap"]
    assert trace["colorbar"]["title"]["text"] == "auc"
    chart.save(tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text().count(">auc<") == 3  # two axes and the scale


def found(rows, limits):
    """The first of a page's rows that keeps the limits: what its script looks for."""
    kept = [
        row
        for row in rows
        if all(at is None or sign * at <= sign * limit for at, (sign, limit) in zip(row[3:], limits, strict=False))
    ]
    return kept[0] if kept else None


@pytest.mark.parametrize("constraints", [1, 2, 3])
def test_a_page_finds_the_best_for_any_limits(constraints):
    limits = [fw.AtMost("eod", 0.2), fw.AtLeast("recall", 0.7), fw.AtMost("ms", 0.5)][:constraints]
    rows = random_rows(80)
    rng = np.random.default_rng(2)
    for row in rows:
        row.update({"ms": float(rng.uniform())} if constraints == 3 else {})
        for name in {"eod", "recall"} - {one.metric for one in limits}:
            row.pop(name, None)
    study = study_of(rows, limits)
    moves = plots.trade_off(study).moves
    assert json.dumps(moves, allow_nan=False)
    for at in rng.uniform(size=(40, constraints)).tolist():
        answer = study.what_if({one.metric: x for one, x in zip(limits, at, strict=True)})
        asked = [(one.sign, x) for one, x in zip(limits, at, strict=True)]
        best, unknown = found(moves["known"], asked), found(moves["unknown"], asked)
        assert (best and best[0]) == (answer.best and answer.best.number)
        if answer.unknown:
            assert unknown[2] == answer.unknown_best


@pytest.mark.parametrize("tracked", [fw.Track("ms"), fw.Track("ms", larger=True)])
def test_a_page_opens_on_the_best_model_though_its_tracked_metric_is_an_outlier(tracked):
    sign = -1.0 if tracked.larger else 1.0
    usual = [{"auc": 0.5 + k / 100, "ms": sign * (2 + k / 100)} for k in range(30)]
    study = study_of([*usual, {"auc": 0.85, "ms": sign * 20.0}, {"auc": 0.9, "ms": sign * 65.0}], [tracked])
    moves = plots.trade_off(study).moves
    (limit,) = moves["limits"]
    assert limit["span"][0] <= sign * 65.0 <= limit["span"][1]
    assert found(moves["known"], [(sign, limit["threshold"])])[0] == study.best.number == 31


def test_checkpoints_beyond_the_axis_are_counted():
    rows = [{"auc": 0.5 + k / 200, "eod": 0.02 + k * 0.002} for k in range(40)]
    study = study_of(
        [*rows, {"auc": 0.75, "eod": 0.15}, {"auc": 0.8, "eod": 0.5}, {"auc": 0.9, "eod": 0.9}], [fw.AtMost("eod", 0.1)]
    )
    assert plots.trade_off(study).caption.endswith(" 2 checkpoints of the curves are beyond the axis.")


def test_moving_one_limit_is_exact_however_many_checkpoints_there_are(monkeypatch):
    monkeypatch.setattr("fairway.report.charts.trade_off._FRONT", 30)
    study = study_of(random_rows(200, paid=1.0), [fw.AtMost("eod", 0.2), fw.AtLeast("recall", 0.7)])
    moves = plots.trade_off(study).moves
    assert len(moves["known"]) == 30
    for limit in np.linspace(0.0, 0.6, 25).tolist():
        best = study.what_if(eod=limit).best
        row = found(moves["known"], [(1.0, limit), (-1.0, 0.7)])
        assert (row and row[0]) == (best and best.number)


@pytest.mark.parametrize(
    ("rows", "constraints", "why"),
    [
        ([{"auc": 0.5}], [], "The study has no constraints."),
        ([], [fw.AtMost("eod", 0.1)], "No checkpoint is known to keep the limits, however one of them is moved."),
        ([{"auc": 0.5}], [fw.AtMost("eod", 0.1)], "No checkpoint is known to keep the limits"),
        ([{"auc": 0.5, "eod": float("nan")}], [fw.AtMost("eod", 0.1)], "No checkpoint is known to keep the limits"),
    ],
)
def test_where_there_is_no_curve_the_picture_says_why(rows, constraints, why):
    chart = plots.trade_off(study_of(rows, constraints))
    assert chart.is_empty
    assert chart.caption.startswith(why)


def test_a_view_draws_what_came_since():
    study = study_of([{"auc": 0.5, "eod": 0.1}], [fw.AtMost("eod", 0.2)])
    view = View(study)
    assert len(plots.trade_off(view).moves["known"]) == 1
    study.tell(study.ask(), auc=0.6, eod=0.3)
    view.update()
    assert [row[:3] for row in plots.trade_off(view).moves["known"]] == [[1, 1, 0.6], [0, 1, 0.5]]


def test_a_constraint_that_is_not_there_is_one_sentence():
    study = study_of([{"auc": 0.5, "eod": 0.1}], [fw.AtMost("eod", 0.2)])
    with pytest.raises(fw.UsageError, match=r"^constraint='ms': the study has 'eod'$"):
        plots.trade_off(study, "ms")
