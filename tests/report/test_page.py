from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.report import content, templates
from fairway.report.page import document, write
from fairway.report.view import View
from tests.conftest import run_curves

EVIL = "</script><script>alert(1)</script><!-- \u2028 <img src=x onerror=alert(1)>"
CURVES = [[(auc / 10, {"eod": auc / 30}) for auc in (1, 5, 9)], [(0.4, {"eod": 0.1})] * 3]


@pytest.fixture
def study(make_study):
    study = make_study(fw.ACE(interval=1))
    run_curves(study, CURVES)
    study.tell(study.ask(), failed="out of memory")
    return study


def data_of(page):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def scripts_of(page):
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)


def test_a_failed_trial_is_listed_with_the_line_of_the_users_code(study):
    def broken(trial):
        raise ValueError("no such solver")

    study.optimize(broken, trials=1, progress=False)
    view, at = View(study), f"{__file__}, line {broken.__code__.co_firstlineno + 1}, in broken: raise ValueError"
    page = data_of(document(view))
    reasons = [row[[one["label"] for one in page["columns"]].index("reason")] for row in page["rows"]]
    assert reasons[-2] == "out of memory"
    assert reasons[-1].startswith(f"ValueError: no such solver ({at}")
    assert dict(content.trial(view, len(reasons) - 1)["facts"])["raised at"].startswith(at)


def without_plotly(page):
    return page.replace(max(scripts_of(page), key=len), "")


def test_one_file_holds_everything(study, tmp_path):
    path = tmp_path / "report.html"
    size = write(View(study), path)
    page = path.read_text()
    assert size == path.stat().st_size
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", without_plotly(page))
    data = data_of(page)
    assert [row[0] for row in data["rows"]] == [0, 1, 2]
    assert all(len(row) == len(data["columns"]) for row in data["rows"])
    assert data["headline"] in page.partition('id="data"')[0].replace("&#x27;", "'")


def test_its_policy_names_just_the_scripts_that_are_in_it(study):
    page = document(View(study))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts_of(page)
    }
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert set(directives["script-src"].split()) == hashes
    assert directives["default-src"] == "'none'"
    assert "unsafe-eval" not in policy


@given(st.text())
def test_no_text_can_end_the_data(text):
    written = templates.script({"text": text})
    assert "<" not in written
    assert written.isascii()
    assert json.loads(written) == {"text": text}


def test_hostile_names_stand_in_the_page_only_as_text():
    study = fw.Study(
        {EVIL: fw.Choice([EVIL, "b"]), "x": fw.Float(0.0, 1.0)}, fw.Minimize(EVIL), [fw.AtMost(f"x{EVIL}", 1.0)], seed=0
    )
    for loss in (0.1, 0.2, 0.3):
        trial = study.ask()
        trial.note(**{EVIL: EVIL})
        study.tell(trial, {EVIL: loss, f"x{EVIL}": 2 * loss})
    study.tell(study.ask(), failed=EVIL)
    page = document(View(study, EVIL))
    assert "<script>alert" not in page
    assert "<img" not in without_plotly(page)
    assert len(re.findall(r"<script", without_plotly(page))) == 4


@pytest.mark.parametrize("trials", [0, 1])
def test_a_study_with_next_to_nothing_in_it_has_a_report(trials, make_study, tmp_path):
    study = make_study()
    study.optimize(lambda trial: {"auc": 0.5, "eod": 0.4}, trials=trials) if trials else None
    write(View(study), tmp_path / "report.html")
    assert len(data_of((tmp_path / "report.html").read_text())["rows"]) == trials


