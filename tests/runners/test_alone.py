"""At the end of a run the best is measured again, with nobody beside it."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.cli import main
from fairway.engine import snapshot
from fairway.engine.certification import promising
from fairway.engine.events import Remeasured
from fairway.engine.obstacles import obstacles
from fairway.engine.verify import verify
from fairway.report.view import View
from fairway.runners.alone import measure_alone
from tests.trainings import crowded

SPACE = {"x": fw.Float(0.0, 1.0)}
LIMITS = [fw.AtMost("ms", 6.0, alone=True)]


def made(storage=None, *, limits=LIMITS, **more):
    more = {"stopper": fw.Never(skip=False), **more}
    return fw.Study(SPACE, fw.Maximize("auc"), limits, sampler=fw.Random(), storage=storage, seed=0, **more)


def again(study):
    """The trials that were measured again, in order."""
    return [event.number for event in study.log.read() if isinstance(event, Remeasured)]


def check(study):
    """Every part that knows the best names the same one, and verify agrees."""
    best, found = study.best, study.owner.ledger.best
    assert (best and (best.number, best.step)) == (found and (found[0], found[1].step))
    assert made(study.log, limits=study.problem.constraints).best == best
    view = View(study)
    assert view.best_number == (best and best.number)
    assert verify(study.log.read()).faults == []


def test_a_best_that_breaks_its_limit_alone_gives_way_to_the_next_one_that_holds(tmp_path):
    url, train = f"sqlite:///{tmp_path}/study.db", partial(crowded, folder=tmp_path, workers=3)
    study = made(url)
    for x in (0.9, 0.5, 0.7):
        study.enqueue({"x": x})
    study.optimize(train, trials=3, workers=3, progress=False)
    xs = [study.trials[number].params["x"] for number in again(study)]
    assert xs == [0.9, 0.7, 0.5]
    assert (study.best.params["x"], study.best.metrics["ms"]) == (0.5, 5.0)
    assert {trial.params["x"]: trial.feasible for trial in study.trials} == {0.9: False, 0.7: False, 0.5: True}
    notes = study.trials[study.best.number].notes
    assert notes == {"ms_measured": "alone at step 1: 5, where it was 1 before"}
    check(study)
    assert main(["verify", url, "study"]) == 0
    before = study.best
    study.optimize(lambda trial: {"auc": 0.1, "ms": 0.0}, trials=1, progress=False)
    assert (study.best, len(again(study))) == (before, 3)  # it was measured alone, and is not measured again


def test_a_run_that_is_killed_between_two_measurements_continues_with_the_second(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/study.db"
    study = made(url)
    for x in (0.9, 0.7, 0.5):
        study.enqueue({"x": x})
    (tmp_path / "dies").write_text("0.7")
    script = f"""
