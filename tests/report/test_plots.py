"""Pictures agree with the study, whatever became of it."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest

import fairway as fw
from fairway.engine.clock import VirtualClock
from fairway.errors import MissingDependency
from fairway.interval import threshold
from fairway.report import plots
from fairway.report.charts.curves import one_curve
from fairway.report.marks import Bars, Limit, Line, Points, Words
from fairway.report.view import View
from fairway.stoppers.stopper import Stopper, StopperState
from tests.conftest import flush, make_recording, run_curves

NAMES = ["best", "limits", "trade_off", "curves", "spending", "regret", "intervals", "slices", "parallel", "importance"]
LIMIT = [fw.AtMost("eod", 0.25)]


@pytest.fixture(scope="module")
def simulated():
    """A study with stops, both strata and verdicts."""
    recording = make_recording(120, seed=3)
    study = fw.Study(
        recording.space,
        fw.Maximize("auc"),
        [fw.AtMost("eod", 0.15), fw.AtMost("dpd", 0.2)],
        sampler=fw.Random(),
        stopper=fw.ACE(),
        terminator=fw.Plateau(1000),
        seed=0,
    )
    fw.simulate(study, recording, workers=3, budget=60.0)
    return study


def marks(chart, kind, name=None):
    return [
        mark
        for panel in chart.panels
        for mark in panel.marks
        if isinstance(mark, kind) and (name is None or mark.name == name)
    ]


def check(charts, tmp_path=None):
    """Every chart can be written in every way, and says something."""
    for chart in charts:
        assert chart.caption.endswith(".")
        assert chart.caption.isprintable()
        assert chart.title.isprintable()
        json.dumps(chart.plotly(), allow_nan=False)
        if tmp_path is not None:
            chart.save(tmp_path / "chart.png")
            chart.save(tmp_path / "chart.svg")


def every(study):
    """Each function on its own: those that `drawn` leaves out say why there is nothing."""
    view = View(study)
    return [
        *(plots.best(view, over) for over in ("trials", "seconds", "cost")),
        *(getattr(plots, name)(view) for name in NAMES[1:]),
    ]


def test_a_report_has_every_chart_in_a_fixed_order(simulated, tmp_path):
    charts = plots.drawn(simulated)
    assert [chart.name for chart in charts] == NAMES
    check(charts, tmp_path)


# Numbers agree with the study


@pytest.mark.parametrize("over", ["trials", "seconds", "cost"])
def test_the_last_of_the_best_is_the_studys_best(simulated, over):
    chart = plots.best(simulated, over)
    (line,) = marks(chart, Line, "best within the limits")
    (free,) = marks(chart, Line, "best ignoring the constraints")
    assert line.y[-1] == simulated.best.metrics["auc"]
    assert free.y[-1] == simulated.best_ignoring_limits.metrics["auc"]
    assert (np.diff(line.y) >= 0).all()
    assert (np.diff(line.x) >= 0).all()
    assert f"of trial {simulated.best.number}" in chart.caption


def test_the_best_runs_along_trials_seconds_and_costs(simulated):
    ends = {over: marks(plots.best(simulated, over), Line)[0].x[-1] for over in ("trials", "seconds", "cost")}
    costs = simulated.costs
    assert ends["trials"] == len(simulated.trials)
    courses = View(simulated).courses
    assert ends["seconds"] == pytest.approx(max(course.ended for course in courses))
    assert ends["cost"] == pytest.approx(costs.training_seconds + costs.check_seconds)


def test_a_checkpoint_of_a_trial_that_failed_later_is_still_the_best(make_study):
    study = make_study(constraints=())
    trial = study.ask()
    for _ in trial.steps(3):
        trial.report(auc=0.9)
        break
    study.tell(trial, failed="out of memory")
    study.tell(study.ask(), auc=0.5)
    assert marks(plots.best(study), Line)[0].y[-1] == study.best.metrics["auc"] == 0.9


def test_without_limits_there_is_one_line(make_study):
    study = make_study(constraints=())
    study.optimize(lambda trial: trial.params["x"], trials=5)
    assert [line.name for line in marks(plots.best(study), Line)] == ["best"]


def test_an_unknown_axis_is_refused(simulated):
    with pytest.raises(fw.UsageError, match=r"over='steps': 'trials', 'seconds' or 'cost'"):
        plots.best(simulated, over="steps")


def test_every_measured_trial_is_a_point_beside_its_limit(simulated):
    chart = plots.limits(simulated)
    assert [panel.x.title for panel in chart.panels] == ["eod", "dpd"]
    for panel, name in zip(chart.panels, ("eod", "dpd"), strict=True):
        measured = [trial for trial in simulated.trials if trial.metrics and trial.metrics[name] is not None]
        points = [mark for mark in panel.marks if isinstance(mark, Points) and mark.name != "best"]
        assert sum(len(mark.x) for mark in points) == len(measured)
        for mark in points:
            feasible = {"feasible": True, "infeasible": False, "constraints not evaluated": None}[mark.name]
            assert sorted(mark.x) == sorted(trial.metrics[name] for trial in measured if trial.feasible is feasible)
        (star,) = (mark for mark in panel.marks if isinstance(mark, Points) and mark.name == "best")
        assert (star.x[0], star.y[0]) == (simulated.best.metrics[name], simulated.best.metrics["auc"])
        assert panel.x.span[0] < panel.marks[0].value < panel.x.span[1]


def test_one_limit_can_be_asked_for_and_only_one_that_is_there(simulated):
    assert [panel.x.title for panel in plots.limits(simulated, "dpd").panels] == ["dpd"]
    with pytest.raises(fw.UsageError, match=r"constraint='fpr': the study has 'eod', 'dpd'"):
        plots.limits(simulated, "fpr")


def test_limits_that_span_magnitudes_are_drawn_on_a_log_axis(make_study):
    study = make_study(constraints=[fw.AtMost("bytes", 1e6), fw.AtMost("eod", 0.25)])
    for k in range(20):
        study.tell(study.ask(), {"auc": 0.5, "bytes": 10.0 ** (2 + k / 3), "eod": 0.0})
    assert [panel.x.log for panel in plots.limits(study).panels] == [True, False]


def test_a_curve_is_what_was_reported_and_a_stop_says_why(make_study):
    study = make_study(fw.ACE(truncation=0.5, interval=1, skip=False))
    good = [(0.5 + k / 10, {"eod": 0.1 if k else 0.5}) for k in range(4)]
    bad = [(0.4, {"eod": 0.9})] * 4
    run_curves(study, [good, bad])
    chart = plots.curves(study)
    valid, _ = marks(chart, Line, "feasible")  # of the objective and of the constraint
    assert valid.x[~np.isnan(valid.x)].tolist() == [1, 2, 3, 4]  # from the invalid first step on
    np.testing.assert_allclose(valid.y[~np.isnan(valid.y)], [0.5, 0.6, 0.7, 0.8])
    (stopped,) = marks(chart, Points, "stopped early")
    assert stopped.hover == [f"trial 1 stopped at step 1\n{study.trials[1].reason}"]
    best, _ = marks(chart, Points, "best")
    assert (best.x[0], best.y[0]) == (study.best.step, study.best.metrics["auc"])


def test_a_few_outliers_do_not_press_the_other_curves_together(make_study):
    study = make_study(fw.Never(skip=False))
    usual = [[(0.5 + (k + step) / 100, {"eod": 0.1 + k / 100}) for step in range(10)] for k in range(12)]
    usual[3][4] = (-1e6, {"eod": 0.1})
    usual[5][2] = (0.6, {"eod": 1e9})
    run_curves(study, usual)
    objective, constraint = plots.curves(study).panels
    assert -1.0 < objective.y.span[0] < 0.5
    assert 0.7 < objective.y.span[1] < 2.0
    assert 0.25 < constraint.y.span[1] < 2.0
    for panel, (step, value) in ((objective, (5, "-1,000,000")), (constraint, (3, "1,000,000,000"))):
        (beyond,) = (mark for mark in panel.marks if getattr(mark, "name", "") == "out of range")
        assert beyond.x.tolist() == [step]
        assert value in beyond.hover[0]
        low, high = panel.y.span
        for mark in panel.marks:
            if isinstance(mark, Points | Line):
                drawn = mark.y[~np.isnan(mark.y)]
                assert ((drawn >= low) & (drawn <= high)).all()


def test_each_constraint_has_a_panel_over_steps_with_its_limit(make_study):
    study = make_study(fw.Never(skip=False))
    run_curves(study, [[(0.5, {"eod": 0.1}), (0.6, {"eod": 0.4})]])
    objective, constraint = plots.curves(study).panels
    assert (objective.y.title, constraint.y.title) == ("auc", "eod")
    assert objective.x == constraint.x
    (limit,) = (mark for mark in constraint.marks if isinstance(mark, Limit))
    assert (limit.value, limit.allowed) == (0.25, "below")
    (broken,) = (m for m in constraint.marks if isinstance(m, Points) and m.name == "infeasible")
    assert (broken.x.tolist(), broken.y.tolist()) == ([2], [0.4])


def test_the_best_trial_is_drawn_last_in_every_panel(make_study):
    study = make_study(fw.Never(skip=False))
    run_curves(study, [[(0.5 + k / 10, {"eod": 0.1}), (0.6 + k / 10, {"eod": 0.2})] for k in range(3)])
    for panel in plots.curves(study).panels:
        assert [mark.role for mark in panel.marks[-2:]] == ["best", "best"]
        assert [type(mark) for mark in panel.marks[-2:]] == [Line, Points]
    assert plots.curves(study).panels[0].marks[-2].y.tolist() == [0.7, 0.8]


def test_of_many_trials_the_best_are_among_the_curves(make_study):
    study = make_study(fw.Never(), constraints=())
    run_curves(study, [[(0.1 * k, {}), (0.001 * ((7 * k) % 200), {})] for k in range(200)])
    chart = plots.curves(study)
    assert "80 of 200 trials" in chart.caption
    assert marks(chart, Points, "best")[0].y[0] == study.best.metrics["auc"]


def test_long_curves_are_thinned_and_keep_their_ends(make_study):
    study = make_study(fw.Never(), constraints=())
    run_curves(study, [[(math.sin(k / 100), {}) for k in range(5000)]])
    line = marks(plots.curves(study), Line)[0]
    steps = line.x[~np.isnan(line.x)]
    assert len(steps) < 200
    assert (steps[0], steps[-1]) == (1, 5000)


def test_trials_of_ones_own_are_drawn_and_others_refused(simulated):
    chart = plots.curves(simulated, trials=[0, 1, 2])
    assert "3 of" in chart.caption
    with pytest.raises(fw.UsageError, match="has no trial 100000"):
        plots.curves(simulated, trials=[100_000])
    with pytest.raises(fw.UsageError, match="numbers of trials are expected"):
        plots.curves(simulated, trials=["0"])


def test_running_trials_are_among_the_curves(make_study):
    study = make_study(fw.Never(), constraints=())
    trial = study.ask()
    for step, _ in zip(trial.steps(10), range(3), strict=False):
        trial.report(auc=step / 10)
    flush(study)
    chart = plots.curves(study)
    assert marks(chart, Line)[0].y[:3].tolist() == [0.1, 0.2, 0.3]
    study.tell(trial, failed="enough")


def seconds_of(chart):
    """What the bars of the first panel stand for, in seconds."""
    panel = chart.panels[0]
    size = {"microseconds": 1e-6, "milliseconds": 1e-3, "seconds": 1.0, "minutes": 60.0}[panel.x.title]
    return {
        name.partition(":")[0] if " run" not in name else "run": float(bar.x[0]) * size
        for name, bar in zip(panel.y.categories, panel.marks, strict=True)
    }


def test_spending_adds_up_to_the_studys_costs(simulated):
    chart = plots.spending(simulated)
    found, costs = seconds_of(chart), simulated.costs
    training = sum(seconds for name, seconds in found.items() if name.startswith("training,"))
    assert training == pytest.approx(costs.training_seconds)
    assert found["run"] == pytest.approx(costs.check_seconds)
    assert found["training saved"] == pytest.approx(costs.saved_training_seconds)
    labels = chart.panels[0].y.categories
    assert f"checks: {costs.checks:,} run" in labels
    assert f"checks: {costs.saved_checks:,} skipped" in labels


def test_every_ended_trial_is_counted_once_by_what_ended_it(simulated):
    panel = plots.spending(simulated).panels[-1]
    assert sum(int(bar.x[0]) for bar in panel.marks) == len(simulated.trials)
    assert "completed" in panel.y.categories


@pytest.mark.parametrize(
    ("metric", "reason", "kind"),
    [
        ("eod", "eod 0.41 > 0.25, worst 25% of 37 at step 12", "eod > 0.25"),
        ("a b", "a b 0.41 > 0.25 and recall 0.1 < 0.5, worst 25% of 37 at step 12", "a b > 0.25 and recall < 0.5"),
        ("eod", "eod nan > 0.25, violated at step 3 under hard tolerance", "eod > 0.25"),
        ("eod", "auc 0.5, worst 25% of 4 at step 1", "behind in auc"),
        ("eod", "longer than trial_timeout=3 s", "out of time"),
        ("eod", "the timeout of 3 s has passed", "out of time"),
        ("eod", "the budget of 20 s is spent", "out of time"),
        ("eod", "somebody pulled the plug", "somebody pulled the plug"),
    ],
)
def test_reasons_are_sorted_into_kinds(metric, reason, kind):
    from fairway.report.charts.decisions import reason_kind

    study = fw.Study({"x": fw.Float(0, 1)}, fw.Maximize("auc"), [fw.AtMost(metric, 0.25), fw.AtLeast("recall", 0.5)])
    assert reason_kind(View(study), reason)[0] == kind


def test_the_terminators_last_word_is_the_last_point(make_study):
    study = make_study(constraints=(), terminator=fw.Plateau(4))
    study.optimize(lambda trial: trial.params["x"], trials=100)
    chart = plots.regret(study)
    finished, verdict = study.verdicts[-1]
    (line,) = marks(chart, Line, "trials without improvement")
    assert (line.x[-1], line.y[-1]) == (finished, verdict.value)
    assert marks(chart, Line, "threshold")[0].y.tolist() == [4.0] * len(line.x)
    assert marks(chart, Points, "end of the search")[0].x.tolist() == [finished]
    assert study.ended in chart.caption


def test_without_a_terminator_the_chart_says_so(make_study):
    chart = plots.regret(make_study())
    assert "no terminator" in chart.caption
    assert not chart.panels[0].marks


def test_intervals_are_on_the_side_of_the_boundary_that_theorem_1_says(simulated):
    chart = plots.intervals(simulated)
    (line,) = marks(chart, Line, "boundary of Theorem 1")
    assert line.y[-1] == pytest.approx(threshold(0.25, line.x[-1]))
    points = marks(chart, Points)
    assert {point.name for point in points} <= {"checks at every step", "checks once, at the end"}
    known = [course for course in View(simulated).courses if course.interval is not None]
    assert sum(len(point.x) for point in points) <= len(known)


def test_a_stopper_that_does_not_go_by_theorem_1_has_no_boundary():
    recording = make_recording(40, seed=3)
    study = fw.Study(recording.space, fw.Maximize("auc"), [fw.AtMost("eod", 0.15)], sampler=fw.Random(), seed=0)
    fw.simulate(study, recording, workers=1, budget=20.0)
    chart = plots.intervals(study)
    assert marks(chart, Points)
    assert not marks(chart, Line)


def test_the_price_of_a_check_is_that_of_earlier_trials(make_study):
    study = make_study(fw.ACE())
    study.owner.clock = clock = VirtualClock()
    for _ in range(3):
        trial = study.ask()
        for _ in trial.steps(8):
            clock.now += 100

            def eod():
                clock.now += 500
                return 0.1

            trial.report(auc=0.9, eod=eod)
        study.tell(trial)
    chart = plots.intervals(study)
    ratios = np.concatenate([point.y for point in marks(chart, Points)])
    assert ratios.tolist() == pytest.approx([5.0, 5.0])  # the first began without a price
    (limit,) = marks_of_limit(chart)
    assert limit.value == pytest.approx(threshold(0.25, 8))  # all have 8 steps: one boundary


def marks_of_limit(chart):
    return [mark for panel in chart.panels for mark in panel.marks if isinstance(mark, Limit)]


def conditional_study():
    space = {
        "rate": fw.Float(1e-4, 1.0, log=True),
        "booster": fw.Choice(["gbdt", "dart", None]),
        "drop": fw.Float(0.0, 0.5, when={"booster": "dart"}),
    }
    study = fw.Study(space, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    study.optimize(lambda trial: trial.params.get("drop", 1.0) + trial.params["rate"], trials=60)
    return study


def test_a_slice_has_a_point_for_every_trial_that_has_the_parameter():
    study = conditional_study()
    panels = dict(zip(study.space, plots.slices(study).panels, strict=True))
    counts = {name: sum(len(m.x) for m in panel.marks if m.name == "trial") for name, panel in panels.items()}
    assert counts == {name: sum(name in trial.params for trial in study.trials) for name in study.space}
    assert panels["rate"].x.log
    assert panels["booster"].x.categories == ["gbdt", "dart", "None"]
    places = np.concatenate([mark.x for mark in panels["booster"].marks])
    assert ((places > -0.3) & (places < 2.3)).all()


def test_a_trial_is_one_parallel_line_which_goes_below_an_axis_where_a_parameter_is_absent():
    study = conditional_study()
    chart = plots.parallel(study)
    lines = marks(chart, Line, "trial")[0].y.reshape(-1, 5)  # three parameters, the metric, the gap
    absent = [k for k, trial in enumerate(study.trials) if "drop" not in trial.params]
    assert not np.isnan(lines[:, :4]).any()
    assert np.flatnonzero(lines[:, 2] < 0.0).tolist() == absent
    assert (lines[:, [0, 1, 3]] >= 0.0).all()
    assert np.nanmax(lines) <= 1.0
    ((place, name),) = chart.panels[0].y.ticks
    assert (place, name) == (lines[absent[0], 2], "no value")
    assert chart.caption.endswith('"no value": the trial does not use the parameter.')
    assert marks(chart, Words)[0].labels[:3] == ["1", "None", "0.5"]
    assert marks(chart, Line, "best")[0].y[3] == 0.0  # the lowest loss


@pytest.mark.parametrize("parameters", [2, 6, 12])
def test_the_names_of_parallel_axes_do_not_run_into_each_other_and_show_both_their_ends(parameters):
    names = [f"randomforestclassifier__parameter_{k}" for k in range(parameters)]
    study = fw.Study({name: fw.Float(0.0, 1.0) for name in names}, fw.Minimize("loss"), seed=0)
    study.optimize(lambda trial: trial.params[names[0]], trials=3, progress=False)
    chart = plots.parallel(study)
    labels = [text.split("\n") for _, text in chart.panels[0].x.ticks]
    assert [lines[-1][-1] for lines in labels[:-1]] == [name[-1] for name in names]
    assert all(lines[-1].startswith("random") and len(lines[-1]) <= 24 for lines in labels[:-1])
    pitch = 95 / len(labels)  # letters from one axis to the next
    ends = {}
    for place, lines in enumerate(labels):
        level, half = len(lines), len(lines[-1]) / 2
        assert ends.get(level, -1000.0) <= place * pitch - half
        ends[level] = place * pitch + half


def test_captions_say_that_a_trial_is_shown_at_its_best_checkpoint_of_those_that_were_checked(make_study):
    def captions(**metrics):
        study = make_study(constraints=limits)
        study.tell(study.ask(), auc=0.9, **{one.metric: 0.1 for one in limits})
        study.tell(study.ask(), auc=0.5, **metrics)
        charts = [plots.slices(study), plots.parallel(study), *([plots.limits(study)] if limits else [])]
        return [chart.caption for chart in charts] + [one_curve(View(study), 1)[0].caption]

    limits = [fw.AtMost("eod", 0.2)]
    assert all("its best checkpoint whose limits were checked" in caption for caption in captions(eod=0.1))
    first, second, third, fourth = captions()
    assert all(
        "whose limits were checked, or if there is none, its best by objective" in one for one in (first, second)
    )
    assert "by objective" not in third
    assert "The star is its best by objective: none was checked." in fourth
    limits = [fw.Track("ms")]
    assert all("its best checkpoint whose tracked metrics were measured" in caption for caption in captions(ms=0.1))
    limits = []
    assert not any("whose" in caption for caption in captions())


def test_a_parallel_line_has_a_place_for_a_metric_that_was_not_measured(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.1)
    study.tell(study.ask(), auc=0.4)
    chart = plots.parallel(study)
    assert marks(chart, Line, "constraints not evaluated")[0].y[-2] < 0.0
    assert chart.caption.endswith('"no value": the trial has not measured the metric.')


@pytest.mark.parametrize(("outlier", "mark"), [(1e9, "≥"), (-1e9, "≤"), (np.inf, "≥")])
def test_an_end_of_a_parallel_axis_that_outliers_lie_beyond_says_so(make_study, outlier, mark):
    study = make_study()
    for k in range(20):
        study.tell(study.ask(), auc=k / 20, eod=outlier if k == 7 else 0.1 + k / 100)
    chart = plots.parallel(study)
    (_, last), high = chart.panels[0].x.ticks[-1], marks(chart, Words)[0].labels[-1]
    assert [end.startswith(mark) for end in (high, last)] == [mark == "≥", mark == "≤"]
    assert chart.caption.endswith("Outliers lie at the end marked ≤ or ≥ of their axis.")
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.1)
    assert "Outliers" not in plots.parallel(study).caption


def test_many_trials_are_sampled_and_the_best_is_kept(make_study):
    study = make_study()
    for k in range(3500):
        study.tell(study.ask(), auc=0.5 if k != 1234 else 0.9, eod=0.1)
    for chart in (plots.parallel(study), plots.slices(study), plots.limits(study)):
        assert marks(chart, Line if chart.name == "parallel" else Points, "best")
        assert sum(len(mark.x) for mark in marks(chart, Points)) < 3200
    assert len(marks(plots.parallel(study), Line, "feasible")[0].y) // 4 <= 300


def test_importance_finds_the_parameter_that_matters_for_each_metric():
    space = {name: fw.Float(0.0, 1.0) for name in ("a", "b", "c")}
    study = fw.Study(space, fw.Minimize("loss"), LIMIT, sampler=fw.Random(), seed=0)
    study.optimize(lambda trial: {"loss": trial.params["a"], "eod": trial.params["b"]}, trials=150)
    chart = plots.importance(study)
    names = chart.panels[0].y.categories
    tops = [names[int(np.argmax(mark.x))] for mark in marks(chart, Bars)]
    assert tops == ["a", "b"]
    again = plots.importance(study)
    assert [m.x.tolist() for m in marks(chart, Bars)] == [m.x.tolist() for m in marks(again, Bars)]


def study_with_a_late_parameter(stopper):
    space = {name: fw.Float(0.0, 1.0) for name in ("early", "late", "idle")}
    study = fw.Study(space, fw.Minimize("loss"), sampler=fw.Random(), stopper=stopper, seed=2)

    def train(trial):
        for step in trial.steps(81):
            late = 0.8 * trial.params["late"] if step > 60 else 0.0
            trial.report(loss=trial.params["early"] + 1 / step - late)

    study.optimize(train, trials=100, progress=False)
    return study


def labels_of(chart):
    (bars,) = marks(chart, Bars)
    return dict(zip(chart.panels[0].y.categories, bars.labels, strict=True))


def test_importance_does_not_call_a_parameter_unimportant_that_could_not_show():
    study = study_with_a_late_parameter(fw.ASHA())
    chart = plots.importance(study)
    assert labels_of(chart)["late"] == "unclear"
    assert float(labels_of(chart)["early"]) > 0.5
    assert f"100 trials for loss, {study.counts['stopped']} stopped early" in chart.caption
    assert "too few trials ran long enough" in chart.caption


def test_importance_of_trials_that_ran_to_their_end_tells_effects_from_noise():
    chart = plots.importance(study_with_a_late_parameter(fw.Never()))
    assert float(labels_of(chart)["late"]) > 0.1
    assert labels_of(chart)["idle"].startswith("below noise")
    assert "100 trials for loss, none stopped early" in chart.caption


def test_importance_names_metrics_that_too_few_trials_measured():
    study = fw.Study({"a": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), LIMIT, sampler=fw.Random(), seed=0)
    for k in range(30):
        trial = study.ask()
        study.tell(trial, {"loss": trial.params["a"]} | ({"eod": 0.1} if k < 3 else {}))
    chart = plots.importance(study)
    assert len(chart.panels) == 1
    assert "eod (3 trials)" in chart.caption


def test_importance_of_noise_is_called_unreliable():
    study = fw.Study({"a": fw.Float(0.0, 1.0), "b": fw.Int(1, 9)}, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    rng = np.random.default_rng(0)
    study.optimize(lambda trial: float(rng.random()), trials=100)
    assert "do not rely on it" in plots.importance(study).caption


def test_without_scikit_learn_importance_says_so_and_a_report_does_without(monkeypatch):
    study = conditional_study()
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(MissingDependency, match=r"pip install 'fairway\[sklearn\]'"):
        plots.importance(study)
    assert "importance" not in [chart.name for chart in plots.drawn(study)]


def test_a_quick_report_leaves_importance_out(simulated):
    assert [chart.name for chart in plots.drawn(View(simulated), quick=True)] == NAMES[:-1]


# Whatever became of the study


def test_an_empty_study_has_no_charts_but_each_says_why(make_study, tmp_path):
    study = make_study()
    assert plots.drawn(study) == []
    check(every(study), tmp_path)


def degenerate(name, make_study):
    study = make_study()
    if name == "one trial":
        study.tell(study.ask(), auc=0.5, eod=0.1)
    elif name == "only running":
        trial = study.ask()
        trial.report(auc=0.5)
        flush(study)
    elif name == "nothing feasible":
        for k in range(30):
            study.tell(study.ask(), auc=k / 30, eod=0.9)
    elif name == "all the same":
        for _ in range(30):
            study.tell(study.ask(), auc=0.5, eod=0.1)
    elif name == "limits unknown":
        for k in range(30):
            study.tell(study.ask(), auc=k / 30)
    elif name == "limits NaN":
        for k in range(30):
            study.tell(study.ask(), auc=k / 30, eod=math.nan if k % 2 else math.inf)
    elif name == "objective NaN":
        study.tell(study.ask(), auc=math.nan, eod=0.1)
        study.tell(study.ask(), auc=0.5, eod=0.1)
    elif name == "only failed":
        for _ in range(3):
            study.tell(study.ask(), failed="<b>out of memory</b>")
    elif name == "no constraints":
        study = make_study(constraints=())
        study.optimize(lambda trial: trial.params["x"], trials=30)
    elif name == "huge":
        for k in range(30):
            study.tell(study.ask(), auc=(-1) ** k * 10.0 ** (k * 10), eod=10.0 ** (10 * k - 100))
    elif name == "negative infinity":
        for k in range(30):
            study.tell(study.ask(), auc=k, eod=-math.inf)
    elif name == "own parts":
        study = make_study(stopper=Patient(), terminator=Patience())
        run_curves(study, [[(k / 30, {"eod": 0.1}), (k / 20, {"eod": 0.3})] for k in range(30)])
    elif name == "steps without a total":
        for k in range(5):
            trial = study.ask()
            for step in trial.steps():
                trial.report(auc=k / step, eod=lambda: 0.1)
                if step == 3:
                    break
            study.tell(trial)
    elif name == "fold by fold":
        for k in range(10):
            trial = study.ask()
            trial.report(auc=fw.Folds([k / 10], of=3))
            study.tell(trial, auc=fw.Folds([k / 10, 0.5, 0.6], of=3), eod=0.1)
    return study


class Going(StopperState):
    def judge(self, number, step, loss, violation):
        return None


class Patient(Stopper):
    @property
    def stop_probability(self):
        return 0.5

    def start(self, problem):
        return Going()


class Patience(fw.Terminator):
    def check(self, history):
        return fw.Plateau(5).check(history)._replace(stop=False, reason="\x1b[31m<b>never</b>")


@pytest.mark.parametrize(
    "name",
    [
        "one trial",
        "only running",
        "nothing feasible",
        "all the same",
        "limits unknown",
        "limits NaN",
        "objective NaN",
        "only failed",
        "no constraints",
        "huge",
        "negative infinity",
        "own parts",
        "steps without a total",
        "fold by fold",
    ],
)
def test_no_study_is_too_odd_to_be_drawn(name, make_study, tmp_path):
    study = degenerate(name, make_study)
    charts = plots.drawn(study)
    assert {chart.name for chart in charts} <= set(NAMES)
    check(charts, tmp_path)
    check(every(study))
    if study.best is not None and name != "only running":
        (line, *_) = [line for line in marks(plots.best(study), Line) if line.role == "best"]
        assert line.y[-1] == study.best.metrics["auc"]


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "\x1b[31m", "\u202eright to left", "n" * 3000, "two\nlines", "$x$", "%{y}"]
)
def test_no_name_gets_out_of_a_chart(text, tmp_path):
    space = {f"p{text}": fw.Float(0.0, 1.0), f"c{text}": fw.Choice([f"o{text}", "other"])}
    study = fw.Study(space, fw.Maximize(f"m{text}"), [fw.AtMost(f"k{text}", 0.25)], name=f"s{text}", seed=0)
    for k in range(25):
        trial = study.ask()
        for step in trial.steps(3):
            trial.report({f"m{text}": k / 25 + step, f"k{text}": lambda k=k: k / 50})
        study.tell(trial)
    study.tell(study.ask(), failed=f"f{text}")
    charts = plots.drawn(study)
    assert len(charts) >= 7
    check(charts)
    for chart in charts:
        written = json.dumps(chart.plotly(titled=True), ensure_ascii=False)
        assert "<script" not in written
        assert "\x1b" not in written
        assert "\\u001b" not in written
        assert "\u202e" not in written
        assert "n" * 400 not in written
        assert "$x$" not in written
    charts[0].save(tmp_path / "chart.svg")
    assert "<script" not in (tmp_path / "chart.svg").read_text()


def test_what_is_no_study_is_refused():
    with pytest.raises(fw.UsageError, match="a Study or a View is expected"):
        plots.best("credit.db")


def test_errors_are_shown_when_pointed_at_and_drawn_only_for_the_best(make_study, tmp_path):
    study = make_study()
    for auc in (0.4, 0.5, 0.6):
        study.tell(study.ask(), auc=auc, eod=fw.Measured(auc / 4, error=0.012))
    chart = plots.limits(study)
    (star,) = marks(chart, Points, "best")
    assert (star.error, star.along) == (0.012, "x")
    assert "eod 0.150 ± 0.012" in star.hover[0]
    (valid,) = marks(chart, Points, "feasible")
    assert valid.error is None
    assert all("± 0.012" in text for text in valid.hover)
    assert chart.panels[0].x.span[1] > 0.25
    chart.save(tmp_path / "limits.svg")
    plain = make_study()
    plain.tell(plain.ask(), auc=0.5, eod=0.1)
    assert "Bars" not in plots.limits(plain).caption


@pytest.mark.parametrize(("limit", "anchor"), [(0.3, "left"), (5.0, "right")])
def test_the_label_of_a_limit_stays_inside_the_picture(make_study, limit, anchor, tmp_path):
    study = make_study(constraints=[fw.AtMost("eod", limit, confidence=0.9)])
    for eod in (0.1, 1.0, 4.9) if limit > 1 else (0.1, 1.0, 5.0):
        study.tell(study.ask(), auc=0.5, eod=fw.Measured(eod, error=0.01))
    chart = plots.limits(study)
    (line,) = (shape for shape in chart.plotly()["layout"]["shapes"] if "label" in shape)
    assert (line["label"]["text"], line["label"]["xanchor"]) == (f"≤ {limit:g} at 90%", anchor)
    chart.save(tmp_path / "limits.png")
