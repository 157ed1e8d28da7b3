"""Nonsense for each argument of each helper: a sentence, or a result; never a raw error, and never a hang."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fairway as fw
from fairway import constraints, evidence
from fairway.hashing import hashes
from tests.conftest import within

TRUTH, SAID, GROUPS = [0, 1, 0, 1] * 8, [0, 1, 1, 0] * 8, ["a", "a", "b", "b"] * 8
FAIR = {"y_true": TRUTH, "y_pred": SAID, "sensitive_features": GROUPS, "sample_weight": None}
CASES = [constraints.MinimumFunctionality("polarity", ["good", "bad"], [1, 0])]


def share(*columns, **named):
    return 0.5


def predict(rows):
    return [[0.4, 0.6]] * len(rows)


CALLS = {
    **{name: (getattr(constraints, name), FAIR) for name in constraints.__all__ if name.endswith(("ence", "ratio"))},
    "group_gap": (constraints.group_gap, {"metric": share, **FAIR}),
    "latency": (constraints.latency, {"model": len, "rows": ["a", "b"], "quantile": 0.5, "batch": 1, "seconds": 0.001}),
    "model_size": (constraints.model_size, {"model": 1}),
    "failure_rate": (constraints.failure_rate, {"predict": predict, "cases": CASES}),
    "failures": (constraints.failures, {"predict": predict, "cases": CASES}),
    "failed_cases": (constraints.failed_cases, {"predict": predict, "cases": CASES}),
    "load_cases": (constraints.load_cases, {"path": "nowhere.csv", "expect": None}),
    "MinimumFunctionality": (
        constraints.MinimumFunctionality,
        {"name": "polarity", "inputs": ["good", "bad"], "labels": [1, 0]},
    ),
    "Invariance": (constraints.Invariance, {"name": "names", "groups": [["Ann", "Bob"]], "tolerance": 0.1}),
    "Directional": (
        constraints.Directional,
        {"name": "praise", "groups": [["ok", "good"]], "direction": "up", "tolerance": 0.0, "label": -1},
    ),
    "bootstrap": (
        lambda metric, column, **more: constraints.bootstrap(metric, column, **more),  # noqa: PLW0108
        {"metric": share, "column": TRUTH, "resamples": 20, "seed": 0, "clusters": None, "named": TRUTH},
    ),
    "Mean": (evidence.Mean, {"values": TRUTH, "low": 0.0, "high": 1.0, "weights": None, "clusters": None}),
    "Quantile": (evidence.Quantile, {"times": [0.1, 0.2, 0.3], "quantile": 0.5}),
    "Exact": (evidence.Exact, {"value": 1.0}),
    "Resampled": (
        lambda metric, column, **more: evidence.Resampled(metric, column, **more),  # noqa: PLW0108
        {"metric": share, "column": TRUTH, "clusters": None, "seed": 0, "resamples": 200},
    ),
    "Decisions": (
        evidence.Decisions,
        {"metric": "dpd", "truth": TRUTH, "decision": SAID, "group": GROUPS, "weights": None, "clusters": None},
    ),
    "rows_needed": (
        evidence.rows_needed,
        {"evidence": evidence.Mean(TRUTH), "constraint": fw.AtMost("m", 0.6), "confidence": 0.9, "power": 0.8},
    ),
    "from_json": (evidence.from_json, {"data": {}}),
    "Measured": (fw.Measured, {"value": 0.5, "error": 0.1, "rows": 10, "upper": None, "lower": None}),
    "Folds": (fw.Folds, {"values": [0.1, 0.2, 0.3], "of": 3, "test_size": 10, "train_size": 20}),
    "Float": (fw.Float, {"low": 0.1, "high": 1.0, "log": True, "step": None, "when": None}),
    "Int": (fw.Int, {"low": 1, "high": 9, "log": False, "step": 2, "when": None}),
    "Choice": (fw.Choice, {"options": ["a", "b"], "ordered": False, "when": None}),
    "AtMost": (fw.AtMost, {"metric": "m", "threshold": 0.5, "scale": 1.0, "confidence": 0.9, "cost": 1.0}),
    "Study": (
        fw.Study,
        {
            "space": {"x": fw.Float(0.0, 1.0)},
            "objective": fw.Maximize("auc"),
            "constraints": [],
            "sampler": None,
            "stopper": None,
            "terminator": None,
            "storage": None,
            "name": "study",
            "seed": 0,
        },
    ),
    "optimize": (
        lambda **more: fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), seed=0).optimize(**more),
        {
            "function": lambda trial: 0.5,
            "trials": 1,
            "timeout": 0.2,
            "trial_timeout": 0.2,
            "check_timeout": 0.2,
            "workers": 1,
            "backend": "thread",
            "resources": None,
            "address": None,
            "retry": 1,
            "catch": Exception,
        },
    ),
    "hashes": (hashes, {"rows": [[1, 2], [3, 4]]}),
}


class Evil:
    """Refuses everything that is asked of it."""

    def _refuse(self, *_, **__):
        raise RuntimeError("\x1b[31mno")

    __len__ = __iter__ = __getitem__ = __array__ = __bool__ = __hash__ = __eq__ = __float__ = __index__ = _refuse


NONSENSE = [
    None, "", "x", "\udc80", b"\0", -1, 0, 1.5, math.nan, math.inf, -math.inf, 10**400, 10**15, 1e300, True, [], {}, (),
    object(), [None], ["a"], [math.nan] * 32, [math.inf] * 32, [10**400] * 32, np.array([]), np.array(3.0),
    np.zeros((32, 2)), np.array(["a", "b"] * 16), np.array([1 + 2j] * 32), np.zeros((0, 3)), lambda *_, **__: None,
    lambda *_, **__: 1 / 0, [[1, 2], [3]], {"a": 1}, range(3), {1, 2}, np.datetime64("2020-01-01"), [1, 2, 3],
    [[]], [[], []], iter([1, 2]), [{}] * 32, [-1.0] * 32, ["=1", "\x1b"] * 16, np.array([None] * 32), Evil(),
    [Evil()] * 32,
]  # fmt: skip


@pytest.mark.parametrize("helper", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_nonsense_is_a_sentence_or_a_result(helper, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, arguments = CALLS[helper]
    raw = []
    for name in arguments:
        for nonsense in NONSENSE:
            try:
                with within(20):
                    call(**{**arguments, name: nonsense})
            except fw.FairwayError as error:
                if len(str(error)) > 1000 or not str(error).isprintable():
                    raw.append(f"{name}={_short(nonsense)}: no sentence: {str(error)[:200]!r}")
            except Exception as error:  # noqa: BLE001
                if not _is_theirs(error):
                    raw.append(f"{name}={_short(nonsense)}: {type(error).__name__}: {error}")
    assert not raw, "\n".join(raw)


def _is_theirs(error):
    """Whether an error was raised by what the user passed, not by fairway: it is his to see."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    return last.tb_frame.f_code.co_filename == __file__


def _short(value):
    try:
        return repr(value)[:40]
    except Exception:  # noqa: BLE001
        return type(value).__name__
