from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fairway as fw
from fairway.constraints import bootstrap
from fairway.evidence import Decisions, Exact, Mean, Quantile, Resampled, from_json, rows_needed

RNG = np.random.default_rng(0)
TRUTH, DECISION, GROUP = RNG.integers(0, 2, (3, 300))
VALUES = RNG.random(50)
EVERY = {
    "share": (Mean(DECISION), fw.AtMost("e", 0.6)),
    "mean": (Mean(VALUES, high=2.0), fw.AtLeast("e", 0.3)),
    "weighted mean": (Mean(VALUES, weights=1 + VALUES), fw.AtMost("e", 0.7)),
    "clustered mean": (Mean(VALUES, clusters=np.arange(50) // 3), fw.AtMost("e", 0.7)),
    "tests": (Mean.over_tests({"a": [0, 0, 1], "b": [0] * 20}), fw.AtMost("e", 0.7)),
    "decisions": (Decisions("equalized_odds_difference", TRUTH, DECISION, GROUP), fw.AtMost("e", 0.3)),
    "weighted": (
        Decisions("demographic_parity_ratio", TRUTH, DECISION, GROUP, weights=RNG.random(300)),
        fw.AtLeast("e", 0.5),
    ),
    "clustered": (
        Decisions("demographic_parity_difference", TRUTH, DECISION, GROUP, clusters=np.arange(300) // 2),
        fw.AtMost("e", 0.4),
    ),
    "quantile": (Quantile(VALUES, 0.5), fw.AtMost("e", 0.6)),
    "exact": (Exact(3.0), fw.AtMost("e", 3.0)),
    "resampled": (Resampled(np.median, VALUES, resamples=300), fw.AtMost("e", 0.6)),
}
every = pytest.mark.parametrize(("evidence", "constraint"), EVERY.values(), ids=[*EVERY])


@every
def test_json_keeps_the_p_value_to_the_last_bit(evidence, constraint):
    again = from_json(json.loads(json.dumps(evidence.to_json(), allow_nan=False)))
    assert again == evidence
    assert type(again) is type(evidence)
    assert again.p_value(constraint) == evidence.p_value(constraint)
    assert again.bound(constraint, 0.9) == evidence.bound(constraint, 0.9)
    assert (again.value, again.error, again.rows) == (evidence.value, evidence.error, evidence.rows)
    assert again.cells() == evidence.cells()


@every
def test_the_p_value_falls_as_the_limit_is_loosened(evidence, constraint):
    limits = [constraint.threshold + constraint.sign * step for step in np.linspace(-0.5, 0.5, 21)]
    found = [evidence.p_value(type(constraint)("e", limit)) for limit in limits]
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(found))
    assert all(0 <= p <= 1 for p in found)


@every
def test_the_bound_is_the_tightest_limit_that_is_certified(evidence, constraint):
    bound = evidence.bound(constraint, 0.9)
    assert evidence.p_value(type(constraint)("e", bound)) <= 0.1
    assert evidence.p_value(type(constraint)("e", bound - constraint.sign * 1e-6)) > 0.1 - 1e-4


@every
def test_a_certified_limit_lies_beyond_the_value_and_could_pass(evidence, constraint):
    assert constraint.sign * (evidence.bound(constraint, 0.9) - evidence.value) >= 0
    assert evidence.least_p(constraint) <= evidence.p_value(constraint)
    assert evidence.approximate == isinstance(evidence, Resampled)
    assert repr(evidence).startswith(type(evidence).__name__)


def test_evidence_is_compared_by_value_and_has_no_hash():
    assert Exact(1.0) == Exact(1.0) != Exact(2.0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Exact(1.0))


def test_only_the_bootstrap_is_approximate_and_the_exact_number_has_no_error():
    assert Exact(1.0).error == 0
    assert Exact(1.0).rows == 0
    assert Exact(1.0).bound(fw.AtMost("e", 2), 0.95) == 1.0
    assert Exact(math.nan).p_value(fw.AtMost("e", 2)) == 1.0
    assert math.isnan(from_json(Exact(math.nan).to_json()).value)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=200), st.floats(0.05, 0.95), st.floats(0, 10))
def test_a_quantile_is_tested_by_counting_the_times_within_the_limit(times, share, limit):
    within = sum(time <= limit for time in times)
    p = stats.binomtest(within, len(times), share, alternative="greater").pvalue
    assert Quantile(times, share).p_value(fw.AtMost("latency", limit)) == pytest.approx(p, rel=1e-9)


def test_the_bound_of_a_quantile_is_one_of_the_times_if_there_are_enough():
    assert Quantile(np.arange(59)).bound(fw.AtMost("latency", 1), 0.95) == 58
    assert Quantile(np.arange(58)).bound(fw.AtMost("latency", 1), 0.95) == math.inf
    assert Quantile([1.0] * 3).least_rows(fw.AtMost("latency", 1), 0.95) == 59
    with pytest.raises(fw.UsageError, match="AtMost is expected"):
        Quantile([1.0]).p_value(fw.AtLeast("latency", 1))


