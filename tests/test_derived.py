"""What is kept from one snapshot to the next equals what is computed anew."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway import feasibility
from fairway.derived import Derived

KEY = st.sampled_from([0.0, 0.25, 0.5, np.nan, np.inf])


@given(rows=st.lists(st.tuples(KEY, KEY), max_size=90), cuts=st.lists(st.integers(0, 90), max_size=6))
def test_an_order_kept_over_many_snapshots_is_the_one_sorted_anew(
    rows: list[tuple[float, float]], cuts: list[int]
) -> None:
    first, second = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.empty(0), np.empty(0))
    derived = Derived()
    for n in [min(cut, len(rows)) for cut in cuts] + [len(rows)]:  # also snapshots older than the last
        found = derived.order("keys", n, lambda since, n=n: (first[since:n], second[since:n]))
        assert found.tolist() == np.lexsort((second[:n], first[:n])).tolist()


@given(sizes=st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_a_column_kept_over_many_snapshots_is_the_one_computed_anew(sizes: list[int]) -> None:
    derived, values = Derived(), np.arange(200) * 0.5
    for n in sizes:
        assert np.array_equal(derived.column("half", n, lambda since, n=n: values[since:n]), values[:n])


def test_an_earlier_snapshot_does_not_know_what_was_tried_after_it() -> None:
    study = fw.Study({"x": fw.Int(1, 9)}, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    before = study.history
    trial = study.ask()
    study.tell(trial, loss=1.0)
    point = study.space.encode(trial.params)[None]
    assert not study.history.is_new(point)[0]
    assert before.is_new(point)[0]


def test_the_order_of_a_history_is_that_of_its_columns_after_every_trial() -> None:
    limits = [fw.AtMost("size", 5.0)]
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), limits, sampler=fw.Random(), seed=0)
    for i in range(40):
        trial = study.ask()
        if i % 7 == 3:
            study.tell(trial, failed="no")
        else:
            study.tell(trial, loss=float(i * 5 % 8), size=float(i % 9))
        history = study.history
        assert history.order.tolist() == feasibility.order(history.loss, history.violation).tolist()
