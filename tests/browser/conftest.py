"""Real pages in a real browser."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing

import pytest

import fairway as fw
from fairway.report.page import write
from fairway.report.view import View
from tests.browser import browser as chromium
from tests.conftest import make_recording

HOSTILE = "</script><script>window.ran=1</script><img src=x onerror=window.ran=1><!-- \u2028\x1b[31m\u202egnp.exe"
LONG = "long" * 200


@pytest.fixture(scope="session")
def profile(tmp_path_factory):
    if not chromium.is_there():
        pytest.skip("no chromium: make test-browser installs it")
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="session")
def window(profile):
    with chromium.open_browser(profile) as driver:
        yield driver


@pytest.fixture
def browser(window):
    """The browser, with nothing of the last test left in it."""
    window.get("about:blank")
    window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    window.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    chromium.prefer(window, "light")
    chromium.complaints(window), chromium.requests(window)
    return window


def simulated(url, name="credit", budget=25.0):
    recording = make_recording(n=120)
    study = fw.Study(
        recording.space,
        fw.Maximize("auc"),
        [fw.AtMost("eod", 0.2)],
        sampler=fw.Random(),
        stopper=fw.ACE(interval=1),
        storage=url,
        name=name,
        seed=0,
    )
    fw.simulate(study, recording, workers=2, budget=budget, constraint_price=1.0)
    return study


def hostile(url):
    study = fw.Study(
        {HOSTILE: fw.Choice([HOSTILE, "tame"]), LONG: fw.Float(0.0, 1.0)},
        fw.Minimize(f"loss {HOSTILE}"),
        [fw.AtMost(f"limit {HOSTILE}", 0.5)],
        storage=url,
        name=HOSTILE + LONG,
        seed=0,
    )
    for i in range(12):
        trial = study.ask()
        trial.note(**{"note": HOSTILE, LONG: LONG})
        study.tell(trial, **{f"loss {HOSTILE}": i / 7, f"limit {HOSTILE}": i / 11})
    for reason in (HOSTILE, LONG):
        study.tell(study.ask(), failed=reason)
    return study


@pytest.fixture(scope="session")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('studies') / 'studies.db'}"


@pytest.fixture(scope="session")
def studies(url):
    return simulated(url), hostile(url)


@pytest.fixture(scope="session")
def report(studies, tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "credit.html"
    write(View(studies[0]), path)
    return path.as_uri()


@pytest.fixture(scope="session")
def hostile_report(studies, tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "hostile.html"
    write(View(studies[1]), path)
    return path.as_uri()


@pytest.fixture(scope="session")
def address(url, studies):
    """A live page in a process of its own."""
    command = [sys.executable, "-m", "fairway.cli", "dashboard", url, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, closing(server.stdout):
        text = ""
        while not text.endswith("}\n"):
            text += server.stdout.readline()
        yield json.loads(text)["address"]
        server.terminate()
