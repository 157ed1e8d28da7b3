"""A real browser: Debian's chromium, driven by selenium, without a window and without a past."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
)


def is_there() -> bool:
    """Whether this machine has one."""
    return None not in (shutil.which("chromium"), shutil.which("chromedriver"))


@contextmanager
def open_browser(profile: Path) -> Iterator[Chrome]:
    """A browser with a fresh profile in a folder."""
    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def complaints(driver: Chrome) -> list[str]:
    """What the console says that is no mere remark: errors, warnings and broken policies."""
    return [entry["message"] for entry in _log(driver, "browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(driver: Chrome) -> list[str]:
    """Every address that was asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in _log(driver, "performance")]
    sent = [one["params"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return [str(one["request"]["url"]) for one in sent]


def _log(driver: Chrome, kind: str) -> list[dict[str, Any]]:
    return list(driver.get_log(kind))  # type: ignore[no-untyped-call]


def narrow(driver: Chrome) -> None:
    """As wide as a phone."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(driver: Chrome, scheme: str) -> None:
    """The colours that a system asks for: light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
