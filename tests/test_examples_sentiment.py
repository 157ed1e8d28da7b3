from __future__ import annotations

import gzip
import json
import re

import pytest

from tests.test_examples import run


def test_the_best_classifier_within_the_limit_behaves_and_the_one_without_does_not():
    pytest.importorskip("sklearn")
    out = run("robust_sentiment.py", "--trials", "20")
    number = r"accuracy 0\.(\d+), average failure rate 0\.(\d+)\n"
    found = re.match(rf"Best without the limit: {number}Best within the limit:  {number}\n", out)
    assert found, out
    accuracy, rate, allowed_accuracy, allowed_rate = (int(text) for text in found.groups())
    assert rate > 100 >= allowed_rate
    assert accuracy >= allowed_accuracy > 600
    table = out.split("\n\n")[1].splitlines()
    assert re.fullmatch("cases that fail +without the limit +within the limit", table[0])
    assert len(table) == 4
    assert re.search(r"20 trials, \d+ stopped early; \d+ checks of the suite paid for and \d+ saved", out)


def test_data_and_suite_may_come_from_files(tmp_path):
    pytest.importorskip("sklearn")
    lines = ["sentence\tlabel", *["a good film \t1", "a bad film \t0"] * 20]
    for name in ("train.tsv.gz", "dev.tsv.gz"):
        (tmp_path / name).write_bytes(gzip.compress("\n".join(lines).encode()))
    pairs = ["intensifiers", "reducers", "add positive phrases", "add negative phrases", '"used to" should reduce']
    tests = [{"name": name, "type": "DIR", "data": [["a good film", "a very good film"]]} for name in pairs]
    negated = [
        "simple negations: not negative",
        "simple negations: I thought x was negative, but it was not (should be neutral or positive)",
        "Hard: Negation of negative with neutral stuff in the middle (should be positive or neutral)",
    ]
    tests += [{"name": name, "type": "MFT", "labels": None, "data": ["not bad", "good"]} for name in negated]
    tests.append({"name": "neutral", "type": "MFT", "labels": 1, "data": ["a", "film"], "run_idxs": [1]})
    tests.append({"name": "typos", "type": "INV", "labels": None, "data": [["a good film", "a good flim"]]})
    (tmp_path / "suite.json").write_text(json.dumps(tests))
    out = run("robust_sentiment.py", "--trials", "3", "--data", tmp_path, "--suite", tmp_path / "suite.json")
    assert out.startswith("Best without the limit: accuracy ")
    assert "\n3 trials, " in out
