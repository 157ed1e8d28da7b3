from __future__ import annotations

import json
import time
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import fairway as fw
from tests.browser.browser import complaints, narrow, requests
from tests.browser.conftest import HOSTILE, LONG
from tests.browser.test_report import column, draw_all, focus_path, marks, shade, wait
from tests.report.hiring import hiring

SPACE = {"x": fw.Float(0.0, 1.0)}


def page(address, name, number=None):
    kind = "study" if number is None else "trial"
    return f"{address}{kind}?name={quote(name, safe='')}" + ("" if number is None else f"&number={number}")


def test_the_list_names_every_study_and_leads_to_it(browser, address):
    browser.get(address)
    wait(browser, "document.querySelector('.studies').textContent.includes('maximize auc with eod ≤ 0.2')")
    assert "ended" in browser.find_element(By.CLASS_NAME, "studies").text
    browser.find_element(By.LINK_TEXT, "credit").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "credit"
    assert complaints(browser) == []


def test_a_study_opens_without_a_complaint_with_its_pictures_and_its_trials(browser, address, studies):
    browser.get(page(address, "credit"))
    assert draw_all(browser) >= 5
    assert min(marks(browser)) > 0
    assert browser.find_element(By.CSS_SELECTOR, "#trials [role=status]").text == f"{len(studies[0].trials)} trials"
    assert complaints(browser) == []


def test_no_request_leaves_the_machine(browser, address):
    for place in (address, page(address, "credit"), page(address, "credit", 3)):
        browser.get(place)
        wait(browser, "document.readyState === 'complete'")
    asked = [one for one in requests(browser) if not one.startswith(("data:", "blob:", "about:"))]
    assert len(asked) > 8
    assert all(one.startswith(address) for one in asked)


def test_a_trial_shows_its_configuration_its_curve_and_what_came_of_it(browser, address, studies):
    best = studies[0].best
    browser.get(page(address, "credit", best.number))
    draw_all(browser)
    text = browser.find_element(By.TAG_NAME, "main").text
    assert f"{best.params['depth']}" in text
    assert "best checkpoint" in text
    assert "checks paid" in text
    assert complaints(browser) == []


def test_a_new_trial_appears_within_two_seconds_of_its_end(browser, address, url):
    study = fw.Study(SPACE, fw.Minimize("loss"), storage=url, name="running", seed=0)
    study.tell(study.ask(), loss=1.0)
    browser.get(page(address, "running"))
    wait(browser, "document.querySelector('tr[data-trial=\"0\"]') !== null")
    delays = []
    for number in (1, 2, 3):
        browser.execute_script(
            """const row = `tr[data-trial="${arguments[0]}"]`;
            window.seen = null;
            new MutationObserver(() => {
              const there = document.querySelector(row)?.textContent.includes('completed');
              if (!window.seen && there) window.seen = Date.now();
            }).observe(document.querySelector('.trials tbody'), { childList: true, subtree: true });""",
            number,
        )
        trial = study.ask()
        study.tell(trial, loss=1.0 / (1 + number))
        told = time.time()
        delays.append(wait(browser, "window.seen") / 1000 - told)
    assert sorted(delays)[1] < 2.0, delays
    wait(browser, "document.getElementById('headline').textContent.includes('is trial 3:')")
    assert browser.find_element(By.ID, "state").text == "running"
    assert complaints(browser) == []


def test_the_badge_turns_when_a_certificate_arrives(browser, address, url):
    made = hiring(storage=url, name="certified live")
    browser.get(page(address, "certified live"))
    badge = "document.getElementById('badge')"
    wait(browser, f"{badge}.innerText.includes('within the limit on the judging rows; not yet certified')")
    assert not browser.find_element(By.ID, "certificate").is_displayed()
    wait(browser, "document.querySelector('#charts figure') !== null")
    certificate = made.study.certify(made.fresh, made.train)
    wait(browser, f"{badge}.dataset.kind === 'certified'")
    # The page shows what has passed while further candidates are still being tested.
    wait(browser, f"{badge}.innerText.includes({json.dumps(str(certificate))})")
    section = browser.find_element(By.ID, "certificate").text
    assert f"The certificate: trial {certificate.number}, step 1" in section
    assert section.count("passed") == sum(one.passed for one in certificate.tested)
    assert certificate.digest in section
    wait(
        browser, "[...document.querySelectorAll('figcaption')].some((one) => one.textContent.includes('The square is'))"
    )
    wait(browser, f"document.querySelector('tr.certified').dataset.trial === '{certificate.number}'")
    made.study.note(certificate.number, test_accuracy=0.7)
    wait(browser, "document.getElementById('later').innerText.includes('test_accuracy 0.7')")
    narrow(browser)
    wide, seen = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= seen == 390
    assert complaints(browser) == []


