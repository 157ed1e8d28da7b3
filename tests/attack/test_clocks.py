"""Clocks that jump by hours, during a run and between machines: nothing is lost, hangs, or takes less than no time."""

from __future__ import annotations

import json
import random
import tempfile
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway.cli import main
from fairway.engine.verify import verify
from fairway.report import content
from fairway.report.view import View
from tests.attack.test_texts import said
from tests.attack.texts import ATTACKS
from tests.conftest import SPACE, within
from tests.storage.test_leases import move_elsewhere, open_study, rows

HOURS = 3600.0


class Jumping:
    """A machine whose wall clock is set back and forth; the clock that costs are measured by never is."""

    def __init__(self, jumps, start=1.7e9):
        self.now, self._ns, self._rng, self._jumps = start, 0, random.Random(0), list(jumps)

    def ns(self):
        self._ns += self._rng.randrange(1, 10**7)
        return self._ns

    def at(self):
        self.now += 0.01 + (self._jumps.pop() if self._jumps else 0.0)
        return self.now


@given(jumps=st.lists(st.sampled_from([-5 * HOURS, 9 * HOURS, -1e6, -2e9, 1e9]), max_size=30))
@settings(max_examples=ATTACKS)
def test_a_wall_clock_that_jumps_changes_nothing_but_the_times_of_day(jumps):
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/study.db"
        study, steady = (
            fw.Study(
                SPACE,
                fw.Maximize("auc"),
                [fw.AtMost("eod", 0.25)],
                storage=each,
                name="credit",
                seed=0,
                sampler=fw.Random(),
                stopper=fw.Pilot(interval=1),
            )
            for each in (url, f"sqlite:///{folder}/steady.db")
        )
        study.owner.clock, steady.owner.clock = Jumping(jumps), Jumping([])
        for each in (study, steady):
            with within(60):
                each.optimize(train, trials=12, timeout=1e6, trial_timeout=1e5, check_timeout=1e5)
        assert [(t.params, t.status, t.metrics) for t in study.trials] == [
            (t.params, t.status, t.metrics) for t in steady.trials
        ]
        assert (study.costs.checks, study.costs.saved_checks) == (steady.costs.checks, steady.costs.saved_checks)
        assert min(min(t.training_seconds, t.check_seconds) for t in study.trials) >= 0.0
        assert verify(study.log.read()).faults == []
        view = View(study.log, "credit")
        shown = [content.study(view), content.line(view), *(content.trial(view, k) for k in range(12))]
        json.dumps(shown, allow_nan=False)
        for command in ("show", "list", "verify"):
            code, _, err = said([command, url, *(["credit"] if command != "list" else [])])
            assert (code, err) == (0, "")


def train(trial):
    for step in trial.steps(4):
        trial.report(auc=trial.params["x"] * step, eod=lambda: trial.params["x"] / 3)


@pytest.mark.parametrize("jump", [-9 * HOURS, -60.0, 60.0, 9 * HOURS])
def test_when_the_clock_of_the_database_jumps_a_process_of_this_machine_keeps_its_trial(url, jump):
    study, other = open_study(url), open_study(url)
    trial = study.ask()
    rows(url, f"UPDATE fairway_worker SET beat = beat - ({jump})")  # as it looks when the clock was set by that much
    other.tell(other.ask(), auc=0.5, eod=0.1)
    assert other.counts["failed"] == 0
    study.tell(trial, auc=0.9, eod=0.1)
    assert study.best.number == 0


@pytest.mark.parametrize("jump", [-9 * HOURS, 9 * HOURS])
def test_a_dead_worker_of_another_machine_is_noticed_whichever_way_the_clock_was_set(tmp_path, jump):
    url = f"sqlite:///{tmp_path}/study.db"
    study, other = open_study(url), open_study(url)
    study.ask()
    move_elsewhere(url)
    rows(url, f"UPDATE fairway_worker SET beat = beat - ({jump}) WHERE worker = 0")
    other.ask()
    assert other.trials[0].reason == "lost its worker"


@pytest.mark.parametrize("created", [-1e300, -1.0, 1e300, 1e12, "'yesterday'", "NULL"])
def test_a_database_made_at_no_sensible_time_is_listed_or_refused_with_a_sentence(tmp_path, created, capsys):
    url = f"sqlite:///{tmp_path}/study.db"
    fw.Study(SPACE, fw.Maximize("auc"), storage=url, name="credit", seed=0)
    try:
        rows(url, f"UPDATE fairway_study SET created = {created}")
    except Exception:  # noqa: BLE001 - the database refuses it
        return
    assert main(["list", url]) in (0, 2)
    shown = capsys.readouterr()
    assert "credit" in shown.out + shown.err


def test_the_clock_of_costs_never_runs_back():
    from fairway.engine.clock import WallClock

    readings = [WallClock.ns() for _ in range(1000)]
    assert all(later >= earlier for earlier, later in pairwise(readings))
