"""Metrics without a limit: the search looks for their front, and a limit may come later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.engine import snapshot, states
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import Asked
from fairway.engine.verify import verify
from fairway.errors import UsageError
from fairway.report import plots
from fairway.report.page import document
from fairway.report.view import View
from fairway.storage.memory import MemoryLog
from tests.conftest import flush

SPACE = {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)}
unit = st.integers(0, 8).map(lambda k: k / 8)


def study_of(*constraints, **more):
    return fw.Study(SPACE, fw.Maximize("auc"), constraints or [fw.Track("ms")], **{"seed": 0, **more})


def train(trial):
    """A larger x is better and slower, and gets slower as it is trained."""
    x, y = trial.params["x"], trial.params["y"]
    for step in trial.steps(9):
        trial.report(auc=(x - (y - 0.5) ** 2) * (1 - 0.6**step), ms=lambda step=step: 10 * x + step)


def beaten(one, metrics):
    return any(
        other["auc"] >= one["auc"] and other["ms"] <= one["ms"] and other != one
        for other in metrics
        if other["ms"] is not None
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(unit, unit, unit), min_size=1, max_size=25))
def test_the_front_is_all_that_nothing_beats_within_the_limits(points):
    study = study_of(fw.Track("ms"), fw.AtMost("eod", 0.5), sampler=fw.Random())
    for auc, ms, eod in points:
        study.tell(study.ask(), auc=auc, ms=ms, eod=eod)
    allowed = [{"auc": auc, "ms": ms} for auc, ms, eod in points if eod <= 0.5]
    wanted = {(one["auc"], one["ms"]) for one in allowed if not beaten(one, allowed)}
    found = [(one.metrics["auc"], one.metrics["ms"]) for one in study.front]
    assert sorted(found, reverse=True) == found
    assert {*found} == wanted
    assert len(found) == len(wanted)


def test_the_best_is_that_of_the_objective_whatever_the_tracked_metric():
    study = study_of()
    for auc, ms in ((0.8, 5.0), (0.9, 500.0), (0.7, 1.0)):
        study.tell(study.ask(), auc=auc, ms=ms)
    assert study.best.metrics == {"auc": 0.9, "ms": 500.0}
    assert [one.feasible for one in study.trials] == [True] * 3


def test_a_metric_may_be_better_the_larger_it_is():
    study = study_of(fw.Track("recall", larger=True))
    for auc, recall in ((0.8, 0.5), (0.9, 0.2), (0.7, 0.4)):
        study.tell(study.ask(), auc=auc, recall=recall)
    assert [one.metrics["recall"] for one in study.front] == [0.2, 0.5]
    study.set_limit(recall=0.4)
    assert study.problem.constraints == (fw.AtLeast("recall", 0.4, scale=0.4),)
    assert study.best.metrics["auc"] == 0.8


def test_a_tracked_metric_is_measured_at_a_first_step_and_a_last_and_not_where_it_cannot_be_on_the_front():
    called = []

    def counting(trial):
        loss = [0.5, 0.6, 0.9, 0.9, 0.9, 0.9]
        for step in trial.steps(6):
            trial.report(auc=1 - loss[step - 1], ms=lambda step=step: called.append((trial.number, step)) or 1.0 + step)

    study = study_of(stopper=fw.Pilot(keep=0.99, checks=0.99), sampler=fw.Random())
    study.optimize(counting, trials=2, progress=False)
    steps = [step for number, step in called if number == 1]
    assert 1 in steps
    assert 6 in steps
    assert 3 not in steps
    assert study.costs.saved_checks > 0


def test_what_trials_aim_at_stands_in_the_log_and_every_decision_follows_from_it():
    def measured_late(trial):
        for step in trial.steps(9):
            late = {"ms": 10 * trial.params["x"]} if step > 5 else {}
            trial.report(auc=trial.params["x"] * (1 - 0.6**step), **late)

    study = study_of(stopper=fw.Pilot(interval=1))
    study.optimize(measured_late, trials=40, progress=False)
    flush(study)
    events = study.log.read()
    aims = [event.aim for event in events if isinstance(event, Asked)]
    assert sum("ms" in aim for aim in aims) > 20
    assert [from_json(to_json(event)).aim for event in events if isinstance(event, Asked)] == aims
    assert verify(events).faults == []
    others = [replace(one, aim={}) if isinstance(one, Asked) else one for one in events]
    assert verify(others).faults


def test_workers_agree_before_and_after_a_tracked_metric_gets_a_limit(tmp_path):
    study = study_of(storage=f"sqlite:///{tmp_path}/a.db", name="a")
    study.optimize(train, trials=16, workers=2, progress=False)
    study.set_limit(ms=9.0)
    study.optimize(train, trials=8, workers=2, progress=False)
    assert verify(study.log.read()).faults == []
    assert study.best.metrics["ms"] <= 9.0
    again = fw.load_study(f"sqlite:///{tmp_path}/a.db", "a")
    assert again.best == study.best


def test_two_owners_know_the_same_front():
    log = MemoryLog()
    studies = [study_of(storage=log, sampler=fw.Random()) for _ in range(2)]
    for k in range(12):
        study = studies[k % 2]
        trial = study.ask()
        for step in trial.steps(3):
            trial.report(auc=trial.params["x"] * step / 3, ms=trial.params["y"])
        study.tell(trial)
    for study in (*studies, *studies):
        flush(study)
        study.owner.journal.catch_up()
    one, other = (study.owner.referee.tracked for study in studies)
    assert one.front.marks == other.front.marks
    assert one.aims == other.aims
    assert one.front.marks
    assert verify(log.read()).faults == []


def test_once_a_limit_is_set_the_search_goes_on_there():
    def evaluate(trial):
        return {"auc": trial.params["x"] - (trial.params["y"] - 0.5) ** 2, "ms": trial.params["x"]}

    study = study_of()
    study.optimize(evaluate, trials=40, progress=False)
    assert study.what_if(ms=0.5).best.metrics["ms"] <= 0.5
    study.set_limit(ms=0.5)
    before = study.best.metrics["auc"]
    study.optimize(evaluate, trials=40, progress=False)
    assert before < study.best.metrics["auc"] <= 0.5
    assert all(not study.owner.ledger.courses[k].aim for k in range(40, 80))
    assert study.front == [study.best]


@pytest.mark.parametrize("sampler", [fw.CTPE(start=4), fw.GP(start=4), fw.BORE(start=4), fw.Blend()])
def test_every_sampler_searches_for_a_front(sampler):
    study = study_of(fw.Track("ms"), fw.AtMost("eod", 0.9), sampler=sampler, terminator=fw.Plateau(50))
    study.optimize(
        lambda trial: {"auc": trial.params["x"], "ms": trial.params["x"], "eod": trial.params["y"]},
        trials=14,
        progress=False,
    )
    assert len(study.front) > 1
    assert verify(study.log.read()).faults == []


def test_a_history_by_an_aim_is_that_of_a_study_with_that_limit():
    points = [(0.9, 5.0), (0.8, 3.0), (0.7, 1.0)]
    tracked, limited = study_of(sampler=fw.Random()), study_of(fw.AtMost("ms", 3.0), sampler=fw.Random())
    for study in (tracked, limited):
        for auc, ms in points:
            study.tell(study.ask(), auc=auc, ms=ms)
    aimed, wanted = tracked.history.aimed({"ms": 3.0}), limited.history
    assert aimed.problem == wanted.problem
    for name in ("loss", "values", "violation", "bounds", "late"):
        np.testing.assert_array_equal(getattr(aimed, name), getattr(wanted, name))
    assert tracked.history.aimed({}).problem.constraints == ()


def test_a_snapshot_keeps_fronts_and_aims(tmp_path):
    study = study_of(storage=f"sqlite:///{tmp_path}/a.db", name="a", sampler=fw.Random())
    study.optimize(train, trials=20, progress=False)
    owner = study.owner
    assert snapshot.keep(study.log, owner.journal.position, owner.ledger, owner.referee)
    again = study_of(storage=f"sqlite:///{tmp_path}/a.db", name="a", sampler=fw.Random()).owner
    assert states.to_json(again.referee.known()) == states.to_json(owner.referee.known())
    np.testing.assert_array_equal(again.ledger.history().fronts, owner.ledger.history().fronts)
    assert snapshot.faults(study.log, study.log.read(), study.space, study.problem) == []


def test_reports_and_charts_show_tracked_metrics():
    study = study_of(fw.Track("ms"), fw.Track("mb"))
    for auc, ms, mb in ((0.8, 5.0, 1.0), (0.9, 7.0, 2.0)):
        study.tell(study.ask(), auc=auc, ms=ms, mb=mb)
    assert str(study.what_if(ms=5.0)).startswith("With ms ≤ 5 the best is trial 0")
    assert {"metric.ms", "metric.mb"} <= {*study.to_frame().columns}
    carrying = [mark for mark in plots.trade_off(study, "ms").panels[0].marks if mark.name == "on the front"]
    assert list(carrying[0].x) == [5.0, 7.0]
    assert "maximize auc, tracking ms and mb" in document(View(study))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: study_of(fw.Track("ms"), fw.AtMost("ms", 3.0)), "'ms' is tracked twice, or limited too"),
        (lambda: study_of(fw.Track("auc")), "'auc' is the objective"),
        (lambda: fw.Track("ms", larger="yes"), "larger='yes'"),
        (lambda: fw.Track(""), "the name of a metric is expected"),
        (lambda: study_of().set_limit(kb=3.0), "no limit on 'kb'"),
        (lambda: study_of().set_limit(ms=None), "ms is tracked and has no limit to drop"),
        (lambda: study_of().set_limit(ms=float("nan")), "a finite number is expected"),
        (lambda: study_of().set_limit(fw.Track("kb")), "tracked from a study's beginning on"),
        (lambda: study_of().set_limit(fw.Track("ms")), "it is tracked already"),
        (
            lambda: study_of(fw.AtMost("ms", 3.0)).set_limit(fw.Track("ms", larger=True)),
            "way: .*larger=False",
        ),
        (lambda: study_of().certify(lambda model: {}, models=lambda best: 1), "no limit that could be certified"),
    ],
)
def test_bad_input_gets_one_sentence(wrong, sentence):
    with pytest.raises(UsageError, match=sentence) as raised:
        wrong()
    assert "\n" not in str(raised.value)


def test_a_metric_that_got_a_limit_is_tracked_again():
    study = study_of()

    def train(trial):
        for step in trial.steps(4):
            trial.report(auc=trial.params["x"] - 1 / step, ms=lambda: trial.params["x"] * 10)

    study.optimize(train, trials=12)
    for change in ({"ms": 5.0}, {"ms": None}):
        study.set_limit(**change)
        study.optimize(train, trials=4)
    study.set_limit(fw.Track("ms"))
    study.optimize(train, trials=8)
    assert study.problem.tracked == (fw.Track("ms"),)
    assert len(study.front) > 3
    assert any(event.aim for event in study.log.read()[-20:] if isinstance(event, Asked))
    assert verify(study.log.read()).faults == []