def test_a_running_trial_grows_before_ones_eyes(browser, address, url):
    study = fw.Study(SPACE, fw.Minimize("loss"), storage=url, name="growing", seed=0)
    trial = study.ask()
    study.owner.journal.flush()
    browser.get(page(address, "growing", 0))
    wait(browser, "document.getElementById('charts-wait').textContent.includes('reported nothing yet')")
    for step in trial.steps(3):
        trial.report(loss=1.0 / step)
    study.tell(trial)
    wait(browser, "document.querySelector('figcaption')?.textContent.startsWith('3 reports')")
    wait(browser, "document.getElementById('state').textContent === 'completed'")


def test_hostile_names_are_shown_as_text_and_run_nothing(browser, address):
    for place in (address, page(address, HOSTILE + LONG), page(address, HOSTILE + LONG, 3)):
        browser.get(place)
        wait(browser, "document.querySelector('tbody tr') !== null")
        text = wait(browser, "document.body.innerText.includes('window.ran=1') && document.body.innerText")
        assert "\u202e" not in text
        assert browser.execute_script("return [window.ran ?? null, document.images.length]") == [None, 0]
    draw_all(browser)
    assert complaints(browser) == []


def test_a_study_with_any_name_is_found_by_its_link(browser, address, url):
    for name in ("a/b", "50%", "x?y=1&z#w", "..", " ", "日本", "é" * 3000):
        study = fw.Study(SPACE, fw.Minimize("loss"), storage=url, name=name, seed=0)
        study.tell(study.ask(), loss=0.5)
        browser.get(address)
        link = "[...document.querySelectorAll('.studies a')]"
        link += ".find((a) => new URL(a.href).searchParams.get('name') === arguments[0])"
        wait(browser, f"!!{link}", name)
        browser.execute_script(f"{link}.click()", name)
        wait(browser, "document.querySelector('tr[data-trial=\"0\"] a') !== null")
        browser.execute_script("document.querySelector('tr[data-trial=\"0\"] a').click()")
        wait(browser, "document.querySelector('h1')?.textContent === 'Trial 0'")
    assert complaints(browser) == []


def test_sorting_and_filters_stay_while_trials_arrive(browser, address, url):
    study = fw.Study(SPACE, fw.Minimize("loss"), storage=url, name="arriving", seed=0)
    for loss in (0.3, 0.1, 0.2):
        study.tell(study.ask(), loss=loss)
    browser.get(page(address, "arriving"))
    wait(browser, "document.querySelectorAll('.trials tbody tr').length === 3")
    heading = browser.find_element(By.XPATH, "//th/button[text()='loss']")
    heading.send_keys(Keys.ENTER)
    browser.find_element(By.XPATH, "//select[@name='status']/option[text()='completed']").click()
    study.tell(study.ask(), loss=0.15)
    study.tell(study.ask(), failed="on purpose")
    wait(browser, "document.querySelector('#trials [role=status]').textContent === '4 of 5 trials'")
    assert column(browser, "loss") == ["0.1", "0.15", "0.2", "0.3"]


def test_everything_is_reached_by_keyboard(browser, address):
    browser.get(page(address, "credit"))
    wait(browser, "document.querySelector('.trials tbody tr') !== null")
    path = focus_path(browser)
    for one in ("A fairway", "A Pictures", "BUTTON Dark", "BUTTON Copy", "INPUT find", "BUTTON auc", "SELECT size"):
        assert any(here.startswith(one) for here in path), (one, path)


@pytest.mark.parametrize("place", ["list", "study", "trial", "lost"])
def test_a_phone_scrolls_down_and_never_sideways(browser, address, place):
    narrow(browser)
    name = HOSTILE + LONG
    places = {"list": address, "study": page(address, name), "trial": page(address, name, 2)}
    browser.get(places.get(place, page(address, "lost" * 100)))
    wait(browser, "document.readyState === 'complete'")
    if place in ("study", "trial"):
        draw_all(browser)
    wide, seen = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= seen == 390


def test_what_is_not_there_is_a_page_that_says_so(browser, address):
    browser.get(page(address, "nothing"))
    text = browser.find_element(By.TAG_NAME, "main").text
    assert "has no study 'nothing'" in text
    browser.get(page(address, "credit", 10**8))
    assert "has no trial" in browser.find_element(By.TAG_NAME, "main").text


def test_dark_and_light(browser, address):
    browser.get(address)
    assert shade(browser) > 200
    browser.find_element(By.ID, "theme").click()
    assert shade(browser) < 60
    browser.get(page(address, "credit"))
    assert shade(browser) < 60
