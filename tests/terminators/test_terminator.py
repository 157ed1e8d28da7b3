from __future__ import annotations

import json

import pytest

import fairway as fw
from fairway.cli import main
from fairway.runners.progress import describe
from fairway.terminators.terminator import Terminator
from fairway.testing import check_terminator
from tests.conftest import TERMINATORS, judged, make_recording
from tests.trainings import parabola


@pytest.mark.parametrize("terminator", TERMINATORS, ids=str)
def test_it_conforms(terminator):
    check_terminator(terminator, trials=30)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: fw.Plateau(0), "patience=0"),
        (lambda: fw.Target("best"), "value='best'"),
        (lambda: fw.ExpectedImprovementBelow(0.0), "threshold=0.0"),
        (lambda: fw.ProbabilityOfImprovementBelow(50), "did you mean 0.5"),
        (lambda: fw.ExpectedImprovementBelow(float("inf")), "a positive, finite number"),
        (fw.any_of, "at least one terminator"),
        (lambda: fw.all_of(fw.Plateau(3), 5), "5: a terminator is expected"),
        (lambda: judged(fw.Plateau), r"did you mean Plateau\(\)"),
    ],
)
def test_bad_settings_are_refused(wrong, why):
    with pytest.raises(fw.UsageError, match=why):
        wrong()


def test_a_run_ends_by_itself_and_goes_on_when_told_to():
    study = judged(fw.Plateau(10))
    study.optimize(parabola, trials=1000)
    first = len(study.trials)
    assert first < 100
    assert study.ended == f"nothing better for 10 trials, after {first} trials"
    assert not any(verdict for _, verdict in study.verdicts[:-1])
    study.optimize(parabola, trials=5)  # overruled: it has said so before
    assert len(study.trials) == first + 5
    assert study.ended == "5 trials were run"
    study.enqueue({"x": 0.3})  # better than all: it changes its mind
    study.optimize(parabola, trials=1000)
    assert len(study.trials) == first + 5 + 1 + 10
    assert study.ended == f"nothing better for 10 trials, after {first + 16} trials"


def test_whoever_asks_and_tells_sees_that_it_ended():
    study = judged(fw.Target(1.01))
    while study.ended is None:
        trial = study.ask()
        study.tell(trial, loss=parabola(trial))
    assert study.ended.startswith("loss 1.0")
    study.tell(study.ask(), loss=2.0)
    assert study.ended.startswith("loss 1.0")


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_workers_begin_no_more_trials(backend):
    study = judged(fw.Plateau(8))
    study.optimize(parabola, trials=500, workers=2, backend=backend)
    assert study.ended.startswith("nothing better for")
    assert study.counts["running"] == study.counts["failed"] == 0
    assert len(study.trials) < 200


def test_a_terminator_that_raises_ends_the_run_with_its_error():
    class Broken(Terminator):
        def check(self, history):
            del history
            raise ZeroDivisionError("made to fail")

    study = judged(Broken())
    with pytest.raises(ZeroDivisionError, match="made to fail"):
        study.optimize(parabola, trials=10)
    assert len(study.trials) == 1


def test_a_terminator_that_never_stops_changes_nothing_in_a_simulation():
    recording, runs = make_recording(80), []
    for terminator in (None, fw.Plateau(10**6)):
        study = fw.Study(
            recording.space,
            fw.Maximize("auc"),
            [fw.AtMost("eod", 0.3)],
            terminator=terminator,
            sampler=fw.Random(),
            seed=2,
        )
        fw.simulate(study, recording, workers=4, budget=50.0, staleness=5.0)
        runs.append([(trial.params, trial.status, trial.steps) for trial in study.trials])
    assert runs[0] == runs[1]


def test_what_was_said_is_shown(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = judged(fw.Plateau(10), storage=url, name="credit")
    study.tell(study.ask(), loss=1.0)
    assert describe(study.owner, 1, None, 0.0)[2] == "last verdict: nothing better for 0 trials, after 1 trial"
    assert main(["show", url, "credit"]) == 0
    assert "last verdict: nothing better for 0 trials, after 1 trial" in capsys.readouterr().out
    study.optimize(parabola, trials=100)
    assert main(["show", url, "credit", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ended"] == shown["verdicts"][-1]["reason"] == study.ended
    assert shown["terminator"] == {"kind": "Plateau", "patience": 10}
    assert main(["verify", url, "credit"]) == 0
