from __future__ import annotations

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.engine.event_json import from_json
from fairway.engine.events import Carried, Enqueued, Opened, Reported
from fairway.engine.snapshot import keep, restore
from fairway.engine.verify import verify

SPACE = {"x": fw.Float(0.0, 1.0), "kind": fw.Choice(["a", "b"])}
LIMITS = [fw.AtMost("ms", 0.8)]


def curves(trial):
    """Reports steps 10, 20, ..., as one who reports now and then."""
    x = trial.params["x"]
    for step in (10, 20, 30):
        if trial.report({"loss": (x - 0.3) ** 2 + 1 / step, "ms": x}, step=step).stop:
            break


def earlier(space=SPACE, limits=LIMITS, trials=12, seed=0, **more):
    parts = {"sampler": fw.Random(), "stopper": fw.Median(), "seed": seed, "name": "old", **more}
    study = fw.Study(space, fw.Minimize("loss"), limits, **parts)
    study.optimize(curves, trials=trials, progress=False)
    return study


def later(start_from, space=SPACE, limits=LIMITS, **more):
    return fw.Study(space, fw.Minimize("loss"), limits, **{"seed": 1, "name": "new", **more}, start_from=start_from)


def copies(study):
    return [from_json(event.copy) for event in study.log.read() if isinstance(event, Carried)]


# What is copied


def test_whole_curves_are_copied_with_their_steps_and_the_other_study_may_vanish(tmp_path):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    old = earlier(storage=url)
    reports = [event for event in old.log.read() if isinstance(event, Reported)]
    new = later([f"{url}#old"], storage=f"sqlite:///{tmp_path / 'new.db'}")
    (tmp_path / "old.db").unlink()
    copied = [event for event in copies(new) if isinstance(event, Reported)]
    assert [event.step.tolist() for event in copied] == [event.step.tolist() for event in reports]
    assert [event.objective.tolist() for event in copied] == [event.objective.tolist() for event in reports]
    again = later([f"{url}#old"], storage=f"sqlite:///{tmp_path / 'new.db'}")
    assert len(copies(again)) == len(copies(new))
    (there,) = again.history.earlier
    assert there.reached.tolist() == old.history.reached.tolist()
    assert there.lowest.tolist() == old.history.lowest.tolist()


def test_the_best_of_an_earlier_study_run_first_and_only_own_trials_count():
    old = earlier(trials=40)
    new = later([old])
    assert new.best is None
    assert len(new.trials) == 0
    first = [dict(trial.params) for trial in new.ask(5)]
    assert first[-1] == old.trials[old.history.best_first[0]].params
    queue = [event.params for event in new.log.read() if isinstance(event, Enqueued)]
    assert queue == first
    assert len({str(params) for params in queue}) == 5


def test_a_stopper_does_not_compare_with_carried_curves():
    good = fw.Study(SPACE, fw.Minimize("loss"), LIMITS, seed=0)
    good.optimize(lambda trial: {"loss": -100.0, "ms": 0.1}, trials=20, progress=False)
    ran, plain, new = [], later([], stopper=fw.Median()), later([good], stopper=fw.Median())
    for waiting in new.owner.ledger.queue:
        plain.enqueue(waiting.params)
    for study in (plain, new):
        for k in range(8):
            study.enqueue({"x": k / 8, "kind": "a"})
        study.optimize(curves, trials=13, progress=False)
        ran.append([(dict(trial.params), trial.status, trial.reason) for trial in study.trials])
    assert ran[0] == ran[1]
    assert new.best == plain.best


@pytest.mark.parametrize("loosened", [None, 25.0])
def test_what_was_measured_again_alone_is_copied(loosened):
    seen = set()

    def timed(trial):
        x, again = trial.params["x"], trial.number in seen
        seen.add(trial.number)
        note = "" if again else "beside 1 other worker"
        return {"loss": x, "ms": fw.Measured(30.0 if again and x < 0.5 else 10.0, 0.1, note=note)}

    limits = [fw.AtMost("ms", 20.0, alone=True)]
    old = fw.Study(SPACE, fw.Minimize("loss"), limits, sampler=fw.Random(), seed=0, name="old")
    old.optimize(timed, trials=8, progress=False)
    old.set_limit(ms=loosened) if loosened else None
    new = later([old], limits=limits)
    (there,) = new.history.earlier
    assert 30.0 in there.values
    assert there.values.tolist() == old.history.values.tolist()
    assert new.ask(5)[-1].params == old.best.params


