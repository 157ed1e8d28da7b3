"""The live page: studies as they run, in a browser, read-only."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from typing import Any

from fairway.errors import MissingDependency, UsageError
from fairway.report.templates import plotly

_PORT = 8321


def app(url: str, *, token: str | None = None, host: str = "127.0.0.1", port: int = _PORT) -> Any:
    """The live page of the studies at a URL as an ASGI application, for your own server.

    It answers only to the names localhost, 127.0.0.1, [::1] and `host`, with that port, and with a `token` only to
    whoever shows it.

    >>> import tempfile
    >>> import fairway as fw
    >>> from fairway.report import dashboard
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     url = f"sqlite:///{folder}/credit.db"
    ...     study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), storage=url, name="credit", seed=0)
    ...     callable(dashboard.app(url))
    True
    """
    return _guarded(url, token, host, port)[0]


def serve(
    url: str,
    host: str = "127.0.0.1",
    port: int = _PORT,
    *,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Show the studies at a URL until Ctrl-C; `ready` is called with the address to open.

    Where others can reach it, which is anywhere but on the loopback, a token is required; one is made if none is given.
    """
    try:
        import uvicorn  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingDependency("the live page needs uvicorn: pip install 'fairway[report]'") from None
    with _listening(host, port) as listener:
        port = listener.getsockname()[1]
        guard, desk = _guarded(url, token, host, port, public=True)

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                desk.close()  # or it would wait for browsers that follow a study
                await super().shutdown(sockets)

        config = uvicorn.Config(
            guard,
            http="h11",
            ws="none",
            log_config=None,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=1 << 20,  # names of studies may be long
        )
        if ready is not None:
            ready(guard.entrance)
        try:
            Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            return


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:  # noqa: PLR2004
        raise UsageError(f"--port {port}: a number from 0 to 65535 is expected")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"--host {host!r}: there is no such address on this machine") from None
    except PermissionError:
        raise UsageError(f"--port {port}: a port above 1023 is expected, such as --port {_PORT}") from None
    except OSError as error:
        if "in use" in str(error):
            raise UsageError(f"port {port} is taken: choose another, such as --port {port % 65535 + 1}") from None
        raise UsageError(f"--host {host!r}, --port {port}: {error.strerror or error}") from None


def _guarded(url: str, token: str | None, host: str, port: int, *, public: bool = False) -> tuple[Any, Any]:
    """The application and its desk; makes a token if the `public` could reach the page."""
    try:
        from fairway.report.dashboard.desk import Desk  # noqa: PLC0415 - optional
        from fairway.report.dashboard.guard import Guard, is_loopback  # noqa: PLC0415
        from fairway.report.dashboard.pages import routes  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "starlette":
            raise
        raise MissingDependency("the live page needs starlette: pip install 'fairway[report]'") from None
    if token is not None and not (token and token.isprintable()):
        raise UsageError(f"--token {token!r}: one or more printable characters are expected")
    if token is None and public and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    plotly()  # or say now that it is missing
    desk = Desk(url)
    return Guard(routes(desk), host=host, port=port, token=token), desk
