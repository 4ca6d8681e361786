"""The boundary of a deployment: the one that the settings name, or the same app in a background thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from statlib.admin.app import create_app
from statlib.admin.authentication import Authentication, authentication_of
from statlib.admin.client import AdminClient
from statlib.admin.serving import Address, in_background, in_foreground
from statlib.admin.tokens import TOKEN_FILE, Tokens, embedded_token
from statlib.backfills.registry import Registry, installed
from statlib.backfills.service import Backfills, opened
from statlib.kernel.settings import Settings
from statlib.mongo.connection import connected
from statlib.mongo.probe import probe
from statlib.statistics import storage
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.hosts import Host, Role, registered


@contextmanager
def boundary(
    settings: Settings, catalogue: AnyCatalogue, *, run: str = "", registry: Registry | None = None
) -> Iterator[AdminClient]:
    """A client of the deployment's boundary, or, where ``admin.url`` is empty, of an embedded one for this block.

    ``run`` names the runbook's run that every call belongs to; ``registry`` are the backfills that an embedded boundary
    knows, by default the installed ones. Nothing of an embedded boundary outlives the block:
    no thread, no socket, no host record.
    """
    if settings.admin.url:
        with AdminClient(settings.admin.url, settings.admin.token.get_secret_value(), run=run) as client:
            yield client
        return
    with _acting(settings, catalogue) as host, _backfills(settings, registry) as backfills:
        token = embedded_token(settings.data_dir)
        authentication = Authentication((Tokens(settings.data_dir / TOKEN_FILE),))
        app = create_app(host, catalogue, authentication, backfills)
        with in_background(app) as url, AdminClient(url, token, run=run) as client:
            yield client


def serve(settings: Settings, catalogue: AnyCatalogue, address: Address, *, listening: Callable[[str], None]) -> None:
    """Be the deployment's boundary until SIGINT or SIGTERM. Refuses PublicWithoutTls before anything is opened."""
    address.require_safe()
    with _acting(settings, catalogue) as host, _backfills(settings, None) as backfills:
        app = create_app(host, catalogue, authentication_of(settings), backfills)
        in_foreground(app, address, listening=listening)


@contextmanager
def _backfills(settings: Settings, registry: Registry | None) -> Iterator[Backfills | None]:
    """Nothing where no PostgreSQL is configured: then the boundary refuses those routes, typed."""
    with ExitStack() as stack:
        if settings.postgres.url.get_secret_value():
            known = installed() if registry is None else registry
            yield stack.enter_context(opened(settings, known, app_name="statlib-admin"))
        else:
            yield None


@contextmanager
def _acting(settings: Settings, catalogue: AnyCatalogue) -> Iterator[Host]:
    with connected(settings, app_name="statlib-admin") as mongo:
        probe(mongo)
        storage.initialise(mongo, catalogue)
        with registered(mongo, Role.PROJECT_MANAGEMENT) as host:
            yield host
