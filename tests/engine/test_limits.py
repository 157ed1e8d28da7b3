"""Limits that change: whatever the log and whenever they change, everybody judges as if they had always been these."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.engine import states
from fairway.engine.columns import fitted
from fairway.engine.event_json import from_json, to_json
from fairway.engine.events import LimitsChanged, Opened, Reported, Told
from fairway.engine.ledger import Ledger
from fairway.engine.limits import Limits, differences
from fairway.engine.referee import Referee
from fairway.engine.snapshot import faults, keep, restore
from fairway.engine.sums import Outcome
from fairway.engine.verify import verify
from fairway.errors import UsageError
from fairway.evidence import Exact
from fairway.report import content
from fairway.report.certificates import badge
from fairway.report.page import document
from fairway.report.view import View
from tests.conftest import SPACE, flush, run_curves, within
from tests.engine.logs import acts_up_to, live, stoppers

thresholds = st.integers(0, 8).map(lambda k: k / 8)
change = st.one_of(
    st.fixed_dictionaries({"eod": st.one_of(thresholds, st.none())}),
    st.fixed_dictionaries({"ms": st.one_of(thresholds, st.none())}),
    st.just({"size": fw.AtMost("size", 0.5)}),
)
changes = st.dictionaries(st.integers(0, 39), change, max_size=3)


def run(stopper, acts, changes, owners=1):
    """The study of `live`, in which limits change after some acts."""
    done = iter(range(1000))

    def after(study):
        limits = changes.get(next(done), {})
        study.owner.journal.catch_up()  # another owner may have changed them
        known = study.owner.ledger.limits.now
        for metric, limit in limits.items():
            if isinstance(limit, fw.AtMost) and metric not in known.constraints:
                study.set_limit(limit)
            elif not isinstance(limit, fw.AtMost) and not (limit is None and metric in known.dropped):
                study.set_limit(**{metric: limit})

    return live(stopper, acts, owners, after=after)


def as_if_always(study):
    """A ledger and a referee of the same trials in a study that began with today's limits."""
    problem = fw.Problem(study.problem.objective, study.problem.constraints)
    ledger, referee = Ledger(study.space, problem), Referee(problem, study.stopper)
    for event in study.log.read():
        if isinstance(event, Opened):
            ledger.replay(replace(event, config={**event.config, "constraints": problem.constraints}))
        elif isinstance(event, Reported):
            ledger.replay(fitted(event, study.problem))
            referee.replay(replace(fitted(event, study.problem)))
        elif isinstance(event, Told):
            ledger.replay(ledger.summed(Outcome.of(event), None))
            referee.replay(event)
        elif not isinstance(event, LimitsChanged):
            ledger.replay(event)
    return ledger, referee


def assert_same_columns(one, other, but=()):
    for name, column in other.columns.rows().items():
        assert name in but or np.array_equal(one.columns.rows()[name], column, equal_nan=True), name


@settings(max_examples=30)
@given(stoppers, acts_up_to(40), changes)
def test_a_study_whose_limits_changed_knows_what_one_with_these_limits_from_the_start_would(stopper, acts, changes):
    study = run(stopper, acts, changes)
    ledger, referee = as_if_always(study)
    mine = study.owner.ledger
    assert_same_columns(mine, ledger, but=["seconds"])  # checks of a limit that was dropped were paid all the same
    assert np.array_equal(mine.history().order, ledger.history().order)
    assert (mine.best, repr(mine.best_ignoring_limits)) == (ledger.best, repr(ledger.best_ignoring_limits))
    for k in range(len(mine.courses)):
        one, other = mine.record(k), ledger.record(k)
        assert repr(replace(one, check_seconds=0.0)) == repr(replace(other, check_seconds=0.0))  # NaN is unlike itself
    assert study.owner.referee.incumbent == referee.incumbent
    rebuilt = study.owner.referee.known_by(study.problem, study.log.read())
    referee.restart_stopper()
    assert repr(states.to_json(rebuilt)) == repr(states.to_json(referee.known()))


@settings(max_examples=30)
@given(stoppers, acts_up_to(40), changes, st.integers(1, 3))
def test_every_ruling_can_be_made_again_though_limits_changed(stopper, acts, changes, owners):
    study = run(stopper, acts, changes, owners)
    assert verify(study.log.read()).faults == []


