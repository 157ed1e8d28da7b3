"""What every tracker does, by one that keeps what it is told; each real one has a file of its own."""

from __future__ import annotations

import gc
import logging
import sys
import threading

import pytest

import fairway as fw
from fairway.evidence import Mean
from fairway.integrations.tracking import Tracker, described
from tests.conftest import SPACE, within

LIMITS = [fw.AtMost("eod", 0.25)]
SHELVES = {}  # what is logged, by the study's key: outlives a tracker, as a server does


class Shelf(Tracker):
    """Keeps entries on a shelf, unless it is told to fail."""

    def __init__(self, *, broken=(), **more):
        super().__init__(**more)
        self.broken, self.bests, self.files, self.ends, self.closed = set(broken), [], {}, [], 0

    def open(self, study, key):
        self.shelf = SHELVES.setdefault(key, [])
        return {entry.number for entry in self.shelf}

    def log_trial(self, entry):
        if entry.number in self.broken:
            self.broken.remove(entry.number)
            raise ConnectionError("the server is away")
        self.shelf.append(entry)

    def log_best(self, best):
        self.bests.append(best.number)

    def log_end(self, results, texts):
        self.ends.append((results, texts))

    def log_file(self, path):
        self.files[path.name] = path.read_text()

    def close(self):
        self.closed += 1

    @property
    def numbers(self):
        return [entry.number for entry in self.shelf]


def train(trial):
    if trial.number == 1:
        raise ValueError("no such solver")
    trial.note(seen=trial.number)
    for step in trial.steps(3):
        trial.report(auc=trial.params["x"] * step, eod=0.1)


def make(path=None, **more):
    storage = None if path is None else f"sqlite:///{path / 'study.db'}"
    return fw.Study(SPACE, fw.Maximize("auc"), LIMITS, stopper=fw.Never(), seed=0, storage=storage, **more)


def test_a_trial_is_logged_with_its_parameters_reports_result_and_end():
    study, shelf = make(), Shelf(report=False)
    study.optimize(train, trials=3, callbacks=[shelf])
    assert shelf.numbers == [0, 1, 2]
    first, failed = shelf.shelf[:2]
    x = study.trials[0].params["x"]
    assert dict(first.params) == {"x": x}
    assert [step for step, _, _ in first.series] == [1, 2, 3]
    assert first.series[0][2] == {"auc": x, "eod": 0.1}
    assert first.began <= first.series[0][1] <= first.series[2][1] <= first.ended
    assert first.result["best/auc"] == study.trials[0].metrics["auc"]
    assert first.result["best/step"] == 3.0
    assert first.texts == {"status": "completed", "reason": "", "feasible": "yes", "note.seen": "0"}
    assert (failed.series, failed.status) == ([], "failed")
    assert failed.texts["reason"] == "ValueError: no such solver"
    results, texts = shelf.ends[0]
    assert (results["trials/completed"], results["trials/failed"]) == (2.0, 1.0)
    assert texts["ended"] == "3 trials were run"
    assert texts["best.trial"] == str(study.best.number) == str(shelf.bests[-1])
    assert shelf.closed == 1


def test_a_long_trial_is_thinned():
    def long(trial):
        for _ in trial.steps(5000):
            trial.report(auc=0.5, eod=0.1)

    shelf = Shelf(report=False)
    make().optimize(long, trials=1, callbacks=[shelf])
    steps = [step for step, _, _ in shelf.shelf[0].series]
    assert (steps[0], steps[-1]) == (1, 5000)
    assert len(steps) <= 1000


def test_a_resumed_study_continues_and_no_trial_is_logged_twice(tmp_path):
    shelf = Shelf(report=False)
    make(tmp_path).optimize(train, trials=2, callbacks=[shelf])
    make(tmp_path).optimize(train, trials=1)  # without a tracker: a gap
    gc.collect()  # its worker is gone, and cannot log the trial any more
    again = Shelf(report=False)
    study = make(tmp_path)
    study.optimize(train, trials=1, callbacks=[again])
    study.optimize(train, trials=1, callbacks=[again])
    assert again.shelf is shelf.shelf
    assert again.numbers == [0, 1, 2, 3, 4]


def test_two_studies_of_one_name_are_two():
    shelf = Shelf(report=False)
    for _ in range(2):
        make(name="twin").optimize(train, trials=2, callbacks=[shelf])
    assert sorted(len(shelf) for key, shelf in SHELVES.items() if key.startswith("twin-")) == [2, 2]


def test_two_processes_of_a_study_log_their_own_trials(tmp_path):
    ours, theirs = make(tmp_path), make(tmp_path)
    shelves = [Shelf(report=False), Shelf(report=False)]
    both = threading.Barrier(2)

    def wait(trial):
        both.wait(20)  # so that each runs one
        return {"auc": 0.5, "eod": 0.1}

    other = threading.Thread(target=theirs.optimize, args=(wait,), kwargs={"trials": 1, "callbacks": shelves[1:]})
    other.start()
    ours.optimize(wait, trials=1, callbacks=shelves[:1])
    other.join()
    assert shelves[0].shelf is shelves[1].shelf
    assert sorted(shelves[0].numbers) == [0, 1]


def test_a_trial_that_could_not_be_logged_comes_at_the_end(caplog):
    shelf = Shelf(broken=[0, 2], report=False)
    with caplog.at_level(logging.WARNING):
        make().optimize(train, trials=4, callbacks=[shelf])
    assert sorted(shelf.numbers) == [0, 1, 2, 3]  # callbacks have a thread of their own, which may begin late
    assert shelf.numbers.index(2) > shelf.numbers.index(3)
    assert not shelf.broken
    assert any("the callback Shelf failed in on_" in text and "ConnectionError" in text for text in caplog.messages)


def test_the_certificate_is_kept_and_a_report_that_has_it():
    study, shelf = make(), Shelf()
    study.optimize(train, trials=2)
    certificate = study.certify(lambda model: Mean([0] * 200), models=lambda best: "model", callbacks=[shelf])
    assert str(certificate) in shelf.files["certificate.json"]
    assert "a fairway report" in shelf.files["report.html"]
    assert str(certificate) in shelf.files["report.html"]
    assert shelf.closed == 1


def test_without_plotly_there_is_no_report_and_the_log_says_why(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    shelf = Shelf()
    with caplog.at_level(logging.INFO):
        make().optimize(train, trials=3, callbacks=[shelf])
    assert shelf.files == {}
    assert shelf.closed == 1
    assert "Shelf logs no report: an HTML page needs plotly: pip install 'fairway[report]'" in caplog.messages


def test_a_study_without_a_trial_is_not_opened():
    class Nothing(fw.Sampler):
        def propose(self, history, rng):
            raise fw.UsageError("there is nothing to propose")

    shelf = Shelf()
    with within(30), pytest.raises(fw.UsageError, match="nothing to propose"):
        make(sampler=Nothing()).optimize(train, trials=1, callbacks=[shelf])
    assert (shelf.ends, shelf.closed) == ([], 0)


def test_what_a_study_is_said_to_be():
    about = described(make(terminator=fw.Plateau(3)))
    assert about["goal"] == "maximize auc with eod ≤ 0.25"
    assert about["limit.eod"] == "≤ 0.25"
    assert about["space.x"].startswith("Float(low=0.0, high=1.0")
    assert {"sampler", "stopper", "terminator", "seed"} <= about.keys()


def test_a_report_is_wanted_or_not():
    with pytest.raises(fw.UsageError, match="report='yes': True or False is expected"):
        Shelf(report="yes")
