"""Hostile texts in every name, note, reason and message, through every output.

No output holds a control character or half a character, none is a traceback, and none runs what it shows. CI draws a
few; `make faults` draws many (`FAIRWAY_ATTACKS`).
"""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import logging
import re
import tempfile
import warnings
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import fairway as fw
from fairway.cli import main
from fairway.report import dashboard
from fairway.runners import progress
from tests.attack.texts import ATTACKS, TEXTS, hostile, is_plain

HERE = "http://127.0.0.1:8321"


def attacked(url, text, name):
    """A study in which everything that is somebody's text is this one."""
    study = fw.Study(
        {text: fw.Float(0.0, 1.0), "choice": fw.Choice([text, "plain", 3, None, True])},
        fw.Maximize("auc" + text),
        [fw.AtMost("eod" + text, 0.25, confidence=None)],
        stopper=fw.ACE(interval=1),
        sampler=fw.Random(),
        storage=url,
        name=name,
        seed=0,
    )
    for k in range(4):
        trial = study.ask()
        trial.note(**{"note" + text: text, "deep": {text: [text]}, "large": 10**25})
        if k == 3:
            study.tell(trial, failed=text)
        else:
            study.tell(trial, {"auc" + text: 0.5 + k / 10, "eod" + text: 0.1 * k})

    def fails(trial):
        raise ValueError(text)

    study.optimize(fails, trials=1)
    study.note(**{"later" + text: text})
    study.note(0, **{"score" + text: text})
    return study


def said(arguments):
    """The exit code of a command, and what it wrote to both streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def name_of(text):
    """A name that a database can hold."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "0")


@given(text=hostile)
@settings(max_examples=ATTACKS)
def test_a_hostile_text_is_shown_as_text_everywhere(text):
    attack(text)


@pytest.mark.parametrize("text", [*TEXTS[:4], *TEXTS[13:16]], ids=range(7))
def test_a_text_that_was_hostile_once_is_shown_as_text(text):
    attack(text)


