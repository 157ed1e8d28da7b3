"""Studies without limits, for stoppers that look at the objective alone."""

from __future__ import annotations

from hypothesis import strategies as st

import fairway as fw
from tests.conftest import SPACE, run_curves

values = st.integers(0, 8).map(lambda k: k / 8)
curves = st.lists(st.lists(values, min_size=1, max_size=20), min_size=1, max_size=12)


def free_study(stopper):
    return fw.Study(SPACE, fw.Maximize("auc"), stopper=stopper, seed=0)


def run(study, curves):
    return [
        [decision.stop for decision in trial] for trial in run_curves(study, [[(v, {}) for v in c] for c in curves])
    ]
