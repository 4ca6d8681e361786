"""The boundary's HTTP app.

Default deny: every route declares the capability that it needs, and one that does not cannot be registered, here or
later. Documentation pages and redirects are off; the contract itself is a route like any other.
"""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from statlib import __version__
from statlib.admin import (
    backfill_record_routes,
    backfill_routes,
    edit_routes,
    fold_routes,
    ledger_routes,
    record_routes,
    routes,
    runs,
)
from statlib.admin.answers import answer
from statlib.admin.authentication import Authentication
from statlib.admin.edge import Edge
from statlib.admin.operations import Operations
from statlib.admin.readyz import ReadyZ
from statlib.admin.requests import GuardedRoute
from statlib.admin.rules import System
from statlib.backfills.audit import BackfillRecords
from statlib.backfills.service import Backfills
from statlib.kernel.refusals import Refusal
from statlib.mongo.connection import Mongo
from statlib.passes.actions import Records
from statlib.passes.audit import MongoRecords
from statlib.passes.operations import initialise_records
from statlib.postgres.reasons import PostgresReason
from statlib.statistics.catalogue import AnyCatalogue
from statlib.statistics.hosts import Host

RULES = (
    routes.rules,
    edit_routes.rules,
    fold_routes.rules,
    ledger_routes.rules,
    runs.rules,
    record_routes.rules,
    backfill_routes.rules,
    backfill_record_routes.rules,
)


def create_app(
    host: Host, catalogue: AnyCatalogue, authentication: Authentication, backfills: Backfills | None = None
) -> FastAPI:
    """The app of one deployment. ``host`` is the registered process that carries operations out; ``backfills`` where
    the deployment has a PostgreSQL."""
    initialise_records(host.mongo)
    app = FastAPI(
        title="statlib admin boundary",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.router.route_class = GuardedRoute
    app.state.host = host
    app.state.catalogue = catalogue
    app.state.authentication = authentication
    app.state.operations = Operations(host.mongo)
    app.state.backfills = backfills
    app.state.records = partial(_records, host.mongo, backfills)
    for rules in RULES:
        rules.add_to(app)
    app.add_middleware(Edge)
    app.add_middleware(ReadyZ, host=host, backfills=backfills)
    app.add_exception_handler(HTTPException, _unrouted)
    require_guarded(app)
    return app


def _records(mongo: Mongo, backfills: Backfills | None, system: System) -> Records:
    if system is System.STATISTICS:
        return MongoRecords(mongo)
    if backfills is None:
        raise Refusal(PostgresReason.PostgresNotConfigured)
    return BackfillRecords(backfills.postgres)


def require_guarded(app: FastAPI) -> None:
    """LookupError if any route was put in past the rules."""
    for route in app.routes:
        if not isinstance(route, GuardedRoute):
            raise LookupError(  # noqa: TRY004 - what is missing is its rule
                f"{getattr(route, 'path', route)} is not guarded: declare it with Rules.route"
            )


def guarded_routes(app: FastAPI) -> list[GuardedRoute]:
    """Every route of the app."""
    require_guarded(app)
    return [route for route in app.routes if isinstance(route, GuardedRoute)]


def _unrouted(request: Request, error: Exception) -> Response:
    return answer(request, error)
