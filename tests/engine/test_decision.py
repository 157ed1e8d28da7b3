from __future__ import annotations

import fairway as fw


def test_a_decision_is_true_where_training_should_stop(make_study):
    study = make_study(fw.ACE(interval=1, tolerance="hard"))
    trial = study.ask()
    assert not trial.report(auc=0.5, eod=0.1)
    assert trial.report(auc=0.5, eod=0.9)


def test_a_decision_says_why_it_stops_how_often_is_checked_and_whether_it_is_the_best(make_study):
    study = make_study(fw.ACE(interval=2, tolerance="hard"))
    trial = study.ask()
    trial.steps(6)
    first, second, third = (trial.report(auc=auc, eod=eod) for auc, eod in ((0.5, 0.1), (0.4, 0.1), (0.6, 0.9)))
    assert (first.stop, first.reason, first.interval, first.best) == (False, "", 2, True)
    assert (second.stop, second.best) == (False, False)
    assert third.stop
    assert third.reason.startswith("eod 0.9 > 0.25")