def test_a_quantile_holds_its_level():
    times = np.random.default_rng(0).exponential(size=(4000, 100))
    limit = fw.AtMost("latency", float(stats.expon.ppf(0.9)))
    passed = [Quantile(each, 0.9).p_value(limit) <= 0.05 for each in times[:1000]]
    assert np.mean(passed) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)


def test_the_bootstrap_counts_resampled_values_at_or_beyond_the_limit():
    found = Resampled(lambda x: x.mean(), [0, 1] * 15, resamples=99, seed=3)
    values = np.array(found.to_json()["resampled"])
    assert found.p_value(fw.AtMost("e", 0.6)) == (1 + (values >= 0.6).sum()) / 100
    assert found.p_value(fw.AtLeast("e", 0.4)) == (1 + (values <= 0.4).sum()) / 100
    assert found == Resampled(lambda x: x.mean(), [0, 1] * 15, resamples=99, seed=3)
    assert found.bound(fw.AtMost("e", 1), 0.999) == math.inf


def test_an_undefined_resample_counts_as_beyond_the_limit():
    found = Resampled(lambda x: math.nan if x[0] else 0.0, [0, 1] * 10, resamples=99)
    assert found.p_value(fw.AtMost("e", 0.6)) > 0.3
    assert found.p_value(fw.AtLeast("e", -0.6)) > 0.3
    assert from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


def test_a_resample_that_divides_by_zero_counts_as_beyond_the_limit_and_the_rows_themselves_may_raise():
    def share(x):
        return 1 / int(x[0]) if len(x) == 20 else math.nan

    found = Resampled(share, [1, *[0, 1] * 9, 1], resamples=99)
    assert found.value == 1
    assert {*found.to_json()["resampled"]} == {1.0, "nan"}
    with pytest.raises(ZeroDivisionError):
        Resampled(share, [0, 1] * 10)


def test_evidence_and_the_bootstrap_of_a_constraint_draw_the_same_resamples():
    for clusters in (None, np.arange(50) // 3, [*"ab"] * 25):
        found = Resampled(np.mean, VALUES, clusters=clusters, seed=5, resamples=100)
        assert bootstrap(np.mean, VALUES, clusters=clusters, seed=5, resamples=100).error == found.error


def test_whole_clusters_are_resampled():
    clusters = np.repeat(np.arange(10), 5)
    found = Resampled(lambda x, c: len({*c.tolist()}) - len(x) / 5, clusters, clusters, clusters=clusters, resamples=50)
    assert found.value == 0
    assert max(found.to_json()["resampled"]) < 0  # ten clusters of five rows each, some of them twice


def test_the_rows_needed_grow_with_the_square_of_the_distance():
    evidence = Mean([1] * 100 + [0] * 900)
    near, far = (rows_needed(evidence, fw.AtMost("e", limit), 0.95) for limit in (0.11, 0.12))
    assert near / far == pytest.approx(4, rel=0.01)
    assert near == pytest.approx((1.645 + 0.8416) ** 2 * 0.0901 / 0.01**2, rel=0.01)
    assert rows_needed(evidence, fw.AtMost("e", 0.1), 0.95) is None
    assert rows_needed(evidence, fw.AtMost("e", 0.5), 0.95) == 1001
    assert rows_needed(Mean([0] * 3), fw.AtMost("e", 0.05), 0.95) >= 59
    assert rows_needed(Exact(1.0), fw.AtMost("e", 2), 0.95) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_json({"kind": "rows"}), "kind='rows'"),
        (lambda: from_json([]), "what to_json returned"),
        (lambda: from_json({"kind": "mean"}), "mean evidence cannot be read"),
        (lambda: from_json({**EVERY["decisions"][0].to_json(), "groups": [["a"], "b"]}), "evidence cannot be read"),
        (lambda: Exact("big"), "a number is expected"),
        (lambda: Quantile([]), "times is empty"),
        (lambda: Quantile([1.0], 95), "did you mean 0.95"),
        (lambda: Resampled(3, [1]), "a function of the columns"),
        (lambda: Resampled(len), "at least one column"),
        (lambda: Resampled(lambda x: None, [1]), "metric returned None"),
        (lambda: Resampled(max, [1, 2], [1]), "column 2 has 1 rows where 2"),
        (lambda: Resampled(max, [1, 2], resamples=0), "resamples=0"),
        (lambda: rows_needed(Exact(1), 0.5, 0.9), "AtMost"),
        (lambda: rows_needed(Mean([0]), fw.AtMost("e", 0.5), 0.9, power=80), "power=80"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(make, message):
    with pytest.raises(fw.UsageError, match=message):
        make()


def test_importing_the_package_does_not_import_scipys_statistics():
    code = "import sys, fairway.evidence; assert 'scipy.stats' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
