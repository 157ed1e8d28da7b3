"""Trials and checks that never report: killed with their workers, or named as what the run waits for."""

from __future__ import annotations

import ctypes
import logging
import math
import threading
import time
from datetime import date, datetime, timedelta, timezone

import pytest

import fairway as fw
from fairway.engine.verify import verify
from fairway.runners import times
from tests.conftest import within

LONG = 100.0  # seconds, that no test waits


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(times, "GRACE_SECONDS", 0.3)


def hold_the_lock():
    ctypes.PyDLL(None).usleep(int(LONG * 1e6))


def test_a_run_whose_trials_never_report_ends_after_its_time(make_study):
    study = make_study()
    with within(40):
        study.optimize(lambda trial: time.sleep(LONG), timeout=3, trial_timeout=1, workers=2)
    assert study.ended == "the timeout of 3 s has passed"
    assert study.counts["running"] == 0
    assert study.counts["failed"] == len(study.trials) >= 2
    assert all("timeout" in trial.reason for trial in study.trials)


@pytest.mark.parametrize("hang", [lambda: time.sleep(LONG), hold_the_lock], ids=["asleep", "holding Python's lock"])
def test_a_trial_past_its_time_is_killed_and_its_worker_replaced(make_study, caplog, hang):
    def sometimes(trial):
        if trial.number == 1:
            hang()
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    with within(40):
        study.optimize(sometimes, trials=6, trial_timeout=1, workers=2)
    assert [trial.status for trial in study.trials] == ["completed", "failed", *["completed"] * 4]  # not tried again
    reason = study.trials[1].reason
    assert reason.startswith("longer than trial_timeout=1 s; its worker was killed ")
    assert f"trial 1 failed: {reason}" in caplog.messages
    assert verify(study.log.read()).faults == []


def test_a_killed_trial_is_tried_again_if_that_is_asked_for(make_study):
    def hangs(trial):
        if trial.params["x"] == 0.125:
            time.sleep(LONG)
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    study.enqueue({"x": 0.125})
    with within(60):
        study.optimize(hangs, trials=2, trial_timeout=0.5, workers=1, backend="process", retry=1)
    assert [trial.params["x"] == 0.125 for trial in study.trials] == [True, True, False]
    assert study.counts == {"running": 0, "completed": 1, "stopped": 0, "failed": 2}


def test_a_killed_trial_may_clean_up(make_study, tmp_path):
    def tidy(trial):
        try:
            if trial.number == 0:
                time.sleep(LONG)
        finally:
            (tmp_path / "tidied").touch()
        return {"auc": 0.5, "eod": 0.1}

    study = make_study()
    with within(40):
        study.optimize(tidy, trials=2, trial_timeout=0.5, workers=1, backend="process")
    assert (tmp_path / "tidied").exists()


def test_a_trial_that_reports_within_the_grace_is_stopped_and_keeps_what_it_measured(make_study, monkeypatch):
    monkeypatch.setattr(times, "GRACE_SECONDS", LONG)

    def slow(trial):
        for _ in trial.steps(1000):
            time.sleep(0.3)
            trial.report(auc=0.5, eod=0.1)

    study = make_study(fw.Never())
    with within(40):
        study.optimize(slow, trials=1, trial_timeout=0.1, workers=1, backend="process")
    assert [(trial.status, trial.reason) for trial in study.trials] == [("stopped", "longer than trial_timeout=0.1 s")]
    assert study.best is not None


def test_long_steps_have_a_grace_of_two_of_them(make_study):
    def slow(trial):
        for _ in trial.steps(1000):
            time.sleep(1.0)  # three times the grace
            trial.report(auc=0.5, eod=0.1)

    study = make_study(fw.Never())
    with within(40):
        study.optimize(slow, trials=1, trial_timeout=1.4, workers=1, backend="process")
    assert [(trial.status, trial.steps) for trial in study.trials] == [("stopped", 2)]


@pytest.mark.parametrize("hang", [lambda: time.sleep(LONG), hold_the_lock], ids=["asleep", "holding Python's lock"])
def test_a_check_past_its_time_is_killed_and_named(make_study, hang):
    def train(trial):
        for _ in trial.steps(2):
            trial.report(auc=0.5 + trial.number / 100, eod=lambda: hang() or 0.1 if trial.number == 1 else 0.1)

    study = make_study(fw.ACE(interval=1))
    with within(40):
        study.optimize(train, trials=3, check_timeout=0.5, workers=1, backend="process")
    assert [trial.status for trial in study.trials] == ["completed", "failed", "completed"]
    said = "the check of eod took longer than check_timeout=0.5 s; its worker was killed "
    assert study.trials[1].reason.startswith(said)


@pytest.mark.parametrize("backend", [None, "thread", "process"])
def test_a_check_that_ends_late_ends_its_trial(make_study, monkeypatch, backend):
    monkeypatch.setattr(times, "GRACE_SECONDS", LONG)

    def train(trial):
        for _ in trial.steps(5):
            trial.report(auc=0.5 + trial.number / 100, eod=lambda: time.sleep(0.3 * trial.number) or 0.1)

    study = make_study(fw.ACE(interval=1))
    with within(40):
        study.optimize(train, trials=2, check_timeout=0.1, backend=backend)
    assert [(trial.status, trial.steps, trial.reason) for trial in study.trials] == [
        ("completed", 5, ""),
        ("stopped", 1, "the check of eod took longer than check_timeout=0.1 s"),
    ]
    assert study.best.number == 1  # what was measured counts
    assert verify(study.log.read()).faults == []


