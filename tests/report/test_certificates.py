"""A page opens with what is known of the limits: certified, not certified, or not yet."""

from __future__ import annotations

import html
import json

import pytest

import fairway as fw
from fairway.evidence import Exact, Mean
from fairway.printing import study_lines
from fairway.report import content, plots
from fairway.report.certificates import attempts, badge, cells, facts, to_json
from fairway.report.marks import Points
from fairway.report.page import document
from fairway.report.summary import summarize, to_ship
from fairway.report.view import View
from tests.conftest import SPACE
from tests.report.hiring import hiring
from tests.report.test_page import data_of


@pytest.fixture(scope="module")
def certified():
    made = hiring()
    made.study.certify(made.fresh, made.train)
    return made.study


@pytest.fixture(scope="module")
def refused():
    made = hiring(drift=1.0)
    made.study.searched_by(made.judged)
    made.study.certify(made.fresh, made.train, confidence=0.9, uses=2)
    return made.study


def top(page):
    """What a page says before its data, as a reader without scripts sees it."""
    return html.unescape(page.partition('id="data"')[0])


def test_a_search_alone_is_not_called_certified():
    study = hiring().study
    said = "within the limit on the judging rows; not yet certified"
    assert badge(View(study)) == ("open", said, "")
    assert f"<strong>{said}</strong>" in top(document(View(study)))
    assert data_of(document(View(study)))["certificate"] is None


def test_several_limits_are_called_limits():
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("eod", 0.2), fw.AtMost("ms", 9.0)], seed=0)
    study.tell(study.ask(), auc=0.5, eod=0.1, ms=8.0)
    assert badge(View(study)).words == "within the limits on the judging rows; not yet certified"


def test_where_nothing_is_feasible_or_nothing_is_limited_there_is_no_badge(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.5, eod=0.9)
    free = make_study(constraints=())
    free.tell(free.ask(), auc=0.5)
    for view in (View(study), View(free)):
        assert badge(view) is None
        assert 'role="status" hidden><strong></strong>' in document(view)


def test_a_certificate_opens_the_report_with_its_sentence(certified):
    page = document(View(certified))
    assert str(certified.certificate) in top(page)
    assert '<div id="badge" class="badge" data-kind="certified"' in page
    assert "not yet certified" not in top(page)
    assert badge(View(certified))[:2] == ("certified", "certified")


def test_where_the_certified_model_is_not_the_best_on_the_judging_rows_the_summary_says_so():
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("ms", 10.0)], seed=0, stopper=fw.Never())
    for auc, ms in ((0.7, 4.0), (0.8, 8.5)):
        study.tell(study.ask(), auc=auc, ms=fw.Measured(ms, error=1.0))
    fresh = {0: Exact(5.0), 1: Exact(11.0)}
    assert study.certify(lambda k: fresh[k], models=lambda best: best.number, progress=False).number == 0
    said = "Trial 1 at step 1 failed its test on fresh rows: the certified model is trial 0 at step 1."
    assert summarize(View(study)).headline.startswith("On the judging rows, the best model within the limit is trial 1")
    assert summarize(View(study)).sentences[0] == said
    assert said in " ".join(" ".join(study_lines(View(study), last=5)).split())


def test_a_certificate_with_a_warning_says_so_at_once():
    from fairway.evidence import Decisions

    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("gap", 0.5)], seed=0)
    study.tell(study.ask(), auc=0.5, gap=fw.Measured(0.02, error=0.01))
    nobody = Decisions("demographic_parity_difference", [0, 0, 1, 1] * 100, [0] * 400, ["a", "b"] * 200)
    study.certify(lambda model: nobody, models=lambda best: "a model")
    found = badge(View(study))
    assert found.sentence == f"{study.certificate} Mind the warning below."
    (warning,) = content.study(View(study))["certificate"]["warnings"]
    assert warning.startswith("0% of its decisions are positive where 50% of the rows are: ")


def test_a_refusal_opens_the_report_with_its_sentence(refused):
    page, found = document(View(refused)), badge(View(refused))
    assert 'data-kind="refused"' in page
    assert found.words == "not certified"
    assert f"not certified: {found.sentence}" == str(refused.certificate)
    assert found.sentence in top(page)


def test_the_certificate_shows_every_candidate_in_order(certified):
    found = certified.certificate
    table = attempts(certified.problem, found)
    assert table.headings == (
        "trial",
        "step",
        "result",
        "accuracy, judging rows",
        "parity, judging rows",
        "parity, fresh rows",
        "rows",
        "p",
    )
    assert [int(row[0]) for row in table.rows] == [one.candidate.number for one in found.tested]
    assert [row[2] == "passed" for row in table.rows] == [one.passed for one in found.tested]
    assert {row[6] for row in table.rows} == {"3,000"}
    assert all(" ± " in row[4] for row in table.rows)
    shown = data_of(document(View(certified)))["certificate"]
    assert shown["attempts"]["rows"] == [list(row) for row in table.rows]
    assert shown["configuration"]["number"] == found.number


