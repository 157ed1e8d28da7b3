"""Who may ask the live page, and for what: it stands between the network and everything else.

Nothing is ever written, so GET and HEAD suffice. A site elsewhere could still make a visitor's browser ask for studies:
by a name that it points at this machine (the Host header then gives it away), or across origins (Origin and
Sec-Fetch-Site do). Whoever is not on this machine must know a token.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import ipaddress
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from fairway.report.page import fill, page, style
from fairway.text import shown

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

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
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address(host: str, port: int) -> str:
    """Where a browser finds it.

    >>> address("::1", 8321), address("0.0.0.0", 80)
    ('http://[::1]:8321', 'http://127.0.0.1')
    """
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    named = f"[{reached}]" if ":" in reached else reached
    return f"http://{named}" + ("" if port == 80 else f":{port}")  # noqa: PLR2004


class Guard:
    """Lets through what may pass, with the headers that tell a browser to be strict too."""

    def __init__(self, inner: App, *, host: str, port: int, token: str | None) -> None:
        self._inner = inner
        self._host, self._port = host.lower(), port
        self._token = token
        self._cookie = f"fairway-{port}"  # cookies do not know ports
        names = {"localhost", "127.0.0.1", "::1", self._host}
        if self._host in _WILDCARDS:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._names = names
        self._open_to_all = self._host in _WILDCARDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in there]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(strict, *refusal)
            return
        try:
            await self._inner(scope, receive, strict)
        except Exception as error:  # noqa: BLE001 - a fault of ours is a sentence too
            sys.stderr.write(f"fairway: {shown(scope['path'])}: {type(error).__name__}: {shown(error)}\n")

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[Any, ...] | None:
        """Why a request is not let through, as the parts of an answer."""
        if scope["method"] not in ("GET", "HEAD"):
            text = "This page only shows studies; nothing can be changed here."
            return 405, "Not possible", text, "", {"allow": "GET, HEAD"}
        if not self._is_ours(headers.get("host", "")):
            text = f"This server does not go by the name {shown(headers.get('host', ''), 80)!r}."
            return 400, "Not here", text, f"Open {address(self._host, self._port)} instead."
        if self._is_foreign(headers):
            return 403, "Not from there", "Another site asked for this; only this page's own requests are answered.", ""
        if self._token is None or scope["path"].startswith("/assets/"):  # there is nothing of a study in those
            return None
        return self._unknown(scope, headers, self._token)

    def _is_ours(self, host: str) -> bool:
        name, port = _split(host.lower())
        if port != self._port:
            return False
        return name in self._names or self._open_to_all and _is_number(name)  # a number cannot be pointed elsewhere

    def _is_foreign(self, headers: dict[str, str]) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin.lower() != f"http://{headers.get('host', '').lower()}":
            return True
        if site in (None, "same-origin", "none"):
            return False
        return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")

    def _unknown(self, scope: Scope, headers: dict[str, str], token: str) -> tuple[Any, ...] | None:
        """An answer for whoever has not shown the token yet."""
        pass_ = hmac.new(token.encode(), b"fairway dashboard", hashlib.sha256).hexdigest()
        if any(_same(value, pass_) for value in _cookies(headers.get("cookie", ""), self._cookie)):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), "")
        if not _same(given, token):
            text = "This page asks for a token." if not given else "That is not the token of this page."
            return 401, "Who is there?", text, "Open the whole address that `fairway dashboard` printed."
        rest = urlencode([(name, value) for name, value in query if name != "token"], quote_via=quote)
        cookie = f"{self._cookie}={pass_}; HttpOnly; SameSite=Strict; Path=/"
        # A page that goes on by itself, and no redirect: browsers send strict cookies only where the site itself leads.
        return 200, quote(scope["path"]) + (f"?{rest}" if rest else ""), None, "", {"set-cookie": cookie}


async def _answer(
    send: Send, status: int, heading: str, text: str | None, advice: str, more: dict[str, str] | None = None
) -> None:
    body = message(heading, text, advice) if text is not None else _onward(heading)
    headers = {"content-type": "text/html; charset=utf-8", "content-length": str(len(body)), **(more or {})}
    start = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def message(heading: str, text: str, advice: str = "") -> bytes:
    """A page that says one thing, and needs no other file for it."""
    main = fill("message.html", heading=heading, text=text, advice=advice)
    sheet = f"<style>{style()}</style>"
    return page("message", title=f"{heading}: fairway", main=main, style=sheet, scripts="", home="/").encode()


def _onward(path: str) -> bytes:
    safe = html.escape("/" + path.lstrip("/"))  # or it would lead to another server
    head = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={safe}">'
    return f'{head}<title>fairway</title><p><a href="{safe}">Go on</a></p>'.encode()


def _split(host: str) -> tuple[str, int]:
    """A Host header's name and port; a port that is none is -1.

    >>> _split("[::1]:8321"), _split("localhost"), _split("a:b")
    (('::1', 8321), ('localhost', 80), ('a', -1))
    """
    name, colon, port = (host, "", "") if host.endswith("]") else host.rpartition(":")
    if not colon:
        name, port = host, "80"
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else -1  # noqa: PLR2004
    return name.removeprefix("[").removesuffix("]"), number


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookies(header: str, name: str) -> list[str]:
    """The values of a cookie; servers at other ports set theirs beside it, and no rule of theirs may spoil ours.

    >>> _cookies('other={"a": 1}; fairway-1=x', "fairway-1")
    ['x']
    """
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for key, _, value in pairs if key == name]


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
