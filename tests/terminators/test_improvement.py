from __future__ import annotations

import numpy as np
import pytest

import fairway as fw
from tests.conftest import judged


def test_improvements_shrink_as_the_search_closes_in():
    study = judged(None)
    for x in [*np.linspace(0.6, 1.0, 20), *(0.3 + 0.01 * np.arange(-8, 9))]:
        study.enqueue({"x": float(x)})
        study.tell(study.ask(), loss=float((x - 0.3) ** 2))
    early, late = study.history.first(20), study.history
    expected = [fw.ExpectedImprovementBelow(0.01).check(seen).value for seen in (early, late)]
    assert expected[1] < 0.1 * expected[0]  # the first twenty lie on one side of the minimum
    assert 0.0 <= fw.ProbabilityOfImprovementBelow(0.01).check(late).value <= 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "terminator",
    [fw.RegretBound(0.01), fw.ExpectedImprovementBelow(1e-9), fw.ProbabilityOfImprovementBelow(0.01)],
    ids=str,
)
@pytest.mark.parametrize("loss", [lambda x: x * 1e120, lambda x: (x - 0.5) * 1.5e308, lambda x: 1e12 + 1e-3 * x])
def test_losses_that_numbers_can_hardly_tell_apart_do_not_end_a_search(terminator, loss):
    study = judged(terminator)
    study.optimize(lambda trial: loss(trial.params["x"]), trials=25)
    assert all(not verdict.stop or "improvement" in verdict.reason for _, verdict in study.verdicts)
    assert len(study.trials) >= 20
