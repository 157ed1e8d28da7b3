"""Who may ask the live page, and for what: it stands between the network and everything else.

Nothing is ever written, so GET and HEAD suffice. A site elsewhere could still make a visitor's browser ask for studies:
by a name that it points at this machine (the Host header then gives it away), or across origins (Origin and
Sec-Fetch-Site do). Whoever is not on this machine must know a token.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
import sys
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairway.report.templates import fill, message
from fairway.text import shown

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
        "img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_HTTP = 80  # the port that a browser leaves out
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where others listen on, and how oneself gets there


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    return host == "localhost" or _is_number(host) and ipaddress.ip_address(host).is_loopback


def address(host: str, port: int) -> str:
    """Where a browser finds it.

    >>> address("::1", 8321), address("0.0.0.0", 80)
    ('http://[::1]:8321', 'http://127.0.0.1')
    """
    reached = _WILDCARDS.get(host, host)
    named = f"[{reached}]" if ":" in reached else reached
    return f"http://{named}" + ("" if port == _HTTP else f":{port}")


class Guard:
    """Lets allowed requests through, and adds the headers that make a browser strict."""

    def __init__(self, inner: ASGIApp, *, host: str, port: int, token: str | None) -> None:
        self._inner, self._token = inner, token
        self._host, self._port = host.lower(), port
        self._cookie = f"fairway-{port}"  # cookies do not know ports
        self._open_to_all = self._host in _WILDCARDS
        self._names = {"localhost", "127.0.0.1", "::1", self._host}
        if self._open_to_all:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    @property
    def entrance(self) -> str:
        """The address to open, with the token if there is one."""
        query = "" if self._token is None else f"?token={quote(self._token, safe='')}"
        return f"{address(self._host, self._port)}/{query}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await refusal(scope, receive, strict)
            return
        try:
            await self._inner(scope, receive, strict)
        except Exception as error:  # noqa: BLE001 - a fault of ours is a sentence too
            sys.stderr.write(f"fairway: {shown(scope['path'])}: {type(error).__name__}: {shown(error)}\n")

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that is not let through."""
        host = request.headers.get("host", "")
        if request.method not in ("GET", "HEAD"):
            text = "This page only shows studies; nothing can be changed here."
            return HTMLResponse(message("Not possible", text), 405, {"allow": "GET, HEAD"})
        if not self._is_ours(host):
            text = f"This server does not have the name {shown(host, 80)!r}."
            return HTMLResponse(message("Not here", text, f"Open {address(self._host, self._port)} instead."), 400)
        if _is_foreign(request.headers):
            text = "Another site asked for this; only this page's own requests are answered."
            return HTMLResponse(message("Not from there", text), 403)
        if self._token is None or request.url.path.startswith("/assets/"):  # there is nothing of a study in those
            return None
        return self._unknown(request, self._token)

    def _is_ours(self, host: str) -> bool:
        host = host.lower()
        name = host.removesuffix(f":{self._port}")
        if name == host and self._port != _HTTP:
            return False
        name = name.removeprefix("[").removesuffix("]")
        return name in self._names or self._open_to_all and _is_number(name)  # a number cannot be pointed elsewhere

    def _unknown(self, request: Request, token: str) -> Response | None:
        """The answer to a request without a valid cookie; None if the cookie is valid."""
        pass_ = hmac.new(token.encode(), b"fairway dashboard", hashlib.sha256).hexdigest()
        if _same(request.cookies.get(self._cookie, ""), pass_):
            return None
        given = request.query_params.get("token", "")
        if not _same(given, token):
            text = "This page asks for a token." if not given else "That is not the token of this page."
            advice = "Open the whole address that `fairway dashboard` printed."
            return HTMLResponse(message("Who is there?", text, advice), 401)
        path = "/" + quote(request.scope["path"]).lstrip("/")  # two slashes would lead to another server
        rest = request.url.remove_query_params("token").query
        onward = fill("onward.html", path=f"{path}?{rest}" if rest else path)
        cookie = f"{self._cookie}={pass_}; HttpOnly; SameSite=Strict; Path=/"
        # A page that moves on by itself, not a redirect: browsers send strict cookies only where the site itself leads.
        return HTMLResponse(onward, headers={"set-cookie": cookie})


def _is_foreign(headers: Headers) -> bool:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin.lower() != f"http://{headers.get('host', '').lower()}":
        return True
    if site in (None, "same-origin", "none"):
        return False
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
