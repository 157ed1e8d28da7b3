from __future__ import annotations

import fairway as fw
from tests.conftest import LINE


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