@settings(max_examples=30)
@given(stoppers, acts_up_to(40), changes, st.integers(0, 40))
def test_a_reader_of_summaries_and_a_snapshot_agree_with_the_owner(stopper, acts, changes, until):
    study = run(stopper, acts[:until], {k: each for k, each in changes.items() if k < until})
    view, held = View(study), Held(study.log)
    assert keep(held, len(held.read()), study.owner.ledger, study.owner.referee)
    found = faults(held, held.read(), study.space, study.problem)
    assert found == [], found
    referee = Referee(study.problem, study.stopper)
    ledger, position = restore(held, study.space, study.problem, 0, referee)
    assert position == len(held.read())
    for one in (view.ledger, ledger):
        assert_same_columns(one, study.owner.ledger)
        assert one.best == study.owner.ledger.best
        assert one.problem == study.problem
    assert repr(view.trials) == repr(study.trials)
    assert repr(states.to_json(referee.known())) == repr(states.to_json(study.owner.referee.known()))


def train_towards(trial):
    """The loss falls with x and y, and so does the size rise."""
    x, y = trial.params["x"], trial.params["y"]
    limited = {"size": lambda: x * y} if "size" in trial.problem.metrics else {}
    for step in trial.steps(30):
        trial.report(loss=(1 - x) ** 2 + (1 - y) ** 2 + 1 / step, **limited)


@pytest.mark.parametrize("seed", range(3))
def test_after_a_new_limit_trials_are_not_stopped_by_those_that_were_never_checked_for_it(seed):
    space, pilot = {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)}, fw.Pilot(interval=1)
    study = fw.Study(space, fw.Minimize("loss"), stopper=pilot, seed=seed)
    study.optimize(train_towards, trials=30, progress=False)
    study.set_limit(fw.AtMost("size", 0.1))
    study.optimize(train_towards, trials=30, progress=False)
    assert sum(trial.steps <= 3 for trial in study.trials[30:]) <= 15  # of 30; it was 24 or more
    assert verify(study.log.read()).faults == []


class Held:
    """A log in memory that keeps a snapshot."""

    def __init__(self, log):
        self._log, self._parts = log, {}
        self.leases, self.read, self.summary, self.reports = None, log.read, log.summary, log.reports
        self.append = log.append

    def mark(self, position):
        return str(position)

    def keep(self, parts):
        self._parts = parts

    def kept(self, names=None):
        return {name: part for name, part in self._parts.items() if names is None or name in names}


def test_the_best_model_follows_the_limits_and_stopped_trials_stay_stopped(make_study):
    study = make_study(fw.ACE(interval=1))
    run_curves(study, [[(0.5, {"eod": 0.1})] * 4] + [[(0.9, {"eod": 0.3})] * 4] * 7 + [[(0.9, {"eod": 0.9})] * 4])
    before = [trial.status for trial in study.trials]
    assert (study.best.number, before[-1]) == (0, "stopped")
    study.set_limit(eod=0.3)
    assert study.best.metrics == {"auc": 0.9, "eod": 0.3}
    assert study.history.feasible.tolist() == [True] * 8 + [False]
    study.set_limit(eod=0.05)
    assert study.best is None
    assert [trial.status for trial in study.trials] == before


def test_the_scale_of_violations_stays_the_first_one(make_study):
    study = make_study(fw.Never())
    study.tell(study.ask(), auc=0.5, eod=0.75)
    assert study.history.violation.tolist() == [2.0]
    study.set_limit(eod=0.5)
    assert study.history.violation.tolist() == [1.0]
    study.set_limit(eod=None)
    study.set_limit(eod=0.25)
    assert study.history.violation.tolist() == [2.0]


def test_earlier_trials_are_unknown_in_a_constraint_that_is_added(make_study):
    study = make_study(fw.Never())
    study.tell(study.ask(), auc=0.5, eod=0.1)
    study.set_limit(fw.AtMost("ms", 5.0))
    assert study.best is None
    assert study.trials[0].feasible is None
    assert study.tell(study.ask(), auc=0.4, eod=0.1, ms=4.0)
    assert study.best.metrics == {"auc": 0.4, "eod": 0.1, "ms": 4.0}
    assert study.history.unknown.tolist() == [True, False]


def test_a_metric_whose_limit_was_dropped_may_still_be_reported_and_is_not_paid_for(make_study):
    study = make_study(fw.Never(), (fw.AtMost("eod", 0.25), fw.AtMost("ms", 5.0)))
    study.tell(study.ask(), auc=0.5, eod=0.5, ms=4.0)
    study.set_limit(eod=None)
    assert study.best.metrics == {"auc": 0.5, "ms": 4.0}
    called = []
    assert study.tell(study.ask(), auc=0.6, eod=lambda: called.append(1), ms=lambda: 3.0)
    assert not called
    study.set_limit(eod=0.6)
    assert (study.best.number, study.best.metrics) == (0, {"auc": 0.5, "eod": 0.5, "ms": 4.0})
    assert verify(study.log.read()).faults == []


