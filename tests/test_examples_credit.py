from __future__ import annotations

import gzip
import re

import numpy as np
import pytest

from fairway.demo import credit_table
from tests.test_examples import run

pytest.importorskip("lightgbm")
pytest.importorskip("fairlearn")

_ROW = re.compile(r"(.+?)\s+(0\.\d{4})  (0\.\d{3})\s+(\d+)")


def rows(out):
    """The lines of the table, as (name, auc, eod, rounds)."""
    found = [_ROW.fullmatch(line) for line in out.splitlines()]
    return [(m[1], float(m[2]), float(m[3]), int(m[4])) for m in found if m]


def test_a_fair_model_is_found_and_certified_on_rows_that_no_search_saw():
    out = run("fair_credit.py", "--seconds", "6")
    default, unlimited, fair, certified = rows(out)
    assert default[0] == "LightGBM's defaults"
    assert default[2] > 0.15
    assert unlimited[0].startswith("best without the limit")
    assert fair[0].startswith("best within 0.15, by a margin")
    assert fair[1] <= unlimited[1]
    assert fair[2] < 0.15
    assert certified[0].startswith("certified (trial")
    assert "eod is at most 0.15 with 95% confidence, for rows drawn like these (0." in out
    assert "on 8,000 rows nobody searched by" in out
    assert "was not checked" not in out
    assert re.search(r"\d+ trials, \d+ stopped early, \w+ ran to the end; [\d,]+ of [\d,]+ fairness checks paid", out)


def test_it_reads_the_uci_table(tmp_path):
    x, y, group = credit_table(rows=800)
    path = tmp_path / "credit.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("ID,SEX,A,B,C,D,E,F,G,H,default\n")
        np.savetxt(file, np.column_stack([np.arange(800), group + 1, x, y]), delimiter=",")
    out = run("fair_credit.py", "--seconds", "2", "--data", path, "--limit", "0.9")
    assert rows(out)[-1][0].startswith("certified (trial")
