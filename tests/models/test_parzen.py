"""Densities over spaces of unusual size."""

from __future__ import annotations

import numpy as np
import pytest

import fairway as fw
from fairway.models.parzen import Axes, Kernel, Parzen


@pytest.mark.parametrize("stay", [0.5, 0.8])
def test_a_choice_of_many_options_has_the_kernel_of_a_choice_of_few(stay: float) -> None:
    for options in (1000, 2000):  # by a table, and without one
        axes = Axes(fw.Space({"c": fw.Choice(list(range(options)))}))
        density = Parzen(axes, np.array([[0.5 / options], [np.nan]]), Kernel(1.0, 0.01, stay))
        x = np.array([[0.5 / options], [1.5 / options], [np.nan]])
        found = np.exp(density.log_density(x, axes.one_hot(x)))
        own, other = stay, (1 - stay) / (options - 1)
        expected = [(own + 2 / options) / 3, (other + 2 / options) / 3, 1.0]  # and the prior, and one inactive
        assert found == pytest.approx(expected, rel=1e-5)


def test_a_space_of_more_configurations_than_a_float_can_count_is_searched() -> None:
    space = {f"c{i}": fw.Choice([0, 1]) for i in range(1100)}
    study = fw.Study(space, fw.Minimize("loss"), sampler=fw.TPE(3, neighbours=False), seed=0)
    study.optimize(lambda trial: sum(trial.params.values()), trials=5)
    assert study.counts["completed"] == 5
