from __future__ import annotations

import gzip
import json

import pytest

import fairway as fw
from fairway.constraints import (
    Directional,
    Invariance,
    MinimumFunctionality,
    load_cases,
)

FILE = [
    {"name": "words", "type": "MFT", "labels": [1, 0, 1], "data": ["good", "bad", "fine"], "run_idxs": [2, 0]},
    {"name": "either", "type": "MFT", "labels": [[0, 1], 1], "data": ["dull", "good"]},
    {"name": "not bad", "type": "MFT", "labels": None, "data": ["fine", "good"], "run_idxs": None},
    {"name": "names", "type": "INV", "labels": None, "data": [["a", "b"], ["c"], ["d", "e"]], "run_idxs": [0, 1]},
    {"name": "praise", "type": "DIR", "labels": None, "data": [["a", "b"]], "run_idxs": [0]},
]


def test_a_suite_is_read_from_a_file_with_its_subset(tmp_path):
    plain, zipped = tmp_path / "suite.json", tmp_path / "suite.json.gz"
    plain.write_text(json.dumps(FILE))
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    expected = [
        MinimumFunctionality("words", ["fine", "good"], [1, 1]),
        MinimumFunctionality("either", ["dull", "good"], [(0, 1), 1]),
        Invariance("names", [["a", "b"]], 0.1),
    ]
    assert load_cases(plain) == load_cases(str(zipped)) == expected
    expect = {"not bad": {"labels": (1, 2)}, "praise": {"direction": "up", "label": "predicted"}}
    more = load_cases(plain, expect={**expect, "names": {"tolerance": 0.3}})
    assert more[2:] == [
        MinimumFunctionality("not bad", ["fine", "good"], (1, 2)),
        Invariance("names", [["a", "b"]], 0.3),
        Directional("praise", [["a", "b"]], "up", 0.0, "predicted"),
    ]


@pytest.mark.parametrize(
    ("text", "expect", "says"),
    [
        ("{", None, "JSON is expected"),
        ('{"name": "a"}', None, "a list of tests, each with a name, a type and a list of data, is expected"),
        ('[{"name": "a", "type": "MFT"}]', None, "a list of tests, each with a name, a type and a list of data"),
        (
            '[{"name": "a", "type": "XYZ", "data": [["a", "b"]]}]',
            None,
            "a: type='XYZ': 'MFT', 'INV' or 'DIR' is expected",
        ),
        ('[{"name": "a", "type": "MFT", "data": ["a"]}]', None, "no test states what it expects; pass expect="),
        (
            '[{"name": "a", "type": "MFT", "data": ["a"]}]',
            {"b": {}},
            "expect names 'b', but no test in .* has that name",
        ),
    ],
)
def test_a_file_that_is_no_suite_is_refused(tmp_path, text, expect, says):
    path = tmp_path / "suite.json"
    path.write_text(text)
    with pytest.raises(fw.UsageError, match=says):
        load_cases(path, expect=expect)


def test_an_expectation_that_is_misspelt_or_too_short_is_said(tmp_path):
    path = tmp_path / "suite.json"
    words = {"name": "b", "type": "MFT", "labels": 1, "data": ["x"]}
    path.write_text(json.dumps([{"name": "a", "type": "DIR", "data": [["x", "y"]]}, words]))
    with pytest.raises(fw.UsageError, match="expect has the key 'directon': only labels, direction, tolerance"):
        load_cases(path, expect={"a": {"directon": "up"}})
    with pytest.raises(fw.UsageError, match="expect is incomplete for 'a'"):
        load_cases(path, expect={"a": {"tolerance": 0.1}})
