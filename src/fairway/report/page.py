"""A study as one HTML file that needs nothing else: no network, no server, no fairway.

The page's own policy allows only the scripts whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fairway as fw
from fairway.errors import UsageError
from fairway.report import content, files, pdf, templates
from fairway.report.plots import drawn
from fairway.report.view import View
from fairway.study import Study

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; script-src {scripts}; '
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'\">\n"
)


def write(study: Study | View, path: str | Path) -> int:
    """Write the report of a study to a file, by its ending: .html, or .pdf; returns its size in bytes.

    A PDF is printed by Chromium or Chrome, if one is on this machine.

    >>> import tempfile
    >>> import fairway as fw
    >>> from fairway.report import page
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["x"], trials=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page.write(study, f"{folder}/report.html") > 1_000_000
    True
    """
    kind = Path(path).suffix.lower()
    if kind not in (".html", ".htm", ".pdf"):
        raise UsageError(f"{str(path)!r}: a name that ends in .html or .pdf is expected")
    text = document(study)
    return files.write(path, pdf.printed(text) if kind == ".pdf" else text.encode())


def document(study: Study | View) -> str:
    """The report of a study, as HTML.

    >>> import fairway as fw
    >>> from fairway.report import page
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> "No trial has begun yet." in page.document(study)
    True
    """
    view = View.of(study)
    said = content.study(view)
    rows = content.rows(view, range(len(view.courses)))
    scripts = [templates.asset("explore.js"), templates.asset("page.js"), templates.plotly()]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return templates.page(
        "report",
        study_main(said, settled=True),
        title=f"{said['name']}: a fairway report",
        data={**said, "columns": content.columns(view), "rows": rows, "charts": content.charts(drawn(view))},
        footer=f"Written by fairway {fw.__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"{content.algorithms(view)}.",
        home=False,
        policy=_POLICY.format(scripts=hashes),
        scripts="\n".join(f"<script>{one}</script>" for one in scripts),
    )


def study_main(study: Mapping[str, Any], *, settled: bool) -> str:
    """The main part of a study's page, in a file or live; `settled` if its pictures are already there."""
    texts = {name: study[name] for name in ("name", "goal", "state", "headline")}
    badge = study["badge"] or {"kind": "open", "words": "", "sentence": ""}
    texts |= {"badge_kind": badge["kind"], "badge_words": badge["words"], "badge_sentence": badge["sentence"]}
    raw = {"settled": " hidden" if settled else "", "badge_hidden": "" if study["badge"] else " hidden"}
    return templates.fill("study.html", raw=raw, sentences=" ".join(study["sentences"]), **texts)