# In another space


def test_trials_outside_a_narrower_space_are_left_out_and_a_wider_one_takes_all():
    old = earlier(trials=30)
    inside = [trial.params["x"] for trial in old.trials if trial.params["x"] <= 0.5]
    (narrow,) = later([old], {**SPACE, "x": fw.Float(0.0, 0.5)}).history.earlier
    np.testing.assert_allclose(narrow.x[:, 0] * 0.5, inside)
    (wide,) = later([old], {**SPACE, "x": fw.Float(-1.0, 1.0)}).history.earlier
    np.testing.assert_allclose(wide.x[:, 0] * 2 - 1, [trial.params["x"] for trial in old.trials])


def test_a_parameter_that_an_earlier_study_lacks_has_its_default_or_is_filled_in_by_the_sampler():
    old, space = earlier(), {**SPACE, "dropout": fw.Float(0.0, 0.5)}
    known = later([(old, {"dropout": 0.0})], space)
    assert (known.history.earlier[0].x[:, 2] == 0.0).all()
    assert known.ask().params["dropout"] == 0.0
    unknown = later([old], space)
    assert np.isnan(unknown.history.earlier[0].x[:, 2]).all()
    assert len({trial.params["dropout"] for trial in unknown.ask(5)}) == 5


@pytest.mark.parametrize(("lacked", "waiting"), [({}, 0), ({"a": 0.5}, 5)])
def test_a_study_that_knows_less_than_half_of_the_parameters_runs_nothing_first(lacked, waiting):
    old, space = earlier(), {"x": SPACE["x"], **{name: fw.Float(0.0, 1.0) for name in "abc"}}
    assert len(later([(old, lacked)], space).owner.ledger.queue) == waiting


def test_limits_that_only_the_earlier_study_has_do_not_count():
    old = earlier(limits=[fw.AtMost("ms", 0.01)])
    (without,) = later([old], limits=[]).history.earlier
    assert without.feasible.all()
    (under,) = later([old], limits=[fw.AtMost("ms", 0.9)]).history.earlier
    assert not under.feasible.any()  # judged by its own limit


@pytest.mark.parametrize(
    ("founding", "change", "before"),
    [
        ([fw.AtMost("ms", 0.9)], lambda study: study.set_limit(ms=0.2), 6),
        ([fw.Track("ms")], lambda study: study.set_limit(ms=0.2), 6),
        ([], lambda study: study.set_limit(fw.AtMost("ms", 0.2)), 0),
    ],
)
def test_an_earlier_study_is_judged_by_its_last_limits(founding, change, before):
    old = fw.Study(SPACE, fw.Minimize("loss"), founding, sampler=fw.Random(), seed=0, name="old")
    old.optimize(curves, trials=before, progress=False) if before else None
    change(old)
    old.optimize(curves, trials=6, progress=False)
    new = later([old], limits=[fw.AtMost("ms", 0.9)])
    (there,) = new.history.earlier
    assert there.problem.constraints == old.problem.constraints
    assert there.feasible.tolist() == old.history.feasible.tolist()
    assert new.ask(5)[-1].params == old.best.params


@pytest.mark.parametrize(("limits", "kept"), [([], 0), ([fw.AtMost("ms", 0.9)], 1), ([fw.Track("kb")], 1)])
def test_metrics_that_only_the_earlier_study_tracks_do_not_count(limits, kept):
    def flat(trial):
        return {"loss": trial.params["x"], "ms": trial.params["x"], "kb": 1 - trial.params["x"]}

    old = fw.Study(SPACE, fw.Minimize("loss"), [fw.Track("kb"), fw.AtMost("ms", 0.4)], seed=0, name="old")
    old.optimize(flat, trials=6, progress=False)
    (there,) = later([old], limits=limits).history.earlier
    assert there.values.shape == (6, kept)
    assert there.loss.tolist() == old.history.loss.tolist()
    assert there.fronts.shape == (6 if limits == [fw.Track("kb")] else 0, 3 + kept)  # ms does not count there


