"""Everything that is written as HTML: the templates in `assets`, filled.

Texts are escaped here or set as text by a script; data is JSON that no script element executes. So no name of a study,
a metric or a parameter can run anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from fairway.errors import MissingDependency
from fairway.report.marks import LOOK, Role


def fill(template: str, *, raw: Mapping[str, str] | None = None, **texts: str) -> str:
    """A template with texts, which are escaped, and pieces of HTML, which are not.

    >>> "&lt;b&gt;" in fill("message.html", heading="<b>", text="", advice="")
    True
    """
    escaped = {name: html.escape(text) for name, text in texts.items()}
    return Template(asset(template)).substitute(escaped | dict(raw or {}))


def page(kind: str, main: str, *, title: str, data: Any = None, footer: str = "", home: bool = True, **raw: str) -> str:
    """A whole page around its main part; `style`, `scripts`, `policy` and `crumb` are HTML, all others are texts."""
    raw = {"policy": "", "style": f"<style>{asset('style.css')}</style>", "scripts": "", "crumb": ""} | raw
    raw |= {"main": main, "data": script(data), "home": ' href="/"' if home else ""}
    raw["nav"] = "" if kind in ("report", "study") else " hidden"
    return fill("page.html", page=kind, title=title, footer=footer, raw=raw)


def message(heading: str, text: str, advice: str = "") -> str:
    """A page that says one thing, and needs no other file for it."""
    main = fill("message.html", heading=heading, text=text, advice=advice)
    return page("message", main, title=f"{heading}: fairway")


def compact(data: Any) -> str:
    """JSON without spaces; NaN and infinity are refused."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def script(data: Any) -> str:
    r"""JSON that may stand inside a script element, whatever its texts are.

    >>> script({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = compact(data)  # ASCII: U+2028 and its kind are escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def asset(name: str) -> str:
    """The text of a file in `assets`; the style sheet has the colours of the charts."""
    text = (resources.files("fairway.report") / "assets" / name).read_text(encoding="utf-8")
    roles: tuple[Role, ...] = ("feasible", "infeasible", "not evaluated", "best")
    return text.replace("/*INK*/", " ".join(f"--{role.replace(' ', '-')}: {LOOK[role].colour};" for role in roles))


def plotly() -> str:
    """The program that draws in a browser, from the installed package."""
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependency("an HTML page needs plotly: pip install 'fairway[report]'") from None
    return str(get_plotlyjs())
