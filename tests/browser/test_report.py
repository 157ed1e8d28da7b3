from __future__ import annotations

import base64
import time

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import fairway as fw
from fairway.report.page import write
from fairway.report.view import View
from fairway.text import plus_minus
from tests.browser.browser import complaints, narrow, prefer, requests
from tests.browser.conftest import HOSTILE
from tests.report.hiring import hiring


def wait(browser, script, *arguments, seconds=30):
    """What a script returns once it is something."""
    patience = time.monotonic() + seconds
    while time.monotonic() < patience:
        found = browser.execute_script(f"return {script}", *arguments)
        if found:
            return found
    raise AssertionError(f"never came true: {script}; the console says {complaints(browser)}")


def draw_all(browser):
    """Scroll through the page, as a reader does, until every picture is drawn."""
    count = wait(browser, "document.querySelectorAll('figure').length")
    for i in range(count):
        browser.execute_script("document.querySelectorAll('figure')[arguments[0]].scrollIntoView()", i)
        wait(browser, "document.querySelectorAll('figure')[arguments[0]].ariaBusy === 'false'", i)
    return count


def marks(browser):
    """How many lines, points and bars each picture has."""
    paths = (
        "[...document.querySelectorAll('figure')].map((f) => f.querySelectorAll('.cartesianlayer .trace path').length)"
    )
    return browser.execute_script(f"return {paths}")


def column(browser, label):
    """What the table shows in one column."""
    return browser.execute_script(
        """const headings = [...document.querySelectorAll('.trials th:not([hidden]) button')];
        const i = headings.findIndex((button) => button.textContent === arguments[0]);
        return [...document.querySelectorAll('.trials tbody tr')].map((row) => row.cells[i]?.textContent)""",
        label,
    )


def focus_path(browser, most=400):
    """What Tab reaches, one after the other, until it begins again."""
    browser.execute_script("document.activeElement.blur(); getSelection().removeAllRanges()")
    path = []
    for _ in range(most):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        here = browser.execute_script(
            "const e = document.activeElement; return e === document.body ? '' : e.tagName + ' ' + "
            "(e.getAttribute('aria-label') || e.name || e.textContent || e.className).trim()"
        )
        if not here or path and here == path[0]:
            return path
        path.append(here)
    return path


def test_it_opens_without_a_complaint_and_every_picture_is_drawn(browser, report):
    browser.get(report)
    assert draw_all(browser) >= 5
    assert min(marks(browser)) > 0
    assert "the best model within the limit" in browser.find_element(By.ID, "headline").text
    assert complaints(browser) == []


def test_it_asks_nobody_for_anything(browser, report):
    browser.get(report)
    draw_all(browser)
    assert {one.partition(":")[0] for one in requests(browser)} <= {"file", "data", "blob", "about"}


def test_it_says_so_where_a_script_would_break_its_policy(browser, report):
    browser.get(report)
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    )
    assert browser.execute_script("return window.ran") is None
    assert any("Content Security Policy" in one for one in complaints(browser))


def test_hostile_names_are_shown_as_text_and_run_nothing(browser, hostile_report):
    browser.get(hostile_report)
    draw_all(browser)
    browser.find_element(By.CSS_SELECTOR, ".trials td button").click()
    text = browser.find_element(By.TAG_NAME, "body").text
    assert "</script><script>window.ran=1</script>" in text
    assert "\u202e" not in text
    assert browser.execute_script("return [window.ran ?? null, document.images.length]") == [None, 0]
    assert complaints(browser) == []
    assert HOSTILE not in browser.title


def test_a_click_on_a_heading_sorts_and_a_second_turns_it_round(browser, report):
    browser.get(report)
    heading = browser.find_element(By.XPATH, "//th/button[text()='training (s)']")
    for direction, turn in (("ascending", False), ("descending", True)):
        heading.click()
        shown = [float(text) for text in column(browser, "training (s)")]
        assert shown == sorted(shown, reverse=turn)
        assert heading.find_element(By.XPATH, "..").get_attribute("aria-sort") == direction


def test_the_first_row_is_the_best(browser, report, studies):
    browser.get(report)
    first = browser.find_element(By.CSS_SELECTOR, ".trials tbody tr")
    assert first.get_attribute("data-trial") == str(studies[0].best.number)
    assert "best" in first.get_attribute("class")


