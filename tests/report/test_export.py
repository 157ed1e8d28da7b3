from __future__ import annotations

import json

import pytest

import fairway as fw
from fairway.cli import main
from fairway.report import export

ROWS = [
    {"number": 0, "metric.auc": -0.5, "param.sign": "-1", "note": "=1+1", "reason": "@SUM(A1)", "mixed": 1},
    {"number": 1, "metric.auc": None, "param.sign": "+1.5e3", "note": "-x", "reason": "a\tb", "mixed": "1"},
]


def test_cells_that_begin_like_a_formula_follow_an_apostrophe_and_numbers_stay_numbers(tmp_path):
    path = tmp_path / "trials.csv"
    assert export.write(path, ROWS) == ["4 cells began like formulas: they follow an apostrophe (')"]
    assert path.read_text().splitlines()[1:] == ["0,-0.5,-1,'=1+1,'@SUM(A1),1", "1,,'+1.5e3,'-x,a\tb,1"]


def test_half_a_character_is_written_as_its_number_and_that_is_said(tmp_path):
    for kind in ("csv", "parquet"):
        remarks = export.write(tmp_path / f"trials.{kind}", [{"reason": "half \udc80"}])
        assert len(remarks) == 1
        assert "\\udc80" in remarks[0]
        assert b"half \\udc80" in (tmp_path / f"trials.{kind}").read_bytes()


@pytest.mark.parametrize("values", [[1, "1"], [True, 2], [2**63], [10**400], [0.5, 2**60], [1, None, "x"]])
def test_parquet_writes_values_of_several_kinds_as_json_and_says_so(tmp_path, values):
    from pyarrow import parquet

    path = tmp_path / "trials.parquet"
    assert "written as JSON" in export.write(path, [{"value": value} for value in values])[0]
    found = parquet.read_table(path)["value"].to_pylist()
    assert [None if one is None else json.loads(one) for one in found] == values


@pytest.mark.parametrize("values", [[1, 2, None], [0.5, 1], [2**62, None], ["a", None], [None], [float("nan")]])
def test_parquet_keeps_values_of_one_kind_as_they_are(tmp_path, values):
    from pyarrow import parquet

    path = tmp_path / "trials.parquet"
    assert export.write(path, [{"value": value} for value in values]) == []
    assert str(parquet.read_table(path)["value"].to_pylist()) == str(values if values != [0.5, 1] else [0.5, 1.0])


def test_two_columns_that_would_have_one_name_are_refused(tmp_path):
    with pytest.raises(fw.UsageError, match="two columns would be named"):
        export.write(tmp_path / "trials.parquet", [{"a\udc80": 1, "a\\udc80": 2}])


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "html"])
def test_a_folder_that_is_not_there_is_a_sentence(tmp_path, capsys, kind):
    url = f"sqlite:///{tmp_path}/study.db"
    fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), storage=url, name="credit", seed=0)
    command = "report" if kind == "html" else "export"
    assert main([command, url, "credit", "-o", str(tmp_path / "nowhere" / f"trials.{kind}")]) == 2
    assert "could not be written: No such file or directory" in capsys.readouterr().err
