"""What the live page answers: pages, their data, their news, and the files beside them.

Answers are plain functions, which Starlette runs in threads: a slow database makes nobody else wait.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import fairway as fw
from fairway.errors import FairwayError, StorageError, UsageError
from fairway.report import content, templates
from fairway.report.charts.curves import one_curve
from fairway.report.dashboard.desk import Desk
from fairway.report.dashboard.watch import Watch
from fairway.report.page import study_main
from fairway.report.templates import compact, fill, message
from fairway.text import shown

_SCRIPTS = ("explore.js", "page.js", "live.js")
_ASSETS = dict.fromkeys((*_SCRIPTS, "plotly.js"), "text/javascript") | {"style.css": "text/css"}


_LIST = "Go back to the list of studies: it names all there are."
_ADVICE = {  # by a part of what went wrong; every text holds the last one
    "no such file": "Was it moved or deleted? Put it back, or start `fairway dashboard` with its new path.",
    "nobody has opened it": "It shows here as soon as a study of that name begins.",
    "has no study": _LIST,
    "no trial": _LIST,
    "no such page": _LIST,
    "": "Load the page again in a moment; if the problem stays, look at the database.",
}


def routes(desk: Desk) -> Starlette:
    """The application, without its guard."""

    def watched(request: Request) -> Watch:
        name = request.query_params.get("name")
        if name is None:
            raise UsageError("the address names no study: start from the list of studies")
        return desk.watch(name)

    def studies(request: Request) -> Response:
        del request
        return _page("studies", "Studies", fill("studies.html", database=desk.shown), {"studies": desk.studies()})

    def study(request: Request) -> Response:
        watch = watched(request)
        shell = watch.shell()
        main = study_main(shell["study"], settled=False)
        data = {"key": watch.name, **shell}
        return _page("study", shell["study"]["name"], main, data, footer=content.algorithms(watch.view))

    def trial(request: Request) -> Response:
        watch = watched(request)
        k, name, key = _number(request, watch), shown(watch.name, 80), quote(watch.name, safe="")
        found, back, other = content.trial(watch.view.still(), k), f"/study?name={key}", f"/trial?name={key}&number="
        links = {"previous": f"{other}{max(k - 1, 0)}", "next": f"{other}{k + 1}"}
        raw = {"first": " hidden" if k == 0 else "", "last": " hidden" if found["last"] else ""}
        main = fill("trial.html", raw=raw, number=f"{k:,}", name=name, study=back, **links)
        data = {"key": watch.name, "number": k, "trial": found}
        return _page("trial", f"Trial {k:,} of {name}", main, data, crumb=fill("crumb.html", study=back, name=name))

    def trial_json(request: Request) -> Response:
        watch = watched(request)
        view, k = watch.view.still(), _number(request, watch)
        return _json(compact({"trial": content.trial(view, k), "charts": content.charts(one_curve(view, k))}))

    def events(request: Request) -> Response:
        watch = watched(request) if "name" in request.query_params else None
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        last = request.headers.get("last-event-id") or request.query_params.get("last", "")
        return _News(desk, desk.news() if watch is None else watch.news(last))

    answers: dict[str, Callable[[Request], Response]] = {
        "/": studies,
        "/study": study,
        "/trial": trial,
        "/trials.json": lambda request: _json(compact(watched(request).trials())),
        "/charts.json": lambda request: _json(watched(request).charts(slow="slow" in request.query_params)),
        "/trial.json": trial_json,
        "/events": events,
        "/assets/{name}": _file,
    }
    return Starlette(
        routes=[Route(path, answer, methods=["GET"]) for path, answer in answers.items()],
        exception_handlers={FairwayError: _sorry, HTTPException: _sorry, Exception: _sorry},
    )


class _News(StreamingResponse):
    """News for one browser, if there is a seat left."""

    def __init__(self, desk: Desk, news: AsyncIterator[str]) -> None:
        super().__init__(news, media_type="text/event-stream")
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._desk.seat():
            await super().__call__(scope, receive, send)


def _number(request: Request, watch: Watch) -> int:
    given, trials = request.query_params.get("number", ""), len(watch.view.courses)
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) < trials):  # noqa: PLR2004
        raise UsageError(f"the study {watch.name!r} has no trial {shown(given, 20)!r}; it has {trials:,}")
    return int(given)


def _sorry(request: Request, error: Exception) -> Response:
    """A sentence in place of the answer; for a bug of ours the guard also writes to the terminal."""
    text, status, heading = shown(error, 600), 404, "Not found"
    if isinstance(error, HTTPException):
        status, text = error.status_code, "There is no such page." if error.status_code == status else error.detail
    elif isinstance(error, StorageError):
        status, heading = 503, "Not now"
    elif not isinstance(error, FairwayError):
        what = f"{type(error).__name__}: {text}"
        status, heading, text = 500, "Something went wrong", f"The live page failed; the study is not affected. {what}"
    if request.url.path.endswith(".json") or request.url.path == "/events":  # for a script
        return _json(compact({"error": text}), status)
    advice = next((advice for part, advice in _ADVICE.items() if part in text), "")
    return HTMLResponse(message(heading, text, advice), status)


def _page(kind: str, title: str, main: str, data: Any, *, footer: str = "", crumb: str = "") -> Response:
    scripts = [f'<script src="{_versioned(name)}" defer></script>' for name in _SCRIPTS]
    if kind != "studies":
        scripts.append(f'<script src="{_versioned("plotly.js")}" id="plotly" async></script>')
    page = templates.page(
        kind,
        main,
        title=f"{title} · fairway",
        data=data,
        footer=f"{', '.join(filter(None, (f'fairway {fw.__version__}', footer)))}. This page only reads.",
        style=f'<link rel="stylesheet" href="{_versioned("style.css")}">',
        scripts="\n".join(scripts),
        crumb=crumb,
    )
    return HTMLResponse(page)


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


@cache
def _asset(name: str) -> tuple[bytes, bytes, str]:
    """A file's bytes, the same compressed, and their hash."""
    body = (templates.plotly() if name == "plotly.js" else templates.asset(name)).encode()
    return body, gzip.compress(body, 6, mtime=0), hashlib.sha256(body).hexdigest()[:16]


def _versioned(name: str) -> str:
    return f"/assets/{name}?v={_asset(name)[2]}"


def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise HTTPException(404)
    body, packed, mark = _asset(name)
    headers = {"Cache-Control": "private, max-age=31536000, immutable", "ETag": f'"{mark}"', "Vary": "Accept-Encoding"}
    if mark in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = packed, "gzip"
    return Response(body, media_type=_ASSETS[name], headers=headers)
