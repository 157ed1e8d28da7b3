from __future__ import annotations

import json
import logging
import socket
import threading
from pathlib import Path

import pytest

import fairway as fw
from fairway.evidence import Mean
from tests.conftest import SPACE, within

mlflow = pytest.importorskip("mlflow")

from fairway.integrations.mlflow import MLflowTracker  # noqa: E402
from fairway.runners import callbacks  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"
)


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """A real MLflow on SQLite, one for all tests: its tables take seconds to make."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri)
    client.create_experiment("credit", artifact_location=(folder / "files").as_uri())
    return uri


def train(trial):
    if trial.number == 1:
        raise ValueError("no such solver")
    trial.note(rounds=3)
    for step in trial.steps(3):
        trial.report(auc=trial.params["x"] * step, eod=0.1 if step < 3 else 0.4)


def make(name, path=None):
    storage = None if path is None else f"sqlite:///{path / 'study.db'}"
    limits = [fw.AtMost("eod", 0.25)]
    return fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.Never(), seed=0, storage=storage, name=name)


def runs_of(uri, name):
    """The runs of studies of this name, and of their trials by number."""
    client = mlflow.MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("credit").experiment_id])
    runs = [run for run in runs if run.data.tags["fairway.study"].startswith(f"{name}-")]
    studies = [run for run in runs if "fairway.trial" not in run.data.tags]
    trials = {int(run.data.tags["fairway.trial"]): run for run in runs if run not in studies}
    assert len(trials) + len(studies) == len(runs)
    return client, studies, trials


def test_a_study_is_a_run_with_a_run_inside_it_for_each_trial(uri):
    study, tracker = make("nested"), MLflowTracker("credit", tracking_uri=uri)
    study.optimize(train, trials=3, callbacks=[tracker])
    client, (run,), trials = runs_of(uri, "nested")
    assert (run.info.run_id, run.info.status, run.info.run_name) == (tracker.run_id, "FINISHED", "nested")
    assert run.data.params["goal"] == "maximize auc with eod ≤ 0.25"
    assert run.data.params["limit.eod"] == "≤ 0.25"
    assert run.data.params["stopper"] == "Never(interval=1, skip=True)"
    assert run.data.metrics["best/auc"] == study.best.metrics["auc"]
    assert run.data.metrics["trials/completed"] == 2
    assert run.data.tags["fairway.ended"] == "3 trials were run"
    assert run.data.tags["fairway.best.trial"] == str(study.best.number)
    assert [file.path for file in client.list_artifacts(tracker.run_id)] == ["report.html"]

    assert {number: one.info.status for number, one in trials.items()} == {0: "FINISHED", 1: "FAILED", 2: "FINISHED"}
    first = trials[0]
    assert first.data.tags["mlflow.parentRunId"] == tracker.run_id
    assert first.data.params == {"x": str(study.trials[0].params["x"])}
    assert first.data.metrics["best/auc"] == study.trials[0].metrics["auc"]
    assert first.data.tags["fairway.note.rounds"] == "3"
    history = client.get_metric_history(first.info.run_id, "eod")
    assert sorted((point.step, point.value) for point in history) == [(1, 0.1), (2, 0.1), (3, 0.4)]
    assert trials[1].data.tags["fairway.reason"] == "ValueError: no such solver"
    assert first.info.end_time >= first.info.start_time > 0


def test_a_resumed_study_continues_its_run_and_the_certificate_joins_it(uri, tmp_path):
    make("resumed", tmp_path).optimize(
        train, trials=3, callbacks=[MLflowTracker("credit", tracking_uri=uri, report=False)]
    )
    study, tracker = make("resumed", tmp_path), MLflowTracker("credit", tracking_uri=uri, report=False)
    study.optimize(train, trials=1, callbacks=[tracker])
    certificate = study.certify(lambda model: Mean([0] * 200), models=lambda best: "a model", callbacks=[tracker])
    _, (run,), trials = runs_of(uri, "resumed")
    assert sorted(trials) == [0, 1, 2, 3]
    assert run.info.status == "FINISHED"
    path = mlflow.artifacts.download_artifacts(
        run_id=run.info.run_id, artifact_path="certificate.json", tracking_uri=uri
    )
    assert json.loads(Path(path).read_text())["certificate"] == str(certificate)


def test_processes_that_begin_at_once_share_a_run(uri, tmp_path):
    studies = [make("shared", tmp_path) for _ in range(2)]
    both = threading.Barrier(2)

    def wait(trial):
        both.wait(20)
        return {"auc": 0.5, "eod": 0.1}

    def run(study):
        study.optimize(wait, trials=1, callbacks=[MLflowTracker("credit", tracking_uri=uri, report=False)])

    threads = [threading.Thread(target=run, args=(study,)) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _, (study,), trials = runs_of(uri, "shared")
    assert {run.data.tags["mlflow.parentRunId"] for run in trials.values()} == {study.info.run_id}
    assert sorted(trials) == [0, 1]


def test_a_run_of_your_own_stays_the_active_one(uri):
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("credit")
    with mlflow.start_run(tags={"fairway.study": "mine"}) as mine:
        make("beside").optimize(train, trials=2, callbacks=[MLflowTracker("credit", report=False)])
        assert mlflow.active_run().info.run_id == mine.info.run_id
    assert len(runs_of(uri, "beside")[2]) == 2
    assert mlflow.get_run(mine.info.run_id).data.params == {}


def test_names_that_mlflow_refuses_and_many_values_are_logged_all_the_same(uri):
    space = {f"clf|depth #{i}": fw.Choice([None, "a", 1]) for i in range(120)}
    study = fw.Study(space, fw.Minimize("log-loss (mean)"), seed=0, name="it's odd", stopper=fw.Never())

    def long(trial):
        for _ in trial.steps(2000):
            trial.report({"log-loss (mean)": 0.5})

    study.optimize(long, trials=1, callbacks=[MLflowTracker("credit", tracking_uri=uri, report=False)])
    client, _, trials = runs_of(uri, "it_s odd")
    assert len(trials[0].data.params) == 120
    assert len(client.get_metric_history(trials[0].info.run_id, "log-loss _mean_")) > 300


def test_a_server_that_is_away_ends_no_search(monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    study = make("away")
    with caplog.at_level(logging.WARNING, "fairway"):
        away = MLflowTracker("credit", tracking_uri="http://me:secret@127.0.0.1:9")
        study.optimize(train, trials=3, callbacks=[away])
    assert study.ended == "3 trials were run"
    named = "the callback MLflowTracker at http://me:***@127.0.0.1:9 failed"
    said = [text for text in caplog.messages if text.startswith(named)]
    assert len(said) == 2  # the first with its reason, and how often it failed


def test_a_server_that_never_answers_holds_up_no_trial(monkeypatch, caplog):
    monkeypatch.setattr(callbacks, "_PATIENCE_SECONDS", 0.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as server, within(15):
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        study = make("mute")
        with caplog.at_level(logging.WARNING, "fairway"):
            study.optimize(train, trials=3, callbacks=[MLflowTracker("credit", tracking_uri=address)])
    assert study.ended == "3 trials were run"
    assert any(f"the callback MLflowTracker at {address} has not returned" in text for text in caplog.messages)
    for thread in threading.enumerate():  # its connection was closed above
        if thread.name == "fairway callback MLflowTracker":
            thread.join(30)


@pytest.mark.parametrize("experiment", ["", None, 3])
def test_an_experiment_has_a_name(experiment):
    with pytest.raises(fw.UsageError, match="the name of an MLflow experiment is expected"):
        MLflowTracker(experiment)
