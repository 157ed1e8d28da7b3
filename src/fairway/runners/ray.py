"""Workers that are Ray actors, on this machine or anywhere in a cluster.

Ray places them, counts their resources and notices when they die. Each talks to the owner by its own connection, as
processes do: a batch costs microseconds there, and most of a millisecond as a call of an actor. Both sides of a
connection prove that they know a key, which is sent with the actor.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import struct
import time
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from fairway.checks import is_number
from fairway.engine.durability import NEWS_SECONDS
from fairway.engine.owner import Owner
from fairway.errors import MissingDependency, StudyFailed, UsageError
from fairway.logs import logger
from fairway.runners import worker
from fairway.runners.exchange import Exchange
from fairway.runners.remote import RemoteHand
from fairway.runners.run import Run

try:
    import ray
except ImportError:
    raise MissingDependency("backend='ray' needs Ray: pip install 'fairway[ray]'") from None

_CALL_SECONDS = 3.0  # for a cluster to answer at its address
_ROOM_SECONDS = 10.0  # before a warning that a worker waits for room
_ACCEPT_SECONDS = 60.0  # for an owner to connect, which knows the address by then
_PROOF_SECONDS = 5.0  # for a peer to prove that it knows the key
_SILENT_MS = 30_000  # before a peer that acknowledges nothing counts as dead
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


class Cluster:
    """The Ray cluster of one run, and the resources that each worker needs."""

    def __init__(self, address: str | None, resources: Mapping[str, float] | None, function: bytes) -> None:
        self.resources = dict(resources) if isinstance(resources, Mapping) else {"CPU": 1}
        odd = [name for name, amount in self.resources.items() if not is_number(amount) or amount < 0]
        if odd or not isinstance(resources, Mapping | None):
            raise UsageError(f"resources={resources!r}: amounts by name are expected, as in {{'CPU': 1, 'GPU': 0.25}}")
        own = _connect(address)
        wanted = self.resources.items()
        if own and not any(all(n <= node["Resources"].get(name, 0) for name, n in wanted) for node in ray.nodes()):
            raise UsageError(f"resources={self.resources}: this machine has {_readable(ray.cluster_resources())}")
        self.function = ray.put(function)  # once for each machine, however many workers it has
        options: dict[str, Any] = {_OPTIONS[name]: n for name, n in self.resources.items() if name in _OPTIONS}
        others = {name: amount for name, amount in self.resources.items() if name not in _OPTIONS}
        self.actors = ray.remote(_Actor).options(**{"num_cpus": 0, **options}, resources=others, max_restarts=0)


def _connect(address: str | None) -> bool:
    """Connect to the cluster at the address, to the one at hand, or to one started here; True if it was started."""
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        (host, _, port), (own, _, own_port) = (address or here).rpartition(":"), here.rpartition(":")
        if address not in (None, "auto") and (port != own_port or host not in (own, "localhost", "127.0.0.1")):
            raise UsageError(
                f"address={address!r}: this process is connected to {here}; leave address= out, or call ray.shutdown()"
            )
        return False
    named = "address=" if address else "RAY_ADDRESS="
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address is not None and address.startswith("ray://"):
        raise UsageError(
            f"{named}{address!r}: the study's own process must reach the workers, which a Ray client does not; run "
            "the script on a machine of the cluster, or as a Ray job"
        )
    if address is not None and ":" in address:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CALL_SECONDS).close()
        except (OSError, ValueError) as error:  # Ray itself would try for minutes, and then end this process
            raise UsageError(f"{named}{address!r}: there is no Ray cluster ({error})") from None
    try:
        ray.init(address=address, include_dashboard=None if address else False, logging_level="WARNING")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"{named}{address!r}: {error}") from error
    return address is None


def _readable(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(resources.items()) if ":" not in name) or "nothing"


class RayHand(RemoteHand):
    """Runs trials in an actor of its own."""

    kind = "a Ray worker"
    deaths = 3

    def __init__(self, owner: Owner, run: Run, exchange: Exchange, cluster: Cluster) -> None:
        super().__init__(owner, run, exchange)
        self._cluster = cluster
        self._actor: Any = None
        self._serving: Any = None  # resolves when the actor ends, well or not

    def _launch(self) -> Connection | None:
        key = secrets.token_bytes(32)
        self._actor = self._cluster.actors.remote(key)
        place = self._actor.listen.remote()
        began, told = time.monotonic(), False
        while not ray.wait([place], timeout=NEWS_SECONDS)[0]:
            if not self._run.continues:
                return None
            if not told and time.monotonic() - began > _ROOM_SECONDS:
                told = True
                room = _readable(ray.available_resources())
                logger.warning("a worker waits for %s; free are %s", _readable(self._cluster.resources), room)
        try:
            address = ray.get(place)
        except ray.exceptions.RayActorError as error:
            raise EOFError(_how(error)) from error
        except ray.exceptions.RayError as error:
            raise StudyFailed(f"a Ray worker could not be started ({_how(error)})") from error
        self._serving = self._actor.serve.remote(self._cluster.function)
        try:
            line = socket.create_connection(address, _CALL_SECONDS)
            return _proven(line, key, asks_first=False)
        except AuthenticationError as error:
            raise StudyFailed(f"somebody else answers at {address} ({error})") from error

    def _is_gone(self) -> bool:
        return self._serving is None or bool(ray.wait([self._serving], timeout=0)[0])

    def _interrupt(self) -> None:
        assert self._connection is not None
        with _socket(self._connection) as line:
            line.shutdown(socket.SHUT_RDWR)  # a worker without an owner interrupts its trial

    def abandon(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)

    def _clear(self, patience: float) -> str:
        actor, serving = self._actor, self._serving
        self._actor = self._serving = None
        how = "" if serving is None else "its connection broke"
        if serving is not None:
            try:
                ray.get(serving, timeout=patience)
            except ray.exceptions.GetTimeoutError:
                pass
            except ray.exceptions.RayError as error:
                how = _how(error)
        if actor is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(actor)
        return how


def _how(error: Exception) -> str:
    """How an actor ended, from Ray's long message."""
    text = str(error)
    found = re.search(r"because (.+?)(?:\.\s|\.?$)", text, re.MULTILINE)
    return found[1] if found else (text.strip().splitlines() or [type(error).__name__])[-1]