from functools import partial
from tests.runners.test_alone import made
from tests.trainings import crowded
made({url!r}).optimize(partial(crowded, folder={str(tmp_path)!r}, workers=3), trials=3, workers=3, progress=False)
"""
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (tmp_path / "dies").unlink()
    assert main(["verify", url, "study"]) == 0
    assert "all agree" in capsys.readouterr().out
    study = made(url)
    assert (study.best.params["x"], study.best.metrics["ms"], len(again(study))) == (0.7, 1.0, 1)
    check(study)
    study.enqueue({"x": 0.1})
    study.optimize(partial(crowded, folder=tmp_path, workers=1), trials=1, progress=False)
    assert (study.best.params["x"], study.best.metrics["ms"], len(again(study))) == (0.5, 5.0, 3)
    check(study)


def asked_together(study, told):
    """Trials that overlap, each told its auc and its ms."""
    for trial, (auc, ms) in zip(study.ask(len(told)), told, strict=True):
        study.tell(trial, auc=auc, ms=ms)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([1.0, 5.0, 7.0]), st.sampled_from([1.0, 6.0, 9.0])),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([fw.Never(), fw.Never(skip=False), fw.Pilot()]),
)
def test_the_best_is_the_first_by_objective_that_holds_alone_or_the_nearest_that_does(rows, stopper):
    study = made(stopper=stopper)
    asked_together(study, [row[:2] for row in rows])
    measure_alone(study.owner, lambda trial: {"auc": rows[trial.number][0], "ms": rows[trial.number][2]}, None)
    feasible = sorted((-auc, number) for number, (auc, ms, _) in enumerate(rows) if ms <= 6.0)
    nearest = [number for number, (_, ms, _) in enumerate(rows) if ms > 6.0]  # all are as near
    held = [number for number in [number for _, number in feasible] + nearest if rows[number][2] <= 6.0]
    assert (study.best and study.best.number) == (held[0] if held else None)
    if held:
        assert study.best.metrics["ms"] == rows[held[0]][2]
    check(study)
    study.optimize(lambda trial: {"auc": trial.params["x"], "ms": lambda: 2.0}, trials=2, progress=False)
    check(study)


def test_a_best_that_ran_alone_is_not_measured_again():
    study = made()
    study.optimize(lambda trial: {"auc": trial.params["x"], "ms": 1.0}, trials=4, progress=False)
    assert again(study) == []


def test_a_best_whose_value_says_that_others_used_the_machine_is_measured_again_once_and_keeps_who_was_there(caplog):
    study, notes = made(), iter(["while others used 3.0 of 4 cores", "while others used 2.0 of 4 cores"])
    study.optimize(lambda trial: {"auc": 0.5, "ms": fw.Measured(2.0, 0.1, note=next(notes))}, trials=1, progress=False)
    assert again(study) == [0]
    note = "again at step 1, while others used 2.0 of 4 cores: 2, where it was 2 before"
    assert study.trials[0].notes == {"ms_measured": note}
    said = "trial 0, step 1: ms 2 while others used 2.0 of 4 cores, where it was 2: within its limit of 6"
    assert caplog.records[-1].getMessage() == said
    measure_alone(study.owner, lambda trial: {"auc": 0.5, "ms": 9.0}, None)
    assert (again(study), study.best.metrics["ms"]) == ([0], 2.0)


BUSY = "while others used 1.9 of 2 cores"


@pytest.mark.parametrize("limit", [fw.AtMost("ms", 60.0, alone=True), fw.AtLeast("per_s", 60.0, alone=True)])
def test_a_worse_value_that_was_measured_in_company_too_does_not_overrule_the_first(caplog, limit):
    first, second = (55.04, 107.1) if limit.sign > 0 else (107.1, 55.04)
    study, values = made(limits=[limit]), iter([first, second])
    study.optimize(
        lambda trial: {"auc": 0.5, limit.metric: fw.Measured(next(values), 0.1, note=BUSY)}, trials=1, progress=False
    )
    assert (again(study), study.best.metrics[limit.metric]) == ([0], first)
    said = f"{second} {BUSY}, where it was {first}: it keeps {first}, since others only make it worse"
    assert caplog.messages[-1] == f"trial 0, step 1: {limit.metric} {said}"
    note = f"again at step 1, {BUSY}: {second}, so it keeps {first}"
    assert study.trials[0].notes == {f"{limit.metric}_measured": note}
    check(study)
    measure_alone(study.owner, lambda trial: {"auc": 0.5, limit.metric: second}, None)
    assert again(study) == [0]


@given(st.floats(1.0, 6.0), st.floats(1.0, 12.0), st.sampled_from(["", BUSY]))
@settings(max_examples=25)
def test_in_company_the_better_of_two_values_counts_and_alone_the_second(first, second, note):
    study = made(limits=[fw.AtMost("ms", 6.0, alone=True), fw.AtMost("eod", 1.0)])
    values = iter([fw.Measured(first, 0.1, note=BUSY), fw.Measured(second, 0.1, note=note)])
    study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1, "ms": next(values)}, trials=1, progress=False)
    assert study.trials[0].metrics["ms"] == (min(first, second) if note else second)
    check(study)


def test_a_value_that_breaks_its_limit_alone_is_said_with_its_limit_and_counts_when_it_is_said_who_came_nearest(caplog):
    study = made(limits=[fw.AtMost("ms", 60.0, alone=True)])
    asked_together(study, [(0.5, 55.04), (0.4, 71.52)])
    measure_alone(study.owner, lambda trial: {"auc": 0.5, "ms": 107.1}, None)
    assert caplog.messages == [
        "trial 0, step 1: ms 107.1 alone, where it was 55.04: over its limit of 60",
        "trial 1, step 1: ms 107.1 alone, where it was 71.52: over its limit of 60",
    ]
    (sentence,) = map(str, obstacles(study.problem, study.owner.ledger.courses))
    assert sentence.startswith(
        "none of 2 trials that measured ms kept it at most 60, and 107.1 came nearest; all of them were measured "
        "again, alone, and the newer value counts: loosen that limit"
    )


def test_where_all_break_a_limit_in_company_the_nearest_is_measured_again_and_may_hold():
    study = made(limits=[fw.AtMost("eod", 0.1), fw.AtMost("ms", 30.0, alone=True)])
    rows = [(0.9, 70.0, 0.0), (0.8, 49.0, 0.0), (0.7, 31.0, 0.2), (0.6, 50.0, 0.0)]
    trials = study.ask(len(rows))
    for trial, (auc, ms, eod) in zip(trials, rows, strict=True):
        study.tell(trial, auc=auc, ms=ms, eod=eod)
    assert study.best is None
    measure_alone(study.owner, lambda trial: {"auc": 0.8, "ms": 23.0, "eod": 1.0}, None)
    assert again(study) == [1]  # trial 2 breaks another limit
    assert (study.best.number, study.best.metrics) == (1, {"auc": 0.8, "eod": 0.0, "ms": 23.0})
    check(study)


def test_where_the_nearest_breaks_its_limit_alone_too_the_others_are_left():
    study = made(limits=[fw.AtMost("ms", 30.0, alone=True)])
    asked_together(study, [(0.9, 70.0), (0.8, 49.0), (0.7, 50.0)])
    measure_alone(study.owner, lambda trial: {"auc": 0.8, "ms": 40.0}, None)
    assert (again(study), study.best) == ([1], None)
    check(study)
    asked_together(study, [(0.6, 39.0), (0.5, 80.0)])  # nearer than that
    measure_alone(study.owner, lambda trial: {"auc": 0.6, "ms": 20.0}, None)
    assert (again(study), study.best.number) == ([1, 3], 3)
    check(study)


def test_a_trial_that_broke_its_limit_alone_is_not_measured_again():
    study = made(limits=[fw.AtMost("ms", 30.0, alone=True)])
    study.optimize(lambda trial: {"auc": 0.8, "ms": 40.0}, trials=2, progress=False)
    assert again(study) == []


def test_a_value_that_holds_alone_is_said_where_progress_is():
    study, said = made(), []
    asked_together(study, [(0.5, 5.0), (0.4, 1.0)])
    measure_alone(study.owner, lambda trial: {"auc": 0.5, "ms": 3.0}, said.append)
    assert said[1:] == ["trial 0, step 1: ms 3 alone, where it was 5: within its limit of 6"]


def test_a_limit_that_is_not_declared_alone_is_not_measured_again():
    study = made(limits=[fw.AtMost("ms", 6.0)])
    asked_together(study, [(0.5, 1.0), (0.6, 1.0)])
    study.optimize(lambda trial: {"auc": 0.1, "ms": 9.0}, trials=1, progress=False)
    assert again(study) == []


def test_only_limits_that_are_declared_alone_are_called_again_and_at_the_best_step():
    study, called = made(limits=[fw.AtMost("eod", 1.0), *LIMITS]), []

    def train(trial):
        for step in trial.steps(4):
            trial.report(
                auc=[0.1, 0.9, 0.3, 0.2][step - 1],
                checkpoint=step,
                eod=lambda model: called.append(("eod", model)) or 0.5,
                ms=lambda model: called.append(("ms", model)) or 2.0,
            )

    open_one = study.ask()
    study.optimize(train, trials=1, progress=False)
    assert again(study) == []  # since one still runs
    study.tell(open_one, auc=0.0, eod=2.0)
    called.clear()
    measure_alone(study.owner, train, None)
    assert called == [("ms", 2)]
    assert (study.best.step, study.best.metrics) == (2, {"auc": 0.9, "eod": 0.5, "ms": 2.0})
    check(study)


def test_what_the_function_raises_when_it_measures_again_leaves_the_best_as_it_is(caplog):
    study = made()
    asked_together(study, [(0.5, 1.0), (0.6, 1.0)])

    def fails(trial):
        raise OSError("the disk is full")

    with caplog.at_level(logging.WARNING, "fairway"):
        measure_alone(study.owner, fails, None)
        measure_alone(study.owner, lambda trial: {"auc": 0.5}, None)
    why = ["OSError: the disk is full", "UsageError: the function did not report ms at step 1 this time"]
    said = [f"trial 1, step 1 could not be measured again ({each}): it keeps what it had" for each in why]
    assert [record.getMessage() for record in caplog.records] == said
    assert (study.best.number, again(study)) == (1, [])


def test_it_is_said_once_that_limits_were_measured_in_a_crowd(caplog):
    study = made(limits=[fw.AtMost("ms", 6.0)])
    crowd = fw.Measured(2.0, 0.1, note="beside 1 other worker")
    with caplog.at_level(logging.WARNING, "fairway"):
        study.optimize(lambda trial: {"auc": 0.5, "ms": crowd}, trials=3, progress=False)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "ms was measured beside 1 other worker: it may be longer than it is alone; declare "
        "fw.AtMost('ms', ..., alone=True) and the best is measured again, alone, when the run is over"
    )
    assert [trial.notes for trial in study.trials] == [{"ms_measured": "beside 1 other worker"}] * 3


def test_a_worker_knows_how_many_others_there_are():
    def timed(trial):
        from fairway.constraints import latency

        return {"auc": 0.5, "ms": latency(len, [0], seconds=0.001)}

    for backend in ("process", "thread"):
        study = made(limits=[fw.AtMost("ms", 6.0)])
        study.optimize(timed, trials=2, workers=2, backend=backend, progress=False)
        assert [trial.notes["ms_measured"] for trial in study.trials] == ["beside 1 other worker"] * 2


def test_a_study_may_be_opened_with_a_limit_that_is_alone_from_now_on(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study = made(url, limits=[fw.AtMost("ms", 6.0)])
    asked_together(study, [(0.5, 1.0), (0.6, 1.0)])
    assert snapshot.keep(study.log, study.owner.journal.position, study.owner.ledger, study.owner.referee)
    later = made(url)
    measure_alone(later.owner, lambda trial: {"auc": 0.5, "ms": [2.0, 8.0][trial.number]}, None)
    assert (later.best.number, later.best.metrics["ms"]) == (0, 2.0)
    check(later)


def test_a_snapshot_knows_what_was_measured_again(tmp_path):
    study = made(f"sqlite:///{tmp_path}/study.db")
    asked_together(study, [(0.5, 1.0), (0.6, 1.0), (0.7, 1.0)])
    measure_alone(study.owner, lambda trial: {"auc": 0.5, "ms": [2.0, 2.0, 8.0][trial.number]}, None)
    owner = study.owner
    assert snapshot.keep(study.log, owner.journal.position, owner.ledger, owner.referee)
    assert snapshot.faults(study.log, study.log.read(), study.space, study.problem) == []
    restored, _ = snapshot.restore(study.log, study.space, study.problem, study.seed)
    assert restored.remeasured.places == [(2, 1), (1, 1)]
    check(study)


def test_a_study_that_is_opened_again_without_alone_keeps_the_best_that_followed(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study = made(url)
    asked_together(study, [(0.5, 1.0), (0.6, 1.0), (0.7, 1.0)])
    measure_alone(study.owner, lambda trial: {"auc": 0.5, "ms": [2.0, 2.0, 8.0][trial.number]}, None)
    for _ in ("from the log", "from a snapshot"):
        later = made(url, limits=[fw.AtMost("ms", 6.0)])
        assert later.best == study.best
        check(later)
        assert snapshot.keep(later.log, later.owner.journal.position, later.owner.ledger, later.owner.referee)
    later.set_limit(ms=7.0)
    assert later.best.number == 1
    check(later)


def test_a_curve_shows_the_newer_measurement():
    study = made()
    study.optimize(lucky(alone=lambda x, step: 2.0 if step == 1 else 9.0), trials=1, progress=False)
    curve = View(study).curves([0])[0]
    assert curve.values.ravel().tolist() == [2.0, 9.0, 9.0, 9.0]
    assert curve.stratum.tolist() == [1, 2, 2, 2]


def test_a_certificate_goes_by_the_newer_measurement():
    study = made()
    asked_together(study, [(0.5, 1.0), (0.6, 1.0)])
    measure_alone(study.owner, lambda trial: {"auc": 0.6, "ms": fw.Measured(3.0, 0.5)}, None)
    found = {one.number: (one.values, one.errors) for one in promising(study.problem, study.log.read(), level=0.05)}
    assert found[1] == ((3.0,), (pytest.approx(0.5),))


def test_a_measurement_that_does_not_follow_from_the_log_is_a_fault():
    study = made()
    asked_together(study, [(0.5, 1.0), (0.6, 1.0)])
    measure_alone(study.owner, lambda trial: {"auc": 0.6, "ms": 8.0}, None)
    events = [*study.log.read()]
    (place, *_) = [i for i, event in enumerate(events) if isinstance(event, Remeasured)]
    wrong = events[place]
    worse = wrong.checkpoint._replace(values=(1.0,))
    assert any("sums do not follow" in fault for fault in faults_with(events, place, replace(wrong, checkpoint=worse)))
    other = replace(wrong, number=0)
    assert any("was not the best or the nearest then" in fault for fault in faults_with(events, place, other))


def faults_with(events, place, event):
    return verify([*events[:place], event, *events[place + 1 :]]).faults


@pytest.mark.parametrize("given", [1, "yes", None])
def test_alone_is_true_or_false(given):
    with pytest.raises(fw.UsageError, match=r"alone=.*: True or False is expected"):
        fw.AtMost("ms", 6.0, alone=given)


def lucky(*, alone):
    """A training whose later steps were measured faster than they are beside another worker, slower when alone."""
    seen = set()

    def train(trial):
        is_again = trial.number in seen
        seen.add(trial.number)
        for step in trial.steps(4):
            ms = alone(trial.params["x"], step) if is_again else 5.0
            note = "" if is_again else "beside 1 other worker"
            trial.report(auc=trial.params["x"] + step / 10, ms=lambda ms=ms, note=note: fw.Measured(ms, 0.1, note=note))

    return train


def test_after_a_change_of_limits_a_trial_that_was_measured_again_stands_by_its_next_step():
    study = made()
    study.optimize(lucky(alone=lambda x, step: 2.0 if step == 1 else 9.0), trials=1, progress=False)
    study.set_limit(ms=7.0)
    assert (study.best.step, study.trials[0].metrics["ms"], study.trials[0].feasible) == (1, 2.0, True)
    assert View(study).best.step == 1
    check(study)


def test_decisions_after_a_second_measurement_and_a_change_of_limits_are_made_again_alike():
    study = made(stopper=fw.Pilot())
    train = lucky(alone=lambda x, step: 9.0 if x > 0.8 else 4.0)
    for xs in ((0.9, 0.2), (0.6, 0.7)):
        for x in xs:
            study.enqueue({"x": x})
        study.optimize(train, trials=2, progress=False)
        study.set_limit(ms=7.0)
    check(study)


def test_after_a_limit_was_dropped_a_trial_that_was_measured_again_keeps_its_newer_value():
    study = made(limits=[fw.AtMost("eod", 0.5), fw.AtMost("ms", 6.0, alone=True)])
    for trial, auc in zip(study.ask(2), (0.6, 0.5), strict=True):
        study.tell(trial, auc=auc, eod=0.1, ms=1.0)
    measure_alone(study.owner, lambda trial: {"auc": 0.6, "eod": 0.1, "ms": [9.0, 2.0][trial.number]}, None)
    study.set_limit(eod=None)
    assert [trial.metrics["ms"] for trial in study.trials] == [9.0, 2.0]
    assert (study.best.number, study.best.metrics) == (1, {"auc": 0.5, "ms": 2.0})
    assert study.what_if(ms=10.0).best.metrics["ms"] == 9.0
    check(study)


@example([("run", [7.0, 1.0]), ("eod", None)])
@example([("run", [5.0, 1.0]), ("eod", None), ("run", [1.0, 1.0]), ("ms", 4.0)])
@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.lists(st.sampled_from([1.0, 5.0, 7.0]), min_size=2, max_size=3)),
            st.tuples(st.just("eod"), st.sampled_from([None, 0.3, 0.6])),
            st.tuples(st.just("ms"), st.sampled_from([4.0, 6.0, 8.0])),
        ),
        min_size=2,
        max_size=6,
    )
)
def test_second_measurements_and_changes_of_limits_in_any_order_leave_one_best(acts):
    study = made(limits=[fw.AtMost("eod", 0.5), fw.AtMost("ms", 6.0, alone=True)])
    for what, given_ in acts:
        if what == "run":
            for trial, ms in zip(study.ask(len(given_)), given_, strict=True):
                study.tell(trial, auc=round(trial.params["x"], 1), eod=trial.params["x"], ms=ms)
            measure_alone(study.owner, lambda trial: {"auc": 0.5, "eod": 0.5, "ms": 3.0 + trial.number % 3 * 2.0}, None)
        elif what != "eod" or given_ is not None or "eod" in study.problem.metrics:
            study.set_limit(**{what: given_})
        check(study)
        best = study.what_if().best_now
        assert (best and (best.number, best.metrics)) == (study.best and (study.best.number, study.best.metrics))
