"""What stands between a study and its limits: who is nearest, which one is to blame, and who says so."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

import fairway as fw
from fairway import feasibility
from fairway.cli import main
from fairway.engine.obstacles import obstacles
from fairway.feasibility import Checkpoint
from fairway.report.summary import summarize
from fairway.report.view import View

LIMITS = [fw.AtMost("ms", 14.0), fw.AtMost("eod", 0.12)]
LINE = {"x": fw.Float(0.0, 1.0)}


def told(*results, limits=LIMITS, **settings):
    study = fw.Study(LINE, fw.Maximize("auc"), limits, seed=0, **settings)
    for result in results:
        study.tell(study.ask(), result)
    return study


def few_limits():
    """Where eod was violated, ms was not called; every measured ms is far beyond its limit."""
    return told(
        {"auc": 0.90, "eod": 0.1216},
        {"auc": 0.80, "eod": 0.11, "ms": 40.0},
        {"auc": 0.70, "eod": 0.10, "ms": 33.0},
        {"auc": 0.85, "eod": 0.30},
        {"auc": 0.60, "eod": 0.10, "ms": 66.0},
    )


class TestNearest:
    def test_what_was_not_measured_does_not_count_as_held(self):
        study = few_limits()
        known = {k: course.checkpoint for k, course in enumerate(study.owner.ledger.courses)}
        assert feasibility.nearest(study.problem, known) == 2
        assert summarize(View(study)).number == 2

    def test_the_limit_that_nobody_kept_is_to_blame(self):
        study = few_limits()
        first, second = obstacles(study.problem, study.owner.ledger.courses)
        assert (first.constraint.metric, first.kept, first.nearest) == ("ms", 0, 33.0)
        assert second.kept == 3
        sentences = summarize(View(study)).sentences
        assert any(
            each.startswith("What stands in the way: none of 3 trials that measured ms kept it at most 14")
            for each in sentences
        )
        assert "and 33 came nearest: loosen that limit" in " ".join(sentences)

    def test_samplers_see_the_same_order(self):
        history = few_limits().history
        assert history.number[history.order].tolist() == [2, 1, 0, 3, 4]
        assert (history.violation > 0.0).all()

    def test_with_one_limit_or_all_measured_the_order_is_that_of_the_violation(self):
        problem, rng = fw.Problem(fw.Maximize("auc"), LIMITS), np.random.default_rng(0)
        bounds, amounts = rng.uniform(0.0, 40.0, (20, 2)), rng.uniform(0.0, 2.0, 20)
        assert (feasibility.distances(problem, bounds, amounts) == amounts).all()
        alone = fw.Problem(fw.Maximize("auc"), LIMITS[:1])
        assert (feasibility.distances(alone, bounds[:, :1], amounts) == amounts).all()

    def test_unknown_and_infinite_stay_what_they_are(self):
        problem, nan = fw.Problem(fw.Maximize("auc"), LIMITS), np.nan
        bounds = np.array([[28.0, 0.1], [nan, 0.1], [nan, nan], [nan, 0.24]])
        away = feasibility.distances(problem, bounds, np.array([1.0, nan, np.inf, 1.0]))
        np.testing.assert_array_equal(away, [1.0, nan, np.inf, 2.0])
        assert feasibility.nearest(problem, {3: Checkpoint(1, 0.5, (None, 0.1))}) is None


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ([{"auc": 0.9}] * 2, "has a limit and was not reported by any of 2 trials: report it beside the objective"),
        ([{"auc": 0.9, "ms": float("nan")}] * 2, "ms was NaN in all of 2 trials, and NaN counts as violated"),
        ([{"auc": 0.9, "ms": 15.0}], "the only trial that measured ms did not keep it at most 14, and 15 came"),
        (
            [{"auc": 0.9, "ms": 15.0}, {"auc": 0.9, "ms": 13.0, "eod": 0.2}],
            "the only trial that measured eod did not keep it",
        ),
        (
            [{"auc": 0.9, "ms": 15.0, "eod": 0.1}, {"auc": 0.9, "ms": 13.0, "eod": 0.2}],
            "1 of 2 trials kept ms at most 14, but none of them every other limit too: loosen one of them",
        ),
    ],
)
def test_each_obstacle_has_a_sentence(results, sentence):
    study = told(*results)
    said = [str(each) for each in obstacles(study.problem, study.owner.ledger.courses)]
    assert any(sentence in each for each in said)


def doubts(caplog):
    return [record.getMessage() for record in caplog.records if "nothing is within" in record.getMessage()]


class TestOptimize:
    @pytest.fixture(autouse=True)
    def listen(self, caplog):
        caplog.set_level(logging.WARNING, "fairway")

    def run(self, function, trials, **settings):
        study = fw.Study(LINE, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], seed=0, **settings)
        study.optimize(function, trials=trials, progress=False)
        return study

    @pytest.mark.parametrize("trials", [2, 20])
    def test_a_limit_that_is_never_reported_is_spoken_of_once_and_early(self, caplog, trials):
        said = []

        def evaluate(trial):
            said.append(len(doubts(caplog)))
            return {"auc": 0.9}

        study = self.run(evaluate, trials)
        (sentence,) = doubts(caplog)
        assert sentence.startswith(f"nothing is within the limits after {min(trials, 3)} trials: eod has a limit and")
        assert sentence.endswith(" trials: report it beside the objective, or drop the constraint")
        assert said[: min(trials, 3)] == [0] * min(trials, 3)
        assert all(said[3:])
        assert study.best is None

    def test_a_limit_that_is_always_nan_is_spoken_of(self, caplog):
        self.run(lambda _: {"auc": 0.9, "eod": float("nan")}, 5)
        assert len(doubts(caplog)) == 1
        assert "after 3 trials: eod was NaN in all of 3 trials" in doubts(caplog)[0]

    def test_a_limit_that_none_of_ten_trials_keeps_is_spoken_of(self, caplog):
        self.run(lambda trial: {"auc": 0.9, "eod": 0.3 + trial.params["x"]}, 14)
        assert len(doubts(caplog)) == 1
        assert "after 10 trials: none of 10 trials that measured eod kept it at most 0.1, and 0.3" in doubts(caplog)[0]

    def test_a_short_run_that_found_nothing_says_at_its_end_what_stands_in_the_way(self, caplog):
        self.run(lambda trial: {"auc": 0.9, "eod": 0.3 + trial.params["x"]}, 8)
        (sentence,) = doubts(caplog)
        assert "after 8 trials: none of 8 trials that measured eod kept it at most 0.1, and 0.3" in sentence

    def test_nothing_is_said_while_checks_wait_for_their_turn_or_if_something_is_feasible(self, caplog):
        said = []

        def train(trial):
            said.append(doubts(caplog))
            for step in trial.steps(4):
                trial.report(auc=0.5 + step / 10, eod=lambda: 0.2)

        study = self.run(train, 4, stopper=fw.ACE(interval="end"))
        assert said == [[]] * 4
        assert study.best is None
        caplog.clear()
        self.run(lambda trial: {"auc": trial.params["x"], "eod": 0.05 if trial.number == 1 else 0.5}, 12)
        assert doubts(caplog) == []


def test_show_says_why_nothing_is_feasible(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    told({"auc": 0.9}, {"auc": 0.8}, storage=url, name="credit")
    assert main(["show", url, "credit"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No model is known to be within the limits: ms and eod were never reported." in said
    assert "What helps: report every metric that has a limit beside the objective, or drop the constraint." in said
    told({"auc": 0.9, "ms": 20.0, "eod": 0.1}, storage=url, name="slow")
    assert main(["show", url, "slow"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ms 20 is 6 (43%) beyond its limit of at most 14." in said
    assert "What stands in the way: the only trial that measured ms did not keep it at most 14" in said


@pytest.mark.parametrize("alone", [False, True])
def test_a_latency_that_was_measured_in_company_names_that_as_a_cause(caplog, alone):
    def train(trial):
        trial.report(auc=0.5, ms=fw.Measured(20.0 + trial.number, 0.1, note="beside 3 other workers"))

    limits = [fw.AtMost("ms", 14.0, alone=alone)]
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, stopper=fw.Never(skip=False), seed=0)
    study.optimize(train, trials=10)
    cause = (
        "none of 10 trials that measured ms kept it at most 14, and 20 came nearest; all of them were measured in "
        "company (beside 3 other workers), which can make it worse: measure on a quiet machine with workers=1, or "
        "loosen that limit, widen the space, or search longer"
    )
    assert f"nothing is within the limits after 10 trials: {cause}" in caplog.messages
    if alone:  # trial 0 was measured again, and not alone either
        cause = cause.replace("(beside", "(such as beside")
    assert f"What stands in the way: {cause}." in summarize(View(study)).sentences


def test_a_limit_that_was_measured_once_is_not_said_to_be_unreported_and_unmeasured_is_not_kept(caplog):
    def train(trial):
        trial.report(auc=0.5, eod=0.05, ms=14.1)
        trial.report(auc=0.5, eod=0.1005)

    limits = [fw.AtMost("ms", 14.0), fw.AtMost("eod", 0.1)]
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, stopper=fw.Never(), seed=0)
    study.optimize(train, trials=3)
    assert study.trials[0].metrics == {"auc": 0.5, "ms": 14.1, "eod": 0.05}
    assert "not reported" not in caplog.text
    assert "none of 3 trials that measured ms kept it at most 14" in caplog.text


def test_a_limit_that_nobody_measured_where_it_counts_may_stand_in_the_way_too():
    study = told({"auc": 0.9, "eod": 0.2})
    first, *_ = obstacles(study.problem, study.owner.ledger.courses, [5, 0])
    assert str(first).endswith("; ms was not measured there, and may stand in the way too")


@pytest.mark.parametrize("timeout", [None, 0.5])
def test_under_a_time_limit_it_is_said_after_few_trials_too(caplog, timeout):
    def train(trial):
        if timeout:
            time.sleep(0.3)
        return {"auc": 0.5, "ms": 20.0}

    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("ms", 14.0)], seed=0)
    study.optimize(train, trials=None if timeout else 2, timeout=timeout)
    assert ("nothing is within the limits after" in caplog.text) == (timeout is not None)


def test_only_those_that_had_company_are_said_to_have_had_it():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("ms", 14.0)], seed=0)
    for ms in (20.0, 21.0, fw.Measured(22.0, 0.1, note="while others used 1.5 of 2 cores")):
        study.tell(study.ask(), auc=0.5, ms=ms)
    (sentence,) = map(str, obstacles(study.problem, study.owner.ledger.courses))
    assert "; 1 of them was measured in company (while others used 1.5 of 2 cores), which" in sentence


def test_a_check_that_raises_is_not_taken_for_one_that_nobody_reports(caplog):
    def train(trial):
        for _ in trial.steps(3):
            trial.report(auc=0.1, eod=lambda: 1 / 0)

    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.5)], seed=0)
    with pytest.raises(fw.StudyFailed, match="ZeroDivisionError"):
        study.optimize(train, trials=6)
    assert "was not reported" not in caplog.text


@pytest.mark.parametrize(("reported", "times"), [({}, 1), ({"ms": 3.0}, 0), ({"ms": lambda: 3.0}, 0)])
def test_a_tracked_metric_that_is_never_reported_is_spoken_of_once(caplog, reported, times):
    study = fw.Study(LINE, fw.Maximize("auc"), [fw.Track("ms")], seed=0)
    study.optimize(lambda trial: {"auc": 0.9, **reported}, trials=12, progress=False)
    said = [record.getMessage() for record in caplog.records]
    cure = "report it beside the objective, as a number or a callable"
    assert said == [f"ms is tracked, and none of 3 trials reported it: {cure}"] * times