def test_what_a_check_cost_counts_though_its_limit_was_dropped(make_study):
    study = make_study(fw.Never())
    trial = study.ask()
    trial.report(auc=0.5, eod=lambda: time.sleep(0.001) or 0.1)
    flush(study)
    spent = study.costs.check_seconds
    assert spent >= 0.001
    study.set_limit(eod=None)
    assert study.costs.check_seconds == spent
    study.tell(trial)
    assert study.costs.check_seconds == spent


def test_limits_that_change_while_a_constraint_is_measured_count_for_its_ruling(make_study):
    study = make_study(fw.ACE(interval=1))
    trial = study.ask()
    trial.steps(4)

    def measure(change):
        study.set_limit(**change)
        return 0.3

    assert not trial.report(auc=0.5, eod=lambda: measure({"eod": 0.1})).best
    assert trial.report(auc=0.6, eod=lambda: measure({"eod": 0.4})).best
    assert trial.report(auc=0.7, eod=lambda: measure({"eod": None})).best
    assert study.best.step == 3
    trial.report(auc=0.5)
    study.tell(trial)
    assert verify(study.log.read()).faults == []


def test_limits_that_are_there_already_change_nothing(make_study):
    study = make_study()
    before = len(study.log.read())
    study.set_limit(eod=0.25)
    assert len(study.log.read()) == before


def test_two_owners_that_change_limits_at_once_both_count(make_study):
    study = make_study()
    other = make_study(storage=study.log)
    study.set_limit(fw.AtMost("ms", 5.0))
    other.set_limit(fw.AtMost("size", 3.0))
    assert other.problem.metrics == ("auc", "eod", "ms", "size")


def test_a_change_of_limits_is_written_as_json():
    limits = Limits({"eod": fw.AtMost("eod", 0.25)})
    event = limits.changed("auc", [fw.AtLeast("recall", 0.5)], {"eod": None}).event(3, 7.0)
    again = from_json(to_json(event))
    assert (again, Limits.of(again).dropped) == (event, {"eod"})
    said = differences(limits, Limits.of(again))
    assert said == ["eod without a limit (was ≤ 0.25)", "recall ≥ 0.5 (new)"]
    assert differences(Limits.of(again), limits) == ["eod ≤ 0.25 (again)"]


@pytest.mark.parametrize(
    ("added", "limits", "message"),
    [
        ((), {}, r"set_limit\(\) came without a limit"),
        ((fw.Track("eod"),), {"eod": 0.2}, "eod came twice, as Track and as a number"),
        ((), {"eo": 0.1}, r"set_limit\(eo=0.1\): the study has no limit on 'eo' \(its limits: eod\)"),
        ((), {"auc": 0.9}, "auc is the objective, which stays as it is"),
        ((), {"eod": "0.1"}, r"set_limit\(eod='0.1'\): a finite number is expected, or None to drop the limit"),
        ((), {"eod": float("nan")}, "a finite number is expected"),
        ((), {"eod": True}, "a finite number is expected"),
        ((0.1,), {}, r"set_limit\(0.1\): set_limit\(eod=0.12\) or set_limit\(fw.AtMost\('ms', 20.0\)\) is expected"),
        ((fw.AtLeast("eod", 0.2),), {}, r"AtLeast\('eod', ...\)\): the study limits that metric the other way"),
        ((fw.AtMost("eod", 0.2),), {}, r"a constraint on that metric already; give its number, set_limit\(eod=0.2\)"),
        ((fw.AtMost("auc", 0.2),), {}, "that is the objective"),
    ],
)
def test_a_limit_that_is_none_is_refused_in_one_sentence(make_study, added, limits, message):
    study = make_study()
    with pytest.raises(UsageError, match=message):
        study.set_limit(*added, **limits)
    assert len(study.log.read()) == 1


def test_a_limit_is_dropped_once(make_study):
    study = make_study()
    study.set_limit(eod=None)
    with pytest.raises(UsageError, match="that limit was dropped before"):
        study.set_limit(eod=None)


def test_a_stored_study_opens_with_the_limits_it_has_and_with_no_others(url):
    def opened(*limits):
        return fw.Study(SPACE, fw.Maximize("auc"), limits, storage=url, seed=0)

    study = opened(fw.AtMost("eod", 0.25))
    study.tell(study.ask(), auc=0.5, eod=0.3)
    with pytest.raises(UsageError, match=r"eod threshold 0.25 there, 0.3 here; .* study.set_limit\(eod=0.3\)"):
        opened(fw.AtMost("eod", 0.3))
    study.set_limit(eod=0.3)
    assert opened(fw.AtMost("eod", 0.3)).best == study.best
    assert opened(fw.AtMost("eod", 0.3)).problem == study.problem
    with pytest.raises(UsageError, match=r"eod threshold 0.3 there, 0.25 here; .* study.set_limit\(eod=0.25\)"):
        opened(fw.AtMost("eod", 0.25))
    assert fw.load_study(url).problem == study.problem


