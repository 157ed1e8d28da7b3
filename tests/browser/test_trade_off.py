"""The sliders of a limit: the browser finds the model that `study.what_if` names, without asking anybody."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import fairway as fw
from fairway.report.page import write
from fairway.report.view import View
from tests.browser.browser import complaints, requests
from tests.browser.conftest import HOSTILE
from tests.browser.test_live import page
from tests.browser.test_report import wait

CHART = "document.querySelector('[data-chart=trade_off]')"


def shown(browser):
    """The limits as the page has them, its answer, and the parameters of the model."""
    return browser.execute_script(
        f"""const card = {CHART};
        return [[...card.querySelectorAll('output')].map((one) => Number(one.textContent)),
          card.querySelector('.found').textContent,
          [...card.querySelectorAll('.params li')].map((one) => one.textContent)]"""
    )


def move(browser, i, place):
    """Move the i-th slider to a place from 0 to 1000."""
    browser.execute_script(
        f"""const slider = {CHART}.querySelectorAll('input')[arguments[0]];
        slider.value = arguments[1];
        slider.dispatchEvent(new Event('input'));""",
        i,
        place,
    )
    return shown(browser)


def check(study, names, limits, answer, params):
    """The page says what the study does."""
    best = study.what_if(dict(zip(names, limits, strict=True))).best
    if best is None:
        assert "no model is known to be feasible" in answer
        return
    assert f"the best model is trial {best.number:,}, step {best.step}: auc " in answer
    assert [text.partition(" ")[0] for text in params] == [*best.params]


def see(browser):
    wait(browser, f"{CHART} !== null")
    browser.execute_script(f"{CHART}.scrollIntoView()")
    wait(browser, f"{CHART}.querySelector('svg.main-svg') !== null")


def test_moving_a_limit_in_a_report_shows_the_model_that_would_be_best(browser, report, studies):
    browser.get(report)
    see(browser)
    requests(browser)
    check(studies[0], ["eod"], *shown(browser))
    assert f"trial {studies[0].best.number}," in shown(browser)[1]
    assert not browser.find_element(By.CSS_SELECTOR, ".explore .button").is_displayed()
    answers = set()
    for place in (0, 150, 300, 600, 1000):
        (limit,), answer, params = move(browser, 0, place)
        check(studies[0], ["eod"], [limit], answer, params)
        answers.add(answer.partition(" ")[2])
    assert len(answers) == 5
    assert browser.execute_script(f"return {CHART}.querySelectorAll('.over i').length") == 2
    browser.find_element(By.CSS_SELECTOR, ".explore .button").click()
    assert shown(browser)[0] == [0.2]
    assert browser.execute_script(f"return {CHART}.querySelectorAll('.over i').length") == 0
    assert requests(browser) == complaints(browser) == []


def test_a_slider_is_moved_by_keyboard_and_its_trial_opens(browser, report, studies):
    browser.get(report)
    see(browser)
    slider = browser.find_element(By.CSS_SELECTOR, ".explore input")
    assert slider.accessible_name == "limit of eod"
    slider.send_keys(Keys.HOME)
    (limit,), answer, _ = shown(browser)
    assert limit < studies[0].best.metrics["eod"]
    slider.send_keys(Keys.END)
    assert shown(browser)[1] != answer
    best = studies[0].what_if(eod=shown(browser)[0][0]).best
    browser.find_element(By.CSS_SELECTOR, ".found button").send_keys(Keys.ENTER)
    assert browser.find_element(By.CSS_SELECTOR, "#trial h2").text == f"Trial {best.number}"


def test_hostile_names_are_text_in_sliders_too(browser, hostile_report):
    browser.get(hostile_report)
    see(browser)
    move(browser, 0, 700)
    text = browser.find_element(By.CLASS_NAME, "explore").text
    assert "<script>window.ran=1</script>" in text
    assert HOSTILE not in text
    assert browser.execute_script("return [window.ran ?? null, document.images.length]") == [None, 0]
    assert complaints(browser) == []


@pytest.fixture
def two_limits(url):
    limits = [fw.AtMost("eod", 0.2), fw.AtLeast("recall", 0.5)]
    study = fw.Study(
        {"x": fw.Float(0.0, 1.0), "y": fw.Float(0.0, 1.0)},
        fw.Maximize("auc"),
        limits,
        sampler=fw.Random(),
        storage=url,
        name="two limits",
        seed=0,
    )
    for _ in range(60):
        trial = study.ask()
        x, y = trial.params["x"], trial.params["y"]
        study.tell(trial, auc=x + y / 2, eod=x / 2, recall=1.0 - y)
    return study


def test_a_limit_that_was_moved_on_the_live_page_stays_while_trials_arrive(browser, address, two_limits, tmp_path):
    browser.get(page(address, "two limits"))
    see(browser)
    move(browser, 0, 400)
    limits, answer, params = move(browser, 1, 300)
    check(two_limits, ["eod", "recall"], limits, answer, params)
    assert browser.execute_script(f"return {CHART}.querySelectorAll('.over i').length") == 6
    best = two_limits.what_if(dict(zip(("eod", "recall"), limits, strict=True))).best
    assert browser.find_element(By.CSS_SELECTOR, ".found a").get_attribute("href").endswith(f"number={best.number}")
    two_limits.tell(two_limits.ask(), auc=1.4, eod=0.0, recall=1.0)
    wait(browser, f"{CHART}.querySelector('.found').textContent.includes('trial 60,')")
    assert shown(browser)[0] == limits
    write(View(two_limits), tmp_path / "report.html")
    browser.get((tmp_path / "report.html").as_uri())
    see(browser)
    assert "trial 60," in move(browser, 0, 400)[1]
    assert complaints(browser) == []
