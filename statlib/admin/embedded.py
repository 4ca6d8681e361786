"""The embedded boundary: the same app, in a background thread, on a loopback port of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from statlib.admin.app import create_app
from statlib.admin.client import AdminClient
from statlib.admin.tokens import TOKEN_FILE, Tokens, embedded_token
from statlib.kernel.refusals import Fault
from statlib.kernel.settings import Settings
from statlib.mongo.connection import connected
from statlib.mongo.probe import probe
from statlib.statistics import storage
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.hosts import Role, registered

START_TIMEOUT_S = 20.0


@contextmanager
def boundary(settings: Settings, catalogue: AnyCatalogue) -> Iterator[AdminClient]:
    """A client of the deployment's boundary, or, where ``admin.url`` is empty, of an embedded one for this block."""
    if settings.admin.url:
        with AdminClient(settings.admin.url, settings.admin.token.get_secret_value()) as client:
            yield client
        return
    with connected(settings, app_name="statlib-admin") as mongo:
        probe(mongo)
        storage.initialise(mongo, catalogue)
        token = embedded_token(settings.data_dir)
        tokens = Tokens(settings.data_dir / TOKEN_FILE)
        with (
            registered(mongo, Role.PROJECT_MANAGEMENT) as host,
            _serving(uvicorn.Config(create_app(host, catalogue, tokens), log_level="warning", access_log=False)) as url,
            AdminClient(url, token) as client,
        ):
            yield client


@contextmanager
def _serving(config: uvicorn.Config) -> Iterator[str]:
    """Listen on a free loopback port until the block ends. The socket is bound first: the port cannot be lost."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = _Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="statlib-admin", daemon=True)
    thread.start()
    try:
        if not server.up.wait(START_TIMEOUT_S):
            raise Fault("the embedded boundary did not start", remedy="Look at the messages above.")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(START_TIMEOUT_S)
        listener.close()


class _Server(uvicorn.Server):
    """Says when it is up, and leaves the process's signals alone: they belong to the notebook."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
