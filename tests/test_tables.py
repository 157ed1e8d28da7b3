"""What a notebook shows, and what `print` says: every text escaped, no scripts, no colours of its own."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairway as fw
from fairway.evidence import Mean
from fairway.tables import Table

HOSTILE = "<script>alert('$x$')</script>\x1b[31m"
TAGS = {"div", "table", "caption", "tr", "th", "td", "p"}


class Reader(HTMLParser):
    """The tags of a piece of HTML, and its text as a browser would show it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), set(), "", []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data}|"


def read(shown):
    reader = Reader(shown._repr_html_())
    assert reader.tags <= TAGS
    assert reader.attributes <= {"class", "style"}
    return reader.text


@pytest.fixture
def study():
    space = {"rate": fw.Float(0.0, 1.0), HOSTILE: fw.Choice([HOSTILE, "dart"])}
    study = fw.Study(space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], name=HOSTILE, seed=0)
    study.enqueue({"rate": 0.25, HOSTILE: HOSTILE})
    study.tell(study.ask(), auc=0.81234, eod=fw.Measured(0.1, error=0.012))
    return study


def test_the_best_prints_as_a_table_and_its_repr_is_still_python(study):
    best = study.best
    lines = str(best).splitlines()
    assert [re.split(r"  +", line) for line in lines[:4]] == [
        ["trial 0, step 1"],
        ["metric", "auc", "0.8123"],
        ["", "eod", "0.100 ± 0.012"],
        ["parameter", "rate", "0.25"],
    ]
    assert "\x1b" not in str(best)
    assert repr(best).startswith("Best(number=0, step=1, params={'rate': 0.25")


def test_a_notebook_shows_the_best_and_no_text_of_it_becomes_html(study):
    text = read(study.best)
    assert "trial 0, step 1|" in text
    assert "eod|0.100 ± 0.012|" in text
    assert "<script>alert('$x$')</script>\\x1b[31m|" in text


def test_a_notebook_shows_what_a_study_was_asked_and_found(study):
    text = read(study)
    assert "goal|maximize auc with eod ≤ 0.25|" in text
    assert "trials|1 trial: 1 completed|" in text
    assert "best|auc 0.8123, eod 0.100 ± 0.012 (trial 0, step 1)|" in text
    assert "seed|0|" in text


def test_a_study_without_trials_or_without_a_feasible_one_says_so(make_study):
    study = make_study()
    assert "trials|none yet|" in read(study)
    study.tell(study.ask(), auc=0.9, eod=0.9)
    assert "best|no model within the limit yet|" in read(study)


def test_a_notebook_shows_a_trial_while_it_runs_and_after_its_end(study):
    trial = study.ask()
    for _ in trial.steps(9):
        trial.report(auc=0.7, eod=0.5)
        break
    assert "trial 1, running, step 1 of 9|parameter|rate|" in read(trial)
    study.tell(trial, failed=HOSTILE)
    text = read(study.trials[1])
    assert "trial 1, failed after 1 step|metric|auc|0.7|" in text
    assert "outcome|feasible|no|reason|<script>alert" in text


def test_a_notebook_shows_a_certificate_and_its_sentence(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.9, eod=0.1)
    granted = study.certify(lambda model: Mean([0] * 180 + [1] * 20), models=lambda best: "a model")
    text = read(granted)
    assert text.startswith("certified at 95% confidence: trial 0, step 1|metric|limit|on fresh rows|rows|p-value")
    assert "eod|at most 0.25|0.1|200|" in text
    assert str(granted) in text
    assert str(granted) in read(study)


def test_a_certificate_that_was_refused_says_not_certified(make_study):
    study = make_study()
    study.tell(study.ask(), auc=0.9, eod=0.1)
    refused = study.certify(lambda model: Mean([0] * 20 + [1] * 20), models=lambda best: "a model")
    assert read(refused).startswith("not certified at 95% confidence")


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=4), st.text())
def test_whatever_the_cells_hold_a_table_has_a_line_for_each_row_and_only_its_own_tags(rows, title):
    table = Table(title, rows)
    assert len(table.text().split("\n")) == 1 + len(rows)
    reader = Reader(table.html())
    assert reader.tags == {"div", "table", "caption", "tr", "th", "td"}
    assert reader.attributes == {"class", "style"}