def attack(text):
    with tempfile.TemporaryDirectory() as folder, listening(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        url, name = f"sqlite:///{folder}/study.db", name_of(text)
        study = attacked(url, text, name)
        through_the_command_line(folder, url, name, text, study)
        through_the_live_page(url, name)
        assert all(is_plain(progress.shown(line)) for line in progress.describe(study.owner, 0, 5, 1.0))
        through_exceptions(study, text)


@contextlib.contextmanager
def listening():
    """What fairway logs is plain."""
    stream = io.StringIO()
    handler, logger = logging.StreamHandler(stream), logging.getLogger("fairway")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    lines = stream.getvalue().split("\n")
    assert all(is_plain(line) for line in lines), lines


def through_the_command_line(folder, url, name, text, study):
    for command in (["list"], ["show"], ["verify"], ["show", "--trials", "0"]):
        operands = ["--", url, *([name] if command[0] != "list" else [])]
        code, out, err = said([*command, *operands])
        assert code == 0, err
        assert is_plain(out)
        assert max(map(len, out.split("\n"))) <= 500  # a few names, each cut, however they are escaped
        code, out, err = said([*command, "--json", *operands])
        assert code == 0, err
        json.loads(out)
    for more in ([], ["--json"]):
        code, out, err = said(["what-if", *more, "--", url, name, f"eod{name_of(text)}=0.2"])
        assert (code == 0) == (text == name_of(text)), err
        assert is_plain(out + err)
    for kind in ("csv", "json", "parquet"):
        code, out, err = said(["export", "-o", f"{folder}/trials.{kind}", "--", url, name])
        assert code == 0, err
        assert is_plain(out)
    exported(Path(folder), text, study)
    code, out, err = said(["report", "-o", f"{folder}/report.html", "--", url, name])
    assert code == 0, err
    harmless(Path(f"{folder}/report.html").read_text(encoding="utf-8"))
    code, out, err = said(["show", "--", url, name + text.replace("\x00", "")[:40]])
    assert code == 2
    assert is_plain(err)
    assert "Traceback" not in err


def exported(folder, text, study):
    """What came out is what went in, or was said to differ."""
    records = study.trials
    rows = json.loads((folder / "trials.json").read_text())
    assert [row["param.choice"] for row in rows] == [record.params["choice"] for record in records]
    assert [row["reason"] for row in rows] == [record.reason for record in records]
    table = list(csv.reader(io.StringIO((folder / "trials.csv").read_bytes().decode(), newline="")))
    assert len(table) == len(records) + 1
    place = table[0].index("reason")
    for row, record in zip(table[1:], records, strict=True):
        assert not re.match(r"[=+@\t\r]|-(?![\d.])", row[place]), row
        assert row[place].lstrip("'").endswith(record.reason.encode(errors="backslashreplace").decode().lstrip("'"))
        assert float(row[table[0].index("training_seconds")]) >= 0.0
    stored = pyarrow.parquet.read_table(folder / "trials.parquet").to_pylist()
    assert [row["status"] for row in stored] == [record.status for record in records]
    assert [json.loads(row["param.choice"]) if row["param.choice"] is not None else None for row in stored] == [
        record.params["choice"] for record in records
    ]


def harmless(page):
    """Nothing in a page is markup or script that came from a name."""
    without = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    assert "<img src=x" not in without
    assert "<svg onload" not in without
    assert page.count("window.ran=1</script>") == 0
    assert is_plain(re.sub(r"<style>.*?</style>", "", html.unescape(without), flags=re.DOTALL))


def through_the_live_page(url, name):
    with TestClient(dashboard.app(url), base_url=HERE) as client:
        assert client.get("/").status_code == 200
        for path in ("/study", "/trial", "/trials.json", "/trial.json", "/charts.json"):
            answer = client.get(path, params={"name": name, "number": "0"})
            assert answer.status_code == 200, (path, answer.text)
            if path.endswith(".json"):
                answer.json()
            else:
                harmless(answer.text)
        answer = client.get("/study", params={"name": name + "?"})
        assert answer.status_code == 404
        harmless(answer.text)


def through_exceptions(study, text):
    calls = [
        lambda: study.ask().report({"auc" + text: text}),
        lambda: study.ask().report({"auc" + text: 0.5, "other" + text: 1.0}),
        lambda: study.enqueue({text: text}),
        lambda: study.tell(text),
        lambda: study.what_if({text: 0.1}),
        lambda: study.what_if({"eod" + text: text}),
        lambda: fw.Study({text: text}, fw.Maximize("auc")),
        lambda: fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), name="", storage=text),
        lambda: fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), storage="sqlite:////dev/null/x" + text),
        lambda: fw.AtMost(text, text),
        lambda: fw.Pilot(interval=text),
        lambda: study.optimize(None, trials=1, backend=text),
        lambda: fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("a"), seed=0).optimize(_raises(text), trials=5),
    ]
    for call in calls:
        with pytest.raises(fw.FairwayError) as caught:
            call()
        assert is_plain(str(caught.value).replace("\n", " ")), caught.value


def _raises(text):
    def train(trial):
        raise RuntimeError(text)

    return train


@given(name=hostile)
@settings(max_examples=ATTACKS)
def test_a_study_of_any_name_is_made_or_refused_with_a_sentence(name):
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/study.db"
        try:
            fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), storage=url, name=name, seed=0)
        except fw.FairwayError as error:
            assert is_plain(str(error))  # noqa: PT017
        else:
            code, out, _ = said(["list", url, "--json"])
            assert code == 0
            assert [study["name"] for study in json.loads(out)] == [name]


@given(rows=st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), hostile), min_size=1, max_size=6))
@settings(max_examples=ATTACKS * 3)
def test_parquet_holds_any_mix_of_values_or_says_what_it_did(rows):
    from fairway.report import export

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mixed.parquet"
        remarks = export.write(path, [{"value": value} for value in rows])
        found = pyarrow.parquet.read_table(path)["value"].to_pylist()
        if not remarks:
            assert len(found) == len(rows)
            assert all(one is other or one == other or one != one for one, other in zip(found, rows, strict=True))  # noqa: PLR0124
