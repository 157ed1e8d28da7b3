from __future__ import annotations

import hashlib
import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairway as fw
from fairway import constraints
from fairway.evidence import Decisions, from_json
from fairway.evidence.decisions import _CONTRASTS, METRICS, digest
from fairway.evidence.proportions import Table, exact

NAMES = [metric.__name__ for metric in METRICS]


def limit_for(metric, limit):
    return fw.AtMost(metric, limit) if metric.endswith("difference") else fw.AtLeast(metric, 1 - limit)


def rows(groups=2, each=6):
    """Truth, decision and group of rows where each group has both labels."""
    cell = st.tuples(st.integers(0, each), st.integers(1, each))
    cells = st.lists(cell, min_size=2 * groups, max_size=2 * groups)

    def expand(cells):
        truth, decision, group = [], [], []
        for (label, g), (positive, more) in zip(product((0, 1), range(groups)), cells, strict=True):
            decided = [1] * positive + [0] * more
            truth += [label] * len(decided)
            group += [f"g{g}"] * len(decided)
            decision += decided
        return truth, decision, group

    return cells.map(expand)


@pytest.mark.parametrize("name", NAMES)
@given(table=rows(3))
def test_the_value_is_the_metrics(name, table):
    truth, decision, group = table
    metric = getattr(constraints, name)
    theirs = metric(truth, decision, sensitive_features=group)
    found = Decisions(metric, truth, decision, group)
    assert (found.value, found.error) == pytest.approx((theirs, theirs.error), nan_ok=True)
    assert found == Decisions(name, truth, decision, group)
    weights = 1 + np.arange(len(truth)) % 3
    theirs = metric(truth, decision, sensitive_features=group, sample_weight=weights)
    found = Decisions(name, truth, decision, group, weights=weights)
    assert (found.value, found.error) == pytest.approx((theirs, theirs.error), nan_ok=True)


def test_the_error_of_equal_rates_is_that_of_the_least_certain_pair():
    truth, decision, group = [0, 1] * 104, [0, 1] * 104, ["a"] * 100 + ["b"] * 100 + ["c"] * 8
    found = Decisions("demographic_parity_difference", truth, decision, group)
    assert found.value == 0
    assert found.error == pytest.approx(math.sqrt(0.25 / 100 + 0.25 / 8))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(table=rows(3), limit=st.floats(0.05, 0.95))
def test_the_p_value_is_the_largest_of_its_contrasts(name, table, limit):
    truth, decision, group = map(np.array, table)
    comparison, among = _CONTRASTS[name]
    every = []
    for label, (first, second) in product(among, permutations(("g0", "g1", "g2"), 2)):
        counts = []
        for each in (first, second):
            of = (group == each) & ((truth == label) if label is not None else True)
            counts += [int(decision[of].sum()), int(of.sum())]
        every.append(exact(Table(*counts), comparison, limit_for(name, limit).threshold))
    assert Decisions(name, truth, decision, group).p_value(limit_for(name, limit)) == max(every)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(table=rows(), limit=st.floats(0.05, 0.95), kind=st.sampled_from(["plain", "weights", "clusters"]))
