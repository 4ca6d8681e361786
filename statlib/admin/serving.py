"""Serving the app: in a background thread on a loopback port, or as a process of its own."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from statlib.admin.operations import Operations
from statlib.admin.reasons import TokenReason
from statlib.kernel.refusals import Fault, Refusal, SettingsReason

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20  # whole seconds; longer than an operation takes to come to its next step
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, and how transport is protected there. ``port`` 0: any free one."""

    host: str = LOOPBACK
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False

    def require_safe(self) -> None:
        """Refuses PublicWithoutTls, and InputUnreadable for a certificate or key that is not there."""
        if (self.certificate is None) != (self.key is None):
            raise Refusal(TokenReason.PublicWithoutTls, "a certificate and its key go together")
        for path in (self.certificate, self.key):
            if path is not None and not path.is_file():
                raise Refusal(SettingsReason.InputUnreadable, f"{path} is no file")
        if not (self.certificate or self.behind_proxy or _is_loopback(self.host)):
            raise Refusal(TokenReason.PublicWithoutTls, f"{self.host} is not loopback")


@contextmanager
def in_background(app: FastAPI) -> Iterator[str]:
    """Serve on a free loopback port until the block ends; the address. The socket is bound first: it cannot be lost."""
    listener = _bound(Address())
    server = _Server(_config(app, Address()), app.state.operations)
    thread = threading.Thread(target=server.run, args=([listener],), name="statlib-admin", daemon=True)
    thread.start()
    try:
        if not server.up.wait(START_TIMEOUT_S):
            raise Fault("the embedded boundary did not start", remedy="Look at the messages above.")
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(START_TIMEOUT_S + STOP_TIMEOUT_S)
        listener.close()


def in_foreground(app: FastAPI, address: Address, *, listening: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; operations under way are told to stop. ``listening`` is told the address."""
    address.require_safe()
    listener = _bound(address)
    scheme = "https" if address.certificate else "http"
    shown = f"[{address.host}]" if ":" in address.host else address.host
    server = _Foreground(_config(app, address), app.state.operations)
    server.when_up = lambda: listening(f"{scheme}://{shown}:{listener.getsockname()[1]}")
    try:
        server.run([listener])
    finally:
        listener.close()


def _config(app: FastAPI, address: Address) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing is decided by a client's address, so nobody's word for it is needed
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )


class _Foreground(uvicorn.Server):
    """Tells operations to stop before it waits for their requests to end."""

    def __init__(self, config: uvicorn.Config, operations: Operations) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self.when_up: Callable[[], None] | None = None
        self._operations = operations

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()
        if self.when_up is not None:
            self.when_up()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn raises what it caught again once it has stopped, which would end the process before its host record
        # is taken back.
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._operations.cancel_all()
        await super().shutdown(sockets)


class _Server(_Foreground):
    """Leaves the process's signals alone: they belong to the notebook."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bound(address: Address) -> socket.socket:
    try:
        (family, _, _, _, target), *_ = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        listener = socket.socket(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(target)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise Fault(
            f"cannot listen on {address.host}, port {address.port}",
            remedy="Choose another --host or --port; see what listens there.",
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
