"""A study as one HTML file that needs nothing else: no network, no server, no fairway.

Nothing in it can be made to run by a name: texts are escaped here or set as text there, the data is JSON that no script
element executes, and the page's own policy allows only the scripts whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import fairway as fw
from fairway.errors import MissingDependency, UsageError
from fairway.report import content
from fairway.report.ink import COLOUR
from fairway.report.plots import drawn
from fairway.report.view import View

_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)

_NAV = '<nav aria-label="On this page"><a href="#charts-title">Pictures</a><a href="#trials-title">Trials</a></nav>'


def write(view: View, path: str | Path) -> int:
    """Write the report of a study to a file; returns its size in bytes."""
    path = Path(path)
    text = document(view).encode()
    try:
        path.write_bytes(text)
    except OSError as error:
        raise UsageError(f"{str(path)!r} could not be written: {error.strerror or error}") from error
    return len(text)


def document(view: View) -> str:
    """The report of a study, as HTML."""
    study = content.study(view)
    data = {
        **study,
        "columns": content.columns(view),
        "rows": content.rows(view, range(len(view.courses))),
        "charts": content.charts(drawn(view)),
    }
    scripts = [asset("page.js"), plotly()]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    written = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return page(
        "report",
        title=f"{study['name']}: a fairway report",
        main=study_main(study, settled=True),
        policy=f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(scripts=hashes)}">\n',
        style=f"<style>{style()}</style>",
        scripts=f'<script type="application/json" id="data">{content.script(data)}</script>\n'
        + "\n".join(f"<script>{one}</script>" for one in scripts),
        footer=f"Written by fairway {fw.__version__} on {written}; {content.algorithms(view)}.",
    )


def study_main(study: Mapping[str, Any], *, settled: bool) -> str:
    """What stands between the head and the foot of a study's page, whether in a file or live."""
    return fill(
        "study.html",
        name=study["name"],
        goal=study["goal"],
        state=study["state"],
        headline=study["headline"],
        sentences=" ".join(study["sentences"]),
        raw={"settled": " hidden" if settled else ""},
    )


def page(kind: str, *, title: str, main: str, style: str, scripts: str, **more: str) -> str:
    """A whole page; `main`, `style`, `scripts`, `policy` and `crumb` are HTML, the rest is text."""
    home = more.get("home", "")
    return fill(
        "page.html",
        title=title,
        page=kind,
        footer=more.get("footer", ""),
        raw={
            "policy": more.get("policy", ""),
            "style": style,
            "brand": f'a href="{html.escape(home)}"' if home else "span",
            "brand_end": "a" if home else "span",
            "crumb": more.get("crumb", ""),
            "nav": _NAV if kind in ("report", "study") else "",
            "main": main,
            "scripts": scripts,
        },
    )


def fill(template: str, *, raw: Mapping[str, str] | None = None, **texts: str) -> str:
    """A template with texts, which are escaped, and pieces of HTML, which are not.

    >>> "&lt;b&gt;" in fill("message.html", heading="<b>", text="", advice="")
    True
    """
    escaped = {name: html.escape(text) for name, text in texts.items()}
    return Template(asset(template)).substitute(escaped | dict(raw or {}))


@cache
def asset(name: str) -> str:
    """The text of a file beside this one."""
    return (resources.files("fairway.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """The style sheet, with the colours of the charts."""
    roles = {"valid": "valid", "invalid": "invalid", "not evaluated": "unknown", "best": "best"}
    ink = " ".join(f"--{short}: {COLOUR[role]};" for role, short in roles.items())  # type: ignore[index]
    return asset("style.css").replace("/*INK*/", ink)


@cache
def plotly() -> str:
    """The program that draws in a browser, from the installed package."""
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependency("the report needs plotly: pip install 'fairway[report]'") from None
    return str(get_plotlyjs())
