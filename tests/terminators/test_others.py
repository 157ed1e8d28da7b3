from __future__ import annotations

import json

import numpy as np
import pytest

import fairway as fw
from fairway.cli import main
from fairway.engine.events import Judged, from_json, to_json
from fairway.engine.identity import Identity
from fairway.engine.verify import verify
from fairway.runners.progress import describe
from fairway.storage.memory import MemoryLog
from fairway.terminators.terminator import Terminator, Verdict
from fairway.testing import check_terminator
from tests.conftest import make_recording

LINE = {"x": fw.Float(0.0, 1.0)}
ALL = [
    fw.Plateau(3),
    fw.Target(0.2),
    fw.ExpectedImprovementBelow(0.01),
    fw.ProbabilityOfImprovementBelow(0.01),
    fw.any_of(fw.Plateau(3), fw.Target(0.2)),
    fw.all_of(fw.Plateau(3), fw.any_of(fw.RegretBound("cv", factor=2.0), fw.Target(0.2))),
]


def evaluate(trial):
    return (trial.params["x"] - 0.3) ** 2 + 1.0


def make(terminator, **more):
    kinds = {"sampler": fw.Random(), "seed": 0, **more}
    return fw.Study(LINE, fw.Minimize("loss"), terminator=terminator, **kinds)


@pytest.mark.parametrize("terminator", ALL, ids=str)
def test_it_conforms(terminator):
    check_terminator(terminator, trials=30)


@pytest.mark.parametrize("terminator", ALL, ids=str)
def test_it_is_stored_with_the_study(terminator):
    space, problem = fw.Space(LINE), fw.Problem(fw.Minimize("loss"))
    identity = Identity(space, problem, 0, fw.Random(), fw.Never(), terminator)
    assert Identity.from_json(identity.to_json()).terminator == terminator


def test_a_plateau_counts_from_the_best_feasible_trial():
    study = fw.Study(LINE, fw.Minimize("loss"), [fw.AtMost("ms", 1.0)], terminator=fw.Plateau(2), seed=0)
    told = [(0.1, 5.0), (0.5, 0.5), (0.2, 5.0), None, (0.4, 0.5), (0.45, 0.5), (0.46, 0.5)]
    said = []
    for outcome in told:
        if outcome is None:
            study.tell(study.ask(), failed="made to fail")
        else:
            study.tell(study.ask(), loss=outcome[0], ms=outcome[1])
            said.append(study.verdicts[-1][1])
    assert [verdict.stop for verdict in said] == [False, False, False, False, False, True]
    assert said[0].reason == "nothing is feasible after 1 trial"
    assert said[-1].reason == study.ended == "nothing better for 2 trials, after 7 trials"


def test_improvements_shrink_as_the_search_closes_in():
    study = make(None)
    for x in [*np.random.default_rng(0).random(20), *(0.3 + 0.01 * np.arange(-8, 9))]:
        study.enqueue({"x": float(x)})
        study.tell(study.ask(), loss=float((x - 0.3) ** 2))
    early, late = study.history.first(20), study.history
    expected = [fw.ExpectedImprovementBelow(0.01).check(seen).value for seen in (early, late)]
    assert expected[1] < expected[0]
    assert 0.0 <= fw.ProbabilityOfImprovementBelow(0.01).check(late).value <= 1.0


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
        (lambda: make(fw.Plateau), r"did you mean Plateau\(\)"),
    ],
)
def test_bad_settings_are_refused(wrong, why):
    with pytest.raises(fw.UsageError, match=why):
        wrong()


# Studies that end by themselves


def test_a_run_ends_by_itself_and_goes_on_when_told_to():
    study = make(fw.Plateau(10))
    study.optimize(evaluate, trials=1000)
    first = len(study.trials)
    assert first < 100
    assert study.ended == f"nothing better for 10 trials, after {first} trials"
    assert not any(verdict for _, verdict in study.verdicts[:-1])
    study.optimize(evaluate, trials=5)  # overruled: it has said so before
    assert len(study.trials) == first + 5
    assert study.ended == "5 trials were run"
    study.enqueue({"x": 0.3})  # better than all: it changes its mind
    study.optimize(evaluate, trials=1000)
    assert len(study.trials) == first + 5 + 1 + 10
    assert study.ended == f"nothing better for 10 trials, after {first + 16} trials"


