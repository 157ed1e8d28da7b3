from __future__ import annotations

import fairway as fw
from fairway.report.summary import summarize
from fairway.report.view import View
from tests.conftest import SPACE, run_curves


def said(study):
    return summarize(View(study))


def text(study):
    summary = said(study)
    return " ".join((summary.headline, *summary.sentences))


def make(*constraints, objective=fw.Maximize("auc"), **more):
    return fw.Study(SPACE, objective, constraints, sampler=fw.Random(), seed=0, **more)


def tell(study, *results):
    for result in results:
        study.tell(study.ask(), **result)
    return study


def test_the_answer_comes_first_then_how_far_from_the_limit_then_what_the_limit_costs():
    study = tell(make(fw.AtMost("eod", 0.25)), {"auc": 0.9, "eod": 0.31}, {"auc": 0.8, "eod": 0.243})
    summary = said(study)
    assert summary.headline == "On the judging rows, the best model within the limit is trial 1: auc 0.8, eod 0.243."
    assert summary.sentences[0] == "eod 0.243 is 0.007 (3%) within its limit of at most 0.25."
    assert summary.sentences[1] == "Without the limit, trial 0 reached auc 0.9, but eod 0.31."
    assert summary.number == 1


def test_without_constraints_nothing_is_said_of_limits():
    study = tell(make(objective=fw.Minimize("loss")), {"loss": 0.5}, {"loss": 0.4})
    summary = said(study)
    assert summary.headline == "The best model is trial 1: loss 0.4."
    assert "limit" not in text(study)
    assert [fact.label for fact in summary.facts] == ["loss", "trials"]


def test_every_limit_has_its_distance():
    study = tell(
        make(fw.AtMost("eod", 0.2), fw.AtLeast("recall", 0.9), fw.AtMost("bytes", 0.0)),
        {"auc": 0.8, "eod": 0.2, "recall": 0.95, "bytes": -3.0},
    )
    assert said(study).sentences[:3] == (
        "eod 0.2 is exactly its limit of at most 0.2.",
        "recall 0.95 is 0.05 (6%) within its limit of at least 0.9.",
        "bytes -3 is 3 within its limit of at most 0.",
    )
    assert said(study).sentences[3] == "No trial did better without the limits."


def test_where_nothing_is_feasible_the_closest_is_named_and_what_to_do():
    study = tell(make(fw.AtMost("eod", 0.25)), {"auc": 0.9, "eod": 0.5}, {"auc": 0.8, "eod": 0.31})
    summary = said(study)
    assert summary.headline == "No model within the limit was found yet."
    assert summary.sentences[:2] == (
        "The closest is trial 1: auc 0.8, eod 0.31.",
        "eod 0.31 is 0.06 (24%) beyond its limit of at most 0.25.",
    )
    assert summary.sentences[2].startswith(
        "What stands in the way: none of 2 trials that measured eod kept it at most 0.25, and 0.31 came nearest: loosen"
    )
    assert summary.number == 1
    assert summary.facts[1].role == "infeasible"


def test_a_limit_broken_by_a_hair_is_not_shown_as_the_limit_itself():
    study = tell(make(fw.AtMost("eod", 0.25)), {"auc": 0.9, "eod": 0.2500001})
    assert "eod 0.2500001 is 1e-07 (<1%) beyond" in text(study)


def test_a_share_of_next_to_nothing_is_not_spelled_out():
    study = tell(make(fw.AtMost("eod", 1e-300)), {"auc": 0.9, "eod": 1.0})
    assert "eod 1 is 1 (>9,999%) beyond its limit of at most 1e-300." in said(study).sentences


def test_a_limit_measured_as_nan_counts_as_beyond():
    study = tell(make(fw.AtMost("eod", 0.25)), {"auc": 0.9, "eod": float("nan")})
    assert "eod nan counts as beyond its limit of at most 0.25." in said(study).sentences


def test_unknown_feasibility_is_not_called_infeasible():
    study = make(fw.AtMost("eod", 0.25), stopper=fw.ACE(interval=5))
    trial = study.ask()
    for _ in trial.steps(10):
        trial.report(auc=0.9, eod=lambda: 0.1)
        break
    study.owner.journal.flush()
    study.owner.close(trial, "stopped", "the timeout of 1 s has passed")
    summary = said(study)
    assert summary.headline == "No model is known to be within the limit: eod was never checked."
    assert "The best so far, ignoring the limit, is trial 0: auc 0.9." in summary.sentences
    assert any(sentence.startswith("What helps:") for sentence in summary.sentences)


def test_an_empty_study_says_that_nothing_has_begun():
    summary = said(make(fw.AtMost("eod", 0.25)))
    assert summary.headline == "No trial has begun yet."
    assert (summary.number, summary.state) == (None, "running")


def test_a_study_whose_trials_all_failed_says_why():
    summary = said(tell(make(), {"failed": "KeyError: 'y'"}, {"failed": "out of memory."}))
    assert summary.headline == "All 2 trials failed, so there is nothing to compare."
    assert summary.sentences[0] == "The last one, trial 1: out of memory."
    assert said(tell(make(), {"failed": "no"})).headline.startswith("The only trial failed")