def test_neither_the_order_of_rows_nor_the_names_of_groups_matter(name, table, limit, kind):
    truth, decision, group = map(np.array, table)
    more = {} if kind == "plain" else {kind: 1 + np.arange(len(truth)) // 2}
    order = np.arange(len(truth))[::-1]
    one = Decisions(name, truth, decision, group, **more)
    other = Decisions(
        name,
        truth[order],
        decision[order],
        np.where(group == "g0", 7, 3)[order],
        **{k: v[order] for k, v in more.items()},
    )
    constraint = limit_for(name, limit)
    assert other.p_value(constraint) == pytest.approx(one.p_value(constraint), rel=1e-6)
    assert other.groups == (("3", "7") if group[-1] == "g1" else ("7", "3"))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(table=rows(), confidence=st.floats(0.5, 0.99), kind=st.sampled_from(["plain", "weights", "clusters"]))
def test_the_bound_is_where_the_p_value_crosses_one_minus_the_confidence(name, table, confidence, kind):
    truth, decision, group = table
    more = {} if kind == "plain" else {kind: 1 + np.arange(len(truth)) // 2}
    evidence = Decisions(name, truth, decision, group, **more)
    sign = 1 if name.endswith("difference") else -1
    bound = evidence.bound(limit_for(name, 0.1), confidence)
    kind = fw.AtMost if sign > 0 else fw.AtLeast
    assert evidence.p_value(kind(name, bound)) <= 1 - confidence
    tighter = bound - sign * 1e-4
    if 0 < tighter < 1:
        assert evidence.p_value(kind(name, tighter)) > 1 - confidence - 1e-3


@pytest.mark.parametrize("comparison", ["difference", "ratio"])
@pytest.mark.parametrize("sizes", [(3, 4), (5, 5), (2, 7)])
def test_no_outcome_has_a_smaller_p_value_than_the_least(comparison, sizes):
    name = f"demographic_parity_{comparison}"
    group = ["a"] * sizes[0] + ["b"] * sizes[1]
    constraint = limit_for(name, 0.4)
    every = []
    for k1, k2 in product(range(sizes[0] + 1), range(sizes[1] + 1)):
        decision = [int(i < k1) for i in range(sizes[0])] + [int(i < k2) for i in range(sizes[1])]
        every.append(Decisions(name, decision, decision, group).p_value(constraint))
    assert Decisions(name, decision, decision, group).least_p(constraint) == pytest.approx(min(every))


def test_few_rows_cannot_pass_and_say_how_many_could():
    few = Decisions("demographic_parity_difference", [0, 1] * 4, [0, 1] * 4, [0, 0, 1, 1] * 2)
    constraint = fw.AtMost("gap", 0.05)
    assert few.least_p(constraint) > 0.05
    assert few.least_rows(constraint, 0.95) == pytest.approx(2 * 59, abs=2)


def test_weighted_rows_and_clusters_hold_their_level():
    """Three groups, weights between 1 and 3, and two copies of each row that share a cluster."""
    rng, passed, constraint = np.random.default_rng(0), [], fw.AtMost("gap", 0.1)
    group, weights, clusters = np.repeat([0, 1, 2], 200), rng.uniform(1, 3, 600), np.arange(600) // 2
    rates = np.array([0.5, 0.5, 0.6])
    for _ in range(100):
        decision = (rng.random(300) < rates[group[::2]])[clusters].astype(int)
        found = Decisions(
            "demographic_parity_difference", decision, decision, group, weights=weights, clusters=clusters
        )
        passed.append(found.p_value(constraint) <= 0.05)
    assert np.mean(passed) <= 0.05
    fair = np.repeat(rng.permutation([0, 1] * 150), 2)
    assert (
        Decisions("demographic_parity_difference", fair, fair, group, clusters=clusters).p_value(fw.AtMost("gap", 0.5))
        < 0.01
    )


def test_only_counts_are_kept_of_plain_rows():
    truth, decision, group = [0, 1] * 50, [0, 1, 1, 1] * 25, ["a", "a", "b", "b"] * 25
    found = Decisions("equalized_odds_difference", truth, decision, group)
    assert found.to_json()["per_row"] is None
    assert found.cells()["a, label 1"] == {"positive": 25.0, "rows": 25.0}
    assert found.positive_share == 0.75
    assert found.base_rate == 0.5
    assert found.digest == digest(decision) == hashlib.sha256(bytes(decision)).hexdigest()
    assert digest(np.where(decision, 1, -1)) == found.digest != digest([0] * 100)
    weighted = Decisions("equalized_odds_difference", truth, decision, group, weights=[1, 2] * 50)
    assert len(weighted.to_json()["per_row"]["weights"]) == 100
    assert from_json(weighted.to_json()).digest == found.digest


def test_a_model_that_accepts_nobody_is_never_certified_for_a_ratio():
    found = Decisions("demographic_parity_ratio", [0, 1] * 50, [0] * 100, ["a", "b"] * 50)
    assert math.isnan(found.value)
    assert found.p_value(fw.AtLeast("ratio", 0.1)) == 1.0
    assert Decisions("demographic_parity_difference", [0, 1] * 50, [0] * 100, ["a", "b"] * 50).value == 0


def test_limits_that_all_or_no_rates_keep_need_no_rows():
    found = Decisions("demographic_parity_difference", [0, 1] * 3, [0, 1] * 3, [0, 0, 0, 1, 1, 1])
    assert found.p_value(fw.AtMost("gap", 1.0)) == 0.0
    assert found.p_value(fw.AtMost("gap", 0.0)) == 1.0


def test_groups_of_several_columns_have_joined_names():
    group = [["f", "old"], ["f", "young"], ["m", "old"]] * 2
    found = Decisions("demographic_parity_difference", [0, 1, 1] * 2, [0, 1, 1] * 2, group)
    assert found.groups == ("f & old", "f & young", "m & old")
    assert Decisions("demographic_parity_difference", [0, 1], [0, 1], ["1", 1]).groups == ("'1'", "1")


DPD = "demographic_parity_difference"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Decisions("gap", [0], [0], [0]), "equalized_odds_difference, .* is expected"),
        (lambda: Decisions(len, [0], [0], [0]), "Resampled takes any other"),
        (lambda: Decisions(DPD, [], [], []), "truth is empty"),
        (lambda: Decisions(DPD, [0, 1], [0, 1], ["a", "a"]), "group has only 'a': at least two groups"),
        (lambda: Decisions(DPD, [0, 1], [0], ["a", "b"]), "decision has 1 rows where 2"),
        (lambda: Decisions(DPD, [0, 1], [0, 1], ["a"]), "group has 1 rows where 2 are expected"),
        (lambda: Decisions(DPD, [0, 1], [0, 1], ["a", None]), "group has missing values"),
        (lambda: Decisions(DPD, [0, 1], [0, 2], ["a", "b"]), "decision has the labels"),
        (lambda: Decisions(DPD, [0, 1], [0.2, 0.4], ["a", "b"]), "labels are expected"),
        (lambda: Decisions(NAMES[0], [0, 1, 1], [0, 1, 1], ["a", "a", "b"]), "group 'b' has no negatives"),
        (lambda: Decisions(NAMES[2], [0, 1, 0], [0, 1, 1], ["a", "a", "b"]), "group 'b' has no positives"),
        (lambda: Decisions(DPD, [0, 1], [0, 1], ["a", "b"]).p_value(fw.AtLeast("gap", 0.1)), "AtMost is expected"),
        (lambda: Decisions(NAMES[1], [0, 1] * 2, [1] * 4, [0, 0, 1, 1]).bound(fw.AtMost("r", 0.1), 0.9), "AtLeast is"),
        (lambda: Decisions(DPD, [0, 1], [0, 1], ["a", "b"]).least_rows(fw.AtMost("gap", 0.1), 95), "did you mean 0.95"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(make, message):
    with pytest.raises(fw.UsageError, match=message):
        make()
