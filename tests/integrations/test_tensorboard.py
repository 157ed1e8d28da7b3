from __future__ import annotations

import pytest

import fairway as fw
from fairway.evidence import Mean

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS
from tensorboard.util import tensor_util

from fairway.integrations.tensorboard import TensorBoardTracker
from fairway.letters import plain

SPACE = {
    "rate": fw.Float(0.0, 1.0),
    "width": fw.Int(1, 8),
    "booster": fw.Choice(["gbdt", "dart"]),
    "linear": fw.Choice([True, False]),
    "odd": fw.Choice([None, 1, "a"]),
    "drop": fw.Float(0.0, 0.5, when={"booster": "dart"}),
}


def train(trial):
    if trial.number == 1:
        raise ValueError("no such solver")
    for step in trial.steps(3):
        trial.report(auc=trial.params["rate"] * step, eod=0.1)


def make(tmp_path):
    limits, url = [fw.AtMost("eod", 0.25)], f"sqlite:///{tmp_path / 'study.db'}"
    return fw.Study(SPACE, fw.Maximize("auc"), limits, stopper=fw.Never(), seed=0, storage=url, name="a study")


def read(folder):
    """An event file, read back."""
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def hparams(events, tag):
    content = events.SummaryMetadata(tag).plugin_data.content
    return metadata._parse_plugin_data_as(content, tag.rpartition("/")[2]) if tag else None


def words(events, tag):
    return tensor_util.make_ndarray(events.Tensors(tag)[-1].tensor_proto)[0].decode()


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A study of three trials, and its folder."""
    tmp_path = tmp_path_factory.mktemp("tensorboard")
    study, tracker = make(tmp_path), TensorBoardTracker(tmp_path / "runs", report=False)
    study.optimize(train, trials=3, callbacks=[tracker])
    return study, tracker, tmp_path


def test_a_trial_has_its_curves_and_the_metrics_of_its_best_checkpoint(logged):
    study, tracker, _ = logged
    events = read(tracker.folder / "trial-00000")
    rate = study.trials[0].params["rate"]
    assert [(point.step, point.value) for point in events.Scalars("auc")] == [
        (step, pytest.approx(rate * step)) for step in (1, 2, 3)
    ]
    assert events.Scalars("best/auc")[0].value == pytest.approx(study.trials[0].metrics["auc"])
    assert "ValueError: no such solver" in words(read(tracker.folder / "trial-00001"), "trial")


def test_a_trial_is_a_row_of_the_hparams_page(logged):
    study, tracker, _ = logged
    statuses = []
    for trial in study.trials:
        events = read(tracker.folder / f"trial-{trial.number:05d}")
        start = hparams(events, metadata.SESSION_START_INFO_TAG)
        shown = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
        assert shown == {**trial.params, "odd": str(trial.params["odd"])}
        statuses.append(hparams(events, metadata.SESSION_END_INFO_TAG).status)
    assert statuses == [STATUS_SUCCESS, STATUS_FAILURE, STATUS_SUCCESS]
    columns = hparams(read(tracker.folder / "study"), metadata.EXPERIMENT_TAG)
    assert [info.name for info in columns.hparam_infos] == list(SPACE)
    assert [info.name.tag for info in columns.metric_infos] == ["best/auc", "best/eod"]


def test_the_study_has_its_bests_and_what_it_is(logged):
    study, tracker, _ = logged
    events = read(tracker.folder / "study")
    assert events.Scalars("best/auc")[-1].value == pytest.approx(study.best.metrics["auc"])
    assert events.Scalars("best/auc")[-1].step == study.best.number
    assert "| goal | maximize auc with eod ≤ 0.25 |" in words(events, "study")
    assert "3 trials were run" in words(events, "result")


def test_a_resumed_study_continues_in_its_folder(logged):
    _, tracker, tmp_path = logged
    before = {path: path.stat().st_mtime_ns for path in tracker.folder.glob("trial-0000[012]/*")}
    study, again = make(tmp_path), TensorBoardTracker(tmp_path / "runs", report=False)
    study.optimize(train, trials=1, callbacks=[again])
    study.certify(lambda model: Mean([0] * 200), models=lambda best: "a model", callbacks=[again])
    assert again.folder == tracker.folder
    assert before == {path: path.stat().st_mtime_ns for path in tracker.folder.glob("trial-0000[012]/*")}
    assert (tracker.folder / "trial-00003").exists()
    assert words(read(tracker.folder / "study"), "certificate") == str(study.certificate)
    assert (tracker.folder / "certificate.json").exists()


def test_a_trial_that_was_cut_off_while_it_was_written_is_written_again(logged):
    _, tracker, tmp_path = logged
    (tracker.folder / "trial-00002" / "fairway-logged").unlink()
    make(tmp_path).optimize(train, trials=1, callbacks=[TensorBoardTracker(tmp_path / "runs", report=False)])
    assert len(read(tracker.folder / "trial-00002").Scalars("auc")) == 3


@pytest.mark.parametrize("text", ["\x1b[31m", "\ud800", "a/../../b|c", "\u202e"])
def test_hostile_texts_are_logged_in_the_study_s_own_folder(tmp_path, text):
    space = {text: fw.Float(0.0, 1.0), "choice": fw.Choice([text, "plain"]), "mixed": fw.Choice([text, None])}
    study = fw.Study(space, fw.Maximize("auc" + text), seed=0, name=text)

    def fails(trial):
        trial.note(**{text: text})
        if trial.number:
            raise ValueError(text)
        return 0.5

    tracker = TensorBoardTracker(tmp_path / "runs", report=False)
    study.optimize(fails, trials=2, callbacks=[tracker])
    assert tracker.folder.parent == tmp_path / "runs"
    assert sorted(path.name for path in tracker.folder.iterdir()) == ["study", "trial-00000", "trial-00001"]
    shown = read(tracker.folder / "trial-00000").Tags()["scalars"]
    assert f"auc{plain(text)}" in shown


def test_a_folder_that_cannot_be_written_ends_no_search(tmp_path, caplog):
    (tmp_path / "runs").write_text("a file")
    study = make(tmp_path)
    study.optimize(train, trials=3, callbacks=[TensorBoardTracker(tmp_path / "runs")])
    assert study.ended == "3 trials were run"
    assert "the callback TensorBoardTracker failed in" in caplog.text


def test_a_folder_is_a_path():
    with pytest.raises(fw.UsageError, match="folder=3: the path of a folder is expected"):
        TensorBoardTracker(3)