class Ear(logging.Handler):
    """Hears that the run waits."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.heard, self.sentences = threading.Event(), []

    def emit(self, record):
        self.sentences.append(record.getMessage())
        self.heard.set()


@pytest.fixture
def ear():
    ear = Ear()
    logging.getLogger("fairway").addHandler(ear)
    yield ear
    logging.getLogger("fairway").removeHandler(ear)


@pytest.mark.parametrize("backend", [None, "thread"])
@pytest.mark.parametrize("limit", ["timeout", "trial_timeout", "check_timeout"])
def test_the_run_says_what_it_waits_for_where_nothing_can_be_killed(
    make_study, monkeypatch, capsys, ear, backend, limit
):
    monkeypatch.setattr(times, "_NOTICE_SECONDS", 0.05)
    monkeypatch.setattr("fairway.runners.progress._PLAIN_SECONDS", 0.1)
    monkeypatch.setattr("fairway.runners.progress._LOOK_SECONDS", 0.1)
    shown = []

    def wait():
        assert ear.heard.wait(20)
        patience = time.monotonic() + 20
        while "is past its time" not in (said := capsys.readouterr().err):
            assert time.monotonic() < patience
            time.sleep(0.05)
        shown.append(said)
        return 0.1

    def train(trial):
        if limit != "check_timeout" and not ear.heard.is_set():
            wait()
        trial.report(auc=0.5, eod=wait if limit == "check_timeout" and not ear.heard.is_set() else lambda: 0.1)

    study = make_study(fw.ACE(interval=1))
    with within(60):
        study.optimize(train, trials=1, backend=backend, progress=True, **{limit: 0.2})
    why = {
        "timeout": "the timeout of 0.2 s has passed",
        "trial_timeout": "longer than trial_timeout=0.2 s",
        "check_timeout": "the check of eod took longer than check_timeout=0.2 s",
    }[limit]
    what = "its check of 'eod'" if limit == "check_timeout" else "its training, which reports nothing"
    sentence = f"trial 0 is past its time ({why}): the run waits for {what}, and cannot end it in this process"
    assert ear.sentences == [f"{sentence}; with backend='process' it can"]
    assert sentence in shown[0]


@pytest.mark.parametrize("wrong", [0, -1, math.nan, "1"])
def test_a_check_takes_a_positive_number_of_seconds(make_study, wrong):
    with pytest.raises(fw.UsageError, match="check_timeout="):
        make_study().optimize(lambda trial: 1.0, trials=1, check_timeout=wrong)


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("18:30", datetime(2026, 3, 1, 18, 30)),
        ("17:00:01", datetime(2026, 3, 1, 17, 0, 1)),
        ("17:00", datetime(2026, 3, 2, 17, 0)),  # it is that now
        ("0:05", datetime(2026, 3, 2, 0, 5)),
        ("2026-03-01 18:30", datetime(2026, 3, 1, 18, 30)),
        (datetime(2026, 3, 5, 8, 0), datetime(2026, 3, 5, 8, 0)),
        (datetime(2026, 3, 1, 18, 30).astimezone(timezone(timedelta(hours=9))), datetime(2026, 3, 1, 18, 30)),
        (datetime.max, datetime.max),
    ],
)
def test_a_time_of_day_is_the_next_one_and_a_date_is_itself(until, expected):
    assert times.moment(until, datetime(2026, 3, 1, 17, 0)) == expected


@pytest.mark.parametrize(
    ("until", "says"),
    [
        ("6 pm", r"until='6 pm': a time of day such as '18:30', or a datetime, is expected"),
        ("25:00", "a time of day such as"),
        ("", "a time of day such as"),
        (18.5, r"until=18\.5: a time of day such as"),
        (date(2026, 3, 2), "a time of day such as"),
        ("2026-03-01", r"until='2026-03-01': it is 2026-03-01 17:00 now, and a later time is expected"),
        (datetime(2026, 3, 1, 16, 59), "it is 2026-03-01 17:00 now"),
    ],
)
def test_a_time_that_is_none_or_has_passed_is_refused(until, says):
    with pytest.raises(fw.UsageError, match=says):
        times.moment(until, datetime(2026, 3, 1, 17, 0))


def test_a_run_ends_at_its_time_and_says_which(make_study):
    study = make_study()
    soon = datetime.now() + timedelta(seconds=0.5)
    with within(30):
        study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, until=soon)
        assert study.ended == f"it is {soon:%H:%M}, when the run was to end"
        study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, timeout=0.1, until=datetime.max)
        assert study.ended == "the timeout of 0.1 s has passed"
    study.optimize(lambda trial: {"auc": 0.5, "eod": 0.1}, trials=1, until="23:59")
    assert study.ended == "1 trial was run"
    with pytest.raises(fw.UsageError, match="say when to end, with trials=, total=, timeout= or until="):
        study.optimize(lambda trial: 0.5)