def test_whoever_asks_and_tells_sees_that_it_ended():
    study = make(fw.Target(1.01))
    while study.ended is None:
        trial = study.ask()
        study.tell(trial, loss=evaluate(trial))
    assert study.ended.startswith("loss 1.0")
    study.tell(study.ask(), loss=2.0)
    assert study.ended.startswith("loss 1.0")


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_workers_begin_no_more_trials(backend):
    study = make(fw.Plateau(8))
    study.optimize(evaluate, trials=500, workers=2, backend=backend)
    assert study.ended.startswith("nothing better for")
    assert study.counts["running"] == study.counts["failed"] == 0
    assert len(study.trials) < 200


def test_a_terminator_that_raises_ends_the_run_with_its_error():
    class Broken(Terminator):
        def check(self, history):
            del history
            raise ZeroDivisionError("made to fail")

    study = make(Broken())
    with pytest.raises(ZeroDivisionError, match="made to fail"):
        study.optimize(evaluate, trials=10)
    assert len(study.trials) == 1


def test_verdicts_are_in_the_log_and_can_be_made_again(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = make(fw.any_of(fw.RegretBound(1e-9, start=5), fw.Plateau(12)), storage=url)
    study.optimize(evaluate, trials=200)
    again = make(None, storage=url, seed=None)
    assert [repr(said) for said in again.verdicts] == [repr(said) for said in study.verdicts]
    assert again.ended == study.ended
    events = study.log.read(0)
    result = verify(events)
    assert not result.faults
    place = max(i for i, event in enumerate(events) if isinstance(event, Judged))
    forged = to_json(events[place]) | {"stop": False, "reason": "go on"}
    result = verify([*events[:place], from_json(forged), *events[place + 1 :]])
    assert len(result.faults) == 1
    assert "go on; judged again: nothing better" in result.faults[0]


def test_a_verdict_without_numbers_survives_the_log():
    said = Judged(0, 3, *Verdict(False, "too early"), at=1.0)
    assert repr(from_json(to_json(said))) == repr(said)


def test_a_resumed_study_is_judged_as_if_it_had_never_been_interrupted():
    whole, log = make(fw.Plateau(10)), MemoryLog()
    whole.optimize(evaluate, trials=1000)
    for _ in range(3):
        make(fw.Plateau(10), storage=log).optimize(evaluate, trials=4)
    resumed = make(fw.Plateau(10), storage=log)
    resumed.optimize(evaluate, trials=1000)
    assert [repr(said) for said in resumed.verdicts] == [repr(said) for said in whole.verdicts]
    assert resumed.ended == whole.ended


def test_a_dear_rule_is_asked_less_often_as_trials_grow():
    study = make(fw.RegretBound(1e-12, start=100))
    study.optimize(evaluate, trials=160)
    asked = [finished for finished, _ in study.verdicts]
    assert asked[:101] == [*range(1, 101), 102]
    assert asked[-3:] == [153, 156, 159]
    joined = make(fw.any_of(fw.RegretBound(1e-12, start=100), fw.Plateau(1000)))
    joined.optimize(evaluate, trials=160)
    assert len(joined.verdicts) == 160
    asked = [finished for finished, verdict in joined.verdicts if "regret bound" in verdict.reason]
    assert asked[-3:] == [153, 156, 159]


def test_running_trials_do_not_change_what_is_said():
    study = make(fw.ExpectedImprovementBelow(1e-12, start=5), storage=MemoryLog())
    study = fw.Study(
        {"k": fw.Int(1, 14)}, fw.Minimize("loss"), terminator=study.terminator, sampler=fw.Random(), seed=0
    )
    running = study.ask(3)
    for _ in range(8):
        running.append(study.ask())
        trial = running.pop(0)
        study.tell(trial, loss=float((trial.params["k"] - 6) ** 2))
    assert len(study.verdicts) == 8
    assert not verify(study.log.read(0)).faults


def test_a_verdict_of_nobody_is_damage():
    study = make(fw.Plateau(3))
    study.tell(study.ask(), loss=1.0)
    events = [to_json(event) for event in study.log.read(0)]
    events[-1]["worker"] = 9
    with pytest.raises(fw.StorageError, match="worker 9, who never joined"):
        verify([from_json(event) for event in events])


def test_a_stop_that_another_owner_was_told_ends_this_run_too():
    log, ends = MemoryLog(), fw.RegretBound(1e-12, start=200)
    one, other, different = make(ends, storage=log), make(ends, storage=log), make(fw.Target(9.0), storage=log)

    def said_to(owner, trials):
        return lambda trial: (
            owner.append(Judged(owner.referee.worker, trial.number, True, "enough", 0.0, 1.0, at=0.0)) and 1.0
            if trial.number == trials
            else 2.0 + trial.params["x"]
        )

    one.optimize(said_to(different._owner, 5), trials=10)
    assert len(one.trials) == 10
    one.optimize(said_to(other._owner, 15), trials=30)
    assert (one.ended, len(one.trials)) == ("enough", 16)


def test_another_terminator_is_heard_though_the_one_before_was_overruled():
    log = MemoryLog()
    make(fw.Target(5.0), storage=log).optimize(evaluate, trials=100)
    study = make(fw.Target(4.0), storage=log)
    study.optimize(evaluate, trials=30)
    assert len(study.trials) == 2
    study.optimize(evaluate, trials=30)
    assert len(study.trials) == 32


@pytest.mark.parametrize("said", [None, True, (True, "enough"), Verdict("no", "no")])
def test_a_terminator_that_says_something_else_is_named(said):
    class Odd(Terminator):
        def check(self, history):
            del history
            return said

    with pytest.raises(fw.UsageError, match=r"Odd\(\) said .*: a Verdict\(stop, reason, ...\) is expected"):
        make(Odd()).optimize(evaluate, trials=3)


def test_a_stop_without_a_reason_is_a_stop():
    class Silent(Terminator):
        def check(self, history):
            return Verdict(len(history) > 2, "")

    study = make(Silent())
    study.optimize(evaluate, trials=30)
    assert (len(study.trials), study.ended) == (3, "the terminator said so")
    result = verify(study.log.read(0))
    assert (result.unchecked, result.faults) == (3, [])


def test_numbers_of_numpy_can_be_stored(tmp_path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    ends = fw.any_of(
        fw.Plateau(np.int64(3)), fw.Target(np.float32(0.5)), fw.RegretBound(np.float64(0.1), start=np.int32(5))
    )
    assert Identity.from_json(make(ends, storage=url)._owner.identity.to_json()).terminator == ends


def test_a_class_of_ones_own_is_not_taken_for_ours():
    class Plateau(Terminator):
        def check(self, history):
            return Verdict(False, f"{len(history)} trials")

    study = make(Plateau())
    study.optimize(evaluate, trials=2)
    assert Identity.from_json(study._owner.identity.to_json()).terminator is None
    assert verify(study.log.read(0)).unchecked == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "terminator",
    [fw.RegretBound(0.01), fw.ExpectedImprovementBelow(1e-9), fw.ProbabilityOfImprovementBelow(0.01)],
    ids=str,
)
@pytest.mark.parametrize("loss", [lambda x: x * 1e120, lambda x: (x - 0.5) * 1.5e308, lambda x: 1e12 + 1e-3 * x])
def test_losses_that_numbers_can_hardly_tell_apart_do_not_end_a_search(terminator, loss):
    study = make(terminator)
    study.optimize(lambda trial: loss(trial.params["x"]), trials=25)
    assert all(not verdict.stop or "improvement" in verdict.reason for _, verdict in study.verdicts)
    assert len(study.trials) >= 20


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
    study = make(fw.Plateau(10), storage=url, name="credit")
    study.tell(study.ask(), loss=1.0)
    assert describe(study, None, 0.0)[2] == "last verdict: nothing better for 0 trials, after 1 trial"
    assert main(["show", url, "credit"]) == 0
    assert "last verdict: nothing better for 0 trials, after 1 trial" in capsys.readouterr().out
    study.optimize(evaluate, trials=100)
    assert main(["show", url, "credit", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ended"] == shown["verdicts"][-1]["reason"] == study.ended
    assert shown["terminator"] == {"kind": "Plateau", "patience": 10}
    assert main(["verify", url, "credit"]) == 0