def test_numbers_that_json_cannot_say_are_texts(make_study):
    study = make_study(constraints=[fw.AtMost("eod", 1.0)])
    study.tell(study.ask(), auc=0.5, eod=float("inf"))
    study.tell(study.ask(), auc=0.5, eod=float("nan"))
    data = data_of(document(View(study)))
    at = [column["label"] for column in data["columns"]].index("eod")
    assert [row[at] for row in data["rows"]] == ["inf", "nan"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("trials", [3, 30])
def test_numbers_at_the_edge_of_what_a_float_holds_have_a_report(trials):
    edge = 1.7e308
    limits = [fw.AtLeast("low", edge), fw.AtMost("high", -edge), fw.AtMost("wide", 1.0)]
    space = {"x": fw.Float(1e-300, 1e300, log=True), "n": fw.Choice([0, 10**4000])}
    study = fw.Study(space, fw.Minimize("loss"), limits, sampler=fw.Random(), seed=0)
    for i in range(trials):
        metrics = {"loss": edge * (-1) ** i, "low": -edge, "high": edge, "wide": 10.0 ** (i * 300 / trials) * 1e8}
        study.tell(study.ask(), metrics)
    data = data_of(document(View(study)))
    assert len(data["rows"]) == trials
    assert max(len(str(value)) for row in data["rows"] for value in row) < 200


def test_whole_numbers_that_a_browser_would_round_are_texts():
    study = fw.Study({"n": fw.Int(2**60, 2**60 + 5)}, fw.Minimize("loss"), seed=0)
    study.tell(study.ask(), loss=1.0)
    (row,) = content.rows(View(study), [0])
    assert str(study.trials[0].params["n"]) in row


def test_a_parameter_that_a_trial_does_not_have_is_empty():
    space = {"a": fw.Choice(["on", "off"]), "b": fw.Float(0.0, 1.0, when={"a": "on"})}
    study = fw.Study(space, fw.Minimize("loss"), seed=0)
    study.enqueue({"a": "off"})
    study.tell(study.ask(), loss=1.0)
    view = View(study)
    at = [column["label"] for column in content.columns(view)].index("b")
    assert content.rows(view, [0])[0][at] is None
    assert [one["name"] for one in content.configuration(view, 0)["parameters"]] == ["a"]


def test_the_best_configuration_is_copied_exactly(study):
    view = View(study)
    assert json.loads(content.study(view)["best"]["json"]) == dict(study.best.params)


def test_a_file_that_cannot_be_written_is_one_sentence(study, tmp_path):
    with pytest.raises(fw.UsageError, match="could not be written: No such file or directory"):
        write(View(study), tmp_path / "missing" / "report.html")


def test_ten_thousand_trials_stay_small():
    study = fw.Study({"x": fw.Float(0.0, 1.0), "y": fw.Int(1, 9)}, fw.Minimize("loss"), sampler=fw.Random(), seed=0)
    study.tell(study.ask(), loss=0.123456789)
    row = content.rows(View(study), [0])
    assert len(templates.script(row)) < 120


def test_errors_stand_beside_their_metrics(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=fw.Measured(0.0712, error=0.012))
    study.tell(study.ask(), auc=0.5, eod=0.3)
    view = View(study)
    labels, kinds = ([column[key] for column in content.columns(view)] for key in ("label", "kind"))
    at = labels.index("eod")
    assert (labels[at + 1], kinds[at + 1]) == ("eod ±", "error")
    assert [row[at : at + 2] for row in content.rows(view, [0, 1])] == [[0.0712, 0.012], [0.3, None]]
    assert ["eod", "0.071 ± 0.012"] in content.trial(view, 0)["facts"]
    assert ["eod", 0.3] in content.trial(view, 1)["facts"]
    assert content.line(view)["best"] == "auc 0.5, eod 0.071 ± 0.012"


def test_what_was_measured_later_is_shown(make_study):
    study = make_study()
    for _ in range(60):
        trial = study.ask()
        trial.note(seen="while it ran")
        study.tell(trial, auc=0.5, eod=0.1)
    assert content.later(View(study)) == []
    view = View(study)
    study.note(test_rows=1200, source="the 2019 sample")
    study.note(3, test_auc=0.47123, folds=[1, 2])
    study.note(3, test_auc=0.48)
    assert view.update()
    assert content.later(view) == [
        ["the study", "test_rows 1,200, source the 2019 sample"],
        ["trial 3", "test_auc 0.48, folds [1, 2]"],
    ]
    assert data_of(document(view))["later"] == content.later(view)
    for k in range(60):
        study.note(k, test_auc=0.5)
    view.update()
    assert len(content.later(view)) == 52
    assert content.later(view)[-1] == ["", "and 10 earlier trials"]
