"""A page as a PDF: a browser that is on this machine prints it, without a window, a past or a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from fairway.errors import MissingDependency, UsageError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_SECONDS = 180.0  # after which a browser is given up
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pdf-header-footer",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def printed(document: str) -> bytes:
    """The PDF of an HTML page."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise MissingDependency(
            "a PDF is printed by Chromium or Chrome, and neither is on the PATH: install one (apt install chromium), "
            "or write .html and print that"
        )
    with tempfile.TemporaryDirectory(prefix="fairway-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        page, output = folder / "report.html", folder / "report.pdf"
        page.write_text(document, encoding="utf-8")
        flags = [*_FLAGS, f"--user-data-dir={folder / 'profile'}", f"--print-to-pdf={output}"]
        flags += ["--no-sandbox"] if _is_root() else []  # a sandbox refuses to start as root
        try:
            done = subprocess.run(  # noqa: S603 - a browser of this machine, and a page of our own
                [browser, *flags, page.as_uri()], capture_output=True, timeout=_SECONDS, check=False
            )
            how = f"it exited with code {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            how = str(error) if isinstance(error, OSError) else f"it took more than {_SECONDS:.0f} s"
        content = output.read_bytes() if output.is_file() else b""
    if not content.startswith(b"%PDF-"):
        raise UsageError(f"{browser} printed no PDF ({how}): write .html, and print that in a browser")
    return content


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
