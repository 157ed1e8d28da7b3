"""A chart is data; a browser and a file draw the same of it, and no text of it is taken for markup."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fairway as fw
from fairway.errors import MissingDependency
from fairway.report import interactive, marks, still
from fairway.report.chart import Axis, Bars, Chart, Limit, Line, Panel, Points, Words
from fairway.report.charts.rows import span, thinned

HOSTILE = (
    "<script>alert(1)</script>",
    '<a href="javascript:alert(1)">auc</a>',
    "</script><b>bold</b>",
    "\x1b[31mred\x1b[0m",
    "right to left \u202eauc",
    "שלום مرحبا",
    "two\nlines",
    "$\\frac{1}{2}$ and $x$",
    "%{x} &amp; {{y}}",
    "long " * 500,
    "\udc80 alone",
    "😀",
)
NUMBERS = hnp.arrays(np.float64, st.integers(0, 12), elements=st.floats(width=64))


def chart_of(text="auc", x=(1.0, 2.0, 3.0), y=(0.1, 0.5, 0.3), *, log=False):
    texts = [text] * len(x)
    marks = [
        Line(x, y, text, "feasible", hover=texts),
        Points(x, y, text, "infeasible", hover=texts),
        Words(x, y, labels=texts),
        Limit(0.25, text, along="y", allowed="below"),
    ]
    bars = Panel(Axis(text), Axis(text, categories=[text, text]), [Bars([2, 3], [0, 1], text, labels=[text] * 2)])
    panel = Panel(Axis(text, log=log), Axis(text, log=log, span=(0.01, 1.0)), marks)
    ticked = Panel(Axis(ticks=[(0.0, text)]), Axis(), note=text)
    return Chart("some", text, text, [panel, bars, ticked])


def strings(part):
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for value in part.values():
            yield from strings(value)
    elif isinstance(part, list):
        for value in part:
            yield from strings(value)


@given(st.text())
def test_any_text_becomes_json_without_markup(text):
    figure = chart_of(text).plotly(titled=True)
    json.dumps(figure, allow_nan=False).encode()
    for found in strings(figure):
        assert "<" not in found.replace("<br>", "")
        assert "$" not in found
        assert all(letter.isprintable() for letter in found)


@given(NUMBERS, st.booleans())
def test_any_numbers_become_json_and_what_is_not_finite_a_gap(values, log):
    figure = chart_of(x=np.arange(1.0, len(values) + 1), y=values, log=log).plotly()
    json.dumps(figure, allow_nan=False)
    drawn = figure["data"][0]["y"]
    assert len(drawn) == len(values)
    for one, other in zip(drawn, values, strict=True):
        assert (one is None) == (not np.isfinite(other) or (log and other <= 0))
        assert one is None or one == pytest.approx(other, rel=1e-4)


def test_what_is_far_off_takes_no_digits_from_the_others():
    y = chart_of(x=[1, 2, 3], y=[0.123456789, 0.2, 1e9]).plotly()["data"][0]["y"]
    assert y[0] == pytest.approx(0.123456789, abs=1e-6)
    y = chart_of(x=[1, 2, 3], y=[1e9 + 0.25, 1e9 + 0.5, 1e9]).plotly()["data"][0]["y"]
    assert y[0] == pytest.approx(1e9 + 0.25, abs=1e-5)


@pytest.mark.parametrize("text", HOSTILE)
def test_files_of_every_kind_can_be_written_whatever_the_names(text, tmp_path):
    chart = chart_of(text)
    chart.save(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    chart.save(tmp_path / "chart.svg")
    root = ET.fromstring((tmp_path / "chart.svg").read_text(encoding="utf-8"))
    assert root.tag.endswith("svg")
    assert not [part for part in root.iter() if part.tag.endswith(("script", "}a"))]
    chart.save(str(tmp_path / "chart.PDF"))
    assert (tmp_path / "chart.PDF").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_ends_the_script_of_a_page(text, tmp_path):
    plotlyjs = pytest.importorskip("plotly.offline").get_plotlyjs()
    chart_of(text).save(tmp_path / "chart.html")
    page = (tmp_path / "chart.html").read_text(encoding="utf-8")
    tags = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)

    Tags().feed(page)
    assert tags == ["html", "head", "meta", "title", "style", "body", "h1", "div", "p", "script", "script"]
    assert not re.search(r"""<(script|link|img)[^>]+(src|href)=""", page.replace(plotlyjs, ""))


@settings(max_examples=15, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # to shrink one takes minutes
@given(NUMBERS)
@example(np.array([-1.7976931348623157e308, 1e292, 1.7976931348623157e308]))
@example(np.array([5e-324, 0.0, 1e-320]))
def test_any_numbers_can_be_drawn_into_a_file(values):
    chart = chart_of(x=np.arange(1.0, len(values) + 1), y=values)
    assert b"<svg" in still.draw(chart.panels, 400, chart.title, "svg")


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(fw.UsageError, match=r"ends in .html, .png, .svg or .pdf"):
        chart_of().save(tmp_path / "chart.gif")


def test_a_figure_of_plotly_takes_all_that_is_in_it():
    pytest.importorskip("plotly")
    figure = chart_of().figure()  # plotly checks every name and value
    assert figure.layout.title.text == "auc"
    assert len(figure.data) == len(chart_of().plotly()["data"])


def test_only_plain_traces_and_no_background():
    figure = chart_of().plotly()
    assert {trace["type"] for trace in figure["data"]} <= {"scatter", "bar"}
    assert figure["layout"]["paper_bgcolor"] == figure["layout"]["plot_bgcolor"] == "rgba(0,0,0,0)"
    assert "title" not in figure["layout"]


def test_a_notebook_gets_text_an_image_and_a_figure():
    bundle = chart_of("<b>auc</b>")._repr_mimebundle_()
    assert bundle["text/plain"] == "Chart('some', 3 panels)"
    assert "data:image/svg+xml;base64," in bundle["text/html"]
    assert "<b>" not in bundle["text/html"]
    json.dumps(bundle["application/vnd.plotly.v1+json"], allow_nan=False)


def test_without_plotly_or_matplotlib_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    for name in ("plotly", "plotly.offline", "matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    chart = chart_of()
    for call in (chart.figure, lambda: chart.save(tmp_path / "a.html"), lambda: chart.save(tmp_path / "a.png")):
        with pytest.raises(MissingDependency, match=r"pip install 'fairway\[report\]'"):
            call()
    assert chart.plotly()["data"]
    assert "<figcaption>auc</figcaption>" in chart._repr_html_()


def test_coordinates_and_texts_must_fit_together():
    with pytest.raises(fw.UsageError, match="not of one length"):
        Line([1, 2], [1, 2, 3])
    with pytest.raises(fw.UsageError, match="not of one length"):
        Points([1, 2], [1, 2], hover=["one"])


def test_of_marks_with_one_name_the_legend_has_one():
    figure = chart_of().plotly()
    assert [trace["showlegend"] for trace in figure["data"]].count(True) == 1


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("role", marks.LOOK)
def test_every_colour_stands_out_on_white_and_on_near_black(role):
    assert contrast(marks.LOOK[role].colour, "#ffffff") >= 3
    assert contrast(marks.LOOK[role].colour, "#111111") >= 3


def test_strata_differ_in_colour_and_symbol():
    strata = ("feasible", "infeasible", "not evaluated", "best")
    for feature in ("colour", "symbol"):
        assert len({getattr(marks.LOOK[role], feature) for role in strata}) == len(strata)


@given(st.integers(0, 400), st.integers(1, 50), st.lists(st.integers(0, 399), max_size=5))
def test_thinning_keeps_the_first_the_last_and_what_it_must(n, most, keep):
    keep = [place for place in keep if place < n]
    rows = thinned(n, most, keep)
    assert len(rows) <= max(most, 2) + len(keep)
    assert (np.diff(rows) > 0).all()
    assert set(keep) <= set(rows.tolist())
    assert n == 0 or {0, n - 1} <= set(rows.tolist())


@given(NUMBERS, st.lists(st.floats(-1e3, 1e3), max_size=2))
def test_a_span_holds_what_it_must_and_is_never_empty(values, keep):
    found = span(values, keep)
    if found is not None:
        low, high = found
        assert low < high
        assert all(low <= value <= high for value in keep)


def test_a_few_values_far_off_do_not_press_the_others_together():
    low, high = span(np.append(np.linspace(0, 1, 50), [1e6, 1e9]))
    assert low <= 0.1
    assert 1.0 <= high < 10.0


def test_an_escaped_text_keeps_our_lines_and_none_of_theirs():
    assert interactive.escaped("a\n<br>") == "a<br>&lt;br&gt;"


@pytest.mark.parametrize(("last", "every"), [(3, 1), (300, None)])
def test_whole_numbers_have_whole_names(last, every):
    line = Line(np.arange(1, last + 1), np.ones(last))
    axis = Chart("c", "c", "c.", [Panel(Axis(whole=True), Axis(), [line])]).plotly()["layout"]["xaxis"]
    assert axis["tickformat"] == ",d"
    assert axis.get("dtick") == every
