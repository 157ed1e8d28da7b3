"""What the live page answers: pages, their data, their news, and the files beside them."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import html
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

import fairway as fw
from fairway.errors import FairwayError, StorageError, UsageError
from fairway.report import content
from fairway.report.chart import Axis, Chart, Limit, Line, Panel, Points
from fairway.report.dashboard.guard import message
from fairway.report.dashboard.watch import Desk, Watch
from fairway.report.marks import Mark, Role
from fairway.report.page import asset, fill, page, plotly, study_main, style
from fairway.report.summary import duration
from fairway.report.view import STRATA, Curve, View
from fairway.text import shown

_POINTS = 600
"""Of a trial's curve, at most."""
_ROLES: tuple[Role, ...] = ("not evaluated", "valid", "invalid")  # of the strata
_YEAR = "private, max-age=31536000, immutable"
_LONG = {"Cache-Control": _YEAR}
_ASSETS: dict[str, tuple[str, Callable[[], str]]] = {
    "style.css": ("text/css", style),
    "page.js": ("text/javascript", lambda: asset("page.js")),
    "live.js": ("text/javascript", lambda: asset("live.js")),
    "plotly.js": ("text/javascript", plotly),
}


def routes(desk: Desk) -> Starlette:
    """The application, without its guard."""

    async def studies(request: Request) -> Response:
        del request
        listed = await asyncio.to_thread(desk.list)
        main = fill("studies.html", database=desk.shown)
        return _page("studies", "Studies", main, {"studies": listed})

    async def study(request: Request) -> Response:
        watch = await _watch(desk, request)
        shell = await asyncio.to_thread(watch.shell)
        main = study_main(shell["study"], settled=False)
        name = shell["study"]["name"]
        return _page("study", name, main, {"key": watch.name, **shell}, footer=content.algorithms(watch.view))

    async def trial(request: Request) -> Response:
        watch = await _watch(desk, request)
        number = _number(request, watch)
        found = await asyncio.to_thread(lambda: content.trial(watch.still(), number))
        name = shown(watch.name, 80)
        back = f"/study?name={_quoted(watch.name)}"
        crumb = f'<span class="crumb">/ <a href="{html.escape(back)}"><bdi>{html.escape(name)}</bdi></a></span>'
        near = [("Previous", number - 1, number == 0), ("Next", number + 1, bool(found["last"]))]
        links = " ".join(
            f'<a{" id=next" if label == "Next" else ""} href="{html.escape(_trial(watch.name, other))}"'
            f"{' hidden' if out else ''}>{label}</a>"
            for label, other, out in near
            if other >= 0
        )
        raw = {"study": html.escape(back), "neighbours": links}
        main = fill("trial.html", number=f"{number:,}", name=name, raw=raw)
        data = {"key": watch.name, "number": number, "trial": found}
        return _page("trial", f"Trial {number:,} of {name}", main, data, crumb=crumb)

    async def trials_json(request: Request) -> Response:
        watch = await _watch(desk, request)
        return _json(await asyncio.to_thread(lambda: _dumped(watch.trials())))

    async def charts_json(request: Request) -> Response:
        watch = await _watch(desk, request)
        return _json(await asyncio.to_thread(watch.charts, slow="slow" in request.query_params))

    async def trial_json(request: Request) -> Response:
        watch = await _watch(desk, request)
        number = _number(request, watch)
        return _json(await asyncio.to_thread(lambda: _dumped(_whole(watch.still(), number))))

    async def events(request: Request) -> Response:
        if desk.is_full:
            raise StorageError("too many pages are open at once: close some")
        if "name" in request.query_params:
            watch = await _watch(desk, request)
            last = request.headers.get("last-event-id") or request.query_params.get("last", "")
            news = desk.news(watch, last)
        else:
            news = desk.list_news()
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(news, media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        yield
        desk.close()

    answers: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/": studies,
        "/study": study,
        "/trial": trial,
        "/trials.json": trials_json,
        "/charts.json": charts_json,
        "/trial.json": trial_json,
        "/events": events,
        "/assets/{name}": _file,
    }
    return Starlette(
        routes=[Route(path, answer, methods=["GET"]) for path, answer in answers.items()],
        exception_handlers={FairwayError: _sorry, HTTPException: _sorry, Exception: _fault},
        lifespan=lifespan,
    )


async def _watch(desk: Desk, request: Request) -> Watch:
    name = request.query_params.get("name")
    if name is None:
        raise UsageError("the address names no study: start from the list of studies")
    return await asyncio.to_thread(desk.watch, name)


def _number(request: Request, watch: Watch) -> int:
    given, trials = request.query_params.get("number", ""), len(watch.view.courses)
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) < trials):  # noqa: PLR2004
        raise UsageError(f"the study {watch.name!r} has no trial {shown(given, 20)!r}; it has {trials:,}")
    return int(given)


def _sorry(request: Request, error: Exception) -> Response:
    """A sentence in place of what was asked for."""
    status = error.status_code if isinstance(error, HTTPException) else 503 if isinstance(error, StorageError) else 404
    text = shown(error, 600)
    if isinstance(error, HTTPException):
        text = "There is no such page." if status == 404 else str(error.detail)  # noqa: PLR2004
    if _is_data(request):
        return _json(_dumped({"error": text}), status)
    heading = "Not found" if status == 404 else "Not now"  # noqa: PLR2004
    return HTMLResponse(message(heading, text, _advice(text)), status)


