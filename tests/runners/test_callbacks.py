from __future__ import annotations

import logging
import threading

import pytest

import fairway as fw
from fairway.evidence import Mean
from fairway.runners import callbacks
from tests.conftest import judged, within


class Notes(fw.Callback):
    """What it is told, in order."""

    def __init__(self):
        self.heard, self.threads = [], set()

    def note(self, *what):
        self.heard.append(what)
        self.threads.add(threading.get_ident())

    def on_run_start(self, study):
        self.note("start", study.name)

    def on_new_best(self, study, best):
        self.note("best", best.number, best.step)

    def on_trial_end(self, study, trial):
        self.note("end", trial.number, trial.status)

    def on_verdict(self, study, verdict):
        self.note("verdict", verdict.stop)

    def on_run_end(self, study, reason):
        assert study.ended == reason
        self.note("over", reason)

    def on_certificate(self, study, certificate):
        self.note("certificate", certificate.certified)

    def of(self, kind):
        return [what[1:] for what in self.heard if what[0] == kind]


def losses(*values):
    return lambda trial: values[trial.number]


def test_a_callback_hears_of_the_start_each_trial_each_best_each_verdict_and_the_end():
    study, notes = judged(fw.Plateau(2)), Notes()
    study.optimize(losses(0.5, 0.7, 0.4, 0.6, 0.6, 0.6), trials=6, callbacks=[notes])
    assert [what for what in notes.heard if what[0] != "verdict"] == [
        ("start", "study"),
        ("best", 0, 1),
        ("end", 0, "completed"),
        ("end", 1, "completed"),
        ("best", 2, 1),
        ("end", 2, "completed"),
        ("end", 3, "completed"),
        ("end", 4, "completed"),
        ("over", study.ended),
    ]
    assert notes.of("verdict") == [(verdict.stop,) for _, verdict in study.verdicts]
    assert notes.of("verdict")[-1] == (True,)
    assert len(notes.threads) == 1
    assert threading.get_ident() not in notes.threads


def test_a_second_run_and_a_resumed_study_tell_only_what_is_new(tmp_path):
    def run(study, trials):
        notes = Notes()
        study.optimize(losses(0.5, 0.7, 0.6, 0.4), trials=trials, callbacks=[notes])
        return [what[:2] for what in notes.heard if what[0] != "over"]

    def make():
        return fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=f"sqlite:///{tmp_path / 'a.db'}")

    study = make()
    assert run(study, 2) == [("start", "study"), ("best", 0), ("end", 0), ("end", 1)]
    assert run(study, 1) == [("start", "study"), ("end", 2)]
    assert run(make(), 1) == [("start", "study"), ("best", 3), ("end", 3)]


def test_a_best_in_the_middle_of_a_trial_is_told_before_it_ends(make_study):
    class Best(Notes):
        def on_new_best(self, study, best):
            super().on_new_best(study, best)
            told.set()

    told, notes = threading.Event(), Best()

    def train(trial):
        for step in trial.steps(2):
            trial.report(auc=0.5 if step == 1 else 0.1, eod=0.1)
            if step == 1:
                assert told.wait(20)

    make_study(fw.Never()).optimize(train, trials=1, callbacks=[notes])
    assert notes.of("best") == [(0, 1)]


def hear_of(study, backend):
    """Have two workers run six trials, of which one fails, and a callback hear of them."""

    def evaluate(trial):
        if trial.number == 2:
            raise ValueError("no")
        return {"auc": trial.params["x"], "eod": 0.1}

    notes = Notes()
    study.optimize(evaluate, trials=6, workers=2, backend=backend, callbacks=[notes], progress=False)
    assert sorted(notes.of("end")) == [(i, "failed" if i == 2 else "completed") for i in range(6)]
    assert notes.of("best")[-1] == (study.best.number, study.best.step)
    assert notes.heard[-1] == ("over", "6 trials were run")


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_trials_of_workers_are_heard_of_in_the_process_of_the_study(make_study, backend):
    hear_of(make_study(), backend)


def test_trials_that_run_in_ray_are_heard_of_in_the_process_of_the_study(local_ray, make_study):
    hear_of(make_study(), "ray")


