from __future__ import annotations

import json
import struct
import time

import pytest

import fairway as fw
from fairway.evidence import Mean
from tests.conftest import SPACE, within

pytest.importorskip("wandb")

from wandb.proto import wandb_internal_pb2

from fairway.integrations.wandb import WandbTracker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def train(trial):
    if trial.number == 1:
        raise ValueError("no such solver")
    for step in trial.steps(3):
        trial.report(auc=trial.params["x"] * step, eod=0.1)


def make(tmp_path):
    limits, url = [fw.AtMost("eod", 0.25)], f"sqlite:///{tmp_path / 'study.db'}"
    return fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.Never(), seed=0, storage=url, name="credit")


def records(path):
    """The records of an offline run: a LevelDB log, in blocks of 32 KiB, after seven letters of its own."""
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, part = struct.unpack("<IHB", data[at : at + 7])  # 1 is a whole record, 2 to 4 are its parts
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def items(given):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in given}


def read(path):
    """An offline run: what it is, its rows, its summary, its exit code, its artifacts. A process of W&B's writes it."""
    with within(30):
        while not any(record.WhichOneof("record_type") == "run" for record in records(next(path.glob("*.wandb")))):
            time.sleep(0.1)
    run, rows, summary, code, files = None, [], {}, None, []
    for record in records(next(path.glob("*.wandb"))):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        elif kind == "history":
            rows.append((record.history.step.num, items(record.history.item)))
        elif kind == "summary":
            summary |= items(record.summary.update)
        elif kind == "exit":
            code = record.exit.exit_code
        elif kind == "request" and record.request.WhichOneof("request_type") == "log_artifact":
            files.append(record.request.log_artifact.artifact.type)
        elif kind == "artifact":
            files.append(record.artifact.type)
    return run, rows, summary, code, files


class Late(WandbTracker):
    """Hears that the run has begun when a trial of it has ended already, as on a busy machine."""

    def on_run_start(self, study):
        while not study.counts["completed"]:
            time.sleep(0.01)
        super().on_run_start(study)


def test_a_study_is_a_group_with_a_run_for_each_trial(tmp_path):
    study, tracker = make(tmp_path), Late("credit", mode="offline", folder=tmp_path, report=False)
    study.optimize(train, trials=2, callbacks=[tracker])
    study, again = make(tmp_path), WandbTracker("credit", mode="offline", folder=tmp_path, report=False)
    study.optimize(train, trials=1, callbacks=[again])
    study.certify(lambda model: Mean([0] * 200), models=lambda best: "a model", callbacks=[again])
    found = [read(path) for path in sorted((tmp_path / "wandb").glob("offline-run-*"))]
    assert {(run.project, run.run_group) for run, *_ in found} == {("credit", "credit")}
    trials = [one for one in found if one[0].job_type == "trial"]
    assert [(run.display_name, code) for run, _, _, code, _ in trials] == [
        ("trial 0", 0),
        ("trial 1", 1),
        ("trial 2", 0),
    ]
    run, rows, summary, *_ = trials[0]
    x = study.trials[0].params["x"]
    assert {item.key: json.loads(item.value_json) for item in run.config.update}["x"] == x
    assert [(step, row["auc"]) for step, row in rows if "auc" in row] == [(k, pytest.approx(x * k)) for k in (1, 2, 3)]
    assert summary["best/auc"] == pytest.approx(study.trials[0].metrics["auc"])
    assert summary["status"] == "completed"
    assert trials[1][2]["reason"] == "ValueError: no such solver"
    of_study = [one for one in found if one[0].job_type == "study"]
    assert len({run.run_id for run, *_ in of_study}) == 2  # one for each process that opened it
    assert of_study[0][2]["ended"] == "2 trials were run"
    assert "certificate" in [kind for *_, files in of_study for kind in files]


def test_a_project_has_a_name_and_a_mode_is_known():
    with pytest.raises(fw.UsageError, match="the name of a W&B project is expected"):
        WandbTracker("")
    with pytest.raises(fw.UsageError, match="mode='away': 'online', 'offline' or 'disabled' is expected"):
        WandbTracker(mode="away")