def _fault(request: Request, error: Exception) -> Response:
    """A fault of ours; the guard tells the terminal."""
    text, what = (
        "The live page stumbled over this; what the study told is not touched by it.",
        f"{type(error).__name__}: {shown(error)}",
    )
    if _is_data(request):
        return _json(_dumped({"error": f"{text} {what}"}), 500)
    return HTMLResponse(message("Something went wrong", text, what), 500)


def _is_data(request: Request) -> bool:
    """Whether a script asks, and no reader."""
    return request.url.path.endswith(".json") or request.url.path == "/events"


def _advice(text: str) -> str:
    if "no such file" in text:
        return "Was it moved or deleted? Put it back, or start `fairway dashboard` with the file's new place."
    if "nobody has opened it" in text:
        return "It shows here as soon as a study of that name begins."
    if "has no study" in text or "no trial" in text or "no such page" in text:
        return "Go back to the list of studies: it names all there are."
    return "Load the page again in a moment; if it stays, look at the database."


def _page(kind: str, title: str, main: str, data: Any, **more: str) -> Response:
    scripts = [
        f'<script type="application/json" id="data">{content.script(data)}</script>',
        f'<script src="{_versioned("page.js")}" defer></script>',
        f'<script src="{_versioned("live.js")}" defer></script>',
    ]
    if kind != "studies":
        scripts.append(f'<script src="{_versioned("plotly.js")}" id="plotly" async></script>')
    footer = ", ".join(part for part in (f"fairway {fw.__version__}", more.pop("footer", "")) if part)
    return HTMLResponse(
        page(
            kind,
            title=f"{title} · fairway",
            main=main,
            style=f'<link rel="stylesheet" href="{_versioned("style.css")}">',
            scripts="\n".join(scripts),
            home="/",
            footer=f"{footer}. This page only reads.",
            **more,
        )
    )


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _dumped(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _trial(name: str, number: int) -> str:
    return f"/trial?name={_quoted(name)}&number={number}"


@cache
def _asset(name: str) -> tuple[str, bytes, bytes, str]:
    """A file's type, its bytes, the same packed, and a name for just these bytes."""
    kind, read = _ASSETS[name]
    body = read().encode()
    return kind, body, gzip.compress(body, 6, mtime=0), hashlib.sha256(body).hexdigest()[:16]


def _versioned(name: str) -> str:
    return f"/assets/{name}?v={_asset(name)[3]}"


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise HTTPException(404)
    kind, body, packed, mark = await asyncio.to_thread(_asset, name)
    headers = {**_LONG, "ETag": f'"{mark}"', "Vary": "Accept-Encoding"}
    if mark in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, media_type=kind, headers=headers | {"Content-Encoding": "gzip"})
    return Response(body, media_type=kind, headers=headers)


def _whole(view: View, number: int) -> dict[str, Any]:
    """One trial in full, with its curve."""
    curve = view.curves([number]).get(number)
    charts = [] if curve is None else content.charts([_curve(view, number, curve)])
    return {"trial": content.trial(view, number), "charts": charts}


def _curve(view: View, number: int, curve: Curve) -> Chart:
    """What one trial reported, by stratum: the objective, and each limit beside it."""
    problem, checkpoint = view.problem, view.courses[number].checkpoint
    thin = curve.thinned(_POINTS)
    stands = [] if checkpoint is None else [checkpoint.objective, *checkpoint.values]
    panels = []
    for i, metric in enumerate(problem.metrics):
        marks = _marks(thin, thin.values[:, i - 1] if i else thin.objective, limited=bool(problem.constraints))
        if i:
            limit = problem.constraints[i - 1]
            marks.append(Limit(limit.threshold, f"at {'most' if limit.sign > 0 else 'least'} {limit.threshold:g}"))
        at = stands[i] if stands else None
        if checkpoint is not None and at is not None:
            marks.append(Points([checkpoint.step], [at], "stands for the trial", role="best", size=13.0))
        panels.append(Panel(Axis("step", whole=True), Axis(metric), marks))
    some = (
        f"{len(thin.step):,} of its {len(curve.step):,}" if len(thin.step) < len(curve.step) else f"{len(curve.step):,}"
    )
    caption = f"{some} report{'' if len(curve.step) == 1 else 's'}, over {duration(float(curve.seconds[-1]))}."
    return Chart("curve", "Its curve", caption, panels)


def _marks(curve: Curve, values: NDArray[np.float64], *, limited: bool) -> list[Mark]:
    marks: list[Mark] = [Line(curve.step, values, width=1.0, opacity=0.5, role="not evaluated", dash="solid")]
    for stratum, name in enumerate(STRATA):
        here = curve.stratum == stratum
        if here.any():
            label, role = (name, _ROLES[stratum]) if limited else ("reported", _ROLES[1])
            marks.append(Points(curve.step[here], values[here], label, role=role, size=4.5))
    return marks