def test_what_a_trial_reported_before_it_failed_counts():
    study = make(fw.AtMost("eod", 0.25))
    trial = study.ask()
    for _ in trial.steps(5):
        trial.report(auc=0.9, eod=0.1)
        break
    study.tell(trial, failed="out of memory")
    assert study.best is not None
    assert said(study).headline == "On the judging rows, the best model within the limit is trial 0: auc 0.9, eod 0.1."


def test_one_trial_is_one_trial():
    assert "1 trial: 1 completed." in said(tell(make(), {"auc": 0.5})).sentences


def test_a_running_study_says_so():
    study = tell(make(), {"auc": 0.5})
    study.ask()
    summary = said(study)
    assert summary.state == "running"
    assert "2 trials: 1 running, 1 completed." in summary.sentences
    assert summary.sentences[-1] == "The study is still running."
    young = make()
    young.ask()
    assert said(young).headline == "Nothing was measured yet."


def test_an_ended_study_says_why():
    study = make()
    study.optimize(lambda trial: 0.5, trials=3)
    assert said(study).sentences[-1] == "The last run ended because 3 trials were run."
    assert said(study).state == "ended"


def test_a_study_that_nobody_works_on_says_how_to_resume(tmp_path):
    study = make(storage=f"sqlite:///{tmp_path}/study.db")
    tell(study, {"auc": 0.5})
    study.ask()
    study.log.leases.leave(0)
    summary = said(study)
    assert summary.state == "idle"
    assert "Nobody works on the study now, and 1 trial did not end; run it again and it resumes." in summary.sentences


def test_checks_and_steps_are_counted():
    study = make(fw.AtMost("eod", 0.25), stopper=fw.ACE(interval=2))
    curve = [(0.5 + i / 100, {"eod": 0.1}) for i in range(10)]
    run_curves(study, [curve, curve])
    summary = said(study)
    assert " at step " in summary.headline
    paid, saved = study.costs.checks, study.costs.saved_checks
    assert any(f"{paid} of {paid + saved} possible checks were paid for" in one for one in summary.sentences)


def test_the_last_verdict_of_a_terminator_is_told():
    study = make(terminator=fw.Plateau(50))
    study.optimize(lambda trial: 0.5, trials=3)
    assert study.verdicts
    tell(study, {"auc": 0.4})
    assert "The terminator after" in text(study)


def test_names_from_elsewhere_are_spelled_out_and_cut():
    study = fw.Study(SPACE, fw.Minimize("a" * 500 + "\u202e"), [fw.AtMost("\x1b[31m", 1.0)], seed=0)
    study.tell(study.ask(), {"a" * 500 + "\u202e": 0.5, "\x1b[31m": 0.1})
    told = text(study)
    assert "\x1b" not in told
    assert "a" * 100 not in told


def test_a_limit_with_a_confidence_compares_its_bound():
    study = tell(make(fw.AtMost("eod", 0.1, confidence=0.9)), {"auc": 0.8, "eod": fw.Measured(0.071, error=0.012)})
    summary = said(study)
    assert summary.headline.endswith("is trial 0: auc 0.8, eod 0.071 ± 0.012.")
    assert summary.sentences[0] == (
        "eod 0.071 ± 0.012, its bound at 90% 0.086, is 0.014 (14%) within its limit of at most 0.1."
    )
    fact = summary.facts[1]
    assert (fact.value, fact.error, fact.role) == ("0.071", "± 0.012", "feasible")
    assert fact.note == "≤ 0.1 at 90%: bound 0.086, 0.014 to spare on the judging rows"


def test_a_value_within_its_limit_whose_bound_is_not_counts_as_beyond():
    limits = [fw.AtMost("eod", 0.1, confidence=0.95), fw.AtLeast("recall", 0.8, confidence=0.95)]
    measured = {"eod": fw.Measured(0.095, error=0.01), "recall": fw.Measured(0.81, error=0.01)}
    study = tell(make(*limits), {"auc": 0.8, **measured})
    summary = said(study)
    assert summary.headline == "No model within the limits was found yet."
    assert "eod 0.095 ± 0.010, its bound at 95% 0.111, is 0.011 (11%) beyond its limit of at most 0.1." in text(study)
    assert "recall 0.810 ± 0.010, its bound at 95% 0.794, is 0.0064 (1%) beyond its limit" in text(study)
    assert [fact.role for fact in summary.facts[1:3]] == ["infeasible", "infeasible"]
    assert "the only trial that measured eod did not keep it at most 0.1, and 0.1114 came nearest" in text(study)


def test_without_the_limit_what_its_bound_breaks_is_named():
    limit = fw.AtMost("eod", 0.1, confidence=0.9)
    results = [{"auc": 0.9, "eod": fw.Measured(0.095, error=0.01)}, {"auc": 0.8, "eod": fw.Measured(0.05, error=0.01)}]
    study = tell(make(limit), *results)
    assert "Without the limit, trial 0 reached auc 0.9, but eod 0.095 ± 0.010." in said(study).sentences


def test_what_is_to_spare_is_so_on_the_judging_rows():
    study = tell(make(fw.AtMost("eod", 0.25)), {"auc": 0.8, "eod": 0.243})
    assert [fact.note for fact in said(study).facts[:2]] == [
        "best within the limit on the judging rows",
        "≤ 0.25, 0.007 to spare on the judging rows",
    ]