def test_filters_narrow_the_table(browser, report, studies):
    browser.get(report)
    trials = studies[0].trials
    stopped = sum(one.status == "stopped" for one in trials)
    browser.find_element(By.XPATH, "//select[@name='status']/option[text()='stopped']").click()
    told = "document.querySelector('#trials [role=status]').textContent === arguments[0]"
    wait(browser, told, f"{stopped} of {len(trials)} trials")
    assert set(column(browser, "status")) == {"stopped"}
    browser.find_element(By.XPATH, "//select[@name='limits']/option[text()='infeasible']").click()
    infeasible = sum(one.status == "stopped" and one.feasible is False for one in trials)
    wait(browser, told, f"{infeasible} of {len(trials)} trials")
    for name in ("status", "limits"):
        browser.find_element(By.XPATH, f"//select[@name='{name}']/option[text()='all']").click()
    wait(browser, told, f"{len(trials)} trials")
    browser.find_element(By.NAME, "find").send_keys("worst")
    assert all("worst" in text for text in column(browser, "reason"))
    browser.find_element(By.NAME, "find").send_keys(" nowhere")
    assert column(browser, "trial") == []


def test_pages_turn(browser, report, studies):
    browser.get(report)
    before = column(browser, "trial")
    assert len(before) == min(50, len(studies[0].trials))
    browser.find_element(By.XPATH, "//div[@class='pager']/button[text()='Next']").click()
    assert not set(before) & set(column(browser, "trial"))


def test_everything_is_reached_and_used_by_keyboard(browser, report):
    browser.get(report)
    path = focus_path(browser)
    wanted = ("A Skip to the content", "A Pictures", "A Trials", "BUTTON Dark", "BUTTON Copy as JSON", "INPUT find")
    wanted += ("SELECT status", "SELECT limits", "DIV Table of trials", "BUTTON auc", "BUTTON reason", "BUTTON Next")
    for one in (*wanted, "SELECT size"):
        assert any(here.startswith(one) for here in path), (one, path)
    heading = browser.find_element(By.XPATH, "//th/button[text()='auc']")
    for key, direction in ((Keys.ENTER, "descending"), (Keys.SPACE, "ascending")):
        heading.send_keys(key)
        assert heading.find_element(By.XPATH, "..").get_attribute("aria-sort") == direction
        assert browser.switch_to.active_element == heading
    row = browser.find_element(By.CSS_SELECTOR, ".trials td button")
    row.send_keys(Keys.ENTER)
    dialog = browser.find_element(By.ID, "trial")
    assert dialog.is_displayed()
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed()


def shade(browser):
    red, *_ = browser.execute_script("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
    return int(red)


def test_it_is_dark_where_the_system_is_and_a_button_turns_it(browser, report):
    prefer(browser, "dark")
    browser.get(report)
    draw_all(browser)
    assert shade(browser) < 60
    ink = "document.querySelector('figure svg .xtitle').style.fill"
    dark = browser.execute_script(f"return {ink}")
    browser.find_element(By.ID, "theme").click()
    assert shade(browser) > 200
    browser.execute_script("document.querySelector('figure').scrollIntoView()")
    assert wait(browser, f"{ink} !== arguments[0]", dark)
    browser.get(report)
    assert shade(browser) > 200


@pytest.mark.parametrize("kind", ["report", "hostile_report"])
def test_a_phone_scrolls_down_and_never_sideways(browser, kind, request):
    page = request.getfixturevalue(kind)
    narrow(browser)
    browser.get(page)
    draw_all(browser)
    wide, seen = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= seen == 390


def test_it_prints_with_its_pictures(browser, report):
    browser.get(report)
    wait(browser, "window.Plotly && document.querySelector('figure')")
    pdf = base64.b64decode(browser.print_page())
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    drawn = "return [...document.querySelectorAll('figure')].every((f) => f.querySelector('svg.main-svg'))"
    assert browser.execute_script(drawn)
    assert complaints(browser) == []


def test_it_opens_with_the_badge_and_shows_errors_in_the_table(browser, tmp_path):
    made = hiring()
    write(View(made.study), tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.find_element(By.ID, "badge").text.endswith("on the judging rows; not yet certified")
    best = made.study.best
    (row,) = browser.find_elements(By.CSS_SELECTOR, f"tr[data-trial='{best.number}']")
    shown = plus_minus(best.metrics["parity"], best.errors["parity"])
    assert shown in row.text
    assert "±" not in browser.find_element(By.CSS_SELECTOR, ".trials thead").text
    assert shown.partition(" ")[0] in browser.find_element(By.ID, "facts").text
    assert complaints(browser) == []


def test_a_number_without_an_error_is_shown_without_one(browser, tmp_path):
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), [fw.AtMost("kb", 60.0)], seed=0)
    study.tell(study.ask(), auc=0.5, kb=fw.Measured(12.5, 0.0))
    write(View(study), tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri())
    wait(browser, "document.querySelector('.trials tbody tr')")
    assert column(browser, "kb") == ["12.5"]