def test_a_study_that_tracks_a_metric_learns_from_one_that_did():
    def flat(trial):
        return {"loss": trial.params["x"], "kb": 1 - trial.params["x"]}

    old = fw.Study(SPACE, fw.Minimize("loss"), [fw.Track("kb")], seed=0, name="old")
    old.optimize(flat, trials=20, progress=False)
    new = later([old], limits=[fw.Track("kb")])
    new.optimize(flat, trials=20, progress=False)
    assert verify(new.log.read()).faults == []
    assert len(new.front) > 3


def test_the_checkpoint_that_stands_for_a_trial_is_not_chosen_by_limits_of_the_earlier_study_alone():
    old = fw.Study(SPACE, fw.Minimize("loss"), [fw.AtMost("ms", 15.0)], stopper=fw.Never(), seed=0, name="old")
    trial = old.ask()
    for step in (10, 20):
        trial.report({"loss": 1 / step, "ms": float(step)}, step=step)
    old.tell(trial)
    assert old.history.step.tolist() == [10]
    (there,) = later([old], limits=[]).history.earlier
    assert there.step.tolist() == [20]


def test_a_limit_that_the_earlier_study_dropped_does_not_count():
    old = earlier(limits=[fw.AtMost("ms", 0.01), fw.AtMost("kb", 1.0)])
    old.set_limit(kb=None)
    (there,) = later([old], limits=[fw.AtMost("ms", 0.9), fw.AtMost("kb", 1.0)]).history.earlier
    assert [one.metric for one in there.problem.constraints] == ["ms"]
    np.testing.assert_array_equal(there.violation, old.history.violation)


def test_several_studies_take_turns():
    one, other = earlier(seed=0), earlier(seed=1)
    new = later([one, other])
    assert len(new.history.earlier) == 2
    best = [study.trials[study.history.best_first[0]].params for study in (one, other)]
    assert [trial.params for trial in new.ask(5)][:-3:-1] == best


# Once and for all


@settings(max_examples=10, deadline=None)
@given(
    trials=st.integers(1, 12),
    seed=st.integers(0, 99),
    width=st.sampled_from([0.5, 1.0, 3.0]),
    more=st.booleans(),
    before=st.integers(0, 8),
)
def test_a_study_with_carried_rows_replays_resumes_and_verifies(trials, seed, width, more, before):
    old = earlier(trials=trials, seed=seed)
    if not any(trial.params["x"] <= width for trial in old.trials):
        return
    space = {**SPACE, "x": fw.Float(0.0, width), **({"extra": fw.Int(1, 9)} if more else {})}
    rules = {"sampler": fw.CTPE(3), "stopper": fw.Median()}
    whole = later([old], space, **rules)
    whole.optimize(curves, trials=before + 4, progress=False)
    cut = later([old], space, **rules)
    cut.optimize(curves, trials=before, progress=False) if before else None
    kept = keep(cut.log, cut.owner.journal.position, cut.owner.ledger, cut.owner.referee)
    resumed = later([old], space, **rules, storage=cut.log)
    resumed.optimize(curves, trials=4, progress=False)
    assert [trial.params for trial in resumed.trials] == [trial.params for trial in whole.trials]
    assert [event.step.tolist() for event in copies(resumed) if isinstance(event, Reported)] == [
        event.step.tolist() for event in copies(whole) if isinstance(event, Reported)
    ]
    for mine, theirs in zip(resumed.history.earlier, whole.history.earlier, strict=True):
        np.testing.assert_array_equal(mine.x, theirs.x)
        np.testing.assert_array_equal(mine.loss, theirs.loss)
    assert verify(resumed.log.read()).faults == []
    if kept:
        ledger, _ = restore(cut.log, cut.space, cut.problem, cut.seed)
        assert [event.copy for event in ledger.carried] == [event.copy for event in cut.owner.ledger.carried]


@pytest.mark.parametrize(
    ("place", "sentence"), [(0, "trials of study 0 to start from, and not that study"), (1, "trial 0, which was never")]
)
def test_verify_reads_what_a_study_started_from(place, sentence):
    events = later([earlier(trials=2)]).log.read()
    del events[1 + place]
    with pytest.raises(fw.StorageError, match=sentence):
        verify(events)


