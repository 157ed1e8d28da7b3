"""Certificates end to end, on models whose truth is known: a model is its true rate of errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import fairway as fw
from fairway.engine import events as log
from fairway.engine.certification import Certification
from fairway.engine.events import Sealed
from fairway.engine.verify import verify
from fairway.evidence import Decisions, Exact, Mean, Quantile, Resampled

LIMIT, JUDGED = 0.10, 1000


class World:
    """Training whose objective grows with the rate of errors: a bold model is better, and breaks the limit."""

    def __init__(self, seed=0, *, rows=2000, low=0.0, high=0.2):
        self.rng, self.rows, self.low, self.high = np.random.default_rng(seed), rows, low, high
        self.trainings, self.evaluated = [], 0
        self.fresh = np.arange(rows)

    def rate(self, trial, step):
        return self.low + (self.high - self.low) * trial.params["x"] * step / 8

    def train(self, trial):
        self.trainings.append(trial.number)
        noise = np.random.default_rng([trial.number, 7])
        for step in trial.steps(8):
            rate = self.rate(trial, step)
            wrong = noise.binomial(JUDGED, rate) / JUDGED
            error = math.sqrt(max(wrong, 0.001) * (1 - wrong) / JUDGED)
            measured = fw.Measured(wrong, error=error, rows=JUDGED)
            trial.report(score=rate, errors=lambda _, measured=measured: measured, checkpoint=("model", rate))
        return "model", rate

    def evaluate(self, model):
        self.evaluated += 1
        return Mean(self.rng.random(self.rows) < model[1])


def searched(world, *, trials=25, **settings):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [fw.AtMost("errors", LIMIT)], seed=0, **settings)
    study.optimize(world.train, trials=trials)
    world.trainings.clear()
    return study


def certify(study, world, **settings):
    settings = {"rows": world.fresh, **settings}
    return study.certify(world.evaluate, world.train, **settings)


def test_the_certified_model_is_the_very_object_that_was_tested():
    world = World()
    certificate = certify(searched(world), world)
    assert certificate.certified
    assert certificate.model[1] == certificate.metrics["score"] <= LIMIT
    assert "errors is at most 0.1 with 95% confidence, for rows drawn like these" in str(certificate)
    assert certificate.attempt.passed


def test_progress_is_shown_where_it_is_wanted(capsys):
    world = World()
    study = searched(world)
    certify(study, world, progress=True)
    said = capsys.readouterr().err
    assert "on the judging rows, 1 of" in said
    assert "candidate 1 of" in said
    certify(study, world, rows=np.arange(9000, 11_000), progress=False)
    assert not capsys.readouterr().err


def test_a_trial_that_hands_over_checkpoints_is_trained_once_whatever_the_number_of_its_candidates():
    world = World(high=0.12)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [fw.AtMost("errors", LIMIT)], seed=0)
    study.enqueue({"x": 1.0})
    study.optimize(world.train, trials=1)
    certificate = certify(study, world)
    assert world.trainings == [0, 0]  # the search, and once more
    assert certificate.candidates >= 2
    assert certificate.certified


def test_candidates_go_from_safe_to_bold_and_testing_ends_at_the_first_failure():
    world = World(rows=1500)
    study = searched(world)
    certificate = certify(study, world)
    objectives = [attempt.candidate.objective for attempt in certificate.tested]
    assert objectives == sorted(objectives)
    assert all(attempt.passed for attempt in certificate.tested[:-1])
    assert world.evaluated == len(certificate.tested)
    assert certificate.chosen == max(i for i, attempt in enumerate(certificate.tested) if attempt.passed)


def test_what_is_tested_is_in_the_log_before_anything_is_evaluated(tmp_path):
    world = World()
    study = searched(world, storage=f"sqlite:///{tmp_path}/study.db")

    def evaluate(model):
        assert isinstance(study.log.read(0)[-1], Sealed | log.Tested)
        return world.evaluate(model)

    study.certify(evaluate, world.train, rows=world.fresh)


def test_verify_makes_the_order_and_the_tests_again():
    world = World()
    study = searched(world)
    certify(study, world)
    events = list(study.log.read(0))
    assert not verify(events).faults
    place = next(i for i, event in enumerate(events) if isinstance(event, log.Tested))
    events[place] = replace(events[place], p_values={"errors": 0.04})
    assert any("tested again" in fault for fault in verify(events).faults)
    sealed = next(i for i, event in enumerate(events) if isinstance(event, Sealed))
    events[sealed] = replace(events[sealed], candidates=events[sealed].candidates[::-1])
    assert any("candidates" in fault for fault in verify(events).faults)


def test_the_certificate_is_read_from_the_log_by_others(tmp_path):
    world, url = World(), f"sqlite:///{tmp_path}/study.db"
    study = searched(world, storage=url)
    made = certify(study, world)
    again = fw.Study(study.space, study.problem.objective, study.problem.constraints, storage=url).certificate
    assert str(again) == str(made)
    assert again.model is None
    assert study.certificate is made


def test_the_same_rows_certify_once():
    world = World()
    study = searched(world)
    certify(study, world)
    with pytest.raises(fw.UsageError, match=r"used once to certify, as was reserved \(uses=1\)"):
        certify(study, world)
    with pytest.raises(fw.UsageError, match="used once"):
        certify(study, world, rows=np.concatenate([world.fresh[:1500], np.arange(5000, 5500)]))
    assert certify(study, world, rows=np.arange(10_000, 12_000)).certified


def test_rows_that_were_reserved_for_two_uses_certify_twice_each_at_half_the_level():
    world = World()
    study = searched(world)
    first = certify(study, world, uses=2)
    assert first.uses == 2
    assert study.owner.ledger.certifications[0].level == pytest.approx(0.025)
    assert certify(study, world).uses == 2
    with pytest.raises(fw.UsageError, match="used 2 times"):
        certify(study, world)


def test_unknown_rows_count_as_the_same_rows():
    world = World()
    study = searched(world)
    certify(study, world, rows=None)
    with pytest.raises(fw.UsageError, match="pass rows= if these are others"):
        certify(study, world, rows=None)


def test_overlap_with_the_rows_of_the_search_is_refused_and_none_is_reported():
    world = World()
    study = searched(world)
    study.searched_by(np.arange(50_000, 51_000))
    with pytest.raises(fw.UsageError, match=r"1,000 of 2,000 fresh rows are rows that the search trained or judged by"):
        certify(study, world, rows=np.arange(50_000, 52_000))
    certificate = certify(study, world)
    assert certificate.overlap == 0
    assert "overlap" not in str(certificate)


def test_a_certification_that_was_cut_off_resumes_where_it_was():
    world = World()
    study = searched(world)
    calls = []

    def fails_once(model):
        calls.append(model)
        if len(calls) == 2:
            raise ConnectionError("the rows are on a machine that is down")
        return world.evaluate(model)

    with pytest.raises(ConnectionError) as caught:
        study.certify(fails_once, world.train, rows=world.fresh)
    assert "raised by evaluate" in caught.value.__notes__[0]
    assert study.certificate.certified  # what passed so far
    assert len(study.certificate.tested) == 1
    certificate = study.certify(fails_once, world.train, rows=world.fresh)
    assert certificate.certified
    assert sum(isinstance(event, Sealed) for event in study.log.read(0)) == 1
    assert calls[1] == calls[2]
    assert not verify(study.log.read(0)).faults


def test_what_others_write_meanwhile_does_no_harm(tmp_path):
    world, url = World(), f"sqlite:///{tmp_path}/study.db"
    study = searched(world, storage=url)
    other = fw.Study(study.space, study.problem.objective, study.problem.constraints, storage=url)

    def evaluate(model):
        other.note(looked=True)
        return world.evaluate(model)

    def train(trial):
        other.note(trained=trial.number)
        return world.train(trial)

    certificate = study.certify(evaluate, train, rows=world.fresh)
    assert certificate.certified
    assert not verify(study.log.read(0)).faults
    assert str(other.certify(evaluate, train, rows=np.arange(9000, 11_000))) != str(certificate)


def test_two_that_certify_at_once_make_one_certificate(tmp_path):
    world, url = World(), f"sqlite:///{tmp_path}/study.db"
    study = searched(world, storage=url)
    other = fw.Study(study.space, study.problem.objective, study.problem.constraints, storage=url)
    both = []

    def evaluate(model):
        if not both:
            both.append(None)
            both[0] = other.certify(world.evaluate, world.train, rows=world.fresh)
        return world.evaluate(model)

    certificate = study.certify(evaluate, world.train, rows=world.fresh)
    assert str(certificate) == str(both[0])
    assert sum(isinstance(event, Sealed) for event in study.log.read(0)) == 1
    assert not verify(study.log.read(0)).faults


def test_another_confidence_on_the_same_rows_supersedes_only_what_was_not_tested():
    world = World()
    study = searched(world)

    def evaluate(model):
        study.certify(world.evaluate, world.train, rows=world.fresh, confidence=0.9)
        return world.evaluate(model)

    with pytest.raises(fw.UsageError, match="another certification on these rows has begun meanwhile"):
        study.certify(evaluate, world.train, rows=world.fresh)
    assert study.certificate.confidence == 0.9
    assert not verify(study.log.read(0)).faults


def test_a_certification_that_was_cut_off_resumes_on_the_same_rows_only():
    world = World()
    study = searched(world)
    calls = []

    def fails_second(model):
        calls.append(model)
        if len(calls) == 2:
            raise ConnectionError
        return world.evaluate(model)

    with pytest.raises(ConnectionError):
        study.certify(fails_second, world.train, rows=world.fresh)
    with pytest.raises(fw.UsageError, match="was cut off: finish it first, with the same rows"):
        certify(study, world, rows=np.arange(1000, 3000))
    assert certify(study, world).certified


def test_a_p_value_that_is_nan_does_not_pass():
    sealed = Sealed(0, [], 0.95, 1, 10, None, None, 0, 0.0)
    test = log.Tested(0, 0, {}, {"a": 0.01, "b": math.nan}, None, 0.0)
    assert not Certification(sealed).passes(test)


def test_rows_are_not_spent_if_nothing_was_evaluated():
    world = World()
    study = searched(world)
    with pytest.raises(ZeroDivisionError):
        study.certify(lambda model: 1 / 0, world.train, rows=world.fresh)
    with pytest.raises(fw.UsageError, match="too few"):
        study.certify(lambda model: Mean([0, 0, 0]), world.train, rows=world.fresh)
    assert certify(study, world).certified


@pytest.mark.parametrize("wrong", [25, 31])
def test_where_nothing_passes_the_certificate_says_what_it_would_take_and_what_holds_instead(wrong):
    world = World(rows=300)
    certificate = searched(world).certify(lambda model: Mean([1] * wrong + [0] * (300 - wrong)), world.train)
    assert not certificate.certified
    needed = "no number of rows" if certificate.rows_needed is None else f"about {certificate.rows_needed:,} rows would"
    assert (certificate.rows_needed is None) == (wrong / 300 >= LIMIT)
    assert str(certificate).startswith(f"not certified: errors {wrong / 300:.4g} on 300 rows nobody searched by")
    assert needed in str(certificate)
    assert f"errors <= {certificate.bounds['errors']:.4g} is certified for trial {certificate.number}" in str(
        certificate
    )
    assert certificate.bounds["errors"] > LIMIT


def test_a_lower_confidence_is_told_and_not_certified():
    world = World(rows=300, low=0.05, high=0.099)
    study = searched(world)
    certificate = study.certify(lambda model: Mean([1] * 22 + [0] * 278), world.train, rows=world.fresh)
    assert certificate.attempt.p_value == pytest.approx(0.066, abs=0.01)
    assert "At 90% confidence it would have passed, which needs other fresh rows." in str(certificate)


def test_several_limits_are_certified_by_the_worst_of_them():
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0)},
        fw.Maximize("score"),
        [fw.AtMost("errors", 0.1), fw.AtMost("ms", 9.0), fw.AtMost("size", 50)],
        seed=0,
    )
    study.optimize(lambda trial: {"score": 1, "errors": fw.Measured(0.05, 0.01), "ms": 5.0, "size": 7}, trials=1)
    evidence = {"errors": Mean([0] * 190 + [1] * 10), "ms": Quantile([5.0] * 70 + [10.0]), "size": Exact(7)}
    certificate = study.certify(lambda model: evidence, models=lambda best: "model")
    assert [round(each.p_value, 3) for each in certificate.findings] == [0.008, 0.124, 0.0]
    assert not certificate.certified
    assert "ms 5 on 71 rows" in str(certificate)
    assert set(certificate.bounds) == {"errors", "ms", "size"}


def test_a_bootstrap_is_called_approximate():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [fw.AtMost("errors", 0.1)], seed=0)
    study.optimize(lambda trial: {"score": 1, "errors": 0.05}, trials=1)
    rows = np.random.default_rng(0).random(500) < 0.05
    certificate = study.certify(lambda model: Resampled(np.mean, rows), models=lambda best: "model")
    assert certificate.approximate
    assert "with about 95% confidence" in str(certificate)
    assert "by a bootstrap" in str(certificate)


def test_a_model_that_decides_the_same_for_everybody_gets_a_warning():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [fw.AtMost("gap", 0.1)], seed=0)
    study.optimize(lambda trial: {"score": 1, "gap": 0.0}, trials=1)
    truth, group = [0, 0, 0, 1] * 100, ["a", "b"] * 200
    decided = [0] * 396 + [1] * 4
    evidence = Decisions("demographic_parity_difference", truth, decided, group)
    certificate = study.certify(lambda model: evidence, models=lambda best: "model")
    assert certificate.certified
    assert certificate.positive_share == (0.01, 0.25)
    assert "1% of its decisions are positive where 25% of the rows are" in certificate.warnings[0]
    assert certificate.matches(decided)
    assert not certificate.matches([0] * 400)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"confidence": 95}, r"confidence=95: a fraction between 0 and 1 is expected; did you mean 0\.95\?"),
        ({"confidence": 0.2}, "at least 0.5 is expected"),
        ({"at_most": 0}, "at_most=0"),
        ({"uses": 0}, "uses=0"),
        ({"evaluate": 3}, "a function of a model, or fw.FreshRows"),
        ({"evaluate": lambda model: 0.07}, r"evaluate returned 0\.07: evidence for each limit \(errors\)"),
        ({"evaluate": lambda model: {"eod": Exact(1.0)}}, "evaluate returned nothing for 'errors'"),
        ({"evaluate": lambda model: {"errors": 0.3}}, "evaluate returned 0.3 for 'errors'"),
        ({"train": None}, "pass the function that was optimised, train="),
        ({"rows": "rows.csv"}, "rows is a str: an array, a DataFrame or a list"),
    ],
)
def test_what_cannot_be_certified_is_refused_with_a_sentence(changes, says):
    world = World()
    study = searched(world, trials=12)
    given = {"evaluate": world.evaluate, "train": world.train, "rows": world.fresh, **changes}
    with pytest.raises(fw.UsageError, match=says):
        study.certify(**given)
    assert not any(isinstance(event, log.Tested) for event in study.log.read(0))


def test_a_study_without_a_feasible_checkpoint_or_a_limit_has_nothing_to_certify():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [fw.AtMost("errors", 0.1)], seed=0)
    study.optimize(lambda trial: {"score": 1, "errors": 0.5}, trials=2)
    with pytest.raises(fw.UsageError, match="nothing within the limits was measured so far"):
        study.certify(lambda model: Exact(0.0), models=lambda best: best)
    free = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), seed=0)
    free.optimize(lambda trial: 1.0, trials=1)
    with pytest.raises(fw.UsageError, match="no limit that could be certified"):
        free.certify(lambda model: Exact(0.0), models=lambda best: best)


def test_what_is_within_a_limit_but_not_by_the_margin_of_the_search_may_be_certified():
    limit = fw.AtMost("errors", 0.1, confidence=0.99)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [limit], seed=0)
    study.optimize(lambda trial: {"score": 1, "errors": fw.Measured(0.08, error=0.01)}, trials=1)
    assert study.best is None
    assert study.certify(lambda model: Mean([0] * 2000 + [1] * 100), models=lambda best: "model").certified


def test_a_group_that_is_missing_from_the_fresh_rows_is_noticed_before_a_row_is_spent():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [fw.AtMost("gap", 0.1)], seed=0)
    study.optimize(lambda trial: {"score": 1, "gap": 0.0}, trials=1)
    study.searched_by(np.arange(30), groups=["a", "b", "c"] * 10)
    evidence = Decisions("demographic_parity_difference", [0, 1] * 200, [0, 1] * 200, ["a", "b", "b", "a"] * 100)
    with pytest.raises(fw.UsageError, match="the fresh rows have nobody of group 'c'"):
        study.certify(lambda model: evidence, models=lambda best: best)


@pytest.mark.parametrize(("low", "high"), [(0.1001, 0.105), (0.02, 0.18)])
def test_false_certificates_are_at_most_as_many_as_the_level_allows(low, high):
    """Over repetitions of search and tests; in the first world every model breaks its limit by a hair."""
    runs, false = 200, 0
    for seed in range(runs):
        world = World(seed, rows=400, low=low, high=high)
        rng = np.random.default_rng(seed)
        study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("score"), [fw.AtMost("errors", LIMIT)], seed=seed)
        for _ in range(8):
            trial = study.ask()
            rate = low + (high - low) * trial.params["x"]
            wrong = rng.binomial(200, rate) / 200
            study.tell(trial, score=rate, errors=fw.Measured(wrong, error=math.sqrt((wrong + 0.01) / 200)))
        if study.best is None:
            continue
        certificate = study.certify(world.evaluate, models=lambda best: ("model", best.metrics["score"]))
        false += certificate.certified and certificate.model[1] > LIMIT
    assert false / runs <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)