def test_the_certificate_shows_its_groups_and_how_it_was_made(refused):
    table, told = cells(refused.certificate), dict(facts(refused.certificate))
    assert table.headings == ("group", "rows", "positive decisions")
    assert [row[0] for row in table.rows] == ["a", "b"]
    assert sum(int(row[1].replace(",", "")) for row in table.rows) == 3000
    assert (told["confidence"], told["uses of these rows"]) == ("90%", "2")
    assert told["overlap"] == "0 fresh rows equal to one of the search"
    assert told["digest of the decisions"] == refused.certificate.digest
    share, base = refused.certificate.positive_share
    assert told["positive decisions"] == f"{share:.0%}, where {base:.0%} of the rows are positive"
    shown = content.study(View(refused))["certificate"]
    assert (shown["configuration"], shown["warnings"]) == (None, refused.certificate.warnings)
    assert shown["title"].startswith("No certificate: trial ")


def test_rows_that_were_not_compared_say_so(certified):
    assert dict(facts(certified.certificate))["overlap"] == "not checked"


def test_limits_without_groups_have_their_own_cells():
    from fairway.evidence import Exact, Mean

    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("errors", 0.1), fw.AtMost("bytes", 900)], seed=0)
    study.tell(study.ask(), auc=0.5, errors=fw.Measured(0.02, error=0.01), bytes=800.0)
    study.certify(
        lambda model: {"errors": Mean([0] * 240 + [1] * 4), "bytes": Exact(800)}, models=lambda best: "a model"
    )
    found = study.certificate
    assert cells(found).headings[:2] == ("limit", "group")
    assert attempts(study.problem, found).rows[0][-2:] == ("none needed", "0")
    assert "positive decisions" not in dict(facts(found))
    assert "digest of the decisions" not in dict(facts(found))


def test_as_json_it_has_everything_but_the_model(certified):
    found = certified.certificate
    said = json.loads(json.dumps(to_json(found)))
    assert (said["certified"], said["trial"], said["step"]) == (True, found.number, found.step)
    assert said["sentence"] == str(found)
    assert said["digest"] == found.digest
    assert "model" not in said
    first = said["tested"][0]
    assert first["limits"]["parity"]["p_value"] == found.tested[0].p_value
    assert first["limits"]["parity"]["cells"]["a"]["rows"] > 1000
    assert first["judging_rows"]["parity"]["error"] > 0


def test_a_view_knows_the_certificate_of_a_database_and_when_it_arrives(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    made = hiring(storage=url, name="hiring")
    view = View.read(url, "hiring")
    assert view.certificate is None
    made.study.certify(made.fresh, made.train)
    assert view.update()
    assert str(view.certificate) == str(made.study.certificate)
    assert view.certificate is view.still().certificate  # made once


def test_the_list_of_studies_says_which_trial_is_certified(certified, refused):
    assert content.line(View(certified))["best"].endswith(f"; trial {certified.certificate.number} is certified")
    assert "certified" not in content.line(View(refused))["best"]


def test_the_picture_of_the_limits_has_bars_for_the_best_and_for_the_certified_model(certified):
    chart = plots.limits(certified)
    points = {mark.name: mark for mark in chart.panels[0].marks if isinstance(mark, Points)}
    assert points["best"].error == certified.best.errors["parity"]
    fresh = points["certified, on held-out data"]
    assert fresh.x.tolist() == [certified.certificate.findings[0].value]
    assert all(points[name].error is None for name in points if name not in ("best", fresh.name))
    drawn = next(trace for trace in chart.plotly()["data"] if trace["name"] == fresh.name)
    assert drawn["error_x"]["array"] == [fresh.error]
    assert "Error bars are one standard error. The square is the certified model on held-out data." in chart.caption


def test_hostile_groups_are_texts():
    from fairway.evidence import Decisions

    evil = "</script><script>alert(1)</script>\x1b[31m"
    study = fw.Study(SPACE, fw.Maximize("auc"), [fw.AtMost("gap", 0.5)], seed=0)
    study.tell(study.ask(), auc=0.5, gap=fw.Measured(0.02, error=0.01))
    groups = [evil, "b"] * 200
    made = Decisions("demographic_parity_difference", [0, 0, 1, 1] * 100, [0, 0, 1, 1] * 100, groups)
    study.certify(lambda model: made, models=lambda best: "a model")
    page = document(View(study))
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_a_tracked_metric_is_not_tested_and_stands_in_no_table_of_tests():
    limits, sound = [fw.Track("ms"), fw.AtMost("eod", 0.1)], Mean([0.0] * 195 + [1.0] * 5)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), limits, seed=0)
    study.optimize(
        lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 4, "ms": 9 * trial.params["x"]}, trials=9
    )
    certificate = study.certify(lambda model: {"eod": sound}, models=lambda best: "model")
    assert certificate.certified
    assert set(certificate.metrics) == {"auc", "ms", "eod"}
    assert [len(attempt.candidate.values) for attempt in certificate.tested] == [1] * len(certificate.tested)
    for attempt in certificate.tested:
        assert attempt.candidate.values[0] == study.trials[attempt.candidate.number].metrics["eod"]
    assert len(attempts(study.problem, certificate).rows) == len(certificate.tested)
    assert [*to_json(certificate)["tested"][0]["judging_rows"]] == ["eod"]
    assert "certified" in top(document(View(study)))


def test_a_best_that_passed_is_not_said_to_have_failed():
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("eod", 0.1)], seed=0)
    study.optimize(lambda trial: {"auc": trial.params["x"], "eod": trial.params["x"] / 4}, trials=20)
    study.set_limit(eod=0.12)
    certificate = study.certify(lambda model: {"eod": Mean([0.0] * 190 + [1.0] * 10)}, models=lambda best: "model")
    assert all(attempt.passed for attempt in certificate.tested)
    assert "failed its test" not in to_ship(View(study))