def test_a_callback_that_raises_is_told_of_once_and_called_again(make_study, caplog):
    class Broken(Notes):
        def on_trial_end(self, study, trial):
            super().on_trial_end(study, trial)
            raise KeyError("server")

    broken, notes, study = Broken(), Notes(), make_study()
    with caplog.at_level(logging.WARNING):
        study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=3, callbacks=[broken, notes])
    assert study.ended == "3 trials were run"
    assert len(broken.of("end")) == len(notes.of("end")) == 3
    first, sums = [record.message for record in caplog.records]
    assert first.startswith(f"the callback Broken failed in on_trial_end: KeyError: 'server' ({__file__}, line ")
    assert first.endswith("; the run goes on, and calls it again")
    assert sums == "the callback Broken failed 3 times in this run"


def test_a_callback_whose_name_raises_ends_no_run(make_study, caplog):
    class Nameless(fw.Callback):
        def __str__(self):
            raise RuntimeError("no name")

        def on_run_end(self, study, reason):
            raise OSError("no server")

    with caplog.at_level(logging.WARNING):
        make_study().optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=3, callbacks=[Nameless()])
    assert caplog.messages[0].startswith("the callback Nameless failed in on_run_end: OSError: no server")


def test_a_callback_that_hangs_holds_up_no_trial_and_is_given_up(make_study, monkeypatch, caplog):
    monkeypatch.setattr(callbacks, "_PATIENCE_SECONDS", 0.2)
    released = threading.Event()

    class Hung(Notes):
        def on_trial_end(self, study, trial):
            super().on_trial_end(study, trial)
            assert released.wait(60)

    hung, notes, study = Hung(), Notes(), make_study()
    with within(30), caplog.at_level(logging.WARNING):
        study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=3, callbacks=[hung, notes])
    released.set()
    assert notes.heard[-1] == ("over", "3 trials were run")
    assert caplog.messages == [
        "the callback Hung has not returned from on_trial_end within 0.2 s: it is given up, and 3 calls behind it"
    ]


def test_ctrl_c_is_told_as_the_reason_and_so_is_an_error(make_study):
    def raises(error):
        def function(trial):
            if trial.number % 2:
                raise error
            return {"auc": 0.5, "eod": 0.1}

        return function

    study = make_study()
    for error, reason in ((KeyboardInterrupt(), "interrupted"), (OSError("no room"), "OSError: no room")):
        notes = Notes()
        with pytest.raises(type(error)):
            study.optimize(raises(error), trials=4, catch=(), callbacks=[notes])
        assert notes.heard[-2:] == [("end", len(study.trials) - 1, "failed"), ("over", reason)]


def test_ctrl_c_ends_the_wait_for_a_callback(make_study, ctrl_c):
    released = threading.Event()

    class Hung(fw.Callback):
        def on_run_end(self, study, reason):
            import signal

            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            released.wait(60)

    with within(20), pytest.raises(KeyboardInterrupt):
        make_study().optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=1, callbacks=[Hung()])
    released.set()


def test_a_certificate_is_told(make_study):
    study, notes = make_study(), Notes()
    study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=1)
    study.certify(lambda model: Mean([0] * 200), models=lambda best: "model", callbacks=[notes])
    assert notes.heard == [("certificate", True)]


class Misnamed(fw.Callback):
    def on_best(self, study, best):
        raise AssertionError


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Notes(), "a list is expected; write callbacks="),
        (None, "callbacks=None: a list of fw.Callback objects is expected"),
        ([Notes], r"a subclass of fw.Callback is expected; did you mean Notes\(\)\?"),
        ([print], "subclass fw.Callback and override on_trial_end"),
        (
            [Misnamed()],
            "on_best is never called; its methods are on_run_start, on_new_best, on_trial_end",
        ),
    ],
)
def test_what_is_no_list_of_callbacks_is_refused_before_anything_runs(make_study, given, sentence):
    study = make_study()
    with pytest.raises(fw.UsageError, match=sentence):
        study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=1, callbacks=given)
    assert study.trials == []