def test_an_owner_that_runs_a_trial_hears_of_limits_that_another_changed(url):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], stopper=fw.Never(), storage=url, seed=0)
    trial = study.ask()
    trial.report(auc=0.5, eod=0.3)
    fw.load_study(url).set_limit(eod=0.4)
    with within(60):
        while study.best is None:
            time.sleep(0.01)
    trial.report(auc=0.6, eod=0.35)
    study.tell(trial)
    assert study.best.step == 2
    assert verify(study.log.read()).faults == []


RUN = """
import sys, time
import fairway as fw

study = fw.load_study(sys.argv[1], "credit")

def train(trial):
    for step in trial.steps(20):
        time.sleep(0.002)
        trial.report(auc=trial.params["x"] * step / 20, eod=lambda: trial.params["x"] * step / 40)

print("ready", flush=True)
study.optimize(train, trials=int(sys.argv[2]), workers=2, progress=False)
"""


def test_limits_change_twice_under_workers_that_are_killed_and_every_decision_replays(url):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], storage=url, name="credit", seed=0)
    code = [sys.executable, "-c", RUN, url]
    owner = subprocess.Popen([*code, "10000"], stdout=subprocess.PIPE, start_new_session=True)
    try:
        with within(120):
            for limit, trials in ((0.3, 6), (0.2, 12)):
                wait_for(study, trials)
                study.set_limit(eod=limit)
            heard(study, {0, 1, 2, 3} - {study.owner.referee.worker})
    finally:
        os.killpg(owner.pid, signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
    with within(120):
        subprocess.run([*code, "6"], check=True, stdout=subprocess.DEVNULL)
    flush(study)
    events = study.log.read()
    assert [event.change for event in events if isinstance(event, LimitsChanged)] == [0, 1]
    assert verify(events).faults == []
    assert View(study).best.number == study.best.number
    assert 0.1 < study.best.metrics["eod"] <= 0.2


def wait_for(study, trials):
    while len(study.owner.ledger.columns.rows()["number"]) < trials:
        study.owner.journal.catch_up()
        time.sleep(0.01)


def heard(study, workers):
    """Wait until these workers have ruled on something by the limits that hold now."""
    while True:
        events = study.log.read()
        last = max(i for i, event in enumerate(events) if isinstance(event, LimitsChanged))
        ruled = {event.worker for event in events[last:] if isinstance(event, Reported) and event.seen > last}
        if len(ruled & workers) > 1:
            return
        time.sleep(0.05)


def certified(limit=0.1):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("ms", limit)], seed=0, stopper=fw.Never())
    study.tell(study.ask(), auc=0.8, ms=0.05)
    assert study.certify(lambda _: Exact(0.06), models=lambda _: "a model", progress=False).certified
    return study


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda study: study.set_limit(ms=0.2), "certified"),
        (lambda study: study.set_limit(ms=0.08), "open"),
        (lambda study: study.set_limit(fw.AtMost("mb", 9.0), ms=0.2), None),  # nothing is known to be within it
        (lambda study: study.tell(study.ask(), auc=0.7, ms=0.05), "certified"),
        (lambda study: study.tell(study.ask(), auc=0.9, ms=0.05), "open"),
    ],
)
def test_a_certificate_keeps_its_badge_while_limits_are_no_tighter_and_no_better_model_is_found(change, kind):
    study = certified()
    said = str(study.certificate)
    assert badge(View(study)).kind == "certified"
    change(study)
    found = badge(View(study))
    assert (None if found is None else found.kind) == kind
    assert str(study.certificate) == str(View(study).certificate) == said  # the record stays
    assert verify(study.log.read()).faults == []


def test_a_looser_limit_under_which_another_model_is_the_best_takes_the_badge(tmp_path):
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("ms", 0.1)], storage=f"sqlite:///{tmp_path / 'study.db'}")
    study.tell(study.ask(), auc=0.8, ms=0.05)
    study.tell(study.ask(), auc=0.9, ms=0.15)
    assert study.certify(lambda _: Exact(0.06), models=lambda _: "a model", progress=False).certified
    study.set_limit(ms=0.2)
    assert study.best.number == 1
    for seen in (study, fw.load_study(f"sqlite:///{tmp_path / 'study.db'}")):
        assert badge(View(seen)).kind == "open"
    assert verify(study.log.read()).faults == []


def test_the_report_says_when_and_what_changed(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.1)
    study.set_limit(eod=0.2)
    ((when, what),) = content.changes(View(study))
    assert when.startswith("after 1 trial, 20")
    assert what == "eod ≤ 0.2 (was ≤ 0.25)"
    assert what in document(View(study)).replace("\\u2264", "≤")
