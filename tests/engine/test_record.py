from __future__ import annotations

import fairway as fw
from fairway.engine.record import table
from tests.conftest import run_curves


def test_a_record_says_what_stands_for_its_trial(make_study):
    study = make_study(fw.Never(skip=False))
    run_curves(study, [[(0.9, {"eod": 0.5}), (0.6, {"eod": 0.2}), (0.5, {"eod": 0.1})]])
    (record,) = study.trials
    assert (record.step, record.steps, record.feasible, record.partial) == (2, 3, True, False)
    assert record.metrics == {"auc": 0.6, "eod": 0.2}
    assert record.training_seconds > 0
    assert record.check_seconds > 0


def test_a_stopped_trial_is_partial_and_a_failed_one_has_no_metrics(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    run_curves(study, [[(0.5, {"eod": 0.9})] * 3])
    study.tell(study.ask(), failed="no luck")
    stopped, failed = study.trials
    assert (stopped.partial, stopped.feasible) == (True, False)
    assert (failed.partial, failed.feasible, failed.step, failed.metrics) == (False, None, None, {})


def test_a_row_has_a_column_for_every_parameter_and_metric_whether_it_was_set_or_not():
    space = fw.Space({"kind": fw.Choice(["a", "b"]), "x": fw.Float(0.0, 1.0, when={"kind": "b"})})
    study = fw.Study(space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    study.enqueue({"kind": "a"})
    study.tell(study.ask(), auc=0.5)
    row = study.trials[0].row(space, study.problem)
    assert (row["param.kind"], row["param.x"]) == ("a", None)
    assert (row["metric.auc"], row["metric.eod"], row["feasible"]) == (0.5, None, None)
    assert (row["number"], row["status"], row["step"], row["steps"], row["reason"]) == (0, "completed", 1, 1, "")


def test_a_table_has_columns_for_errors_and_for_notes(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=fw.Measured(0.1, error=0.01))
    study.tell(study.ask(), auc=0.6, eod=0.1)
    study.note(0, test_auc=0.48, split=[1, 2])
    study.note(1, split="late")
    rows = table(study.trials, study.space, study.problem)
    assert [row["error.eod"] for row in rows] == [0.01, None]
    assert [row["note.test_auc"] for row in rows] == [0.48, None]
    assert [row["note.split"] for row in rows] == ["[1, 2]", "late"]
    assert study.to_frame()["note.test_auc"].dropna().tolist() == [0.48]
    assert not [name for name in table(make_study().trials, study.space, study.problem) if name.startswith("note.")]