class _Actor:
    """The worker that runs inside Ray."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def listen(self) -> tuple[str, int]:
        """Listen for the owner at an address of this machine that the cluster knows."""
        self._listener = socket.create_server((ray.util.get_node_ip_address(), 0))
        host, port = self._listener.getsockname()
        return str(host), int(port)

    def serve(self, function: bytes) -> None:
        """Run trials until the owner has no more."""
        with self._listener:
            connection = accept(self._listener, self._key)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            worker.serve(connection, function, alone=False)
        finally:
            signal.signal(signal.SIGTERM, before)
            connection.close()


def accept(listener: socket.socket, key: bytes, seconds: float = _ACCEPT_SECONDS) -> Connection:
    """The first connection from a peer that knows the key; others are dropped, and the wait is limited."""
    deadline = time.monotonic() + seconds
    while True:
        listener.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            line, _ = listener.accept()
        except TimeoutError:
            raise TimeoutError(f"no owner connected within {seconds:g} s") from None
        with contextlib.suppress(AuthenticationError, OSError, EOFError):  # of a stranger
            return _proven(line, key, asks_first=True)


def _proven(line: socket.socket, key: bytes, *, asks_first: bool) -> Connection:
    """A connection both of whose sides have proved that they know the key."""
    line.settimeout(None)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(_PROOF_SECONDS), 0))
    connection = Connection(line.detach())
    try:
        for prove in (deliver_challenge, answer_challenge) if asks_first else (answer_challenge, deliver_challenge):
            prove(connection, key)
        _tune(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _socket(connection: Connection) -> socket.socket:
    """The socket of a connection, for its settings; closing it leaves the connection open."""
    return socket.socket(fileno=os.dup(connection.fileno()))


def _tune(connection: Connection) -> None:
    """Send small messages at once; notice a machine that vanished silently."""
    with _socket(connection) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)