def test_the_best_model_of_a_study_with_carried_rows_is_built_again():
    new = later([earlier()])

    def fit(trial):
        curves(trial)
        return trial.params, trial.last_step

    new.optimize(curves, trials=8, progress=False)
    assert new.rebuild(fit) == (new.best.params, new.best.step)


def test_a_snapshot_holds_what_was_carried(tmp_path):
    old = earlier()
    url = f"sqlite:///{tmp_path / 'new.db'}"
    new = later([old], storage=url)
    new.optimize(curves, trials=3, progress=False)
    assert keep(new.log, new.owner.journal.position, new.owner.ledger, new.owner.referee)
    ledger, position = restore(new.log, new.space, new.problem, new.seed)
    assert position == len(new.log.read())
    assert [event.copy for event in ledger.carried] == [event.copy for event in new.owner.ledger.carried]
    np.testing.assert_array_equal(fw.load_study(url, "new").history.earlier[0].x, new.history.earlier[0].x)


KILLED = """
import os, signal, sys
import fairway as fw

old, new, when = sys.argv[1:]

class Dying:
    name = "old"
    log = None
    def __init__(self):
        self.log = self
    leases = None
    def read(self, since=0, most=None):
        os.kill(os.getpid(), signal.SIGKILL)

start = [Dying()] if when == "before" else [old + "#old"]
fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=new, name="new", seed=1, start_from=start)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_and_resumed_a_study_copies_once(tmp_path, when):
    old, new = (f"sqlite:///{tmp_path / name}" for name in ("old.db", "new.db"))
    there = earlier(storage=old)
    done = subprocess.run([sys.executable, "-c", KILLED, old, new, when], check=False)
    assert done.returncode == -signal.SIGKILL
    for _ in range(2):
        study = later([there], {"x": fw.Float(0.0, 1.0)}, [], storage=new)
    assert [type(event) for event in copies(study)].count(Opened) == 1
    assert len(study.history.earlier[0]) == len(there.trials)
    assert len(study.owner.ledger.queue) == 5


def test_of_two_that_create_a_study_at_once_one_copies(tmp_path):
    old, url = earlier(), f"sqlite:///{tmp_path / 'new.db'}"
    later([old], storage=url, name="other")  # the file is there
    ready = threading.Barrier(2)

    def create():
        ready.wait()
        later([old], storage=url)

    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(event) for event in copies(fw.load_study(url, "new"))].count(Opened) == 1


# Bad input


def of_another_kind(objective):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, objective, seed=0, name="odd")
    study.optimize(lambda trial: 0.5, trials=1, progress=False)
    return study


@pytest.mark.parametrize(
    ("start_from", "sentence"),
    [
        (lambda: [of_another_kind(fw.Minimize("error"))], r"odd has another objective, Minimize\('error'\); one with"),
        (lambda: [of_another_kind(fw.Maximize("loss"))], r"another objective, Maximize\('loss'\); one with Minimize"),
        (lambda: [earlier({"x": fw.Float(5.0, 6.0)})], "no trial of the study old fits this space .* 0.0 to 1.0"),
        (lambda: [later([])], "the study new has no finished trial"),
        (lambda: [(earlier(), {"depth": 1})], "of the study old, unknown parameter 'depth'"),
        (lambda: [(earlier(), {"x": 0.5})], "the study old has 'x'; give only parameters that it lacks"),
        (earlier, "a list of studies is expected"),
        (lambda: "sqlite:///old.db#old", "a list of studies is expected"),
        (lambda: [7], "7: a study or an address such as"),
        (lambda: ["sqlite:///old.db"], "the study's name is missing"),
    ],
)
def test_a_study_that_cannot_be_started_from_gets_one_sentence(start_from, sentence):
    with pytest.raises(fw.UsageError, match=sentence):
        later(start_from())


def test_a_space_without_a_parameter_in_common_is_refused():
    with pytest.raises(fw.UsageError, match="the study old has no parameter of this space, which has 'y'"):
        later([earlier()], {"y": fw.Int(1, 9)})


def test_a_stored_study_that_began_without_cannot_start_from_another():
    plain = later([])
    with pytest.raises(fw.UsageError, match="began without start_from"):
        later([earlier()], storage=plain.log)
